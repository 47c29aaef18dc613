"""Runs torch.profiler in the windows of a schedule.

torch is used only if the program has imported it.  Each window is a separate profile, so none drops
another one's records.
"""

import sys
from collections.abc import Callable
from typing import Any

from fastprof.guards import dropped, is_from_outside, own_errors
from fastprof.session.faults import Faults
from fastprof.session.operators.function_hook import FunctionHook
from fastprof.session.operators.limit import EventLimit
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.operators.results import WindowResults
from fastprof.session.operators.torch_profile import (
    LostProfile,
    make_profile,
    start_quietly,
    wait_for_all_ranks,
)
from fastprof.session.operators.user_profiler import ForeignProfiler
from fastprof.session.patching.collector import collector_paused
from fastprof.session.schedule import NONE, RECORD, RECORD_AND_SAVE, WARMUP, first_of_cycle
from fastprof.snapshot.operators import OperatorSnapshot

#: Whole run: a window without a last step.
_OPEN_END = sys.maxsize


class OperatorWindows:
    """The operator layer of one run.

    Args:
        options: what to record; None: nothing.
        faults: receives failures; after one there are no more windows.
    """

    def __init__(
        self,
        options: OperatorProfile | None,
        faults: Faults,
        hook: FunctionHook,
        rank: Callable[[], int],
    ) -> None:
        self._options = options or OperatorProfile(save_dir=None)
        self._wanted = bool(
            self._options.enable_cpu_profiling or self._options.enable_cuda_profiling
        )
        self._schedule = self._options.schedule
        self._faults = faults
        self._hook = hook
        self._results = WindowResults(self._options, faults, rank)
        self._foreign = ForeignProfiler(self._disturbed)
        self._limit = EventLimit(self._options.max_events)
        # Whether the report already says that a window was skipped, or ended early.
        self._skipped = self._shortened = False
        self._not_before = 0  # no window begins before this step
        self._profile: Any = None
        self._first = self._last = 0  # of the recorded steps in the open window
        self._lost_this = False
        self._closed: tuple[Any, int] | None = None  # a window to keep, its last step
        self._saw_torch = False
        self._due = 0
        self._ended = not self._wanted

    # -- when --------------------------------------------------------------------

    def begin(self) -> None:
        """Start the run, with step 0."""
        if not self._ended:
            self._arrive_guarded(0)

    def next_step(self, count: int) -> int:
        """Return the step count at which :meth:`at_step` is due next."""
        if self._ended:
            self._due = sys.maxsize
        elif self._profile is not None or self._schedule is None:
            self._due = count + 1
        else:
            begin = first_of_cycle(self._schedule, max(count + 1, self._not_before))
            # Without a warm-up the step before shows how many operators a step has.
            early = self._action(begin) != WARMUP and count + 1 < begin < sys.maxsize
            self._due = begin - 1 if early else begin
        return self._due

    def are_between(self, first: int, last: int) -> bool:
        """Return whether a window is open, or something is due in steps ``first`` to ``last``."""
        return self._profile is not None or (not self._ended and first < self._due <= last)

    def at_step(self, count: int) -> None:
        """Handle the begin of step number ``count``."""
        if not self._ended and count >= self._due:
            with self._hook.aside():
                self._arrive_guarded(count)

    def end(self, count: int) -> None:
        """End the run in step number ``count``: record no more."""
        if not self._ended:
            self._hook.off()
            if self._profile is not None:
                with self._results.timed(), collector_paused():
                    self._guard(self._close, count)

    def finish(self, count: int) -> None:
        """Keep the results of :meth:`end`, and write the remaining files."""
        with self._results.timed():
            if not self._ended:
                self._guard(self._keep_closed, count)
            if not self._ended:
                self._guard(self._finish, count)
        self._leave()

    def forget(self) -> None:
        """Forget everything, in a forked child: the parent keeps it."""
        self._ended = True
        self._profile = None

    def recorded(self) -> OperatorSnapshot | None:
        """Return the data recorded so far; None if there was nothing to record."""
        return self._results.recorded() if self._wanted else None

    # -- windows -----------------------------------------------------------------

    def _arrive_guarded(self, count: int) -> None:
        with self._results.timed():
            self._guard(self._arrive, count)
        # Last: the counted step begins after all this work.
        self._limit.step_begins()

    def _arrive(self, count: int) -> None:
        profile = self._profile
        self._limit.step_ended(recorded=profile is not None and count > self._first)
        if profile is not None:
            enough = count >= self._first and not self._limit.allows_another()
            if count <= self._last and not (enough and not self._lost_this):
                with self._foreign.own(), collector_paused():
                    profile.step()
                return
            if count <= self._last:
                self._end_early(count)
            else:
                with collector_paused():
                    self._close(count)
            self._keep_closed(count)
        if self._action(count) != NONE:
            self._open(count)
        elif self._over(count):
            self._finish(count)
            self._leave()

    def _end_early(self, count: int) -> None:
        """End the open window before step ``count``, which would exceed its limit."""
        first, last, whole = self._first, self._last, self._schedule is None
        self._not_before = sys.maxsize if whole else last + 1
        why = (
            f"a step calls about {self._limit.step_text()} operators, counting those that "
            f"operators call, and a window records at most {self._limit.most:,}. max_events=0 "
            "(--operator max_events=0) removes the limit."
        )
        with self._foreign.own(), collector_paused():
            self._profile.stop()
        if count > first:
            self._last = count - 1
            self._closed = (self._profile, self._last)
            if not self._shortened:
                self._shortened = True
                planned = "" if whole else f" instead of step {last}"
                self._faults.notes.append(
                    f"The operator window ended with step {count - 1}{planned}: {why}"
                )
        elif not self._skipped:
            self._skipped = True
            steps = "" if whole else f" in steps {first} to {last}"
            self._faults.tell(f"Operators were not recorded{steps}: {why}")
        self._profile = None
        self._hook.put_back()

    def _over(self, count: int) -> bool:
        """Return whether no window begins any more."""
        if self._schedule is None:
            return self._not_before == sys.maxsize
        return first_of_cycle(self._schedule, max(count, self._not_before)) == sys.maxsize

    def _leave(self) -> None:
        self._ended = True
        self._foreign.uninstall()

    def _action(self, step: int) -> str:
        if step < self._not_before:
            return NONE
        return RECORD if self._schedule is None else self._schedule.action(step)

    def _open(self, count: int) -> None:
        torch = sys.modules.get("torch")
        options = self._options
        if getattr(torch, "profiler", None) is None:
            return  # not imported, or not yet
        if not self._saw_torch:
            self._saw_torch = True
            self._adopt(torch)
            if self._ended:
                return
        self._foreign.install()
        self._limit.window_begins()
        if options.align_ranks:
            wait_for_all_ranks()
        self._last = self._last_of_window(count)
        self._first = count
        while self._action(self._first) == WARMUP:
            self._first += 1
        self._lost_this = self._foreign.active
        if self._lost_this:
            self._lose()
            self._profile = LostProfile()
            return
        if options.with_stack and self._hook.take_away() and self._results.are_empty:
            self._faults.notes.append(
                "Functions were not recorded in the operator windows: with_stack needs the hook "
                "before Python 3.12."
            )
        if self._first == count and not self._limit.allows_another():
            self._profile = LostProfile()
            self._end_early(count)
            return
        with self._foreign.own(), collector_paused():
            self._profile = make_profile(
                torch, options, self._action_in_window, count, cuda=bool(self._results.device)
            )
            start_quietly(self._profile)

    def _adopt(self, torch: Any) -> None:
        """Find out what torch can record, once it is imported."""
        options = self._options
        cuda = bool(options.enable_cuda_profiling) and bool(torch.cuda.is_available())
        if options.enable_cuda_profiling is True and not cuda:
            self._faults.tell(
                "Operators: CUDA profiling was requested, but CUDA is not available; it was left "
                "out."
            )
        self._results.device = "cuda" if cuda else ""
        if not (cuda or options.enable_cpu_profiling):
            self._ended = True

    def _action_in_window(self, step: int) -> str:
        return self._action(step) if step <= self._last else NONE

    def _last_of_window(self, count: int) -> int:
        if self._schedule is None:
            return _OPEN_END
        last = count
        while self._schedule.action(last) != RECORD_AND_SAVE:
            last += 1
        return last

    def _close(self, count: int) -> None:
        """End the open window; ``count`` is the first step after it.

        At the end of the run ``count`` is the step in progress, which belongs to it.
        """
        profile, over = self._profile, count > self._last
        with self._foreign.own():
            if over:
                profile.step()
            profile.stop()
        self._profile = None
        self._hook.put_back()
        # If the run ends with its loop, the step in progress has hardly begun: alone, it is no
        # window.  Without a step() it is the only step.
        last = self._last if over else max(0, count - 1)
        if not over and count < self._first:
            if not self._nothing_is_said:  # else _why_nothing says it
                self._faults.tell(
                    f"Operators: the run ended in the warm-up of the window of steps {self._first} "
                    f"to {self._last}."
                )
        elif not self._lost_this and last >= self._first:
            self._closed = (profile, last)

    def _keep_closed(self, count: int) -> None:
        if self._closed is not None:
            (profile, last), self._closed = self._closed, None
            with self._foreign.own():
                events = self._results.keep(profile, self._first, last)
            self._limit.window_ended(events, last - self._first + 1)

    def _disturbed(self) -> None:
        """Give way: the program begins to use torch.profiler itself."""
        profile = self._profile
        if profile is None or self._lost_this:
            return
        self._lost_this = True
        self._profile = LostProfile()
        self._lose()
        try:
            # Before it begins: ending this later would end the program's.
            with self._foreign.own():
                profile.stop()
        except own_errors() as error:  # in the program's own call
            self._faults.add("operator_errors", "Ending an operator window failed", error)

    def _lose(self) -> None:
        self._results.lost += 1
        if self._results.lost == 1:
            self._faults.tell(
                f"Operators: the window that begins with step {self._first} was lost, because the "
                "program used torch.profiler itself."
            )

    # -- the end -----------------------------------------------------------------

    def _finish(self, count: int) -> None:
        """Report why there is nothing, or write the table of the whole run."""
        if not self._results.are_empty:
            self._results.write_table()
        # The report itself says so if no step ended.
        elif self._nothing_is_said and count:
            # Without torch nothing is missing: no warning.
            tell = self._faults.tell if "torch" in sys.modules else self._faults.notes.append
            tell(self._why_nothing(count))

    @property
    def _nothing_is_said(self) -> bool:
        """Whether no window was kept, and the report does not say why."""
        return self._results.are_empty and not self._results.lost and not self._skipped

    def _why_nothing(self, count: int) -> str:
        if "torch" not in sys.modules:
            return "Operators were not recorded: the program did not import torch."
        schedule = self._schedule
        if schedule is None or (not self._saw_torch and first_of_cycle(schedule, 0) < count):
            return f"Operators were not recorded: torch was imported too late, in step {count}."
        first = schedule.skip_first + schedule.wait + schedule.warmup
        return (
            f"Operators were not recorded: the run ended in step {count}, and the first window "
            f"begins with step {first} (skip_first {schedule.skip_first}, wait {schedule.wait}, "
            f"warmup {schedule.warmup}, steps counted from 0)."
        )

    def _guard(self, action: Callable[[int], None], count: int) -> None:
        """Call ``action``; if it raises, switch the operator layer off."""
        try:
            action(count)
        except BaseException as error:  # nothing of ours may reach the training code
            profile, self._profile, self._closed = self._profile, None, None
            if profile is not None:
                # It may have failed half-way, and must not stay on.
                with dropped(), self._foreign.own():
                    profile.stop()
            self._hook.put_back()
            if not isinstance(error, Exception) or is_from_outside(error):
                self._not_before = count + 1  # this window alone is lost
                raise
            self._leave()
            self._faults.add("operator_errors", "Operators failed and were switched off", error)
