"""Runs torch.profiler in the windows of a schedule.

torch is used only if the program has imported it.  Each window is a separate profile, so none drops
another one's records.
"""

import atexit
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastprof.guards import dropped, is_from_outside, own_errors
from fastprof.session.faults import Faults
from fastprof.session.function_hook import FunctionHook
from fastprof.session.operators.limit import EventLimit
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.operators.results import WindowResults
from fastprof.session.operators.session import (
    BackwardEnds,
    OpenBlocks,
    Session,
    in_backward,
    is_live,
)
from fastprof.session.operators.torch_profile import make_profile, wait_for_all_ranks
from fastprof.session.operators.user_profiler import ForeignProfiler
from fastprof.session.part import Part
from fastprof.session.patching.collector import collector_paused
from fastprof.session.schedule import NONE, RECORD, RECORD_AND_SAVE, WARMUP, first_of_cycle
from fastprof.snapshot import Snapshot
from fastprof.snapshot.operators import OperatorSnapshot

#: Whole run: a window without a last step.
_OPEN_END = sys.maxsize

_CUDA_TOO = (
    "Operators: the windows recorded CUDA, too: torch.profiler without it would leave the "
    "program's later profiles without GPU events."
)
_BY_PROGRAM = "the program used torch.profiler itself"


class OperatorWindows(Part):
    """The operator layer of one run.

    Args:
        options: what to record; None: nothing.
        faults: receives failures; after one there are no more windows.
    """

    kind = "operator"
    between_steps = True

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
        self._backward = BackwardEnds(self._backward_ended)
        self._blocks = OpenBlocks()
        self._late: int | None = None  # the step that began in backward, which has to end first
        self._hindered = self._busy = False
        self._limit = EventLimit(self._options.max_events)
        # Whether the report already says that a window was skipped, or ended early.
        self._skipped = self._shortened = False
        self._not_before = 0  # no window begins before this step
        self._session: Session | None = None
        self._first = self._last = 0  # of the recorded steps in the open window
        self._lost_this = False
        self._closed: tuple[Any, int] | None = None  # a window to keep, its last step
        self._saw_torch = False
        self._due = 0
        self._ended = not self._wanted

    # -- when --------------------------------------------------------------------

    def begin(self) -> None:
        """Start the run, with step 0."""
        if not self._ended and self._may_arrive(0):
            self._arrive_guarded(0)

    def next_step(self, count: int) -> int:
        """Return the step count at which :meth:`at_step` is due next."""
        if self._ended:
            self._due = sys.maxsize
        elif self._session is not None or self._schedule is None or self._late is not None:
            self._due = count + 1
        else:
            begin = first_of_cycle(self._schedule, max(count + 1, self._not_before))
            # Without a warm-up the step before shows how many operators a step has.
            early = self._action(begin) != WARMUP and count + 1 < begin < sys.maxsize
            self._due = begin - 1 if early else begin
        return self._due

    def are_between(self, first: int, last: int) -> bool:
        """Return whether a window is open, or something is due in steps ``first`` to ``last``."""
        return self._session is not None or (not self._ended and first < self._due <= last)

    def at_step(self, count: int) -> None:
        """Handle the begin of step number ``count``."""
        if not self._ended and count >= self._due and self._may_arrive(count):
            with self._hook.aside():
                self._arrive_guarded(count)

    def moved(self, count: int) -> None:
        # torch's profiler prints an error if it first begins in another thread than the import.
        if not self._ended and self._session is None:
            self._ended = True
            self._faults.notes.append(
                "No operators were recorded: they are only if the training runs in the thread "
                "that started the run."
            )

    def end(self, count: int) -> None:
        """End the run in step number ``count``: record no more."""
        if self._ended:
            return
        self._hook.off()
        session = self._session
        if session is None:
            return
        if session.may_end:
            with self._results.timed(), collector_paused():
                self._guard(self._close, count)
        else:
            if not self._lost_this:
                where = "inside backward" if session.is_my_thread else "in another thread"
                self._lose(f"the run ended {where}")
            # torch crashes if it exits with a session that has a collector.
            if session.is_my_thread:
                atexit.register(self._stop_left)
            else:
                self._guard(lambda count: session.take_collector(), count)
            self._backward.watch()  # its thread may go on

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
        self._backward.forget()
        self._blocks.forget()
        if self._session is not None:
            self._session.hush()

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, operators=self.recorded())

    def recorded(self) -> OperatorSnapshot | None:
        """Return the data recorded so far; None if there was nothing to record."""
        return self._results.recorded() if self._wanted else None

    # -- windows -----------------------------------------------------------------

    def _may_arrive(self, count: int) -> bool:
        """Return whether torch.profiler may begin, go on and end here, as step ``count`` begins.

        If not because this is in backward, :meth:`_backward_ended` makes up for it.
        """
        session = self._session
        if in_backward():
            self._late = count
            self._backward.watch()
            if session is None:
                self._hindered = True
                self._limit.step_ended(recorded=False)
                self._limit.step_begins()
            return False
        return session is None or session.may_end

    def _backward_ended(self) -> None:
        if in_backward() or (self._session is not None and not self._session.may_end):
            return
        if self._ended:
            self._stop_left()
        elif self._late is not None:
            with self._hook.aside(within_step=True):
                self._arrive_guarded(self._late)

    def _stop_left(self) -> None:
        """End the session that the end of the run left, if possible here."""
        if self._session is not None and self._session.may_end:
            self._session.stop()
            self._session = None
        self._leave()

    def _arrive_guarded(self, count: int) -> None:
        with self._results.timed():
            self._guard(self._arrive, count)
        # Last: the counted step begins after all this work.
        self._limit.step_begins()

    def _arrive(self, count: int) -> None:
        session, late = self._session, self._late is not None
        self._late = None
        if session is not None or not late:
            self._limit.step_ended(recorded=session is not None and count > self._first)
        if session is not None:
            enough = count >= self._first and not self._limit.allows_another()
            if count <= self._last and not (enough and not self._lost_this):
                with collector_paused():
                    session.step(count)
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
        with collector_paused():
            profile = self._session.stop() if self._session is not None else None
        if count > first:
            self._last = count - 1
            if profile is not None:
                self._closed = (profile, self._last)
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
        self._session = None
        self._hook.put_back()

    def _over(self, count: int) -> bool:
        """Return whether no window begins any more."""
        if self._schedule is None:
            return self._not_before == sys.maxsize
        return first_of_cycle(self._schedule, max(count, self._not_before)) == sys.maxsize

    def _leave(self) -> None:
        self._ended = True
        if self._session is None:
            self._foreign.uninstall()
            self._backward.forget()
            self._blocks.forget()

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
        self._blocks.watch()
        self._limit.window_begins()
        if options.align_ranks:
            wait_for_all_ranks()
        self._last = self._last_of_window(count)
        self._first = count
        while self._action(self._first) == WARMUP:
            self._first += 1
        self._lost_this = self._foreign.active or is_live()
        if self._lost_this:
            self._lose(_BY_PROGRAM)
            self._session = Session(None, self._foreign, self._blocks)
            return
        if options.with_stack and self._hook.take_away() and self._results.are_empty:
            self._faults.notes.append(
                "Functions were not recorded in the operator windows: with_stack needs the hook "
                "before Python 3.12."
            )
        if self._first == count and not self._limit.allows_another():
            self._end_early(count)
            return
        with collector_paused():
            profile = make_profile(
                torch, options, self._action_in_window, count, cuda=bool(self._results.device)
            )
            self._session = Session(profile, self._foreign, self._blocks)
            self._session.start()

    def _adopt(self, torch: Any) -> None:
        """Find out what torch can record, once it is imported."""
        options = self._options
        wanted = bool(options.enable_cuda_profiling)
        # Never a session without CUDA where there is CUDA: in torch 2.13 and 2.14 it leaves all
        # later profiles of the program without GPU events, and up to 2.11 it takes CUPTI, too.
        cuda = (wanted or options.enable_cpu_profiling) and bool(torch.cuda.is_available())
        if cuda and not wanted:
            self._faults.notes.append(_CUDA_TOO)
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
        profile = None if self._session is None else self._session.stop()
        self._session = None
        self._hook.put_back()
        if profile is not None:
            profile.step_num = count  # as torch has it when it calls on_trace_ready
        # If the run ends with its loop, the step in progress has hardly begun: alone, it is no
        # window.  Without a step() it is the only step.
        last = max(0, count - 1)
        if count < self._first:
            if not self._nothing_is_said:  # else _why_nothing says it
                self._faults.tell(
                    f"Operators: the run ended in the warm-up of the window of steps {self._first} "
                    f"to {self._last}."
                )
        elif not self._lost_this and last >= self._first and profile is not None:
            self._closed = (profile, last)

    def _keep_closed(self, count: int) -> None:
        if self._closed is not None:
            (profile, last), self._closed = self._closed, None
            with self._foreign.own():
                events = self._results.keep(profile, self._first, last)
            self._limit.window_ended(events, last - self._first + 1)

    def _disturbed(self) -> None:
        """Give way: the program begins to use torch.profiler itself."""
        session = self._session
        if session is None:
            return
        if not self._ended and not self._lost_this:
            self._lose(_BY_PROGRAM)
        try:
            # Before it begins: ending this later would end the program's.
            session.give_way()
        except own_errors() as error:  # in the program's own call
            self._faults.add("operator_errors", "Ending an operator window failed", error)

    def _lose(self, because: str) -> None:
        self._lost_this = True
        self._results.lost += 1
        if self._results.lost == 1:
            self._faults.tell(
                f"Operators: the window that begins with step {self._first} was lost, because "
                f"{because}."
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
        if self._hindered and (schedule is None or first_of_cycle(schedule, 0) < count):
            return (
                "Operators were not recorded: the steps of the window ended inside backward, where "
                "torch.profiler cannot begin."
            )
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
        if self._busy:
            return  # a signal handler, or another thread, ends a step meanwhile
        self._busy = True
        try:
            action(count)
        except BaseException as error:  # nothing of ours may reach the training code
            session, self._session, self._closed = self._session, None, None
            if session is not None:
                # It may have failed half-way, and must not stay on.
                with dropped():
                    session.stop(failed=True)
            self._hook.put_back()
            outside = not isinstance(error, Exception) or is_from_outside(error)
            if outside or self._faults.is_gap("operator_errors", error):
                self._not_before = count + 1  # this window alone is lost
                if outside:
                    raise
                return
            self._leave()
            self._faults.add("operator_errors", "Operators failed and were switched off", error)
        finally:
            self._busy = False
