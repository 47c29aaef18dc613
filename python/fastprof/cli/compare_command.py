"""``fastprof compare``: what changed, and conditions for CI."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from fastprof.cli.exit_hooks import complain
from fastprof.cli.output import add_format, check_output, chosen_format, write_text
from fastprof.cli.parsing import Parser
from fastprof.cli.part import two_parts
from fastprof.comparison.build import LEVEL, NOISE, compare_runs, open_sides
from fastprof.comparison.conditions import Outcome, outcome
from fastprof.comparison.expressions import Condition, parse
from fastprof.comparison.model import Comparison
from fastprof.comparison.output import WRITERS, to_text
from fastprof.comparison.runs import Run
from fastprof.read.load import load
from fastprof.tables.layout import width_of

#: Exit status: a condition of --fail-if is met.
MET = 1
#: Exit status: no condition is met, but one that seems to be cannot be decided.
UNDECIDED = 3

_EPILOG = """\
conditions of --fail-if:
  step>+3%          the mean step became more than 3 % longer, and that is more than chance
  data>+0.5ms       a section took more than 0.5 ms more per step
  "p95(step)>+10%"  also p50, p99, min, max, count, self, share, gpu; p95 needs some 1600 steps,
                    p99 several runs on each side
  gpu_util<-5points gpu_util<80%  memory>+1GiB  throughput<-5%  count(forward)>+0
A condition without a sign checks the run after alone.  Put names with blanks or brackets in
quotes.

exit status: 0 fine, 1 a condition is met, 2 bad arguments or a bad file, 3 a figure is beyond its
limit, but the runs cannot decide whether that is chance
"""


def run_compare(argv: Sequence[str]) -> int:
    """Compare the saved runs that ``argv`` names; 1 if a condition is met."""
    parser = Parser(
        prog="fastprof compare",
        description="Compare saved runs, and test whether the changes are more than chance.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", metavar="F", nargs="*", help="two or more runs (.fprof, .stats), against the first"
    )
    parser.add_argument(
        "--at",
        metavar="STEP",
        help="with one run: compare its steps before and since this one, as far as the run was "
        "kept over time",
    )
    parser.add_argument("--before", metavar="F", nargs="+", help="several runs of one program")
    parser.add_argument("--after", metavar="F", nargs="+", help="several runs of the other")
    parser.add_argument(
        "--fail-if",
        metavar="COND",
        action="append",
        default=[],
        help="exit with status 1 if this condition holds",
    )
    parser.add_argument(
        "--undecided",
        choices=("pass", "fail"),
        help="result of a condition that the runs cannot decide (default: exit status 3)",
    )
    parser.add_argument("--full", action="store_true", help="all tables and notes")
    add_format(parser, WRITERS)
    parser.add_argument(
        "--level",
        type=float,
        default=LEVEL,
        help="confidence level of the intervals (default: %(default)s)",
    )
    parser.add_argument(
        "--noise",
        default=f"{100 * NOISE:g}",
        metavar="PERCENT",
        help="with one run per side, a smaller change of a row counts as none "
        "(default: %(default)s)",
    )
    options = parser.parse_args(argv)
    conditions = [parse(text) for text in options.fail_if]
    name = chosen_format(options, WRITERS)
    problem = None if options.output is None else check_output(options.output)
    if problem is not None:
        raise ValueError(problem)
    noise = _percentage(options.noise)
    sides = open_sides(_sides(options)) if options.at is None else _parts(options)
    comparison = compare_runs(sides, level=options.level, noise=noise)
    outcomes = _outcomes(conditions, sides, comparison)
    if name == "text" and options.output is None:
        text = to_text(comparison, width_of(sys.stdout), full=options.full)
    else:
        text = WRITERS[name](comparison)
    write_text(text, options.output)
    _tell(outcomes)
    if any(item.met for item in outcomes):
        return MET
    open_ones = any(item.met is None for item in outcomes)
    return {"pass": 0, "fail": MET}.get(options.undecided, UNDECIDED) if open_ones else 0


def _percentage(noise: str) -> float:
    try:
        found = float(noise.strip().removesuffix("%")) / 100
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ValueError(f"--noise is {noise!r:.80}, expected 0 to 100, e.g. --noise 2 for 2 %")
    return found


def _parts(options: argparse.Namespace) -> list[tuple[Run, ...]]:
    if len(options.files) != 1 or options.before is not None or options.after is not None:
        raise ValueError("--at compares two parts of one run: name one file")
    before, since, first = two_parts(load(options.files[0]), options.at)
    names = f"before step {first}", f"since step {first}"
    return [
        tuple(replace(run, label=name) for run in side)
        for side, name in zip(open_sides([before, since]), names, strict=True)
    ]


def _sides(options: argparse.Namespace) -> list[list[str]]:
    if options.before is None and options.after is None:
        return [[path] for path in options.files]
    if options.files or options.before is None or options.after is None:
        raise ValueError("give either two or more files, or both --before and --after")
    return [options.before, options.after]


def _outcomes(
    conditions: Sequence[Condition], sides: Sequence[Sequence[Run]], comparison: Comparison
) -> list[Outcome]:
    single = {len(side) for side in sides} == {1}
    return [
        outcome(
            condition,
            sides[0],
            sides[i],
            pair,
            level=comparison.level,
            noise=comparison.noise if single else 0.0,
        )
        for condition in conditions
        for i, pair in enumerate(comparison.pairs, 1)
    ]


def _tell(outcomes: Sequence[Outcome]) -> None:
    # On stderr, so that JSON stays valid and a log shows it in any case.
    words = {True: "met", False: "not met", None: "undecided"}
    for item in outcomes:
        complain(f"--fail-if {item.condition}: {words[item.met]}: {item.text}")
