"""Compares loaders: which one is slow, in which phase, and how often the run used it."""

import math
from collections.abc import Collection, Sequence

from fastprof.names import readable
from fastprof.report.figures import duration, with_percent
from fastprof.report.loaders import MIN_SAMPLES, PHASES, LoaderRow, called

#: A loader stands out if a phase takes this many times as long as another loader's, and the
#: difference is at least this part of its whole batch's time.  Both limits are fastprof's.
_TIMES, _PART = 1.5, 0.1

#: Phase -> the likely cause if it takes longer for one loader than for another.
_REASONS = {
    "data": "its reading or preprocessing takes longer",
    "forward": "its shapes or sequence lengths differ",
    "backward": "its shapes or sequence lengths differ",
}

#: Limit of chance, in standard deviations, for shares that differ from the weights.
_DEVIATIONS = 4.0


def compared(rows: Sequence[LoaderRow], apart: Collection[str] = ()) -> list[str]:
    """Return the differences between the loaders of one split, a sentence each.

    Loaders with fewer batches than :data:`MIN_SAMPLES` are left out.

    Args:
        apart: training loaders of different stages of the run, whose models may differ.
    """
    rows = [row for row in rows if row.split != "train" or row.name not in apart]
    out: list[str] = []
    for split in dict.fromkeys(row.split for row in rows):
        known = [r for r in rows if r.split == split and r.batches >= MIN_SAMPLES]
        if len(known) > 1:
            out += [text for row in known for text in _standing_out(row, known)]
        of_split = [r for r in rows if r.split == split and r.batches]
        out += _realized_otherwise(of_split)
    return out


def _standing_out(row: LoaderRow, rows: Sequence[LoaderRow]) -> list[str]:
    """Compare the slowest phase of a loader with the quickest loader in that phase."""
    whole = sum(getattr(row, f"{phase}_ms") or 0.0 for phase in PHASES)
    for phase, reason in _REASONS.items():
        here = getattr(row, f"{phase}_ms")
        others = [r for r in rows if getattr(r, f"{phase}_ms") is not None]
        if here is None or len(others) < 2:
            continue
        quick = min(others, key=lambda r: float(getattr(r, f"{phase}_ms")))
        there = getattr(quick, f"{phase}_ms")
        if here < _TIMES * there or here - there < _PART * whole:
            continue
        text = (
            f"{called(row.name, row.split)}: {phase} takes {duration(here)} per batch against "
            f"{duration(there)} of {readable(quick.name, 60)}: {reason}"
        )
        if row.time_share is not None and row.realized is not None:
            text += (
                f" (it has {with_percent(row.time_share)} of the time for "
                f"{with_percent(row.realized)} of batches)"
            )
        return [f"{text}."]
    return []


def _realized_otherwise(rows: Sequence[LoaderRow]) -> list[str]:
    """Report loaders whose share of batches is not the configured one."""
    weights = sum(row.weight or 0.0 for row in rows)
    batches = sum(row.batches for row in rows)
    if not weights or any(row.weight is None for row in rows):
        return []
    out = []
    for row in rows:
        wanted, got = (row.weight or 0.0) / weights, row.batches / batches
        spread = math.sqrt(wanted * (1 - wanted) / batches)
        if abs(got - wanted) > max(_DEVIATIONS * spread, 0.01):
            out.append(
                f"{called(row.name, row.split)}: {with_percent(got)} of the batches came from it, "
                f"its weight asks for {with_percent(wanted)}."
            )
    return out
