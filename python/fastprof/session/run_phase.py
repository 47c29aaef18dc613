"""Which phase the run is in, from what loaders, integrations and the program tell."""

from __future__ import annotations

import threading
from typing import Protocol

from fastprof.snapshot.run_phases import RUN_PHASES

#: One of these follows another; the others interrupt what is going on.
_IN_TURN = ("setup", "steps", "outside")
_ASIDE = ("validation", "checkpoint")


class PhaseRecorder(Protocol):
    """The recorder of the phases."""

    def set_phase(self, phase: int, goes_on: bool = False, /) -> int:
        """The run is in ``phase`` from now on; returns the one before.

        ``goes_on``: it was interrupted, and is not counted once more.
        """
        ...


class RunPhase:
    """The phase of the run, of one recorder; told from the training thread only.

    Args:
        recorder: records the phase of every moment.
    """

    def __init__(self, recorder: PhaseRecorder) -> None:
        self._recorder = recorder
        self._thread = 0
        self._in_turn = "steps"
        #: Interrupted phases: name, the number of the phase that follows it, and whether
        #: that is the one it interrupted.
        self._asides: list[tuple[str, int, bool]] = []

    def begin(self, phase: str) -> None:
        """The run begins in this thread."""
        self._thread = threading.get_ident()
        self._asides.clear()
        self.enter(phase)

    def is_here(self) -> bool:
        """Whether this is the thread that the phases are of."""
        return threading.get_ident() == self._thread

    def enter(self, phase: str) -> None:
        """``phase`` begins.

        Raises:
            ValueError: there is no such phase.
        """
        if phase not in _IN_TURN + _ASIDE:
            known = ", ".join(_IN_TURN + _ASIDE)
            raise ValueError(f"phase is {phase!r:.80}, expected one of {known}")
        if not self.is_here():
            return
        number = RUN_PHASES.index(phase)
        if phase in _ASIDE:
            self._asides.append((phase, self._recorder.set_phase(number), True))
            return
        self._in_turn = phase
        if self._asides:
            self._asides[0] = (self._asides[0][0], number, False)
        else:
            self._recorder.set_phase(number)

    def leave(self, phase: str) -> None:
        """``phase`` ends, and whatever began in it; nothing if it is not going on."""
        if not self.is_here():
            return
        if phase in _IN_TURN:
            if phase == self._in_turn != "steps":
                self.enter("steps")
            return
        for i in range(len(self._asides) - 1, -1, -1):
            if self._asides[i][0] == phase:
                self._recorder.set_phase(*self._asides[i][1:])
                del self._asides[i:]
                return
