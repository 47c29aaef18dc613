"""Options that choose a part of one run: ``--steps``, ``--from``, ``--last`` and ``--at``."""

import argparse
import re

from fastprof.read.part_of_run import part_of_run, steps_at, steps_of, steps_of_last
from fastprof.report.model import Report
from fastprof.results.report import Report as Result
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot

_SPAN = re.compile(r"([0-9]*\.?[0-9]+)(s|m|h|d)", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_STEPS = re.compile(r"([0-9]{0,15}):([0-9]{0,15})", re.ASCII)


def add_part(parser: argparse.ArgumentParser) -> None:
    """Add the options to those of a command."""
    parser.add_argument(
        "--steps",
        metavar="A:B",
        help="only steps A to B, as far as the run was kept over time; either may be missing",
    )
    parser.add_argument(
        "--from", dest="since", metavar="TIME", help="only from this time of day on: 14:03"
    )
    parser.add_argument(
        "--last", metavar="SPAN", help="only the last part of the run: 90s, 10m, 2h"
    )


def chosen_part(report: Result, options: argparse.Namespace) -> Result:
    """Return the report on the part of the run that the options choose.

    Raises:
        ValueError: two options, a bad value, or the run has no such part.
    """
    given = [name for name in ("steps", "since", "last") if getattr(options, name) is not None]
    if not given:
        return report
    if len(given) > 1:
        raise ValueError("--steps, --from and --last choose a part of the run: give one of them")
    whole = snapshot_of(report)
    there = steps_of(whole)
    if options.steps is not None:
        wanted = _range(options.steps, there)
    elif options.since is not None:
        wanted = range(steps_at(whole, options.since), there.stop)
    else:
        wanted = range(steps_of_last(whole, _span(options.last)), there.stop)
    part = part_of_run(whole, wanted)
    return build_report(part, correct_times=report.correct_times)


def two_parts(report: Report, step: str) -> tuple[Result, Result, int]:
    """Return the reports on a run before and from a step on, and the number of that step.

    It is the first one of a segment, the nearest to ``step``.

    Raises:
        ValueError: it is no number, or the run has no steps on one side.
    """
    whole = snapshot_of(report)
    there = steps_of(whole)
    if not step.isascii() or not step.isdecimal() or len(step) > 15:
        raise ValueError(f"--at is {step!r:.80}, expected the number of a step: --at 12400")
    at = int(step) - 1
    history = whole.history
    assert history is not None
    # A segment that contains the step belongs to one side: the one with more of it.
    edges = [segment.first for segment in history.segments[1:]]
    if not edges or not there.start < at < there.stop:
        raise ValueError(
            f"--at is {step}, expected a step from {there.start + 2} to {there.stop} of a run with "
            "at least two segments of a few seconds"
        )
    edge = min(edges, key=lambda first: abs(first - at))
    sides = range(there.start, edge), range(edge, there.stop)
    before, after = (part_of_run(whole, side) for side in sides)
    return build_report(before), build_report(after), edge + 1


def snapshot_of(report: Report) -> Snapshot:
    """Return the recording.

    Raises:
        ValueError: a ``.stats`` file has none.
    """
    if not report.has_tree:
        raise ValueError("a .stats file has no parts of the run; use the run's .fprof file")
    return report.snapshot


def _range(text: str, there: range) -> range:
    found = _STEPS.fullmatch(text)
    if found is None or text == ":":
        raise ValueError(f"--steps is {text!r:.80}, expected two steps: --steps 4000:5000")
    first, last = found.groups()
    wanted = range(max(0, int(first or 1) - 1), int(last) if last else there.stop)
    if not wanted:
        raise ValueError(f"--steps is {text!r:.80}: the first step is after the last")
    return wanted


def _span(text: str) -> float:
    found = _SPAN.fullmatch(text)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < 1e9:
        raise ValueError(f"--last is {text!r:.80}, expected a span such as 90s, 10m or 2h")
    return seconds
