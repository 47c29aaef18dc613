"""Tracks the phase of the run, as loaders, integrations and the program report it."""

import threading
from dataclasses import replace

from fastprof.capture.options import Recorder
from fastprof.clock import time
from fastprof.session.own_time import OwnTime
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import EVALUATING, OWN_OF, RUN_PHASES

#: One of these follows another; the others interrupt the current phase.
_IN_TURN = ("setup", "steps", "outside")
#: Interrupts steps, and counts as "outside".
_WORKERS = "workers"
#: Interrupts any phase.
_COMPILE = "compile"

_STEPS = RUN_PHASES.index("steps")


class RunPhase(Part):
    """The phase of one recorder's run; only the training thread changes it.

    Args:
        own_time: the time of fastprof's own code on the training thread.
    """

    kind = "phase"

    def __init__(self, recorder: Recorder, own_time: OwnTime | None = None) -> None:
        self._recorder = recorder
        self._own = OwnTime() if own_time is None else own_time
        # Own time, and what of it is timed as a whole: when the phase began, and of earlier ones.
        self._own_at = 0, 0
        self._own_by = [[0, 0] for _ in RUN_PHASES]
        #: Ident of the thread whose phases count.
        self.thread = 0
        #: Passes of phases that interrupt others, which began so far.
        self.passes = dict.fromkeys(EVALUATING, 0)
        self._saved_at = -1  # number of steps at the last checkpoint
        self._in_turn = "steps"
        #: Interrupting phases: name, number of the phase that follows, and whether that is the
        #: phase it interrupted.
        self._asides: list[tuple[str, int, bool]] = []
        #: For the start and the end of workers: the number of steps at the last one, and whether it
        #: left a step.
        self._workers: dict[str, tuple[int, bool]] = {}
        self._number = _STEPS
        self._since_ns = self._away_ns = 0

    @property
    def away_ns(self) -> int:
        """Time outside of steps so far, in ns."""
        if self._number == _STEPS:
            return self._away_ns
        return self._away_ns + time.perf_counter_ns() - self._since_ns

    @property
    def now(self) -> str:
        """The phase."""
        return RUN_PHASES[self._number]

    def _set(self, number: int, back: bool = False) -> int:
        """Enter or go back to a phase; return the one before."""
        self._away_ns = self.away_ns
        own, spent = self._own, self._own_by[self._number]  # without calls: phases may be short
        spent[0] += own.ns - self._own_at[0]
        spent[1] += own.whole_ns - self._own_at[1]
        self._own_at = own.ns, own.whole_ns
        self._number, self._since_ns = number, time.perf_counter_ns()
        return self._recorder.set_phase(number, back)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        spent = [list(times) for times in self._own_by]
        spent[self._number][0] += self._own.ns - self._own_at[0]
        spent[self._number][1] += self._own.whole_ns - self._own_at[1]
        own = [OwnTime(ns, whole_ns=whole) for ns, whole in spent]
        by = [of.ns + of.untimed_ns for of in own]
        meta = dict(snapshot.meta)
        for key, phases in OWN_OF.items():
            known = meta.get(key)  # what is counted, not timed
            meta[key] = (known if isinstance(known, int) else 0) + sum(by[i] for i in phases)
        return replace(snapshot, meta=meta)

    def begin(self) -> None:
        """Begin the run in this thread, with its steps."""
        self.thread = threading.get_ident()
        self._asides.clear()
        self.enter("steps")

    def is_here(self) -> bool:
        """Return whether this is the thread whose phases count."""
        return threading.get_ident() == self.thread

    def move_here(self) -> bool:
        """Let the phases of this thread count, with set-up first; return whether they do.

        They do not if the other thread is in a validation or a checkpoint.
        """
        if self._asides:
            return False
        self.thread = threading.get_ident()
        self.enter("setup")
        return True

    def enter(self, phase: str) -> None:
        """Begin ``phase``.

        Raises:
            ValueError: unknown phase.
        """
        if phase not in _IN_TURN + EVALUATING:
            known = ", ".join(_IN_TURN + EVALUATING)
            raise ValueError(f"phase is {phase!r:.80}, expected one of {known}")
        if not self.is_here():
            return
        number = RUN_PHASES.index(phase)
        if phase in EVALUATING:
            # A pass is none within another, nor another file of a checkpoint.
            steps = self._recorder.steps
            for aside in self._asides:
                if aside[0] == phase:
                    break
            else:
                self.passes[phase] += phase != "checkpoint" or self._saved_at != steps
            if phase == "checkpoint":
                self._saved_at = steps
            self._asides.append((phase, self._set(number), True))
            return
        first = phase == "steps" and self._in_turn == "setup" and not self._recorder.steps
        self._in_turn = phase
        if self._asides:
            self._asides[0] = (self._asides[0][0], number, False)
        else:
            self._set(number)
            if first:
                self._recorder.mark()  # the first step begins here, not with the run

    def are_workers_apart(self, what: str, steps: int) -> bool:
        """Return whether a loader leaves a step if it starts or ends workers now, after ``steps``.

        It does not if every step has such work, as by ``next(iter(loader))``.

        Args:
            what: "start" or "end".
        """
        if not self.is_here() or self._asides or self._in_turn != "steps":
            return False
        before, apart = self._workers.get(what, (steps, True))
        if steps != before:
            apart = steps - before > 1
        self._workers[what] = steps, apart
        return apart

    def enter_workers(self) -> None:
        """Leave the steps until :meth:`leave_workers`."""
        outside = RUN_PHASES.index("outside")
        self._asides.append((_WORKERS, self._set(outside), True))

    def leave_workers(self) -> None:
        """Return to the steps."""
        self.leave(_WORKERS)

    def enter_compiling(self) -> str:
        """Begin to compile, in this thread; return the phase that it interrupts."""
        before = self._set(RUN_PHASES.index(_COMPILE))
        self._asides.append((_COMPILE, before, True))
        return RUN_PHASES[before]

    def leave_compiling(self) -> None:
        """Return to that phase."""
        self.leave(_COMPILE)

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
                self._set(*self._asides[i][1:])
                del self._asides[i:]
                return
