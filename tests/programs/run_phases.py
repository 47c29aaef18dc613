"""Records the phase of the run for events."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastprof.session import current


class RunPhases:
    """Reads the phase of the current run."""

    def __init__(self) -> None:
        #: (phase, name) -> number of notes.
        self.seen: Counter[tuple[str, str]] = Counter()

    def note(self, name: str) -> None:
        """Note the event in the current phase."""
        run: Any = current.running()
        phase = run._phase
        now = phase._asides[-1][0] if phase._asides else phase._in_turn
        self.seen[now, name] += 1
