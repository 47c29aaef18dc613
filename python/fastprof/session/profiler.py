"""The profiler of a training loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from fastprof.capture.options import RecorderOptions, recorder_options
from fastprof.capture.sections import profile_section
from fastprof.capture.sync import CudaSync
from fastprof.errors import StateError
from fastprof.session import current
from fastprof.session.environment import switch
from fastprof.session.environment.cpu_use import CpuUse
from fastprof.session.environment.rank import find_host, find_rank, find_world_size
from fastprof.session.environment.step_limit import limited, steps_wanted
from fastprof.session.faults import Faults
from fastprof.session.gpu.layer import GpuLayer
from fastprof.session.gpu.memory import MemoryMode, MemorySampler, SampledSection
from fastprof.session.gpu.nvtx import NvtxRanges
from fastprof.session.loaders.timing import NO_LOADER, LoaderRegistry, check_loader, wrap
from fastprof.session.loaders.worker_profiles import WorkerProfiles
from fastprof.session.loaders.worker_stats import Watches
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.operators.windows import FunctionHook, OperatorWindows
from fastprof.session.options import Options
from fastprof.session.output.emitter import MetricEmitter
from fastprof.session.output.files import Outputs, Pathish, resolve
from fastprof.session.output.metrics import Metric, MetricWindow, loader_stats, log_call
from fastprof.session.output.printer import ReportPrinter
from fastprof.session.output.trace import TraceOptions, TraceWindows, trace_options
from fastprof.session.own_time import OwnTime, clock
from fastprof.session.patching.collector import collector_paused
from fastprof.session.run_phase import RunPhase
from fastprof.session.schedule import Schedule
from fastprof.session.unprofiled import UnprofiledSteps

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastprof.capture import Section
    from fastprof.report import Report
    from fastprof.snapshot import Snapshot

_L = TypeVar("_L", bound=Iterable[Any])

#: Steps between samples of GPU memory where ``log_every`` is None.
_MEMORY_EVERY = 50

_NEW, _RUNNING, _STOPPED, _OFF, _FORKED = "new", "running", "stopped", "off", "forked"


class Part(Protocol):
    """Something that records into a run through hooks in other packages."""

    def end(self) -> None:
        """The run is about to end."""

    def forget(self) -> None:
        """The run has ended in this forked child."""


class Profiler:
    """Records one run of a training loop; a context manager, or ``start()`` and ``stop()``.

    There is one run per process at a time.  Once it has started, no fault of the
    profiler reaches the training code: a logger, stream or file that fails is reported
    once through ``logging.getLogger("fastprof")``, noted in the report and switched off.

    Args:
        functions: record function calls, of all steps but about 3 %, which measure what
            recording them costs (where there is no ``schedule`` and no ``trace``; see
            ``docs/overhead.md``).  ``"auto"``: yes, unless another profiler holds
            the interpreter's hook, which becomes a note in the report; ``True``: yes, or
            :class:`~fastprof.BusyError`; ``False``: no.
        gpu: record what the GPU does, with CUPTI.  ``"auto"``: from when the program uses
            CUDA; ``True``: at once, initialising CUDA, after which forked children cannot
            use it; ``False``: no.  Where it cannot be had, the report says why.
        memory: sample the GPU memory of PyTorch's caching allocator.  ``"auto"``: at every
            ``log_every``-th step and at the end, in at most 0.1 % of the time;
            ``"step"``: at every step, with its own peak; ``"section"``: like ``"step"``,
            and around each outermost section made with ``section()``; ``False``: no.  A
            sample takes 0.1 to 0.2 ms.  ``"step"`` and ``"section"`` call
            ``torch.cuda.reset_peak_memory_stats()``: the program's own peaks are lost.
        nvtx: ``"auto"``: emit sections as NVTX ranges if a tool that shows them (Nsight
            Systems, Nsight Compute) is attached; ``True``: if there is none, let the NVTX
            ranges of libraries become sections, for which ``NVTX_INJECTION64_PATH`` is
            set during the run; ``False``: neither.
        sync: ``"cuda"`` (or True) calls ``torch.cuda.synchronize()`` before each section's
            two clock readings, once CUDA is in use.  It changes what it measures.
        logger: receives the metrics: an object with ``log_metrics(dict, step)`` or
            ``log(dict, step)``, or a function of these two.  Called on rank 0 only.
        log_every: metrics are logged at every step that is a multiple of this; None: every
            step.
        metrics: False: no metrics at all.
        batch_wait: False: no ``time_batch_wait_ms`` metrics.
        worker_functions: True: record the functions in the worker processes of loaders
            made by torch, too.  They are a table of their own in the report.
        schedule: steps in which functions are recorded; None: all.
        operators: windows of steps in which torch.profiler records operators; None: none.
        trace: True, :class:`~fastprof.TraceOptions` or a dict of them: keep when sections,
            steps and longer calls began and ended, in the active steps of ``schedule`` or in
            all; ``output`` with the suffix ``.trace.json.gz`` writes it for Perfetto.
        skip_first: first steps left out of the step statistics.
        max_steps: after so many steps data loaders deliver no more batches until the run
            ends; None: as ``FASTPROF_STEPS`` says, else no limit.
        recorder: :class:`~fastprof.RecorderOptions`, or a dict of them: the hook, how much it may
            cost, how much is kept.
        output: path, or paths, to save the run to at the end; the suffix chooses the
            format.  In a distributed job ``rank{r}_`` is put before the file name.
        save_every: with ``output``: save also during the run, about every this many
            seconds, taking no more than 1 % of the time; None: only at the end.
        rank: this process's rank; None: from ``RANK``, else torch.distributed, else 0.
        enabled: False: record nothing and let every method do nothing.

    Raises:
        TypeError, ValueError: an argument of the wrong type or out of range.
        OSError: ``output`` names a directory, or a file in one that does not exist.
    """

    def __init__(
        self,
        *,
        functions: bool | Literal["auto"] = "auto",
        gpu: bool | Literal["auto"] = "auto",
        memory: MemoryMode = "auto",
        nvtx: bool | Literal["auto"] = "auto",
        sync: bool | Literal["cuda"] = False,
        logger: Any = None,
        log_every: int | None = 50,
        metrics: bool = True,
        batch_wait: bool = True,
        worker_functions: bool = False,
        schedule: Schedule | None = None,
        operators: OperatorProfile | None = None,
        trace: bool | TraceOptions | Mapping[str, Any] = False,
        skip_first: int = 3,
        max_steps: int | None = None,
        recorder: RecorderOptions | Mapping[str, Any] | None = None,
        output: Pathish | Sequence[Pathish] | None = None,
        save_every: float | None = 60.0,
        rank: int | None = None,
        enabled: bool = True,
    ) -> None:
        self._options = options = Options(
            functions=functions,
            gpu=gpu,
            memory=memory,
            nvtx=nvtx,
            sync=sync,
            logger=logger,
            log_every=log_every,
            metrics=metrics,
            batch_wait=batch_wait,
            worker_functions=worker_functions,
            schedule=schedule,
            operators=operators,
            trace=trace_options(trace),
            max_steps=max_steps,
            output=output,
            save_every=save_every,
            rank=rank,
            skip_first=skip_first,
            recorder=recorder_options(recorder),
        )
        log = None if logger is None else log_call(logger)
        self._faults = Faults()
        self._outputs = Outputs(resolve(output), save_every, self._faults)
        self._state = _NEW if enabled and switch.MODE != "off" else _OFF
        self._recorder = options.recorder.create(skip_steps=skip_first)
        self._sync = CudaSync()
        self._gpu = GpuLayer(self._recorder, gpu, self._faults)
        self._nvtx = NvtxRanges(nvtx, self._faults)
        self._cpu_use = CpuUse()
        self._memory = MemorySampler(memory, log_every or _MEMORY_EVERY, self._faults)
        self._registry = LoaderRegistry()
        self._phase = RunPhase(self._recorder)
        self._profiles = WorkerProfiles(
            worker_functions, options.recorder.backend, options.recorder.max_depth, self._faults
        )
        #: How loaders come by their batches; used by their iterators.
        self.watches = Watches(self, self._faults, self._profiles)
        #: What fastprof's Python code takes in the loop.
        self.own_time: OwnTime = OwnTime()
        self._metrics = MetricEmitter(
            self._recorder,
            MetricWindow(self._registry, batch_wait=batch_wait),
            log,
            self._is_primary,
            self._faults,
            logger,
            self.own_time,
        )
        self._printer = ReportPrinter(None, "first", None, self._is_primary, self._faults)
        self._recording_functions = False
        self._hook = FunctionHook(self._recorder, schedule, lambda: self._recording_functions)
        self._operators = OperatorWindows(operators, self._faults, self._hook, self._rank)
        self._trace = TraceWindows(options.trace, schedule, self._recorder)
        self._unprofiled = UnprofiledSteps(
            self._recorder, self._takes_unprofiled, self._operators.are_between
        )
        self._section_costs = (0.0, 0.0, 0.0)
        self._next_event = 1
        self._next_poll = sys.maxsize
        #: What is put into other packages for this run, and taken out when it ends.
        self.parts: list[Part] = []
        #: Where the run was started, as ``file:line``; empty before.
        self.started_at = ""
        #: True for the run of FASTPROF=1, which makes way for one the program starts.
        self.gives_way = False
        #: Count what libraries call while they are imported per module: see export_imports.h.
        self.folds_imports = False
        #: The trainer whose hooks record into this run, if one does; stands in the report.
        self.framework: str | None = None
        # Read by the iterators of loaders at every batch.
        #: After so many steps loaders deliver nothing; None: no limit.
        self.max_steps = steps_wanted() if max_steps is None else max_steps
        self.next_batch = limited(self._recorder.next_batch, self._steps_made, self.max_steps)
        self.data_section = profile_section("data")
        self.counting = False
        self.train_tag = NO_LOADER
        #: Passes over validation loaders that have begun and not ended.
        self.validating = 0
        #: Counts when training went on: passes that began before are over.
        self.validation_round = 0

    # -- the run ---------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Begin recording, and the first step.

        Raises:
            StateError: this profiler was started before, or another is running.
            BusyError: ``functions=True`` and another profiler holds the hook.
        """
        if self._state == _OFF:
            return self
        if self._state == _RUNNING:
            raise StateError(f"this Profiler is running already, started at {self.started_at}")
        if self._state != _NEW:
            raise StateError("a Profiler records one run and this one is over; make a new one")
        self.started_at = current.caller()
        current.claim(self)
        try:
            self._open()
        except BaseException:
            self._close()
            current.release(self)
            raise
        self._state = _RUNNING
        self.counting = True
        return self

    def _print_every(self, steps: int, sort: str, stream: Any) -> None:
        """Print the sections every so many steps, and at the end; before the start."""
        self._printer = ReportPrinter(steps, sort, stream, self._is_primary, self._faults)

    def _open(self) -> None:
        recorder, options = self._recorder, self._options
        self._sync.install()
        recorder.sync = bool(options.sync)
        self._measure_own()
        # Before sections and functions: how these are recorded may depend on it.
        self._gpu.start()
        self._next_poll = self._gpu.poll_after(0)
        self._protect("nvtx", self._nvtx.start, self._gpu.tool)
        self._memory.begin()
        # Before anything is recorded: what follows here is no measured step.
        self._phase.begin("steps")
        recorder.start_sections()
        recorder.set_loader(NO_LOADER)
        if options.functions is not False:
            try:
                recorder.enable()
                self._recording_functions = True
            except Exception as error:  # BusyError, or no memory
                if options.functions is True:
                    raise
                self._faults.notes.append(f"Functions were not recorded: {error}")
        if self._recording_functions and options.schedule and not options.schedule.records(0):
            recorder.pause_functions()
        self._outputs.begin()
        self._operators.begin()
        self._protect("trace", self._trace.begin)
        self._cpu_use.begin()
        recorder.mark()
        self._unprofiled.begin(options.skip_first)
        self._next_event = self._event_after(0)

    def _measure_own(self) -> None:
        from fastprof.capture.calibrate import section_costs, tell_costs

        try:
            if self._options.functions is not False:
                tell_costs(self._recorder, self._options.recorder.backend)
        except Exception as error:  # the run goes on, uncorrected
            self._faults.notes.append(f"The hook's cost could not be measured: {error}")
        # Not while something else records; the report then states less.
        with suppress(Exception):
            self._section_costs = section_costs()

    def _close(self) -> None:
        # Each whatever the one before raised: an interrupt may come at any point.
        try:
            self._recorder.disable()
        finally:
            try:
                self._recorder.stop_sections()
            finally:
                try:
                    self._protect("nvtx", self._nvtx.stop)
                    self._gpu.stop()
                finally:
                    self._sync.uninstall()

    def stop(self) -> None:
        """End the run: log an unfinished validation pass, print and save, as configured.

        Does nothing if the run is not going on.
        """
        if self._state != _RUNNING:
            return
        self._cpu_use.end()
        self._end_parts()
        self._protect("phase", self._recorder.end_loop)
        self._state = _STOPPED
        self.counting = False
        try:
            steps = self._recorder.steps
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

    def _end_parts(self) -> None:
        while self.parts:
            self._protect("integration", self.parts.pop().end)

    def _finish(self) -> None:
        """What is left to log, print and save; an interrupt costs one of them, not all."""
        try:
            if self._options.metrics:
                self._protect("metrics", self._metrics.emit, "val")
                self._protect("metrics", self._metrics.emit_report, self.report)
        finally:
            try:
                self._protect(
                    "report", self._printer.print_final, self.snapshot, self._recorder.steps
                )
            finally:
                self._protect("save", self._outputs.save_all, self.report, self._rank())
                self._protect("trace", self._trace.save, self.report, self._rank())

    def stop_functions(self, why: str) -> None:
        """Record no more functions; sections, steps and metrics go on."""
        if self._state == _RUNNING and self._recording_functions:
            self._recording_functions = False
            self._protect("stop", self._recorder.disable)
            self._faults.notes.append(f"Recording of functions ended early: {why}.")

    def stop_at_exit(self) -> None:
        """End the run because the interpreter exits.

        If nothing is configured to receive the result, the report goes to ``sys.stderr``.
        """
        has_reader = self._printer.every is not None or bool(self._outputs.paths)
        self.stop()
        if not has_reader and self._is_primary():
            self._protect("report", lambda: self.report().show(sys.stderr))

    def stop_in_child(self) -> None:
        """End the run in a forked child: the parent goes on with it, the child forgets it."""
        self._state = _FORKED
        self.counting = False
        for part in self.parts:
            self._protect("integration", part.forget)
        self.watches.restore()
        self._gpu.stop_in_child()
        self._operators.forget()
        self._protect("fork", self._close)

    # -- the loop --------------------------------------------------------------

    def step(self) -> int:
        """End a step and begin the next; return the number of steps so far.

        Call it once per optimizer step, after it: with gradient accumulation that is once
        per several batches.

        Raises:
            StateError: the profiler is not running.
        """
        if self._state != _RUNNING:
            return self._step_outside()
        count = self._recorder.step()
        if count >= self._next_event:
            own = self.own_time
            began, before, apart = clock(), own.ns, own.apart_ns
            self._after_step(count)
            own.took(began, before, apart)
        return count

    def _step_outside(self) -> int:
        if self._state in (_OFF, _FORKED):
            return self._recorder.steps
        when = "before start()" if self._state == _NEW else "after stop()"
        raise StateError(
            f'Profiler.step() was called {when}: call it inside "with fastprof.Profiler() as prof:"'
        )

    def loader(
        self,
        iterable: _L,
        name: str | None = None,
        *,
        split: str = "train",
        weight: float | None = None,
    ) -> _L:
        """Return ``iterable`` such that fetching a batch is timed as section ``data``.

        Everything else (``len()``, attributes, iterating again) is the iterable's own.  One
        that is wrapped already is not timed twice.
        What follows in the same thread is counted as work on that loader's batch, until
        another loader delivers one.  Can be called before ``start()``.

        Args:
            iterable: a DataLoader, a list, a generator, ...
            name: names the loader in metric keys; None: ``loader0``, ``loader1``, ...
            split: ``"train"`` or ``"val"``; metrics of a validation loader are logged when
                it is exhausted or its loop is left.
            weight: configured share of this loader among several; shown in the report.

        Raises:
            TypeError, ValueError: an argument of the wrong type or out of range.
        """
        check_loader(iterable, name, split, weight)
        if self._state == _OFF:
            return iterable
        # Typed as what is wrapped, since all of that can be used.
        return cast(_L, wrap(self, self._registry, iterable, name, split, weight))

    def section(self, name: str, *, sync: bool | None = None) -> Section:
        """Return ``profile_section(name, sync=sync)``.

        With ``memory="section"`` it also has its GPU memory sampled.
        """
        section = profile_section(name, sync=sync)
        if self._memory.watches_sections and self._state != _OFF:
            return cast("Section", SampledSection(section, self._memory))
        return section

    def enter_phase(self, phase: str) -> None:
        """Count what follows in this thread as another phase of the run.

        The report shows each phase apart, and steps without what was no part of them.
        Loaders and integrations call this; a bare loop may, around what they do not see.
        Ignored in other threads than the one that started the run, and while none is going on.

        Args:
            phase: ``"setup"``, ``"steps"`` or ``"outside"`` (between epochs and after the
                loop), each of which ends the other two; or ``"validation"`` or
                ``"checkpoint"``, which interrupt what is going on until
                :meth:`leave_phase`, and may be inside each other.

        Raises:
            ValueError: there is no such phase.
        """
        if self._state == _RUNNING:
            apart = phase != "steps" and self._phase.is_here()
            if apart and self._hook_or_end(self._unprofiled.interrupt):
                self._next_event = 0
            self._phase.enter(phase)

    def leave_phase(self, phase: str) -> None:
        """End what :meth:`enter_phase` began; after ``"setup"`` and ``"outside"`` come steps."""
        if self._state == _RUNNING:
            self._phase.leave(phase)

    def validation_begins(self) -> None:
        """A pass over a validation loader begins (called by its iterator)."""
        if self._state == _RUNNING:
            self.validating += 1
            if self._options.metrics:
                self._protect("metrics", self._metrics.collect)
            self.enter_phase("validation")

    def validation_ends(self) -> None:
        """A pass over a validation loader has ended (called by its iterator)."""
        if self._state == _RUNNING:
            if self._options.metrics:
                self._protect("metrics", self._metrics.emit, "val")
            if self.validating:
                self.validating -= 1
                self.leave_phase("validation")

    def training_goes_on(self) -> None:
        """A batch for training is asked for in the middle of a pass over a validation loader."""
        # A thread that reads batches ahead does so beside the validation.
        if self.validating and self._phase.is_here():
            self.validation_round += 1
        while self.validating and self._phase.is_here():
            self.validating -= 1
            self.leave_phase("validation")

    def leave_validation(self) -> None:
        """What follows is work on the training batch again (called by the iterator)."""
        if self._state == _RUNNING:
            self._protect("metrics", self._recorder.set_loader, self.train_tag)

    # -- what comes out --------------------------------------------------------

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._recorder.steps

    def __repr__(self) -> str:
        layers = [name for name in ("operators", "trace") if getattr(self._options, name)]
        if self._options.functions is not False:
            layers.insert(0, "functions")
        where = f" at {self.started_at}" if self.started_at else ""
        return (
            f"<fastprof.Profiler {self._state}{where}: {self._recorder.steps} steps, "
            f"{', '.join(['sections', *layers])}>"
        )

    @property
    def running(self) -> bool:
        """Whether the run is going on."""
        return self._state == _RUNNING

    @property
    def last_metrics(self) -> Mapping[str, Metric]:
        """The latest value, sum and count of every metric key emitted so far."""
        return dict(self._metrics.last)

    def snapshot(self) -> Snapshot:
        """Return what was recorded so far, raw."""
        self._gpu.flush()
        return self._snapshot(trace=True)

    def _snapshot(self, *, trace: bool = False) -> Snapshot:
        """Return what the recorder holds, without asking the GPU for more."""
        from fastprof.capture.convert import take_snapshot
        from fastprof.report.origin import import_class
        from fastprof.session.environment.run_metadata import surroundings
        from fastprof.snapshot.gpu import GpuSnapshot

        meta: dict[str, str | int | float | bool | None] = {
            "rank": self._rank(),
            "world_size": find_world_size(),
            "hostname": find_host(),
            "functions": self._recorder.backend is not None,
            **surroundings(),
            **self._cpu_use.to_meta(),
        }
        if self.framework:
            meta["framework"] = self.framework
        counts = dict(self._faults.counts)
        if self._sync.failures:
            counts["sync_errors"] = self._sync.failures
        notes = list(self._faults.notes)
        if self._state == _OFF:
            notes.append("Nothing was recorded: the profiler was switched off.")
        snapshot = take_snapshot(
            self._recorder,
            meta=meta,
            notes=notes,
            fold_own=True,
            memory=self._memory.to_dict(),
            trace_names=self._trace.names if trace else None,
            fold_imports=import_class if self.folds_imports else None,
        )
        gpu = snapshot.gpu
        if gpu is None and self._gpu.reason:
            gpu = GpuSnapshot("off", self._gpu.reason)
        snapshot = self._profiles.add_to(snapshot, [e.name for e in self._registry.entries])
        return replace(
            snapshot,
            meta={
                **snapshot.meta,
                "own_ns": self._own_ns(snapshot),
                "unprofiled_ns": self._unprofiled.cost_ns,
            },
            gpu=gpu,
            operators=self._operators.recorded(),
            loaders=loader_stats(self._registry, self._recorder.loader_totals(), self.watches),
            counters={**snapshot.counters, **counts},
        )

    def _own_ns(self, snapshot: Snapshot) -> int:
        """What sections, steps and loaders cost the program: measured, or counted.

        And what it took to take the hook out and put it back, which is in no measured step.
        """
        section_ns, batch_ns, step_ns = self._section_costs
        entries = sum(section.count for section in snapshot.sections)
        batches = sum(entry.batches for entry in self._registry.entries)
        steps = snapshot.steps.count - self.own_time.steps
        counted = round(entries * section_ns + batches * batch_ns + steps * step_ns)
        return self.own_time.ns + counted + self._unprofiled.cost_ns

    def report(self) -> Report:
        """Return what was recorded so far as a :class:`~fastprof.Report`."""
        from fastprof.report import build_report

        return build_report(self.snapshot())

    # -- between steps ---------------------------------------------------------

    def _event_after(self, count: int) -> int:
        """Return the next step count at which there may be something to do."""
        options = self._options
        due = [sys.maxsize]
        if self._outputs.periodic:
            due.append(count + 1)
        if options.metrics:
            every = options.log_every or 1
            due.append((count // every + 1) * every)
        if self._printer.every is not None:
            due.append((count // self._printer.every + 1) * self._printer.every)
        due.append(self._next_poll)
        due.append(self._memory.next_step(count))
        due.append(self._operators.next_step(count))
        due.append(self._unprofiled.next_step())
        schedule = options.schedule
        if schedule is not None and (self._recording_functions or self._trace.on):
            cycles = schedule.repeat * (schedule.wait + schedule.warmup + schedule.active)
            if not cycles or count <= schedule.skip_first + cycles:
                due.append(count + 1)
        return min(due)

    def _after_step(self, count: int) -> None:
        options = self._options
        if self._trace.on:
            self._protect("trace", self._trace.at_step, count)
        if options.schedule is not None and self._recording_functions:
            # The step that begins now has the number of those that have ended.
            if options.schedule.records(count):
                self._recorder.resume_functions()
            else:
                self._recorder.pause_functions()
        if count >= self._next_poll:
            self._protect("gpu", self._gpu.poll)
            self._next_poll = self._gpu.poll_after(count)
        if options.metrics and count % (options.log_every or 1) == 0:
            self._protect("metrics", self._metrics.emit, "train")
        self._protect("memory", self._memory.at_step, count)
        if self._printer.every is not None and count % self._printer.every == 0:
            self._protect("report", self._print_periodic, count)
        if self._outputs.due():
            with self._hook.aside(), collector_paused():
                self._protect("save", self._outputs.save_if_due, self.report, self._rank())
        # The last: what it takes is left out of the step that begins.
        began = clock()
        self._protect("operator", self._operators.at_step, count)
        self._hook_or_end(self._unprofiled.at_step, count)
        self.own_time.apart_ns += clock() - began
        self._next_event = self._event_after(count)

    def _takes_unprofiled(self) -> bool:
        """Whether some steps are made without the function hook, to measure what it costs."""
        options = self._options
        return self._recording_functions and options.schedule is None and not self._trace.on

    def _hook_or_end(self, action: Callable[..., object], *args: Any) -> object:
        """Run ``action``, which takes the hook out or puts it back; that may fail."""
        try:
            return action(*args)
        except Exception as error:  # another profiler has taken it
            self.stop_functions(str(error))
            self._next_event = 0  # steps are measured from the next one on
            return None

    def _print_periodic(self, count: int) -> None:
        self._printer.print_periodic(self._snapshot, count, self._memory.line)

    def _protect(self, kind: str, action: Callable[..., object], *args: Any) -> None:
        """Run ``action``; what it raises becomes a fault and goes no further."""
        try:
            action(*args)
        except Exception as error:  # nothing may reach the training code
            self._faults.add(f"{kind}_errors", f"fastprof: {kind} failed", error)

    def _steps_made(self) -> int:
        """Steps as the limit on them sees it: a run that is over limits nothing."""
        return self._recorder.steps if self._state == _RUNNING else 0

    def _rank(self) -> int:
        return find_rank() if self._options.rank is None else self._options.rank

    def _is_primary(self) -> bool:
        return self._rank() == 0
