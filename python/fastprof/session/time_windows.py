"""Records functions in windows of time while a run has no steps, so that it keeps to its budget.

Preprocessing, inference and services have no steps.  Their functions are recorded all the time at
first, then in windows at random times, as many as the budget pays for::

    full look            |  window          window                    window
    with the hook .......|..with............with......................with....

With the first step the windows end: see :mod:`fastprof.session.function_windows`.
"""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from fastprof.capture.bell import ring_after, ring_never
from fastprof.capture.options import Recorder
from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.report.overhead import SETTLING_NS
from fastprof.session.current import in_main_thread
from fastprof.session.overhead_budget import Budget
from fastprof.session.part import Part
from fastprof.session.window_places import draw
from fastprof.snapshot import Snapshot

if TYPE_CHECKING:
    from fastprof.capture.calibrate import CallCosts

#: The full look ends after this time, or later if the budget pays for it.
LOOK_NS = 10_000_000_000
#: Length of a window.
WINDOW_NS = 100_000_000
#: Setting and removing the hook takes less.
_SWITCHES_NS = 200_000

#: The time to the next window follows from the mean cost of this many: if it followed from the last
#: one, cheap parts of a program would have more windows than dear ones.
_COSTS = 16
#: Windows take at most this part of the time.
_MOST = 0.5
#: The budget is a part of the CPU time, but at least of this part of the time.
_MOST_IDLE = 10.0


class TimeWindows(Part):
    """The windows of one run; pending calls in the main thread open and close them.

    Args:
        budget: None: the full look does not end.
        backend: whose function events to expect; None: functions are not recorded.
        wanted: whether functions may be left out at any time.
        lost: called with the reason if another profiler has taken the hook.
    """

    kind = "hook"
    in_loop = True
    between_steps = True

    def __init__(
        self,
        recorder: Recorder,
        budget: Budget | None,
        backend: str | None,
        wanted: Callable[[], bool],
        lost: Callable[[str], None],
    ) -> None:
        self._recorder = recorder
        self._budget = budget
        self._backend = backend
        self._wanted = wanted
        self._lost = lost
        self._on = False
        self._looks = True
        self._cost: CallCosts | None = None
        # When the hook was set: time, CPU time of the process, calls so far.
        self._since = (0, 0, (0, 0, 0))
        self._costs: deque[float] = deque(maxlen=_COSTS)
        self._windows = 0
        self._began = (0, 0)  # time, CPU time of the process
        self._ends_ns = 0  # of the time of which the last window was a part

    def begin(self) -> None:
        from fastprof.capture.calibrate import call_costs

        bounds = self._budget is not None and in_main_thread() and self._wanted()
        if not bounds or self._backend is None:
            return
        self._cost = call_costs(self._backend)
        if self._cost is not None:
            self._on = True
            self._began = time.perf_counter_ns(), time.process_time_ns()
            self._since = *self._began, (0, 0, 0)
            ring_after(self._ring, LOOK_NS)

    def next_step(self, count: int) -> int:
        return count + 1 if self._on or self._recorder.in_plain_time else sys.maxsize

    def at_step(self, count: int) -> None:
        self.close()

    def moved(self, count: int) -> None:
        self.close()

    def end(self, count: int) -> None:
        self.close()

    def forget(self) -> None:
        self._on = False

    def phase_changes(self, count: int) -> None:
        # Another full look begins.
        if self._on and not self._looks:
            self.close()
            if not self._recorder.in_plain_time:
                self._on = self._looks = True
                self._costs.clear()
                ring_after(self._ring, LOOK_NS)

    def close(self) -> None:
        """Record functions all the time from now on."""
        plain = self._recorder.in_plain_time
        if not self._on and not plain:
            return
        self._on = False
        if plain and not in_main_thread():  # the hook belongs to the main thread
            ring_after(self._ring, 0)
            return
        ring_never()
        try:
            self._recorder.end_plain_time(False)
        except own_errors() as error:  # BusyError
            self._lost(str(error))

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        if self._budget is None or self._looks:
            return snapshot
        return replace(snapshot, meta={**snapshot.meta, "overhead_budget": self._budget.overhead})

    def _ring(self) -> Callable[[], object] | None:
        """Return what changes the hook now; runs between two instructions of the program.

        It is called when no frame of fastprof is open any more: calls that are open are callers of
        those in the window.  A signal handler of the program may raise through this function, which
        is then called again.
        """
        recorder = self._recorder
        if not self._on:
            return partial(recorder.end_plain_time, False) if recorder.in_plain_time else None
        if not recorder.active:
            self._on = False
            self._lost("another profiler has taken the hook")
            return partial(recorder.end_plain_time, False)  # the phase ends, too
        if recorder.in_plain_time:
            # No call was recorded since.
            self._since = time.perf_counter_ns(), time.process_time_ns(), self._since[2]
            ring_after(self._ring, WINDOW_NS)
            return partial(recorder.end_plain_time, True)
        next_ns = self._after_window()
        ring_after(self._ring, LOOK_NS if next_ns is None else next_ns)
        return None if next_ns is None else recorder.begin_plain_time

    def _after_window(self) -> int | None:
        """Return the time to the next window in ns; None: the full look goes on."""
        budget, cost = self._budget, self._cost
        assert budget is not None
        assert cost is not None
        now, cpu_ns, calls = (
            time.perf_counter_ns(), time.process_time_ns(), self._recorder.call_counts(),
        )  # fmt: skip
        since_ns, cpu_since_ns, before = self._since
        new = [after - earlier for after, earlier in zip(calls, before, strict=True)]
        cost_ns = cost.of(new, cpu_ns - cpu_since_ns)
        goes_on = self._looks and cost_ns <= budget.overhead * (now - since_ns)
        self._since = now, cpu_ns, calls
        if goes_on:
            return None
        own_ns = time.perf_counter_ns() - now + _SWITCHES_NS + 2 * SETTLING_NS
        if self._looks:
            self._looks = False
            budget.begin()
            self._ends_ns = now
            cost_ns *= WINDOW_NS / (now - since_ns)  # of a window, if the next one is as dear
        else:
            budget.spend(cost_ns + own_ns)
        self._costs.append(cost_ns + own_ns)
        return self._time_to_window(budget)

    def _time_to_window(self, budget: Budget) -> int:
        """Draw the place of the next window in the time that pays for it."""
        now = time.perf_counter_ns()
        # On a busy machine, or while it waits, the program has less CPU time than time.
        idle = (now - self._began[0]) / max(1, time.process_time_ns() - self._began[1])
        pays_ns = fmean(self._costs) / budget.overhead * min(max(1.0, idle), _MOST_IDLE)
        pays_ns = round(max(pays_ns, WINDOW_NS / _MOST))
        begins_ns = max(self._ends_ns, now + budget.owed_ns())
        self._ends_ns = begins_ns + pays_ns
        self._windows += 1
        return max(0, begins_ns - now + draw(self._windows, pays_ns - WINDOW_NS))
