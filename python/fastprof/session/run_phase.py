"""Tracks the phase of the run, as loaders, integrations and the program report it."""

import threading

from fastprof.capture.options import Recorder
from fastprof.snapshot.run_phases import RUN_PHASES

#: One of these follows another; the others interrupt the current phase.
_IN_TURN = ("setup", "steps", "outside")
_ASIDE = ("validation", "checkpoint")


class RunPhase:
    """The phase of one recorder's run; only the training thread changes it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._thread = 0
        self._in_turn = "steps"
        #: Interrupting phases: name, number of the phase that follows, and whether that is the
        #: phase it interrupted.
        self._asides: list[tuple[str, int, bool]] = []

    def begin(self, phase: str) -> None:
        """Begin the run in this thread."""
        self._thread = threading.get_ident()
        self._asides.clear()
        self.enter(phase)

    def is_here(self) -> bool:
        """Return whether this is the thread whose phases count."""
        return threading.get_ident() == self._thread

    def enter(self, phase: str) -> None:
        """Begin ``phase``.

        Raises:
            ValueError: unknown phase.
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
        """End ``phase`` and the phases that began in it; do nothing if it is not active."""
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
