"""The account of a run: what its budget allows fastprof to cost, and what fastprof has cost."""

from collections import deque
from collections.abc import Callable
from statistics import median

from fastprof.capture.options import Recorder
from fastprof.clock import time
from fastprof.report.overhead import SETTLING_NS
from fastprof.session.window_places import level_of

#: The hook's cost is the upper quartile over this many places, so that the budget also holds if the
#: next one is dearer than most.
_PLACES, _UPPER = 16, 0.75

#: Plain steps keep automatic sections if steps with them cost at most this part of the budget.
#: Windows get at least the other part.
_ALWAYS_MAY, _WINDOWS_GET = 0.5, 0.25

#: Places where plain steps have automatic sections in any case: the median of their costs counts.
_SECTION_PLACES = 8


class Budget:
    """One run's account; only the training thread uses it.

    Args:
        overhead: what fastprof may cost, as a part of the program's time.
        own_ns: returns the time of fastprof's own code on the training thread so far, in ns.
        is_rank: returns whether this process is one of several.
    """

    def __init__(
        self,
        overhead: float,
        recorder: Recorder,
        own_ns: Callable[[], int],
        is_rank: Callable[[], bool] = lambda: False,
    ) -> None:
        self.overhead = overhead
        self._recorder = recorder
        self.own_ns = own_ns
        self.is_rank = is_rank
        self._at_ns = 0
        self._balance_ns = 0.0
        self._seen = (0, 0)  # count of steps and own cost, when plain steps began
        self._always_ns = 0.0  # own cost of a plain step
        self._with_sections: deque[float] = deque(maxlen=_SECTION_PLACES)  # ... of one with them
        #: The median plain step, and what the hook adds to one, in ns.
        self.step_ns = self.hook_ns = 0.0

    def begin(self) -> None:
        """Earn from now on."""
        self._at_ns = time.perf_counter_ns()

    def is_free(self) -> bool:
        """Return whether nothing is owed."""
        now = time.perf_counter_ns()
        self._balance_ns += self._share() * (now - self._at_ns)
        self._at_ns = now
        return self._balance_ns >= 0.0

    def spend(self, ns: float) -> None:
        """Count a cost in ns."""
        self._balance_ns -= ns

    def judge(self) -> bool:
        """Learn what the hook costs; return whether the run has measured it yet."""
        places = self._recorder.last_blocks(_PLACES)
        if places:
            costs = sorted(hooked - plain for plain, hooked in places)
            self.hook_ns = float(max(0, costs[int(_UPPER * (len(costs) - 1) + 0.999)]))
            self.step_ns = float(max(1, median(plain for plain, _ in places)))
        return bool(places)

    def plain_begins(self, count: int) -> None:
        """Note that plain steps begin after ``count`` steps."""
        self._seen = count, self.own_ns()

    def block_ends(self, count: int) -> None:
        """Note that the first plain steps are over: those with automatic sections in any case."""
        self._with_sections.append(self._spent(count))
        self.plain_begins(count)

    def plain_ends(self, count: int) -> None:
        """Learn what plain steps cost."""
        if count > self._seen[0]:
            self._always_ns = self._spent(count)

    def _spent(self, count: int) -> float:
        """Return the own cost of a step since plain steps began."""
        return (self.own_ns() - self._seen[1]) / (count - self._seen[0])

    def pays_for_sections(self) -> bool:
        """Return whether plain steps may have automatic sections."""
        if self.is_rank():  # they show which rank waits
            return True
        return median(self._with_sections) <= _ALWAYS_MAY * self.overhead * self.step_ns

    def pays_for_all(self) -> bool:
        """Return whether functions may be recorded in all steps."""
        return self.hook_ns + median(self._with_sections) <= self.overhead * self.step_ns

    def window_ns(self, steps: int, switches_ns: int, compared: int) -> float:
        """Return what a window costs.

        Args:
            steps: those with the hook.
            switches_ns: time that removing and setting it takes.
            compared: plain steps after it that have automatic sections as well.
        """
        cost_ns = steps * self.hook_ns + switches_ns + 2 * SETTLING_NS
        if not self.pays_for_sections():
            cost_ns += (steps + compared) * median(self._with_sections)
        return cost_ns

    def level(self, window_ns: float) -> int:
        """Return the level of windows that cost ``window_ns``: see :mod:`window_places`."""
        return level_of(window_ns / (self._share() * self.step_ns))

    def _share(self) -> float:
        """Return what windows may cost, as a part of the time: what plain steps leave."""
        left = self.overhead - self._always_ns / max(1.0, self.step_ns)
        return max(left, _WINDOWS_GET * self.overhead)

    def steps_owed(self) -> int:
        """Return the number of plain steps that pay for what is owed."""
        return int(self.owed_ns() / self.step_ns)

    def owed_ns(self) -> int:
        """Return the time that pays for what is owed."""
        return 0 if self.is_free() else int(-self._balance_ns / self._share())
