"""Chooses the steps in which functions are recorded, so that fastprof's cost keeps to a budget.

A run begins with a full look: functions are recorded in all steps but a few, which measure what the
hook costs.  Then most steps are plain, without the hook, and windows of a few steps have it::

    full look               | plain         window plain                  window
    with . with . with . with .............. with  ....................... with ...

See docs/decisions/0049-windows.md.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from fastprof.capture.options import Recorder
from fastprof.clock import time
from fastprof.guards import is_near_limit, own_errors
from fastprof.report.figures import plural
from fastprof.session.changes import Changes
from fastprof.session.environment.thread_cpu import cpu_between, thread_cpu
from fastprof.session.overhead_budget import Budget
from fastprof.session.part import Part
from fastprof.session.window_places import next_place
from fastprof.snapshot import Snapshot
from fastprof.snapshot.steps import PlainCpu

#: Plain steps per block of the full look, if steps are long; the first one is not used.
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

#: The full look ends after this many measured steps, or after this time.
_LOOK_STEPS, _LOOK_NS = 200, 10_000_000_000

#: Steps of a window that are measured, after those that settle.
WINDOW = 4

#: Work other than steps (validation, checkpoints) that is recorded whatever it costs.
_FIRST_PHASES = 3

_HOOKED, _PLAIN, _SETTLING = "hooked", "plain", "settling"


class FunctionWindows(Part):
    """A run's steps with and without the hook; only the training thread calls it.

    Generators of its own draw the numbers of steps at random: the program's generator is unchanged,
    and two runs of a program have the same blocks and windows if its steps are long.

    Args:
        budget: None: the full look does not end.
        wanted: whether functions may be left out of any step.
        hindered: whether the steps from the first argument to the second are not like others.
        switch_sections: switches automatic sections of the next steps; returns whether there
            are any.
        warm_up: number of first steps of the run, which are not measured.
        lost: called with the reason if another profiler has taken the hook.
        changes: opens a window when the loop changes; None: windows are at planned places only.
    """

    kind = "hook"
    between_steps = True

    def __init__(
        self,
        recorder: Recorder,
        budget: Budget | None,
        wanted: Callable[[], bool],
        hindered: Callable[[int, int], bool],
        warm_up: int,
        lost: Callable[[str], None],
        switch_sections: Callable[[bool], bool],
        changes: Changes | None = None,
    ) -> None:
        self._recorder = recorder
        self._budget = budget
        self._switch_sections = switch_sections
        self._sections_off = False  # in some plain steps
        self._changes = changes
        self._wanted = wanted
        self._hindered = hindered
        self._warm_up = warm_up
        self._lost = lost
        self._drawn = 1
        self._due = sys.maxsize  # number of steps after which a block begins or ends
        self._asked = True  # whether :meth:`at_step` has checked the planned steps
        self._length = BLOCK
        self._state = _HOOKED
        self._valid = True
        self._looks = True  # the full look goes on
        self._look: dict[str, float] = {}  # what it cost, when it is over
        self._look_began_ns = 0
        # Number of steps after which the time of the full look is checked.
        self._checked_at = warm_up if budget is not None else sys.maxsize
        self._measured = 0  # steps of it, before the last block
        self._judged_at = sys.maxsize  # number of steps after which plain ones can be compared
        self._recorded_from = 0  # when the hook was set for work other than steps, in ns; 0: not
        self._phases: Counter[str] = Counter()  # work other than steps, by phase of the run
        self._left_out = 0  # such work without functions
        #: Time spent so far on removing and restoring the hook.
        self.cost_ns = 0
        self._settled = 0  # steps with the hook that are not measured
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
        else:
            self._checked_at = sys.maxsize

    @property
    def open(self) -> bool:
        """Whether the current step belongs to a block, or follows a change of the hook."""
        return self._state == _SETTLING or (self._state == _PLAIN and self._looks)

    def next_step(self, count: int) -> int:
        due = self._due if self._asked else self._due - 1
        changes = self._changes.due if self._changes is not None else due
        return min(due, self._reads_at, self._judged_at, self._checked_at, changes)

    def at_step(self, count: int) -> None:
        """Begin step number ``count``."""
        if count < self.next_step(count):
            return
        began = time.perf_counter_ns()
        try:
            self._at_step(count)
        except own_errors() as error:  # BusyError
            if is_near_limit(error):
                return  # the next step tries again
            self._due = self._reads_at = self._judged_at = sys.maxsize
            self._asked, self._valid = True, False  # no more windows: the other steps are plain
            self._stop_looking()
            self._lost(str(error))
        self.cost_ns += time.perf_counter_ns() - began

    def phase_begins(self, phase: str) -> bool:
        """Restore the hook, if recorded work other than a step begins.

        Returns whether it ended plain steps; the current step still counts separately.
        """
        self._phases[phase] += 1
        try:
            return self._interrupt(phase)
        except own_errors() as error:  # BusyError; steps are measured from the next one on
            self._lost(str(error))
            return True

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        # Removing and restoring the hook is in no measured step, and costs the program time.
        meta = dict(snapshot.meta)
        own_ns = meta.get("own_ns")
        meta["own_ns"] = (own_ns if isinstance(own_ns, int) else 0) + self.cost_ns
        meta["unprofiled_ns"] = self.cost_ns
        meta["settling_steps"] = self._settled
        if self._budget is not None and not self._looks:
            meta["overhead_budget"] = self._budget.overhead
            meta |= self._look
            meta["look_own"] = self._look["look_own"] / max(1.0, self._budget.own_ns())
        elif self._budget is not None and self._checked_at != self._warm_up:
            meta["full_look"] = self._budget.overhead
        if self._sections_off:
            meta["sections_off"] = True
        notes = snapshot.notes
        if self._left_out:
            note = (
                f"Functions were left out in {plural(self._left_out, 'interruption')} of the steps "
                "(validation, checkpoints, starts of workers), as the bound of the cost did not "
                "pay for them: that time counts as own time of the function or section around it."
            )
            notes = (*notes, note)
        # The CPU time of the last blocks' steps; None: none is known.
        steps = replace(snapshot.steps, unprofiled_cpu=tuple(self._cpu.values()) or None)
        return replace(snapshot, meta=meta, steps=steps, notes=notes)

    def _at_step(self, count: int) -> None:
        if count >= self._reads_at:
            self._reads_at = sys.maxsize
            self._read = thread_cpu()
        if count >= self._checked_at:
            self._check_time(count)
        if count >= self._judged_at:
            self._judge(count)
        if self._has_changed(count):  # the next window, which is paid for, begins now
            self._due = min(self._due, count)
        if count < self._due:
            if not self._asked and count == self._due - 1:
                self._asked = True
                self._length = self._recorder.unprofiled_length(_SETTLES_NS)
                if self._hindered(self._due, self._due + self._length):
                    self._plan(count)  # before the recorder counts that step separately
        elif self._state == _HOOKED:
            self._take_hook(count)
        elif self._state == _PLAIN and self._valid and not self._looks:
            self._begin_window(count)
        else:
            self._measure(count)

    def _take_hook(self, count: int) -> None:
        """Begin plain steps; the recorder already counts this one separately."""
        hooked = cpu_between(self._read, thread_cpu())
        if self._hindered(count, count + self._length) or not self._recorder.begin_unprofiled():
            self._recorder.end_unprofiled(False)
            self._plan(count)
            return
        self._state, self._valid, self._hooked = _PLAIN, True, hooked
        self._due = sys.maxsize
        self._judged_at = count + self._length
        self._reads_at = self._judged_at - self._counting()
        self._measured += count - self._since[0]
        if self._budget is not None:
            self._budget.plain_begins(count)

    def _judge(self, count: int) -> None:
        """Decide how many plain steps follow: those of a block are over."""
        self._judged_at = sys.maxsize
        self._blocks += 1
        self._keep_cpu(count)
        self._due = count  # the hook is set again
        budget = self._budget
        if budget is None:
            return
        budget.block_ends(count)
        if not self._has_looked():
            return
        if not budget.judge() or (self._looks and budget.pays_for_all()):
            return
        if self._looks:
            self._looks, self._checked_at = False, sys.maxsize
            self._look = {
                "look_steps": count,
                "look_measured": self._measured,
                "look_changes": 2 * self._blocks,
                "look_unhooking_ns": self.cost_ns,
                "look_own": budget.own_ns(),
            }
            budget.begin()
        settle = self._settling()
        switches_ns = self.cost_ns - self._paid_ns
        cost_ns = budget.window_ns(settle + WINDOW, switches_ns, self._length)
        self._paid_ns = self.cost_ns
        budget.spend(cost_ns)
        level = budget.level(cost_ns)
        due = next_place(count + settle + budget.steps_owed(), level) - settle
        # A window is set before what must not be in plain steps.
        while due > count and self._hindered(count, due + self._length):
            due = count + (due - count) // 2
        self._due = due
        if self._changes is not None and not budget.is_rank():  # all ranks open the same windows
            self._changes.plan(count)
        if not budget.pays_for_sections() and self._switch_sections(False):
            self._sections_off = True

    def _check_time(self, count: int) -> None:
        """Begin a block if the time of the full look is over and the next block is far."""
        now = time.perf_counter_ns()
        self._look_began_ns = self._look_began_ns or now
        left = _LOOK_NS - (now - self._look_began_ns)
        steps = count - self._warm_up
        if left <= 0:
            self._checked_at = sys.maxsize
            if self._state == _HOOKED and self._looks and self._due > count + 2 * _NEAR:
                self._due, self._asked = count + _NEAR + 2, False
                self._reads_at, self._read = count + 2, {}
                self._recorder.plan_unprofiled(self._due)
        else:
            usual = (_LOOK_NS - left) // steps if steps else left
            self._checked_at = count + max(1, min(_LEAST, left // max(1, usual)))

    def _has_looked(self) -> bool:
        return self._measured >= _LOOK_STEPS or self._checked_at == sys.maxsize

    def _begin_window(self, count: int) -> None:
        """Set the hook; the next steps pay for the change, and are neither plain nor measured."""
        if self._budget is not None:
            self._budget.plain_ends(count)
        self._switch_sections(True)
        self._set_hook()
        self._state, self._due = _SETTLING, count + self._settling()
        self._settled += self._settling()

    def _measure(self, count: int) -> None:
        """Begin measured steps."""
        self._switch_sections(True)
        self._recorder.end_unprofiled(self._valid)
        self._state = _HOOKED
        self._reads_at = self._judged_at = sys.maxsize
        if self._recorded_from and self._budget is not None:
            ns = time.perf_counter_ns() - self._recorded_from
            cost = self._budget.hook_ns / max(1.0, self._budget.step_ns + self._budget.hook_ns)
            self._budget.spend(cost * ns)
        self._recorded_from = 0
        self._plan(count)

    def _interrupt(self, phase: str) -> bool:
        if self._state != _PLAIN or not self._valid:
            return False
        if not self._looks and self._budget is not None:
            if self._phases[phase] > _FIRST_PHASES and not self._budget.is_free():
                self._left_out += 1
                return False
            self._recorded_from = time.perf_counter_ns()
            if self._judged_at == sys.maxsize:  # otherwise these steps have automatic sections
                self._budget.plain_ends(self._recorder.steps)
        self._valid = False
        self._due, self._judged_at = 0, sys.maxsize
        self._set_hook()
        return True

    def _has_changed(self, count: int) -> bool:
        changes = self._changes
        if changes is None or count < changes.due:
            return False
        return not self._hindered(count, count + self._length) and changes.are_there(count)

    def _stop_looking(self) -> None:
        if self._changes is not None:
            self._changes.stop()

    def _set_hook(self) -> None:
        self._stop_looking()
        self._recorder.rehook()
        self._recorder.resume_functions()

    def _settling(self) -> int:
        """Return how many steps after a change of the hook are left out."""
        return self._length - self._counting()

    def _counting(self) -> int:
        """Return how many steps of a block count: as many as were left out and one more."""
        return min(_COUNT, (self._length + 1) // 2)

    def _keep_cpu(self, count: int) -> None:
        plain, hooked = cpu_between(self._read, thread_cpu()), self._hooked
        if plain is None or hooked is None:
            return
        first, counting = count - self._length, self._counting()
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
        self._asked = False
        if self._looks:
            self._due = count + more + self._distance(steps, elapsed_ns)
            self._reads_at, self._read = self._due - _NEAR, {}
        else:
            self._due = count + WINDOW
            self._read = thread_cpu()
        self._recorder.plan_unprofiled(self._due)

    def _distance(self, steps: int, elapsed_ns: int) -> int:
        """Return the number of steps to the next block of the full look."""
        cost_ns = self.cost_ns - self._paid_ns
        self._paid_ns = self.cost_ns
        pays = round(cost_ns / _MAX_COST * steps / elapsed_ns) if elapsed_ns else 0
        early = self._blocks < _EARLY_BLOCKS
        least, most = (_EARLY_LEAST, _EARLY_MOST) if early else (_LEAST, _MOST)
        return max(0, pays - self._rarely(least)) + self._rarely(self._draw(least, most))

    def _rarely(self, steps: int) -> int:
        return steps * max(self._length, _LONG) // _LONG

    def _draw(self, least: int, most: int) -> int:
        """Return a number of steps; the generator's constants are those of POSIX's rand()."""
        self._drawn = (self._drawn * 1103515245 + 12345) % 2**31
        return least + (self._drawn >> 16) % (most - least)
