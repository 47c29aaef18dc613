"""Keeps what a trial measured in its first recording, so that its report shows both figures."""

from dataclasses import replace
from pathlib import Path

from fastprof.fileio import atomic_write
from fastprof.read.fprof import write_snapshot
from fastprof.report.figures import duration, number
from fastprof.report.findings import TRIED
from fastprof.report.model import Report
from fastprof.trial.model import REAL, WORSE, TrialData, Tried


def keep(report: Report, data: TrialData, path: Path) -> None:
    """Write a report's run with the measured savings of the findings that were tried.

    Args:
        report: the first run of the trial.
        data: the result of the trial.
        path: the saved run to write.
    """
    # The better fix of a finding comes last.
    tried = sorted(data.tried, key=lambda one: one.saving_ms or 0.0)
    known = {TRIED + one.candidate.rule: measured(one) for one in tried if one.candidate.rule}
    found = {key: text for key, text in known.items() if text}
    if found:
        snapshot = replace(report.snapshot, meta={**report.snapshot.meta, **found})
        with atomic_write(str(path)) as stream:
            write_snapshot(snapshot, stream)


def measured(one: Tried) -> str:
    """Return a measured saving as text: ``2.00 ms (1.80 to 2.30)``; empty if there is none."""
    if one.status not in (REAL, WORSE) or one.low_ms is None or one.high_ms is None:
        return ""
    return f"{duration(one.saving_ms)} ({number(one.low_ms)} to {number(one.high_ms)})"
