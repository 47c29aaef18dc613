"""Which phase of the run something falls into."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastprof.session import current


class RunPhases:
    """Asks the run that is going on."""

    def __init__(self) -> None:
        #: (phase, name) -> how often that was noted in it.
        self.seen: Counter[tuple[str, str]] = Counter()

    def note(self, name: str) -> None:
        """It happens now."""
        run: Any = current.running()
        phase = run._phase
        now = phase._asides[-1][0] if phase._asides else phase._in_turn
        self.seen[now, name] += 1
