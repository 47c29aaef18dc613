"""A run: its recording layers, the work between steps, and its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from fastprof.capture import exit_status
from fastprof.capture.convert import thread_names
from fastprof.capture.sections import profile_section
from fastprof.capture.sync import CudaSync
from fastprof.errors import StateError
from fastprof.guards import dropped, own_errors
from fastprof.report.figures import plural
from fastprof.session import current
from fastprof.session.environment import switch
from fastprof.session.environment.cpu_use import CpuUse
from fastprof.session.environment.rank import Identity
from fastprof.session.environment.step_limit import limited, steps_wanted
from fastprof.session.faults import Faults
from fastprof.session.gpu.layer import GpuLayer
from fastprof.session.gpu.memory import MemorySampler, SampledSection
from fastprof.session.gpu.nvtx import NvtxRanges
from fastprof.session.line_samples import LineWindows, line_rows
from fastprof.session.loaders.timing import NO_LOADER, LoaderRegistry, check_loader, wrap
from fastprof.session.loaders.worker_profiles import WorkerProfiles
from fastprof.session.loaders.worker_stats import Watches
from fastprof.session.operators.function_hook import FunctionHook
from fastprof.session.operators.windows import OperatorWindows
from fastprof.session.options import Options
from fastprof.session.output.emitter import MetricEmitter
from fastprof.session.output.files import Outputs, resolve
from fastprof.session.output.metrics import Metric, MetricWindow, loader_stats, log_call
from fastprof.session.output.printer import ReportPrinter
from fastprof.session.output.trace import TraceWindows
from fastprof.session.own_time import OwnTime, clock
from fastprof.session.patching.collector import collector_paused
from fastprof.session.ranks.live import LiveRanks
from fastprof.session.run_phase import RunPhase
from fastprof.session.stages import Stages
from fastprof.session.unprofiled import UnprofiledSteps

if TYPE_CHECKING:
    from fastprof.capture import Section
    from fastprof.report import Report
    from fastprof.report.ranks.live.now import JobNow
    from fastprof.snapshot import Snapshot

_L = TypeVar("_L", bound=Iterable[Any])

#: Steps between samples of GPU memory if ``log_every`` is None.
_MEMORY_EVERY = 50

#: Number of steps after which to ask torch.distributed for the rank again.
_ASK_RANK = 10

#: Names of threads that are remembered.
_MOST_NAMES = 10_000

_NEW, _RUNNING, _STOPPED, _OFF, _FORKED = "new", "running", "stopped", "off", "forked"


class Part(Protocol):
    """A part that records into a run through hooks in other packages."""

    def end(self) -> None:
        """Remove the hooks: the run is about to end."""

    def forget(self) -> None:
        """Do nothing any more: the run has ended in this forked child."""


class Run:
    """The run behind a :class:`~fastprof.Profiler`, as loaders and integrations use it.

    It has one recorder and starts once.  After :meth:`start` no failure in it raises into
    the program.
    """

    def __init__(self, options: Options, *, enabled: bool) -> None:
        self._options = options
        log = None if options.logger is None else log_call(options.logger)
        self.faults = Faults()
        self._outputs = Outputs(resolve(options.output), options.save_every, self.faults)
        #: Which process of a distributed job this is.
        self.identity = Identity(options.rank)
        self._state = _NEW if enabled and switch.MODE != "off" else _OFF
        self.recorder = options.recorder.create(skip_steps=options.skip_first)
        self._sync = CudaSync()
        self._gpu = GpuLayer(self.recorder, options.gpu, self.faults)
        self._nvtx = NvtxRanges(options.nvtx, self.faults)
        self._cpu_use = CpuUse()
        self._ranks = LiveRanks(self.recorder, self.identity, options.ranks, self.faults)
        self._memory = MemorySampler(
            options.memory, options.log_every or _MEMORY_EVERY, self.faults
        )
        self.registry = LoaderRegistry()
        self._phase = RunPhase(self.recorder)
        self._profiles = WorkerProfiles(
            options.worker_functions,
            options.recorder.backend,
            options.recorder.max_depth,
            self.faults,
        )
        #: Observes how loaders get their batches; used by their iterators.
        self.watches = Watches(self, self.faults, self._profiles)
        #: Time of fastprof's Python code in the loop.
        self.own_time: OwnTime = OwnTime()
        #: Wall time and CPU time of the training thread in calls of backward, where they are read.
        self.backward_ns = self.backward_cpu_ns = 0
        #: Parts of the run with another optimizer on other data.
        self.stages = Stages(self.recorder, lambda tag: self.registry.entries[tag].name)
        self._metrics = MetricEmitter(
            self.recorder,
            MetricWindow(self.registry, batch_wait=options.batch_wait),
            log,
            self._is_primary,
            self.faults,
            options.logger,
            self.own_time,
            lambda: {**self._ranks.metrics, **self._stage()},
        )
        self._printer: ReportPrinter | None = None
        self._recording_functions = False
        self._hook = FunctionHook(
            self.recorder, options.schedule, lambda: self._recording_functions
        )
        self._operators = OperatorWindows(options.operators, self.faults, self._hook, self._rank)
        self._lines = LineWindows(
            self.recorder, lambda: self._recording_functions, self._operators.are_between
        )
        self._trace = TraceWindows(options.trace, options.schedule, self.recorder)
        self._unprofiled = UnprofiledSteps(
            self.recorder, self._takes_unprofiled, self._operators.are_between
        )
        #: Names of threads, which may have ended, by ident.
        self._names: dict[int, str] = {}
        self._section_costs = (0.0, 0.0, 0.0)
        self._next_event = 1
        self._next_poll = sys.maxsize
        #: Prints the report if the interpreter's exit ends the run and nothing else receives it.
        self.print_at_exit: Callable[[], object] = lambda: self.report().show(sys.stderr)
        #: Patches of other packages for this run, removed when it ends.
        self.parts: list[Part] = []
        #: The program's handle on this run, while it is active: the Profiler, whose module imports
        #: this one.  It must live as long, and no longer than the program wants.
        self.profiler: Any = None
        #: Where the run was started, as ``file:line``; empty before the start.
        self.started_at = ""
        #: True for the run of FASTPROF=1, which gives way to one that the program starts.
        self.gives_way = False
        #: Calls that were open at the start are callers of later ones.
        self.is_called = True
        #: Fold the calls of libraries during their import per module: see export_imports.h.
        self.folds_imports = False
        #: The trainer whose hooks record into this run, if any, for the report.
        self.framework: str | None = None
        #: What the hooks saw, for the report.
        self.facts: dict[str, str | float] = {}
        # Read by the iterators of loaders at every batch.
        #: Number of steps after which loaders deliver nothing; None: no limit.
        self.max_steps = steps_wanted() if options.max_steps is None else options.max_steps
        #: A loader delivered nothing because of it.
        self.limit_reached = False
        fetch: Callable[[int, Iterator[Any], Any], Any] = self.recorder.next_batch
        self.next_batch = fetch if self.max_steps is None else limited(fetch, self.at_limit)
        self.data_section = profile_section("data")
        self.counting = False
        self.train_tag = NO_LOADER
        #: Number of passes over validation loaders that have begun and not ended.
        self.validating = 0
        #: Counts resumptions of training; validation passes that began before one are over.
        self.validation_round = 0

    # -- the run ---------------------------------------------------------------

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
        earlier = current.claim(self)
        if earlier is not None and not earlier.gives_way:
            self.faults.tell(
                f"The run started at {earlier.started_at} was still active; this one has ended it."
            )
        try:
            self._open()
        except BaseException:
            self._close()
            current.release(self)
            raise
        self._state, self.profiler = _RUNNING, profiler
        self.counting = True

    def print_every(self, steps: int, sort: str, stream: Any) -> None:
        """Print the sections every ``steps`` steps and at the end; call before the start."""
        self._printer = ReportPrinter(steps, sort, stream, self._is_primary, self.faults)

    def _open(self) -> None:
        recorder, options = self.recorder, self._options
        self._sync.install()
        recorder.sync = bool(options.sync)
        self._measure_own()
        # Before sections and functions: their recording may depend on it.
        self._gpu.start()
        self._next_poll = self._gpu.poll_after(0)
        self._protect("nvtx", self._nvtx.start, self._gpu.tool)
        self._memory.begin()
        # Before anything is recorded: the rest of this method is not part of a measured step.
        self._phase.begin("steps")
        recorder.start_sections()
        recorder.set_loader(NO_LOADER)
        if options.functions is not False:
            try:
                recorder.enable(callers=self.is_called)
                self._recording_functions = True
            except own_errors() as error:  # BusyError, or no memory
                if options.functions is True:
                    raise
                self.faults.notes.append(f"Functions were not recorded: {error}")
        if self._recording_functions and options.schedule and not options.schedule.records(0):
            recorder.pause_functions()
        self._outputs.begin()
        self._operators.begin()
        self._protect("trace", self._trace.begin)
        self._cpu_use.begin()
        recorder.mark()
        self._unprofiled.begin(options.skip_first)
        self._protect("ranks", self._ranks.start)
        self._next_event = self._event_after(0)

    def _measure_own(self) -> None:
        from fastprof.capture.calibrate import section_costs, tell_costs

        try:
            if self._options.functions is not False:
                tell_costs(self.recorder, self._options.recorder.backend)
        except own_errors() as error:  # the run continues, uncorrected
            self.faults.notes.append(f"The hook's cost could not be measured: {error}")
        # Fails while another recorder is active; the report then states less.
        with dropped():
            self._section_costs = section_costs()

    def _close(self) -> None:
        # Run each even if the one before raised: an interrupt may come at any point.
        try:
            self.recorder.disable()
        finally:
            try:
                self.recorder.stop_sections()
            finally:
                try:
                    self._protect("nvtx", self._nvtx.stop)
                    self._gpu.stop()
                finally:
                    self._sync.uninstall()

    def stop(self) -> None:
        """End the run: log an unfinished validation pass, print and save, as configured."""
        if self._state != _RUNNING:
            return
        profiler, self.profiler = self.profiler, None
        self._cpu_use.end()
        self._protect("ranks", self._ranks.stop)
        self._end_parts()
        self._protect("phase", self.recorder.end_loop)
        self._state = _STOPPED
        self.counting = False
        try:
            steps = self.recorder.steps
            self._protect("line", self._lines.end)
            self._protect("operator", self._operators.end, steps)
            self._protect("trace", self._trace.close)
            self._protect("stop", self._close)
            self._protect("loader", self.watches.close)
            self._protect("operator", self._operators.finish, steps)
            self._protect("memory", self._memory.end, steps)
        finally:
            self.watches.restore()
            current.release(self)
            self._finish()
            del profiler  # its end, if the program has dropped it, frees the recording

    def forget(self) -> None:
        """Free the recording of a run that is over; nothing reads it any more."""
        if self._state in (_STOPPED, _FORKED):
            with dropped():  # RuntimeError: another thread reads it just now
                self.recorder.clear()

    def _end_parts(self) -> None:
        while self.parts:
            self._protect("integration", self.parts.pop().end)

    def _finish(self) -> None:
        """Log, print and save the results; an interrupt costs one of them, not all."""
        try:
            if self._options.metrics:
                self._protect("metrics", self._metrics.emit, "val")
                self._protect("metrics", self._metrics.emit_report, self.report)
        finally:
            try:
                if self._printer is not None:
                    steps = self.recorder.steps
                    self._protect("report", self._printer.print_final, self.snapshot, steps)
            finally:
                self._protect("save", self._outputs.save_all, self.report, self.identity)
                self._protect("trace", self._trace.save, self.report, self._rank())

    def ask_ranks(self, wait: Callable[[], bool]) -> None:
        """Let rank 0 collect the last windows of the others when the run ends, for :meth:`job`.

        Args:
            wait: whether to wait for their last windows; called repeatedly.
        """
        self._ranks.ask(wait)

    @property
    def owns_rank(self) -> bool:
        """False: another process is the rank whose number this process has."""
        return self._ranks.owns

    def job(self) -> JobNow | None:
        """Return the state of all ranks of the job at their end; None: not known."""
        return self._ranks.job()

    def stop_functions(self, why: str) -> None:
        """Record no more functions; sections, steps and metrics continue."""
        if self._state == _RUNNING and self._recording_functions:
            self._recording_functions = False
            self._protect("stop", self.recorder.disable)
            self.faults.notes.append(f"Recording of functions ended early: {why}.")

    def stop_at_exit(self) -> None:
        """End the run because the interpreter exits.

        If nothing is configured to receive the result, the report goes to ``sys.stderr``.
        """
        if hasattr(sys, "last_value"):
            self.facts["ended_by"] = type(sys.last_value).__name__
        printed = self._printer is not None and self._printer.works
        has_reader = printed or bool(self._outputs.paths)
        prints = not has_reader and self._is_primary()
        profiler = self.profiler
        if prints:
            # A run ended by an exception or an exit status does not wait.
            self.ask_ranks(wait=lambda: not exit_status.failed())
        self.stop()
        if prints:
            # Before the ranks: a waiting process may be killed.
            self._protect("report", self.print_at_exit)
            with suppress(KeyboardInterrupt):
                self._protect("report", self._print_ranks)
        del profiler  # the recording lasted until here

    def _print_ranks(self) -> None:
        """Print the last state of all ranks, after the report of this one."""
        job = self.job()
        if job is None or job.known < 2:
            return
        from fastprof.render.ranks_brief import brief_lines_live
        from fastprof.tables.layout import width_of

        lines = brief_lines_live(job, width_of(sys.stderr))
        sys.stderr.writelines(f"{line}\n" for line in ("", *lines))

    def stop_in_child(self) -> None:
        """End the run in a forked child: the parent continues it, the child forgets it."""
        self._state, self.profiler = _FORKED, None
        self.counting = False
        for part in self.parts:
            self._protect("integration", part.forget)
        self.watches.restore()
        self._ranks.forget()
        self._gpu.stop_in_child()
        self._operators.forget()
        self._protect("fork", self._close)

    # -- the loop --------------------------------------------------------------

    def step(self) -> int:
        """End a step and begin the next; return the number of steps so far."""
        if self._state != _RUNNING:
            return self._step_outside()
        count = self.recorder.step()
        if count >= self._next_event:
            own = self.own_time
            began, before, apart, spent = clock(), own.ns, own.apart_ns, own.spent_ns()
            self._after_step(count)
            own.took_whole(began, before, apart, own.spent_ns() - spent)
        return count

    def _step_outside(self) -> int:
        if self._state in (_OFF, _FORKED):
            return self.recorder.steps
        when = "before start()" if self._state == _NEW else "after stop()"
        raise StateError(
            f'Profiler.step() was called {when}: call it inside "with fastprof.Profiler() as prof:"'
        )

    def loader(self, iterable: _L, name: str | None, split: str, weight: float | None) -> _L:
        """Wrap ``iterable`` to time its batches: :meth:`fastprof.Profiler.loader`."""
        check_loader(iterable, name, split, weight)
        if self._state == _OFF:
            return iterable
        # Typed as the wrapped object, because all its members can be used.
        return cast(_L, wrap(self, self.registry, iterable, name, split, weight))

    def section(self, name: str, sync: bool | None) -> Section:
        """Return ``profile_section(name, sync=sync)``; sample memory around it if configured."""
        section = profile_section(name, sync=sync)
        if self._memory.watches_sections and self._state != _OFF:
            return cast("Section", SampledSection(section, self._memory))
        return section

    def enter_phase(self, phase: str) -> None:
        """Begin another phase: :meth:`fastprof.Profiler.enter_phase`."""
        if self._state == _RUNNING:
            apart = phase != "steps" and self._phase.is_here()
            if apart and self._hook_or_end(self._unprofiled.interrupt):
                self._next_event = 0
            self._phase.enter(phase)

    def leave_phase(self, phase: str) -> None:
        """End a phase of :meth:`enter_phase`; after ``"setup"`` and ``"outside"`` come steps."""
        if self._state == _RUNNING:
            self._phase.leave(phase)

    @property
    def measuring(self) -> bool:
        """Whether the current step is measured: neither warm-up nor without the hook."""
        past = self.recorder.steps >= self._options.skip_first
        return self.counting and past and not self._unprofiled.open

    @property
    def away_ns(self) -> int:
        """Time of the run outside of steps so far, in ns."""
        return self._phase.away_ns

    def workers_begin(self, what: str) -> bool:
        """Leave a step because a loader starts or ends its workers; return whether it did.

        Args:
            what: "start" or "end".
        """
        if self._state != _RUNNING or not self._phase.are_workers_apart(what, self.steps):
            return False
        if self._hook_or_end(self._unprofiled.interrupt):
            self._next_event = 0
        self._phase.enter_workers()
        return True

    def workers_end(self) -> None:
        """Go on with the step, after :meth:`workers_begin` has left one."""
        if self._state == _RUNNING:
            self._phase.leave_workers()

    def validation_begins(self) -> None:
        """Begin a pass over a validation loader (called by its iterator)."""
        if self._state == _RUNNING:
            self.validating += 1
            if self._options.metrics:
                self._protect("metrics", self._metrics.collect)
            self.enter_phase("validation")

    def validation_ends(self) -> None:
        """End a pass over a validation loader (called by its iterator)."""
        if self._state == _RUNNING:
            if self._options.metrics:
                self._protect("metrics", self._metrics.emit, "val")
            if self.validating:
                self.validating -= 1
                self.leave_phase("validation")

    def training_goes_on(self) -> None:
        """End validation passes that are open when the program requests a training batch."""
        # Another thread that reads batches ahead does not end the validation.
        if self.validating and self._phase.is_here():
            self.validation_round += 1
        while self.validating and self._phase.is_here():
            self.validating -= 1
            self.leave_phase("validation")

    def leave_validation(self) -> None:
        """Note that work on the training batch continues (called by the iterator)."""
        if self._state == _RUNNING:
            self._protect("metrics", self.recorder.set_loader, self.train_tag)

    def _stage(self) -> dict[str, float]:
        return {"profile/train/stage": self.stages.number} if self.stages.number else {}

    # -- results ---------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self.recorder.steps

    def describe(self) -> str:
        """Return the state in a few words: where it began, number of steps, recorded layers."""
        layers = [name for name in ("operators", "trace") if getattr(self._options, name)]
        if self._options.functions is not False:
            layers.insert(0, "functions")
        where = f" at {self.started_at}" if self.started_at else ""
        steps = plural(self.recorder.steps, "step")
        return f"{self._state}{where}: {steps}, {', '.join(['sections', *layers])}"

    @property
    def running(self) -> bool:
        """Whether the run is active."""
        return self._state == _RUNNING

    @property
    def last_metrics(self) -> Mapping[str, Metric]:
        """The latest value, sum and count of every metric key emitted so far."""
        return dict(self._metrics.last)

    def snapshot(self) -> Snapshot:
        """Return the recording so far, raw."""
        self._gpu.flush()
        return self._snapshot(trace=True)

    def _snapshot(self, *, trace: bool = False) -> Snapshot:
        """Return the recorder's data, without asking the GPU for more."""
        from fastprof.capture.convert import take_snapshot
        from fastprof.report.origin import import_class
        from fastprof.report.source_files import digests
        from fastprof.session.environment.run_metadata import surroundings
        from fastprof.snapshot.gpu import GpuSnapshot

        meta: dict[str, str | int | float | bool | None] = {
            **self.identity.to_meta(),
            "functions": self.recorder.backend is not None,
            **surroundings(),
            **self._cpu_use.to_meta(),
            **self.facts,
        }
        if self.framework:
            meta["framework"] = self.framework
        counts = dict(self.faults.counts)
        if self._sync.failures:
            counts["sync_errors"] = self._sync.failures
        notes = list(self.faults.notes)
        if self._state == _OFF:
            notes.append("Nothing was recorded: the profiler was switched off.")
        snapshot = take_snapshot(
            self.recorder,
            meta=meta,
            notes=notes,
            fold_own=True,
            memory=self._memory.to_dict(),
            trace_names=self._trace.names if trace else None,
            noted_names=self._names,
            fold_imports=import_class if self.folds_imports else None,
        )
        gpu = snapshot.gpu
        if gpu is None and self._gpu.reason:
            gpu = GpuSnapshot("off", self._gpu.reason)
        snapshot = self._profiles.add_to(snapshot, [e.name for e in self.registry.entries])
        lines = line_rows(snapshot.keys, (self._lines.found, *self._profiles.lines()))
        return replace(
            snapshot,
            steps=replace(snapshot.steps, unprofiled_cpu=self._unprofiled.cpu),
            meta={
                **snapshot.meta,
                "own_ns": self._own_ns(snapshot),
                "unprofiled_ns": self._unprofiled.cost_ns,
                "untimed_ns": self.own_time.untimed_ns,
                "backward_ns": self.backward_ns,
                "backward_cpu_ns": self.backward_cpu_ns,
            },
            gpu=gpu,
            operators=self._operators.recorded(),
            stages=self.stages.stages(),
            loaders=loader_stats(self.registry, self.recorder.loader_totals(), self.watches),
            counters={**snapshot.counters, **counts},
            sources=digests(snapshot),
            lines=lines,
        )

    def _own_ns(self, snapshot: Snapshot) -> int:
        """Return the cost of sections, steps and loaders to the program: measured, or counted.

        Includes the cost of removing and restoring the hook, which is in no measured step.
        """
        section_ns, batch_ns, step_ns = self._section_costs
        entries = sum(section.count for section in snapshot.sections)
        batches = sum(entry.batches for entry in self.registry.entries)
        steps = snapshot.steps.count - self.own_time.steps
        counted = round(entries * section_ns + batches * batch_ns + steps * step_ns)
        return self.own_time.ns + counted + self._unprofiled.cost_ns

    def report(self) -> Report:
        """Return the recording so far as a :class:`~fastprof.Report`."""
        from fastprof.report import build_report

        return build_report(self.snapshot())

    # -- between steps ---------------------------------------------------------

    def _event_after(self, count: int) -> int:
        """Return the next step count at which work may be due."""
        options = self._options
        # Only an initialised torch.distributed knows some ranks: ask for them early.
        due = [1 if count < 1 else _ASK_RANK if count < _ASK_RANK else sys.maxsize]
        if self._outputs.periodic:
            due.append(count + 1)
        if options.metrics:
            every = options.log_every or 1
            due.append((count // every + 1) * every)
        if self._printer is not None:
            due.append(self._printer.next_step(count))
        due.append(self._next_poll)
        due.append(self._memory.next_step(count))
        due.append(self._operators.next_step(count))
        due.append(self._unprofiled.next_step())
        due.append(self._lines.next_step())
        schedule = options.schedule
        if schedule is not None and (self._recording_functions or self._trace.on):
            cycles = schedule.repeat * (schedule.wait + schedule.warmup + schedule.active)
            if not cycles or count <= schedule.skip_first + cycles:
                due.append(count + 1)
        return min(due)

    def note_threads(self) -> None:
        """Keep the names of the program's threads: one that ends takes its name along."""
        if len(self._names) < _MOST_NAMES:
            self._names.update(thread_names())

    def _after_step(self, count: int) -> None:
        options = self._options
        self.note_threads()
        if count <= _ASK_RANK:
            self.identity.ask()
            self._protect("ranks", self._ranks.start)
        if self._trace.on:
            self._protect("trace", self._trace.at_step, count)
        if options.schedule is not None and self._recording_functions:
            # The number of the step that begins now is the count of ended steps.
            if options.schedule.records(count):
                self.recorder.resume_functions()
            else:
                self.recorder.pause_functions()
        if count >= self._next_poll:
            self._protect("gpu", self._gpu.poll)
            self._next_poll = self._gpu.poll_after(count)
        if options.metrics and count % (options.log_every or 1) == 0:
            self._protect("metrics", self._metrics.emit, "train")
        self._protect("memory", self._memory.at_step, count)
        if self._printer is not None:
            self._protect("report", self._printer.at_step, self._snapshot, count, self._memory.line)
        if self._outputs.due():
            with self._hook.aside(), collector_paused(), self.own_time.blocking():
                self._protect("save", self._outputs.save_if_due, self.report, self.identity)
        # Last: its time does not count for the step that begins.
        began = clock()
        self._protect("operator", self._operators.at_step, count)
        self._protect("line", self._lines.at_step, count)
        self._hook_or_end(self._unprofiled.at_step, count)
        self.own_time.apart_ns += clock() - began
        self._next_event = self._event_after(count)

    def _takes_unprofiled(self) -> bool:
        """Return whether some steps run without the function hook, to measure its cost."""
        options = self._options
        return self._recording_functions and options.schedule is None and not self._trace.on

    def _hook_or_end(self, action: Callable[..., object], *args: Any) -> object:
        """Run ``action``, which removes or restores the hook; if it fails, record no functions."""
        try:
            return action(*args)
        except own_errors() as error:  # another profiler has taken it
            self.stop_functions(str(error))
            self._next_event = 0  # steps are measured from the next one on
            return None

    def _protect(self, kind: str, action: Callable[..., object], *args: Any) -> None:
        """Run ``action``; turn its exceptions into faults."""
        try:
            action(*args)
        except own_errors() as error:  # nothing may reach the training code
            self.faults.add(f"{kind}_errors", f"fastprof: {kind} failed", error)

    def at_limit(self) -> bool:
        """Return whether loaders deliver nothing any more, because of :attr:`max_steps`.

        Called before each batch; never true outside the run.
        """
        if self.max_steps is None or self._state != _RUNNING or self.steps < self.max_steps:
            return False
        self.limit_reached = True
        return True

    def _rank(self) -> int:
        return self.identity.rank

    def _is_primary(self) -> bool:
        return self._rank() == 0
