"""The program's handle on a run: :class:`Profiler`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastprof.capture import Section
from fastprof.capture.options import RecorderOptions, recorder_options
from fastprof.capture.sections import profile_section
from fastprof.results.report import Report
from fastprof.session.environment.overhead import overhead_or_default
from fastprof.session.gpu.memory import MemoryMode, MemorySampler
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.options import Options
from fastprof.session.output.emitter import MetricEmitter
from fastprof.session.output.files import Pathish
from fastprof.session.output.metrics import Metric
from fastprof.session.output.trace import TraceOptions, trace_options
from fastprof.session.run import Run
from fastprof.session.schedule import Schedule
from fastprof.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

_L = TypeVar("_L", bound=Iterable[Any])


class Profiler:
    """Records one run of a training loop; a context manager, or ``start()`` and ``stop()``.

    A process has one run at a time.  Once it has started, no fault of the profiler reaches
    the training code: fastprof reports a failing logger, stream or file once through
    ``logging.getLogger("fastprof")``, notes it in the report and switches it off.

    Args:
        functions: record function calls in all steps but about 3 %, which measure the cost
            of recording them (without ``schedule`` and ``trace``; see
            ``docs/overhead.md``).  ``"auto"``: yes, unless another profiler holds
            the interpreter's hook, which becomes a note in the report; ``True``: yes, or
            :class:`~fastprof.errors.BusyError`; ``False``: no.
        gpu: record GPU activity with CUPTI.  ``"auto"``: once the program uses
            CUDA; ``True``: at once, initialising CUDA, after which forked children cannot
            use it; ``False``: no.  If CUPTI is unavailable, the report says why.
        memory: sample the GPU memory of PyTorch's caching allocator.  ``"auto"``: at every
            ``log_every``-th step and at the end, in at most 0.1 % of the time;
            ``"step"``: at every step, with its own peak; ``"section"``: like ``"step"``,
            and around each outermost section made with ``section()``; ``False``: no.  A
            sample takes 0.1 to 0.2 ms.  ``"step"`` and ``"section"`` call
            ``torch.cuda.reset_peak_memory_stats()``: the program's own peaks are lost.
        nvtx: ``"auto"``: emit sections as NVTX ranges if a tool that shows them (Nsight
            Systems, Nsight Compute) is attached; ``True``: without such a tool, turn the NVTX
            ranges of libraries into sections, which sets ``NVTX_INJECTION64_PATH``
            during the run; ``False``: neither.
        sync: ``"cuda"`` (or True) calls ``torch.cuda.synchronize()`` before each section's
            two clock readings, once CUDA is in use.  It changes what it measures.
        logger: receives the metrics: an object with ``log_metrics(dict, step)`` or
            ``log(dict, step)``, or a callable that takes both.  Called on rank 0 only.
        log_every: log metrics at every step that is a multiple of this; None: every step; 0: no
            metrics at all.
        overhead: what fastprof may cost, as a part of the program's time: 0.01 is 1 %.  Functions
            are recorded in the first 200 steps, or for 10 s, and then in windows of a few steps, as
            many as this pays for; 0: in every step, whatever it costs; None: the value of the
            environment variable ``FASTPROF_OVERHEAD``, or 0.01.
        schedule: steps in which to record functions; no ``overhead`` limits them.  None: see there.
        operators: windows of steps in which torch.profiler records operators; None: none.
        trace: True, :class:`~fastprof.TraceOptions` or a dict of them: keep the begin and end
            times of sections, steps and longer calls, in the active steps of ``schedule`` or in
            all; ``output`` with the suffix ``.trace.json.gz`` writes it for Perfetto.
        skip_first: number of first steps left out of the step statistics.
        recorder: :class:`~fastprof.RecorderOptions`, or a dict of them: the hook, its limits
            on recorded data, functions in workers of loaders.
        output: path, or paths, to save the run to at the end; the suffix chooses the
            format.  In a distributed job fastprof puts ``rank{r}_`` before the file name.  It
            also saves during the run, about every minute, in at most 1 % of the time.
        ranks: compare the ranks of a distributed job while it runs; rank 0 logs late ranks
            through ``logging.getLogger("fastprof")`` and adds ``profile/ranks/...`` to the
            metrics.  ``"auto"``: through the store of torch.distributed or the service of
            jax.distributed, or the directory that ``FASTPROF_RANKS_DIR`` names; ``True``: the
            same, and log a warning if they cannot meet; ``False``, or ``FASTPROF_RANKS=0``: no.
            See ``docs/ranks.md``.
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
        schedule: Schedule | None = None,
        overhead: float | None = None,
        operators: OperatorProfile | None = None,
        trace: bool | TraceOptions | Mapping[str, Any] = False,
        skip_first: int = 3,
        recorder: RecorderOptions | Mapping[str, Any] | None = None,
        output: Pathish | Sequence[Pathish] | None = None,
        ranks: bool | Literal["auto"] = "auto",
        enabled: bool = True,
    ) -> None:
        options = Options(
            functions=functions,
            gpu=gpu,
            memory=memory,
            nvtx=nvtx,
            sync=sync,
            logger=logger,
            log_every=log_every,
            schedule=schedule,
            overhead=overhead_or_default(overhead),
            operators=operators,
            trace=trace_options(trace),
            output=output,
            ranks=ranks,
            skip_first=skip_first,
            recorder=recorder_options(recorder),
        )
        self._run = Run(options, enabled=enabled)

    def __del__(self) -> None:
        """Free the recording: nobody can ask for it any more.

        The parts of a run refer to each other.  In a program with many objects the collector comes
        for them after hundreds of runs, as it does not know that each has half a megabyte.
        """
        if Run is None:  # the interpreter has ended
            return
        run = getattr(self, "_run", None)  # invalid arguments: there is none
        if run is not None:
            run.forget()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Begin recording, and the first step.

        Raises:
            StateError: this profiler was started before, or another one is running.
            BusyError: ``functions=True`` and another profiler holds the hook.
        """
        self._run.start(self)
        return self

    def stop(self) -> None:
        """End the run: log an unfinished validation pass, print and save, as configured.

        Does nothing if the run is not active.
        """
        self._run.stop()

    def step(self) -> int:
        """End a step and begin the next; return the number of steps so far.

        Call it once after each optimizer step: with gradient accumulation that is once
        per several batches.

        Raises:
            StateError: the profiler is not running.
        """
        return self._run.step()

    def loader(
        self,
        iterable: _L,
        name: str | None = None,
        *,
        split: str = "train",
        weight: float | None = None,
    ) -> _L:
        """Wrap ``iterable`` to time the fetching of each batch as section ``data``.

        Everything else (``len()``, attributes, iterating again) behaves like the iterable.  A
        wrapped iterable is not timed twice.
        Later work in the same thread counts for that loader's batch, until another loader
        delivers one.  Can be called before ``start()``.

        Args:
            iterable: a DataLoader, a list, a generator, ...
            name: names the loader in metric keys; None: ``loader0``, ``loader1``, ...
            split: ``"train"`` or ``"val"``; metrics of a validation loader are logged when
                it is exhausted or its loop is left.
            weight: configured share of this loader among several; shown in the report.

        Raises:
            TypeError, ValueError: an argument of the wrong type or out of range.
        """
        return self._run.loader(iterable, name, split, weight)

    def section(self, name: str, *, sync: bool | None = None) -> Section:
        """Return ``profile_section(name, sync=sync)``.

        With ``memory="section"`` fastprof also samples GPU memory around it.
        """
        section, run = profile_section(name, sync=sync), self._run
        return section if run.off else run.parts.of(MemorySampler).around(section)

    def enter_phase(self, phase: str) -> None:
        """Begin another phase of the run in this thread.

        The report shows each phase separately, and excludes other phases from steps.
        Loaders and integrations call this; a program may call it around other work.
        Calls from threads other than the one that started the run, or without an active run,
        do nothing.

        Args:
            phase: ``"setup"``, ``"steps"`` or ``"outside"`` (between epochs and after the
                loop), each of which ends the other two; or ``"validation"`` or
                ``"checkpoint"``, which interrupt the current phase until
                :meth:`leave_phase`, and may be nested.

        Raises:
            ValueError: unknown phase.
        """
        self._run.enter_phase(phase)

    def leave_phase(self, phase: str) -> None:
        """End a phase of :meth:`enter_phase`; after ``"setup"`` and ``"outside"`` come steps."""
        self._run.leave_phase(phase)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._run.steps

    @property
    def running(self) -> bool:
        """Whether the run is active."""
        return self._run.running

    @property
    def last_metrics(self) -> Mapping[str, Metric]:
        """The latest value, sum and count of every metric key emitted so far."""
        return self._run.parts.of(MetricEmitter).latest()

    def snapshot(self) -> Snapshot:
        """Return the recording so far, raw."""
        return self._run.snapshot()

    def report(self) -> Report:
        """Return the recording so far as a :class:`~fastprof.Report`."""
        return self._run.report()

    def __repr__(self) -> str:
        return f"<fastprof.Profiler {self._run.describe()}>"


def run_of(profiler: Profiler) -> Run:
    """Return the run behind ``profiler``, for integrations."""
    return profiler._run
