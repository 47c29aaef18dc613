"""A trace with equal moments, which real traces have and small ones do not."""

from __future__ import annotations

import random
from itertools import pairwise

from fastprof.snapshot import Snapshot
from fastprof.snapshot.trace import CallTable, EventTable, GpuTable, StepTable, TraceWindow
from unit.test_trace import WALL, snapshot

_START = 1_234_567


def back_to_back(steps: int = 60, seed: int = 1) -> Snapshot:
    """Return steps, events and kernels whose ends equal the begins or ends of others.

    This always holds for steps, for events at the edge of a window, and for kernels if the device's
    clock is coarse.  No moment is a whole number of microseconds.
    """
    numbers = random.Random(seed)
    events: list[tuple[int, int, int]] = []

    def nest(start: int, end: int, depth: int) -> None:
        events.append((numbers.choice((1, 2, 3)), start, end - start))
        if depth == 0:
            return
        inside = sorted(numbers.randrange(start, end) for _ in range(numbers.randrange(3)))
        cuts = sorted({start, *inside, end})
        for first, last in pairwise(cuts):
            if numbers.random() < 0.8:
                nest(first, last, depth - 1)

    starts, lengths, at = [], [], _START
    for _ in range(steps):
        starts.append(at)
        lengths.append(numbers.randrange(50_001, 3_000_000))
        nest(at, at + lengths[-1], 4)
        at += lengths[-1]
    numbers.shuffle(events)
    none = (0,) * steps
    return snapshot(
        windows=(TraceWindow(_START, at, 0, WALL + _START),),
        events=EventTable(
            key=tuple(key for key, _, _ in events),
            thread=(0,) * len(events),
            start_ns=tuple(start for _, start, _ in events),
            ns=tuple(ns for _, _, ns in events),
        ),
        steps=StepTable(tuple(range(steps)), none, tuple(starts), tuple(lengths)),
        gpu=GpuTable(
            what=none, device=none, stream=(7,) * steps,
            start_ns=tuple(starts), ns=tuple(lengths),
            bytes=none, x=none, y=none, z=none, launch=(-1,) * steps,
        ),
        calls=CallTable(),
        kept=len(events),
    )  # fmt: skip
