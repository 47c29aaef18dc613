"""``fastprof report``: show a saved run, or write it in another format."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fastprof.analysis.checklist import checklist_lines
from fastprof.cli.endings import complain
from fastprof.cli.output import standard_output
from fastprof.exporters.findings_lines import all_findings
from fastprof.exporters.loading import load
from fastprof.fileio import atomic_write, resolve_output
from fastprof.report import Report, formats

_FORMATS = (
    "text",
    "json",
    "pstats",
    "html",
    "speedscope",
    "speedscope-gpu",
    "collapsed",
    "collapsed-gpu",
    "callgrind",
    "csv",
    "markdown",
)


def run(argv: Sequence[str]) -> int:
    """Show or convert the saved run that ``argv`` names; 2 when that is not possible."""
    parser = argparse.ArgumentParser(
        prog="fastprof report", description="Show a saved run, or write it in another format."
    )
    parser.add_argument("file", metavar="F", help="a saved run: .fprof, or .stats of any profiler")
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="default: what the suffix of -o says, else text",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write here and not to the terminal")
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
        help="only the findings, in full, and what is not known",
    )
    parser.add_argument(
        "--checklist", action="store_true", help="only seven questions, answered yes, no or n/a"
    )
    options = parser.parse_args(argv)
    try:
        advice = options.findings or options.checklist
        if advice and (options.table is not None or options.format not in (None, "text")):
            raise ValueError("--findings and --checklist are text: leave out --table and --format")
        report = load(options.file, correct_times=not options.raw)
        if advice:
            _write_text("\n".join(_advice(report, options)) + "\n", options.output)
        elif options.table is not None:
            _write_table(report, options)
        elif options.output is not None:
            _write_file(report, options.output, options.format)
        else:
            _write_terminal(report, options.format or "text")
    except (OSError, ValueError) as error:
        complain(str(error))
        return 2
    return 0


def _advice(report: Report, options: argparse.Namespace) -> list[str]:
    lines = all_findings(report) if options.findings else []
    if options.checklist:
        lines += [*([""] if lines else []), *checklist_lines(report)]
    return lines


def _write_file(report: Report, path: str, name: str | None) -> None:
    if name is None:
        report.save(path)
        return
    with atomic_write(resolve_output(path)) as stream:
        formats.write(report, formats.format_named(name), stream)


def _write_table(report: Report, options: argparse.Namespace) -> None:
    format_ = options.format
    if format_ is None:
        format_ = "csv" if options.output is None else formats.format_of(options.output).name
    if format_ != "csv":
        raise ValueError(f"--table is of CSV files, not of {format_}; use -o FILE.csv")
    _write_text(report.to_csv(options.table), options.output)


def _write_text(text: str, path: str | None) -> None:
    if path is None:
        with standard_output() as stream:
            stream.write(text)
        return
    with atomic_write(resolve_output(path)) as file:
        file.write(text.encode("utf-8"))


def _write_terminal(report: Report, name: str) -> None:
    if name == "text":
        with standard_output() as stream:
            report.show(stream)
    elif formats.format_named(name).binary:
        raise ValueError(f"{name} is not text: say with -o where to write it")
    else:
        with standard_output() as stream:
            stream.write(formats.render(report, name))
