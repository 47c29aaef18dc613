"""Runs torch.profiler in the windows of a schedule and keeps what every one of them saw.

torch is used only if the program has imported it.  Each window is a profile of its own,
so that none drops what another one recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fastprof.session.operators_foreign import ForeignProfiler
from fastprof.session.operators_sums import OperatorSums
from fastprof.session.schedule import NONE, RECORD, RECORD_AND_SAVE, WARMUP, Schedule

if TYPE_CHECKING:
    from fastprof.session.faults import Faults
    from fastprof.session.operators import OperatorProfile
    from fastprof.snapshot_operators import OperatorSnapshot

#: Windows and files listed in a report; more are only counted.
_MAX_LISTED = 10_000

#: Whole run: a window without a last step.
_OPEN_END = sys.maxsize


class FunctionHook:
    """What is asked of the recorder: functions off for a moment, or for a window.

    Args:
        recorder: the run's.
        schedule: steps in which functions are recorded; None: all.
        recording: whether functions are recorded at all.
    """

    def __init__(
        self, recorder: Any, schedule: Schedule | None, recording: Callable[[], bool]
    ) -> None:
        self._recorder = recorder
        self._schedule = schedule
        self._recording = recording
        self._taken = self._returned = False

    def off(self) -> None:
        """Record no more functions, at the end of the run."""
        self._recorder.pause_functions()
        self._taken = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave what is done in the block out of functions and of steps."""
        self._recorder.pause_functions()
        try:
            yield
        finally:
            if self._returned:
                self._taken = self._returned = False
                if self._recording():  # else somebody else has the hook by now
                    self._recorder.rehook()
            schedule = self._schedule
            if self._recording() and (schedule is None or schedule.records(self._recorder.steps)):
                self._recorder.resume_functions()
            self._recorder.mark()

    def take_away(self) -> bool:
        """Make room for torch's stack tracer, which uses the same hook; whether it was ours."""
        if self._recorder.backend == "setprofile" and self._recording():
            self._recorder.pause_functions(unhook=True)
            self._taken = True
        return self._taken

    def put_back(self) -> None:
        """End :meth:`take_away`, when the block of :meth:`aside` ends."""
        self._returned = self._taken


class OperatorWindows:
    """The operator layer of one run.

    Args:
        options: what to record; None: nothing.
        faults: where failures are told; there are no more windows after one.
        hook: the recorder's function hook.
        rank: this process's rank.
    """

    def __init__(
        self,
        options: OperatorProfile | None,
        faults: Faults,
        hook: FunctionHook,
        rank: Callable[[], int],
    ) -> None:
        wanted = options is not None and bool(
            options.enable_cpu_profiling or options.enable_cuda_profiling
        )
        self._options = options if wanted else None
        self._schedule = None if options is None else options.schedule
        self._faults = faults
        self._hook = hook
        self._rank = rank
        self._foreign = ForeignProfiler(self._disturbed)
        self._sums = OperatorSums()
        self._windows: list[tuple[int, int]] = []
        self._files: list[str] = []
        self._lost = 0
        self._cycles = 0
        self._device = ""
        self._profile: Any = None
        self._first = self._last = 0  # of the steps recorded in the window that is open
        self._lost_this = False
        self._closed: tuple[Any, int] | None = None  # a window to be kept, its last step
        self._saw_torch = False
        self._due = 0
        self._ended = self._options is None

    # -- when --------------------------------------------------------------------

    def begin(self) -> None:
        """The run begins, with step 0."""
        if not self._ended:
            self._guard(self._arrive, 0)

    def next_step(self, count: int) -> int:
        """Return the step count at which :meth:`at_step` is due next."""
        if self._ended:
            self._due = sys.maxsize
        elif self._profile is not None or self._schedule is None:
            self._due = count + 1
        else:
            self._due = _first_of_cycle(self._schedule, count + 1)
        return self._due

    def at_step(self, count: int) -> None:
        """Step number ``count`` begins."""
        if not self._ended and count >= self._due:
            with self._hook.aside():
                self._guard(self._arrive, count)

    def end(self, count: int) -> None:
        """The run ends in step number ``count``: record no more."""
        if not self._ended:
            self._hook.off()
            if self._profile is not None:
                self._guard(self._close, count)

    def finish(self, count: int) -> None:
        """Keep what :meth:`end` has ended, and write what remains to be written."""
        if not self._ended:
            self._guard(self._keep_closed, count)
        if not self._ended:
            self._guard(self._finish, count)
        self._leave()

    def forget(self) -> None:
        """Forget everything, in a forked child: the parent has it."""
        self._ended = True
        self._profile = None

    def recorded(self) -> OperatorSnapshot | None:
        """Return what was recorded so far; None if nothing was to be."""
        options = self._options
        if options is None:
            return None
        from fastprof.snapshot_operators import OperatorSnapshot

        return OperatorSnapshot(
            device=self._device,
            windows=tuple(self._windows),
            lost=self._lost,
            shapes=options.record_shapes,
            memory=options.profile_memory,
            flops=options.with_flops,
            row_limit=options.row_limit,
            rows=self._sums.rows(),
            files=tuple(self._files),
        )

    # -- windows -----------------------------------------------------------------

    def _arrive(self, count: int) -> None:
        if self._profile is not None:
            if count <= self._last:
                with self._foreign.own():
                    self._profile.step()
                return
            self._close(count)
            self._keep_closed(count)
        if self._action(count) != NONE:
            self._open(count)
        elif self._schedule is not None and _first_of_cycle(self._schedule, count) == sys.maxsize:
            self._finish(count)
            self._leave()

    def _leave(self) -> None:
        self._ended = True
        self._foreign.uninstall()

    def _action(self, step: int) -> str:
        return RECORD if self._schedule is None else self._schedule.action(step)

    def _open(self, count: int) -> None:
        torch = sys.modules.get("torch")
        options = self._options
        if options is None or getattr(torch, "profiler", None) is None:
            return  # not imported, or not yet
        if not self._saw_torch:
            self._saw_torch = True
            self._adopt(torch)
            if self._ended:
                return
        self._foreign.install()
        if options.align_ranks:
            _wait_for_all_ranks()
        self._last = self._last_of_window(count)
        self._first = count
        while self._action(self._first) == WARMUP:
            self._first += 1
        self._lost_this = self._foreign.active
        if self._lost_this:
            self._lose()
            self._profile = _Lost()
            return
        if options.with_stack and self._hook.take_away() and not self._windows:
            self._faults.notes.append(
                "Functions were not recorded in the operator windows: with_stack needs the hook "
                "before Python 3.12."
            )
        with self._foreign.own():
            self._profile = profile = self._make(torch, count)
            profile.start()

    def _adopt(self, torch: Any) -> None:
        """torch is there now: find out what it can record."""
        options = self._options
        if options is None:
            return
        cuda = bool(options.enable_cuda_profiling) and bool(torch.cuda.is_available())
        if options.enable_cuda_profiling is True and not cuda:
            self._faults.tell(
                "Operators: CUDA profiling was asked for, but CUDA is not available; it was left "
                "out."
            )
        self._device = "cuda" if cuda else ""
        if not (cuda or options.enable_cpu_profiling):
            self._ended = True

    def _last_of_window(self, count: int) -> int:
        if self._schedule is None:
            return _OPEN_END
        last = count
        while self._schedule.action(last) != RECORD_AND_SAVE:
            last += 1
        return last

    def _make(self, torch: Any, count: int) -> Any:
        options = self._options
        assert options is not None
        kinds = torch.profiler.ProfilerActivity
        actions = torch.profiler.ProfilerAction
        of_name = {NONE: actions.NONE, WARMUP: actions.WARMUP, RECORD: actions.RECORD}
        of_name[RECORD_AND_SAVE] = actions.RECORD_AND_SAVE
        last = self._last

        def action(step: int) -> Any:
            # It asks for step 0 before it can be told which step it is.
            return of_name[self._action(max(step, count)) if step <= last else NONE]

        profile = torch.profiler.profile(
            activities=[
                *([kinds.CPU] if options.enable_cpu_profiling else ()),
                *([kinds.CUDA] if self._device else ()),
            ],
            schedule=action,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
            with_modules=options.with_modules,
        )
        profile.step_num = count
        return profile

    def _close(self, count: int) -> None:
        """End the open window, of which ``count`` is the first step that is not in it.

        At the end of the run it is the step under way, which is in it.
        """
        profile, over = self._profile, count > self._last
        with self._foreign.own():
            if over:
                profile.step()
            profile.stop()
        self._profile = None
        self._hook.put_back()
        # The step under way has hardly begun if the run ends where its loop does: alone, it
        # is no window.  Without a step() it is all there is.
        last = self._last if over else max(0, count - 1)
        if not over and count < self._first:
            self._faults.tell(
                f"Operators: the run ended in the warm-up of the window of steps {self._first} to "
                f"{self._last}."
            )
        elif not self._lost_this and last >= self._first:
            self._closed = (profile, last)

    def _keep_closed(self, count: int) -> None:
        if self._closed is not None:
            (profile, last), self._closed = self._closed, None
            with self._foreign.own():
                self._keep(profile, last)

    def _keep(self, profile: Any, last: int) -> None:
        from fastprof.session.operators_files import prefix_of, write_window

        options = self._options
        assert options is not None
        self._sums.add(profile.key_averages(group_by_input_shape=options.record_shapes))
        if len(self._windows) < _MAX_LISTED:
            self._windows.append((self._first, last))
        cycle = None if self._schedule is None or self._schedule.repeat == 1 else self._cycles
        self._cycles += 1
        if options.on_trace_ready is not None:
            try:
                options.on_trace_ready(profile)
            except Exception as error:  # the user's
                self._faults.add("operator_callback_errors", "on_trace_ready failed", error)
        if options.save_dir is None:
            return
        prefix = prefix_of(self._rank(), cycle)
        cuda = bool(self._device)
        try:
            names = write_window(profile, str(options.save_dir), prefix, options, cuda=cuda)
        except Exception as error:  # full disk, no permission, ...: the table is kept
            self._faults.add("operator_file_errors", "Writing the operators' files failed", error)
            return
        if len(self._files) < _MAX_LISTED:
            self._files += names

    def _disturbed(self) -> None:
        """The program begins to use torch.profiler itself."""
        profile = self._profile
        if profile is None or self._lost_this:
            return
        self._lost_this = True
        self._profile = _Lost()
        self._lose()
        try:
            # Before it begins: ending this later would end the program's.
            with self._foreign.own():
                profile.stop()
        except Exception as error:  # in the program's own call
            self._faults.add("operator_errors", "Ending an operator window failed", error)

    def _lose(self) -> None:
        self._lost += 1
        if self._lost == 1:
            self._faults.tell(
                f"Operators: the window that begins with step {self._first} was lost, because the "
                "program used torch.profiler itself."
            )

    # -- the end -----------------------------------------------------------------

    def _finish(self, count: int) -> None:
        """Say why there is nothing, or write the table of the whole run."""
        options = self._options
        if options is None:
            return
        if not self._windows:
            if not self._lost:
                # Without torch there is nothing to miss: no warning.
                tell = self._faults.tell if "torch" in sys.modules else self._faults.notes.append
                tell(self._why_nothing(count))
            return
        if options.save_dir is None:
            return
        from fastprof.report.operators import operator_report
        from fastprof.session.operators_files import write_stats

        report = operator_report(self.recorded())
        if report is not None and report.rows:
            self._files.append(write_stats(report, str(options.save_dir), self._rank()))

    def _why_nothing(self, count: int) -> str:
        if "torch" not in sys.modules:
            return "Operators were not recorded: the program did not import torch."
        schedule = self._schedule
        if schedule is None or (not self._saw_torch and _first_of_cycle(schedule, 0) < count):
            return f"Operators were not recorded: torch was imported too late, in step {count}."
        first = schedule.skip_first + schedule.wait + schedule.warmup
        if count == 0:
            return (
                "Operators were not recorded: no step ended. Steps end with an optimizer's "
                "step() under fastprof run, or with fastprof.step()."
            )
        return (
            f"Operators were not recorded: the run ended in step {count}, and the first window "
            f"begins with step {first} (skip_first {schedule.skip_first}, wait {schedule.wait}, "
            f"warmup {schedule.warmup}, steps counted from 0)."
        )

    def _guard(self, action: Callable[[int], None], count: int) -> None:
        """Call ``action``; should it raise, there is no operator layer from then on."""
        try:
            action(count)
        except Exception as error:  # nothing may reach the training code
            profile, self._profile, self._closed = self._profile, None, None
            if profile is not None:
                # It may have failed half-way, and must not stay on.
                with suppress(Exception), self._foreign.own():
                    profile.stop()
            self._leave()
            self._hook.put_back()
            self._faults.add("operator_errors", "Operators failed and were switched off", error)


class _Lost:
    """Stands for the profile of a window that cannot be had."""

    def step(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


def _first_of_cycle(schedule: Schedule, count: int) -> int:
    """Return the first step from ``count`` on that is not idle."""
    cycle = schedule.wait + schedule.warmup + schedule.active
    position = max(0, count - schedule.skip_first)
    number, within = divmod(position, cycle)
    begin = schedule.skip_first + number * cycle + max(within, schedule.wait)
    return begin if schedule.action(begin) != NONE else sys.maxsize


def _wait_for_all_ranks() -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
