"""Runs a few steps without the function hook, to measure its cost in this program."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from fastprof.capture.options import Recorder
from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.session.environment.thread_cpu import cpu_between, thread_cpu
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot
from fastprof.snapshot.steps import PlainCpu

#: Steps per block without the hook, if steps are long; the first one is not used.
BLOCK = 3

#: Steps are slower for this long after removing or restoring the hook: the interpreter
#: changes its code lazily, and the program's own code and data have left the caches.  If
#: steps are shorter, more of them are left out, and a block has more.
_SETTLES_NS = 2_500_000

#: Steps from one block to the next: a random number, so that blocks cannot coincide with
#: periodic work of the program.  Blocks of more than `_LONG` steps are rarer.
_LEAST, _MOST = 60, 120
_LONG = 6

#: The first blocks are nearer to each other, so that a run of some hundred steps has enough of
#: them.  Even nearer blocks would be compared with the same measured steps.
_EARLY_BLOCKS, _EARLY_LEAST, _EARLY_MOST = 8, 10, 18
#: Steps before the first block: a shorter run has none.
_BEFORE_FIRST = 16

#: Steps before a block with which its CPU time is compared, and blocks whose CPU time is kept.
_NEAR, _KEPT = 4, 128
#: At most this many steps of a block count; the others let the machine settle.
_COUNT = 4

#: Removing and restoring the hook costs at most this share of the steps between two blocks.
_MAX_COST = 0.005


class UnprofiledSteps(Part):
    """A run's blocks of steps without the hook; only the training thread calls it.

    A separate generator draws the numbers of their first steps at random: the program's
    generator is unchanged, and two runs of a program have the same blocks if its steps are
    long.

    Args:
        wanted: whether the run may have blocks at all.
        hindered: whether a block cannot be in the steps from the first argument to the second.
        warm_up: number of first steps of the run, which are not measured.
        lost: called with the reason if another profiler has taken the hook.
    """

    kind = "hook"
    between_steps = True

    def __init__(
        self,
        recorder: Recorder,
        wanted: Callable[[], bool],
        hindered: Callable[[int, int], bool],
        warm_up: int,
        lost: Callable[[str], None],
    ) -> None:
        self._recorder = recorder
        self._wanted = wanted
        self._hindered = hindered
        self._warm_up = warm_up
        self._lost = lost
        self._drawn = 1
        self._due = sys.maxsize  # number of steps after which a block begins or ends
        self._asked = True  # whether :meth:`at_step` has checked the planned steps
        self._length = BLOCK
        #: Whether the current step runs without the hook.
        self.open = False
        self._valid = True
        #: Time spent so far on removing and restoring the hook.
        self.cost_ns = 0
        self._paid_ns = 0  # cost_ns at the end of the last block
        self._since = (0, 0)  # end of the last block: count of steps, time in ns
        self._blocks = 0  # number of blocks that were not interrupted
        self._reads_at = sys.maxsize  # number of steps after which CPU times are read
        self._read: Mapping[int, int] = {}
        self._hooked: tuple[int, int] | None = None
        self._cpu: dict[int, PlainCpu] = {}

    def begin(self) -> None:
        """Begin the run."""
        if self._wanted():
            self._plan(self._warm_up, _BEFORE_FIRST)

    def next_step(self, count: int) -> int:
        return min(self._reads_at, self._due if self._asked else self._due - 1)

    def at_step(self, count: int) -> None:
        """Begin step number ``count``."""
        try:
            self._at_step(count)
        except own_errors() as error:  # BusyError
            self._due, self._asked = sys.maxsize, True
            self._lost(str(error))

    def phase_begins(self) -> bool:
        """Restore the hook, because recorded work other than a step begins.

        Returns whether it interrupted a block; the current step still counts separately.
        """
        try:
            return self._interrupt()
        except own_errors() as error:  # BusyError; steps are measured from the next one on
            self._lost(str(error))
            return True

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        # Removing and restoring the hook is in no measured step, and costs the program time.
        meta = dict(snapshot.meta)
        own_ns = meta.get("own_ns")
        meta["own_ns"] = (own_ns if isinstance(own_ns, int) else 0) + self.cost_ns
        meta["unprofiled_ns"] = self.cost_ns
        # The CPU time of the last blocks' steps; None: none is known.
        steps = replace(snapshot.steps, unprofiled_cpu=tuple(self._cpu.values()) or None)
        return replace(snapshot, meta=meta, steps=steps)

    def _at_step(self, count: int) -> None:
        if count >= self._reads_at:
            self._reads_at = sys.maxsize
            self._read = thread_cpu()
        if count < self._due:
            if not self._asked and count == self._due - 1:
                self._asked = True
                self._length = self._recorder.unprofiled_length(_SETTLES_NS)
                if self._hindered(self._due, self._due + self._length):
                    self._plan(count)  # before the recorder counts that step separately
            return
        began = time.perf_counter_ns()
        hooked = None if self.open else cpu_between(self._read, thread_cpu())
        if self.open:
            self.open = False
            self._blocks += self._valid
            if self._valid:
                self._keep_cpu()
            self._recorder.end_unprofiled(self._valid)
        elif not self._hindered(count, count + self._length) and self._recorder.begin_unprofiled():
            self.open = self._valid = True
            self._hooked = hooked
            self._due = count + self._length
            self._reads_at = self._due - self._counting()
            self.cost_ns += time.perf_counter_ns() - began
            return
        else:  # the recorder still expects a block at this step
            self._recorder.end_unprofiled(False)
        self.cost_ns += time.perf_counter_ns() - began
        self._plan(count)

    def _interrupt(self) -> bool:
        if not self.open or not self._valid:
            return False
        self._valid = False
        self._due = 0
        self._recorder.rehook()
        self._recorder.resume_functions()
        return True

    def _counting(self) -> int:
        """Return how many steps of a block count: as many as were left out and one more."""
        return min(_COUNT, (self._length + 1) // 2)

    def _keep_cpu(self) -> None:
        plain, hooked = cpu_between(self._read, thread_cpu()), self._hooked
        if plain is None or hooked is None:
            return
        first, counting = self._due - self._length, self._counting()
        self._cpu[first] = PlainCpu(
            first,
            plain_ns=plain[0] // counting,
            hooked_ns=hooked[0] // _NEAR,
            plain_others_ns=plain[1] // counting,
            hooked_others_ns=hooked[1] // _NEAR,
        )
        if len(self._cpu) > _KEPT:
            del self._cpu[next(iter(self._cpu))]

    def _plan(self, count: int, more: int = 0) -> None:
        if not self._wanted():
            self._due = self._reads_at = sys.maxsize
            self._asked = True
            self._recorder.plan_unprofiled(0)
            return
        now = time.perf_counter_ns()
        steps, elapsed_ns = count - self._since[0], now - self._since[1]
        self._since = (count, now)
        cost_ns = self.cost_ns - self._paid_ns
        self._paid_ns = self.cost_ns
        pays = round(cost_ns / _MAX_COST * steps / elapsed_ns) if elapsed_ns else 0
        early = self._blocks < _EARLY_BLOCKS
        least, most = (_EARLY_LEAST, _EARLY_MOST) if early else (_LEAST, _MOST)
        distance = self._rarely(self._draw(least, most))
        self._due = count + more + max(0, pays - self._rarely(least)) + distance
        self._asked = False
        self._reads_at, self._read = self._due - _NEAR, {}
        self._recorder.plan_unprofiled(self._due)

    def _rarely(self, steps: int) -> int:
        return steps * max(self._length, _LONG) // _LONG

    def _draw(self, least: int, most: int) -> int:
        """Return a number of steps; the generator's constants are those of POSIX's rand()."""
        self._drawn = (self._drawn * 1103515245 + 12345) % 2**31
        return least + (self._drawn >> 16) % (most - least)
