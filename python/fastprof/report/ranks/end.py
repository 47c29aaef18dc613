"""Tells where few ranks were outside of the steps while the others did nothing: after a hang."""

from __future__ import annotations

from collections.abc import Sequence

from fastprof.names import ascii_name
from fastprof.report.figures import duration, plural
from fastprof.report.ranks.row import RankRun

#: Shorter times outside of the steps are no hang: in ms, and in steps.
_LEAST_MS = 1000.0
_LEAST_STEPS = 5.0
_NAMED = 3


def end_text(runs: Sequence[RankRun]) -> str:
    """Return which ranks worked outside of the steps while the others did not; '': none did.

    A job that hangs and is ended leaves such files: the last step of no rank has ended, so no
    step shows who hung.
    """
    times = [run.between["outside"].ms for run in runs if "outside" in run.between]
    steps = [run.row.step_ms for run in runs if run.row.step_ms]
    if len(runs) < 2 or len(times) < len(runs) or not steps:
        return ""
    busy = [(run, run.between["outside"].function) for run in runs]
    found = [(run, function) for run, function in busy if function is not None]
    if min(times) < max(_LEAST_MS, _LEAST_STEPS * max(steps)) or not found:
        return ""
    if len(found) > len(runs) // 2:
        return ""
    there = "; ".join(
        f"rank {run.row.rank}{_host(run)} in {function.text}" for run, function in found[:_NAMED]
    )
    if len(found) > _NAMED:
        there += f"; {plural(len(found) - _NAMED, 'more rank')} elsewhere"
    return (
        f"Outside of the steps (between epochs, after the last step) each rank spent "
        f"{duration(min(times))} or more: {there}; the others in no function of the program. They "
        "may have waited for it: a job that hung and was ended looks like this."
    )


def _host(run: RankRun) -> str:
    return "" if run.row.host is None else f" ({ascii_name(run.row.host, 60)})"
