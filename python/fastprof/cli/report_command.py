"""``fastprof report``: show a saved run, or write it in another format."""

import argparse
import sys
from collections.abc import Sequence

from fastprof.cli.exit_hooks import complain
from fastprof.cli.from_outside import now_of
from fastprof.cli.output import add_format, chosen_format, standard_output, write_text
from fastprof.cli.parsing import Parser, nearest
from fastprof.cli.part import add_part, chosen_part
from fastprof.cli.summary import next_lines
from fastprof.export import collapsed
from fastprof.fileio import atomic_write, resolve_output
from fastprof.findings.checklist import checklist_lines
from fastprof.names import printable
from fastprof.render import formats, terminal
from fastprof.render.plain import plain
from fastprof.report.figures import size as written_size
from fastprof.report.run_phases import ALL
from fastprof.results.report import Report
from fastprof.results.saved import load
from fastprof.snapshot.run_phases import RUN_PHASES
from fastprof.tables.findings import all_findings
from fastprof.tables.layout import PIPED, width_of
from fastprof.tables.section import section_blocks

_FORMATS = tuple(item.name for item in formats.FORMATS)


def run(argv: Sequence[str]) -> int:
    """Show or convert the saved run that ``argv`` names."""
    parser = Parser(
        prog="fastprof report", description="Show a saved run, or write it in another format."
    )
    parser.add_argument(
        "file",
        metavar="F|PID|DIR",
        help="a saved run: .fprof, or .stats of any profiler; a folder is its newest run. The "
        "number of a running process, or the folder of its files: the run so far, which that "
        "process writes now, and goes on",
    )
    parser.add_argument("--full", action="store_true", help="all tables instead of one screen")
    parser.add_argument(
        "--phase",
        metavar="NAME",
        help="functions, sections and GPU work of this phase of the run: setup, warmup, steps "
        "(default), validation, checkpoint, outside, or all",
    )
    parser.add_argument("--section", metavar="NAME", help="show only this section and its contents")
    add_part(parser)
    add_format(parser, _FORMATS)
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="with CSV: functions (default), sections, step_sections, steps, kernels or loaders",
    )
    parser.add_argument(
        "--raw", action="store_true", help="do not subtract the profiler's own cost"
    )
    parser.add_argument(
        "--findings",
        action="store_true",
        help="print only the findings, in full, and the rules that could not be checked",
    )
    parser.add_argument(
        "--checklist",
        action="store_true",
        help="print only a checklist of seven questions, answered yes, no or n/a",
    )
    parser.add_argument(
        "--min-percent",
        type=float,
        metavar="P",
        help="with collapsed stacks: add contexts of less than P %% of the time to their callers "
        "(default: 0; more if the file would exceed 100 MB)",
    )
    options = parser.parse_args(argv)
    _check(options)
    advice = options.findings or options.checklist
    if advice and (options.table is not None or options.format not in (None, "text")):
        raise ValueError("--findings and --checklist print text; leave out --table and --format")
    report = load(now_of(options.file) or options.file, correct_times=not options.raw)
    report = chosen_part(report, options)
    if options.phase is not None:
        report = in_phase(report, options.phase)
    if options.section is not None:
        _write_section(report, options)
    elif advice:
        write_text("\n".join(_advice(report, options)) + "\n", options.output)
    elif options.table is not None:
        _write_table(report, options)
    elif options.output is not None:
        _write_file(report, options)
    else:
        _write_terminal(report, options)
    return 0


def _advice(report: Report, options: argparse.Namespace) -> list[str]:
    width = PIPED if options.output is not None else width_of(sys.stdout)
    lines = plain(all_findings(report), width) if options.findings else []
    if options.checklist:
        lines += [*([""] if lines else []), *checklist_lines(report)]
    return lines


def in_phase(report: Report, phase: str) -> Report:
    """Return the report on a phase of the run.

    Raises:
        ValueError: there is no such phase, or it is empty.
    """
    known = [*RUN_PHASES, ALL]
    if phase not in known:
        there = f"There are {', '.join(known)}."
        raise ValueError(f"no phase {phase!r:.80}{nearest(phase, known)} {there}")
    return report.in_phase(phase)


def _check(options: argparse.Namespace) -> None:
    """Refuse contradictory options.

    Raises:
        ValueError: two options contradict each other; the message names them.
    """
    if options.section is not None and options.format not in (None, "text"):
        raise ValueError("--section prints text; leave out --format")
    least = options.min_percent
    if least is not None and chosen_format(options, _FORMATS) != "collapsed":
        raise ValueError("--min-percent requires collapsed stacks; use -o FILE.collapsed")
    if least is not None and not 0 <= least <= 100:
        raise ValueError(f"--min-percent is {least:g}, expected 0 to 100")


def _write_section(report: Report, options: argparse.Namespace) -> None:
    width = PIPED if options.output is not None else width_of(sys.stdout)
    lines = plain(section_blocks(report, options.section), width)
    write_text("\n".join(lines) + "\n", options.output)


def _write_file(report: Report, options: argparse.Namespace) -> None:
    item = formats.format_named(chosen_format(options, _FORMATS))
    with atomic_write(resolve_output(options.output)) as stream:
        formats.write(report, item, stream, **_limits(report, item.name, options))
    write_text(f"Wrote {printable(options.output)}\n")


def _limits(report: Report, name: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the limits of the output; print a line if they leave out a part of the run."""
    if name != "collapsed":
        return {}
    if options.min_percent is not None:
        return {"min_percent": options.min_percent}
    share, size = collapsed.needed_percent(report)
    if share:
        complain(
            f"all calling contexts would take {written_size(size)}: those of less than {share:g} % "
            "of the time were added to their callers; --min-percent 0 writes all of them"
        )
    return {"min_percent": share}


def _write_table(report: Report, options: argparse.Namespace) -> None:
    format_ = chosen_format(options, _FORMATS, default="csv")
    if format_ != "csv":
        raise ValueError(f"--table requires CSV output, not {format_}; use -o FILE.csv")
    write_text(report.to_csv(options.table), options.output)


def _write_terminal(report: Report, options: argparse.Namespace) -> None:
    name = chosen_format(options, _FORMATS)
    if name == "text":
        with standard_output() as stream:
            lines = next_lines(options.file, width_of(stream))
            terminal.show(report, stream, full=options.full, last=lines)
    elif formats.format_named(name).binary:
        raise ValueError(f"{name} is a binary format; name a file with -o FILE")
    else:
        limits = _limits(report, name, options)
        write_text(formats.render(report, name, **limits))
