"""Which phase of the run something fell into, from what the profiler was called with."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastprof.session.profiler import Profiler


class RunPhases:
    """Watches every profiler for one test."""

    def __init__(self, monkeypatch: Any) -> None:
        self.open = ["setup"]
        #: (phase, name) -> how often that was noted in it.
        self.seen: Counter[tuple[str, str]] = Counter()
        enter, leave = Profiler.enter_phase, Profiler.leave_phase

        def enter_phase(profiler: Profiler, name: str) -> Any:
            self.open.append(name)
            return enter(profiler, name)

        def leave_phase(profiler: Profiler, name: str) -> Any:
            assert name in self.open, "it was entered before"
            place = len(self.open) - 1 - self.open[::-1].index(name)
            del self.open[place]
            if name == "setup":
                self.open.insert(place, "steps")
            return leave(profiler, name)

        monkeypatch.setattr(Profiler, "enter_phase", enter_phase)
        monkeypatch.setattr(Profiler, "leave_phase", leave_phase)

    def note(self, name: str) -> None:
        """It happens now."""
        self.seen[self.open[-1], name] += 1
