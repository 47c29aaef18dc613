"""A few steps of a run without the function hook, to tell what the hook costs this program."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol

#: Steps without the hook each time, where steps are long: the first one is used for nothing.
BLOCK = 3

#: Steps are slower for that long after the hook was taken out or put back: the interpreter
#: changes its code lazily, and the program's own code and data have left the caches.  Of
#: shorter steps more are left out, and a block has more.
_SETTLES_NS = 2_500_000

#: Steps from one block to the next: any number of them, so that no block can keep step with
#: what a program does every so many steps.  Blocks of more than `_LONG` steps are rarer.
_LEAST, _MOST = 60, 120
_LONG = 6

#: The first blocks are nearer to each other, so that a run of some hundred steps has enough of
#: them.  Blocks that are nearer still would be compared with the same measured steps.
_EARLY_BLOCKS, _EARLY_LEAST, _EARLY_MOST = 8, 10, 18
#: Steps before the first one: a run that is shorter has none.
_BEFORE_FIRST = 16

#: Taking the hook out and putting it back costs at most this part of the steps
#: between two blocks.
_MAX_COST = 0.005


class BlockRecorder(Protocol):
    """The part of a recorder that the blocks use."""

    def unprofiled_length(self, settles_ns: int, /) -> int:
        """Return the steps of a block that begins next, if steps settle in that time."""
        ...

    def plan_unprofiled(self, step: int, /) -> None:
        """Steps are apart from that many steps on, until the block ends; 0: never."""

    def begin_unprofiled(self) -> bool:
        """Take the hook out if the block was begun; whether it is out."""
        ...

    def end_unprofiled(self, valid: bool, /) -> None:
        """Put the hook back, and measure steps again; not valid: forget the block."""

    def rehook(self) -> None:
        """Put the hook back."""

    def resume_functions(self) -> None:
        """Record calls again."""


class UnprofiledSteps:
    """Blocks of steps without the hook, of one run; told from the training thread only.

    The numbers of their first steps are drawn at random, from a separate generator: the
    program's is not touched, and two runs of a program have the same blocks if its steps are
    long.

    Args:
        recorder: the run's.
        wanted: whether there may be blocks at all.
        hindered: whether a block cannot be in some steps, which it is given the first and
            the last of.
    """

    def __init__(
        self,
        recorder: BlockRecorder,
        wanted: Callable[[], bool],
        hindered: Callable[[int, int], bool],
    ) -> None:
        self._recorder = recorder
        self._wanted = wanted
        self._hindered = hindered
        self._drawn = 1
        self._due = sys.maxsize  # a block begins or ends after so many steps
        self._asked = True  # whether it can be in the steps it is planned for
        self._length = BLOCK
        self._open = False
        self._valid = True
        #: Time spent so far on taking the hook out and putting it back.
        self.cost_ns = 0
        self._paid_ns = 0  # of that, when the last block ended
        self._since = (0, 0)  # when the last one ended: count of steps, time in ns
        self._blocks = 0  # that were not interrupted

    def begin(self, warm_up: int) -> None:
        """The run begins; its first ``warm_up`` steps are not measured."""
        if self._wanted():
            self._plan(warm_up, _BEFORE_FIRST)

    def next_step(self) -> int:
        """Return the step count at which :meth:`at_step` is due next."""
        return self._due if self._asked else self._due - 1

    def at_step(self, count: int) -> None:
        """Step number ``count`` begins.

        Raises:
            BusyError: another profiler has taken the hook.
        """
        if count < self._due:
            if not self._asked and count == self._due - 1:
                self._asked = True
                self._length = self._recorder.unprofiled_length(_SETTLES_NS)
                if self._hindered(self._due, self._due + self._length):
                    self._plan(count)  # before the recorder takes that step apart
            return
        began = time.perf_counter_ns()
        if self._open:
            self._open = False
            self._blocks += self._valid
            self._recorder.end_unprofiled(self._valid)
        elif not self._hindered(count, count + self._length) and self._recorder.begin_unprofiled():
            self._open = self._valid = True
            self._due = count + self._length
            self.cost_ns += time.perf_counter_ns() - began
            return
        else:  # the recorder knows only that the step was planned for it
            self._recorder.end_unprofiled(False)
        self.cost_ns += time.perf_counter_ns() - began
        self._plan(count)

    def interrupt(self) -> bool:
        """Something else than a step begins, and is recorded; whether a block was interrupted.

        Its last step, the one under way, ends apart.

        Raises:
            BusyError: another profiler has taken the hook.
        """
        if not self._open or not self._valid:
            return False
        self._valid = False
        self._due = 0
        self._recorder.rehook()
        self._recorder.resume_functions()
        return True

    def _plan(self, count: int, more: int = 0) -> None:
        if not self._wanted():
            self._due, self._asked = sys.maxsize, True
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
        self._recorder.plan_unprofiled(self._due)

    def _rarely(self, steps: int) -> int:
        return steps * max(self._length, _LONG) // _LONG

    def _draw(self, least: int, most: int) -> int:
        """Return a number of steps; the generator's constants are those of POSIX's rand()."""
        self._drawn = (self._drawn * 1103515245 + 12345) % 2**31
        return least + (self._drawn >> 16) % (most - least)
