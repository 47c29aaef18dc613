"""A run: its recorder, its loop, and the parts that record it."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fastprof.errors import StateError
from fastprof.guards import dropped, own_errors
from fastprof.ranks.exchange.live import LiveRanks
from fastprof.ranks.exchange.pace import UNKNOWN_END_S
from fastprof.report.figures import plural
from fastprof.session import current
from fastprof.session.environment import switch
from fastprof.session.environment.rank import Identity
from fastprof.session.faults import Faults
from fastprof.session.function_hook import FunctionHook
from fastprof.session.loaders.loading import Loading
from fastprof.session.loaders.timing import check_loader, wrap
from fastprof.session.options import Options
from fastprof.session.own_time import OwnTime, clock
from fastprof.session.part import Part
from fastprof.session.parts import make_parts
from fastprof.session.run_phase import RunPhase
from fastprof.session.stages import Stages

if TYPE_CHECKING:
    from fastprof.results.report import Report
    from fastprof.snapshot import Snapshot

_L = TypeVar("_L", bound=Iterable[Any])

_NEW, _RUNNING, _STOPPED, _OFF, _FORKED = "new", "running", "stopped", "off", "forked"


class Run:
    """The run behind a :class:`~fastprof.Profiler`, as loaders and integrations use it.

    It has one recorder and starts once.  After :meth:`start` no failure in it raises into
    the program.
    """

    def __init__(self, options: Options, *, enabled: bool) -> None:
        self._options = options
        self._state = _NEW if enabled and switch.MODE != "off" else _OFF
        self._ending_in = 0  # ident of the thread that ends the run
        self.faults = Faults()
        #: Which process of a distributed job this is.
        self.identity = Identity()
        self.recorder = options.recorder.create(skip_steps=options.skip_first)
        self.own_time = OwnTime()  # of fastprof's Python code in the loop
        #: Its loaders, and what their iterators read at every batch.
        self.loading = Loading(self, options)
        #: What the run consists of; integrations append their hooks.
        self.parts = make_parts(self, options)
        self.functions = self.parts.of(FunctionHook)
        #: Parts of the run with another optimizer on other data.
        self.stages = self.parts.of(Stages)
        self.ranks = self.parts.of(LiveRanks)
        self._phase = self.parts.of(RunPhase)
        #: Prints the report if the interpreter's exit ends the run and nothing else receives it.
        self.print_at_exit: Callable[[], object] = lambda: self.report().show(sys.stderr)
        #: The program's handle on this run, while it is active: the Profiler, whose module imports
        #: this one.  It must live as long, and no longer than the program wants.
        self.profiler: Any = None
        #: Where the run was started, as ``file:line``; empty before the start.
        self.started_at = ""
        #: True for the run of FASTPROF=1, which gives way to one that the program starts.
        self.gives_way = False
        #: What the hooks saw, for the report.
        self.facts: dict[str, str | float] = {}

    def start(self, profiler: Any = None) -> None:
        """Begin recording, and the first step; raises like :meth:`fastprof.Profiler.start`.

        Args:
            profiler: the program's handle.
        """
        if self._state == _OFF:
            return
        if self._state == _RUNNING:
            raise StateError(f"this Profiler is already running, started at {self.started_at}")
        if self._state != _NEW:
            raise StateError("a Profiler records one run, and this one is over; create another")
        self.started_at = current.caller()
        self.identity.ask()
        begun: list[Part] = []
        try:
            earlier = current.claim(self)
            if earlier is not None and not earlier.gives_way:
                was = f"The run started at {earlier.started_at} was still active"
                self.faults.tell(f"{was}; this one has ended it.")
            for part in self.parts:
                begun.append(part)
                if part.must_begin:
                    part.begin()
                else:
                    self.protect(part.kind, part.begin)
            self.recorder.mark()
            self.recorder.next_event = self.parts.plan(0)
        except BaseException:
            try:
                self._each(begun[::-1], "end")
            finally:
                current.release(self)
            raise
        self._state, self.profiler = _RUNNING, profiler
        self.loading.counting = True

    def stop(self) -> None:
        """End the run: log an unfinished validation pass, print and save, as configured."""
        # A signal's handler may call it while it runs.
        if self._state != _RUNNING or self._ending_in == get_ident():
            return
        self._ending_in = get_ident()
        profiler, self.profiler = self.profiler, None
        try:
            self._each([part for part in reversed(self.parts) if part.in_loop], "end")
            self.protect("phase", self.recorder.end_loop)
        finally:
            self._state = _STOPPED
            self.loading.counting = False
            try:
                self._each([part for part in reversed(self.parts) if not part.in_loop], "end")
                self._each(self.parts, "finish")
            finally:
                self.loading.watches.restore()
                current.release(self)
                self._each(self.parts, "publish")
                del profiler  # its end, if the program has dropped it, frees the recording

    def forget(self) -> None:
        """Free the recording of a run that is over; nothing reads it any more."""
        if self._state in (_STOPPED, _FORKED):
            with dropped():  # RuntimeError: another thread reads it just now
                self.recorder.clear()

    def _each(self, parts: Iterable[Part], method: str) -> None:
        """Call the method of all parts; an interrupt costs one of them, not all."""
        interrupt: BaseException | None = None
        for part in parts:
            try:
                self.protect(part.kind, getattr(part, method), self.recorder.steps)
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    def stop_functions(self, why: str) -> None:
        """Record no more functions; sections, steps and metrics continue."""
        if self._state == _RUNNING:
            self.protect("stop", self.functions.stop, why)

    def stop_at_exit(self) -> None:
        """End the run because the interpreter exits.

        If nothing is configured to receive the result, the report goes to ``sys.stderr``, followed
        by the last state of all ranks.
        """
        from fastprof.ranks.render.brief import show_ranks

        if hasattr(sys, "last_value"):
            self.facts["ended_by"] = type(sys.last_value).__name__
        prints = self.identity.rank == 0 and not any(part.has_output for part in self.parts)
        profiler = self.profiler
        if prints:
            # A run ended by an exception does not wait; sys.exit(3) is not known from sys.exit(0).
            self.ranks.ask(lambda: not hasattr(sys, "last_value"), UNKNOWN_END_S)
        self.stop()
        if prints:
            # Before the ranks: a waiting process may be killed.
            self.protect("report", self.print_at_exit)
            with suppress(KeyboardInterrupt):
                self.protect("report", show_ranks, self.ranks.job(), sys.stderr)
        del profiler  # the recording lasted until here

    def stop_in_child(self) -> None:
        """End the run in a forked child: the parent continues it, the child forgets it."""
        self._state, self.profiler = _FORKED, None
        self.loading.counting = False
        for part in reversed(self.parts):
            self.protect(part.kind, part.forget)

    # -- the loop --------------------------------------------------------------

    def step(self) -> int:
        """End a step and begin the next; return the number of steps so far."""
        if self._state != _RUNNING:
            if self._state in (_OFF, _FORKED):
                return self.recorder.steps
            when = "before start()" if self._state == _NEW else "after stop()"
            raise StateError(
                f"Profiler.step() was called {when}: call it inside "
                '"with fastprof.Profiler() as prof:"'
            )
        count = self.recorder.step()
        if count >= self.recorder.next_event:
            self.after_step(count)
        return count

    def after_step(self, count: int) -> None:
        """Do the work that is due after ``count`` steps."""
        own = self.own_time
        began, before, apart, spent = clock(), own.ns, own.apart_ns, own.spent_ns()
        self._after_step(count)
        own.took_whole(began, before, apart, own.spent_ns() - spent)

    def _after_step(self, count: int) -> None:
        for part in self.parts.due(count):
            began = clock()
            self.protect(part.kind, part.at_step, count)
            if part.between_steps:
                self.own_time.apart_ns += clock() - began
        self.recorder.next_event = self.parts.plan(count)

    def soon(self) -> None:
        """Ask the parts for their plans after the step that runs now; any thread may call this."""
        self.parts.renew()
        self.recorder.next_event = 0

    def loader(self, iterable: _L, name: str | None, split: str, weight: float | None) -> _L:
        """Wrap ``iterable`` to time its batches: :meth:`fastprof.Profiler.loader`."""
        check_loader(iterable, name, split, weight)
        if self._state == _OFF:
            return iterable
        # Typed as the wrapped object, because all its members can be used.
        return cast(_L, wrap(self.loading, iterable, name, split, weight))

    def enter_phase(self, phase: str) -> None:
        """Begin another phase: :meth:`fastprof.Profiler.enter_phase`."""
        if self._state == _RUNNING:
            if self._phase.is_here():
                self.phase_changes()
                if phase != "steps":
                    self.phase_begins(phase)
            self._phase.enter(phase)

    @property
    def thread(self) -> int:
        """Ident of the thread whose steps and phases count."""
        return self._phase.thread

    def thread_ended(self) -> None:
        """Note that this thread has ended: a later one may get its ident."""
        self._phase.thread = 0

    def move_here(self) -> bool:
        """Let the steps and phases of this thread count; return whether they do.

        They do not if another thread has ended a step.
        """
        if self._phase.is_here():
            return True
        if self._state != _RUNNING or self.recorder.steps or not self._phase.move_here():
            return False
        self.recorder.mark()
        self._each(self.parts, "moved")
        return True

    def leave_phase(self, phase: str) -> None:
        """End a phase of :meth:`enter_phase`; after ``"setup"`` and ``"outside"`` come steps."""
        if self._state == _RUNNING:
            if self._phase.is_here():
                self.phase_changes()
            self._phase.leave(phase)

    def phase_changes(self) -> None:
        """Let the parts know that the phase changes now, in the thread whose phases count."""
        self._each(self.parts.with_own("phase_changes"), "phase_changes")

    def switch_sections(self, on: bool) -> bool:
        """Switch automatic sections of the next steps: :meth:`Part.switch_sections`."""
        switched = any(part.switch_sections(on) for part in self.parts)
        if switched:
            for part in self.parts:
                part.sections_switched(on)
        return switched

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self.recorder.steps

    def describe(self) -> str:
        """Return the state in a few words: where it began, number of steps, recorded layers."""
        names = ("functions", "operators", "trace")
        layers = ["sections", *(name for name in names if getattr(self._options, name))]
        where = f" at {self.started_at}" if self.started_at else ""
        return f"{self._state}{where}: {plural(self.steps, 'step')}, {', '.join(layers)}"

    @property
    def running(self) -> bool:
        """Whether the run is active."""
        return self._state == _RUNNING

    @property
    def off(self) -> bool:
        """Whether the run is switched off and never records."""
        return self._state == _OFF

    def snapshot(self, *, whole: bool = True) -> Snapshot:
        """Return the recording so far, raw.

        Args:
            whole: False: without the trace, and without asking the GPU for more.
        """
        from fastprof.capture.convert import take_snapshot
        from fastprof.report.source_files import digests
        from fastprof.session.environment.run_metadata import surroundings

        notes = list(self.faults.notes)
        if self._state == _OFF:
            notes.append("Nothing was recorded: the profiler was switched off.")
        given = [part.arguments(whole=whole) for part in self.parts]
        snapshot = take_snapshot(
            self.recorder,
            meta={**self.identity.to_meta(), **surroundings(), **self.facts},
            notes=notes,
            fold_own=True,
            **{name: value for one in given for name, value in one.items()},
        )
        for part in self.parts:
            snapshot = part.add_to(snapshot)
        counters = {**snapshot.counters, **self.faults.counts}
        return replace(snapshot, counters=counters, sources=digests(snapshot))

    def report(self) -> Report:
        """Return the recording so far as a :class:`~fastprof.Report`."""
        from fastprof.results.report import build_report

        return build_report(self.snapshot())

    def phase_begins(self, phase: str) -> None:
        """Let the parts know that another phase begins."""
        changed = [part.phase_begins(phase) for part in self.parts.with_own("phase_begins")]
        if any(changed):
            self.recorder.next_event = self.parts.plan(self.recorder.steps)

    def protect(self, kind: str, action: Callable[..., object], *args: Any) -> None:
        """Run ``action``; turn its exceptions into faults."""
        try:
            action(*args)
        except own_errors() as error:  # nothing may reach the training code
            self.faults.add(f"{kind}_errors", f"fastprof: {kind} failed", error)
