"""Which parts of a run are called when."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import fastprof
from fastprof.session.part import Part
from fastprof.session.profiler import run_of


class Noted(Part):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def next_step(self, count: int) -> int:
        return count + 1

    def at_step(self, count: int) -> None:
        self.calls.append(f"step {count}")

    def phase_changes(self, count: int) -> None:
        self.calls.append(f"phase at {count}")

    def phase_begins(self, phase: str) -> bool:
        self.calls.append(f"{phase} begins")
        return False


def test_a_part_that_comes_or_goes_between_steps_is_called_from_then_on() -> None:
    first, second = Noted(), Noted()
    with fastprof.Profiler(functions=False, gpu=False, log_every=1) as prof:
        parts = run_of(prof).parts
        prof.step()
        parts.append(first)
        prof.enter_phase("validation")
        prof.leave_phase("validation")
        prof.step()
        parts.append(second)
        prof.step()
        parts.remove(first)
        prof.enter_phase("validation")
        prof.leave_phase("validation")
        prof.step()
    assert first.calls == ["phase at 1", "validation begins", "phase at 1", "step 2", "step 3"]
    assert second.calls == ["step 3", "phase at 3", "validation begins", "phase at 3", "step 4"]


def test_a_phase_of_the_run_calls_the_parts_that_have_work() -> None:
    """It called each of 20 parts three times: an epoch of few steps has one or two phases."""
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "fastprof" in frame.f_code.co_filename:
            calls[frame.f_code.co_name] += 1

    with fastprof.Profiler(functions=False, gpu=False) as prof:
        prof.step()
        prof.enter_phase("validation")
        prof.leave_phase("validation")
        sys.setprofile(count)
        try:
            prof.enter_phase("validation")
            prof.leave_phase("validation")
        finally:
            sys.setprofile(None)
    assert sum(calls.values()) < 30, calls
