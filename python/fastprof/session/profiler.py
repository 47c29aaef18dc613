"""The program's handle on a run: :class:`Profiler`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastprof.capture.options import RecorderOptions, recorder_options
from fastprof.session.gpu.memory import MemoryMode
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.options import Options
from fastprof.session.output.files import Pathish
from fastprof.session.output.metrics import Metric
from fastprof.session.output.trace import TraceOptions, trace_options
from fastprof.session.run import Run
from fastprof.session.schedule import Schedule

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastprof.capture import Section
    from fastprof.report import Report
    from fastprof.snapshot import Snapshot

_L = TypeVar("_L", bound=Iterable[Any])


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
            ``log(dict, step)``, or a callable that takes both.  Called on rank 0 only.
        log_every: metrics are logged at every step that is a multiple of this; None: every
            step.
        metrics: False: no metrics at all.
        batch_wait: False: no ``time_batch_wait_ms`` metrics.
        worker_functions: True: record the functions in the worker processes of loaders
            made by torch, too.  The report has a separate table of them.
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
        ranks: compare the ranks of a distributed job while it runs; rank 0 logs who is late
            through ``logging.getLogger("fastprof")`` and adds ``profile/ranks/...`` to the
            metrics.  ``"auto"``: at the store of torch.distributed, or in the directory that
            ``FASTPROF_RANKS_DIR`` names; ``True``: the same, and it is logged if they cannot
            meet; ``False``, or ``FASTPROF_RANKS=0``: no.  See ``docs/ranks.md``.
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
            ranks=ranks,
            skip_first=skip_first,
            recorder=recorder_options(recorder),
        )
        self._run = Run(options, enabled=enabled)
        self._run.profiler = self

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
        self._run.start()
        return self

    def stop(self) -> None:
        """End the run: log an unfinished validation pass, print and save, as configured.

        Does nothing if the run is not going on.
        """
        self._run.stop()

    def step(self) -> int:
        """End a step and begin the next; return the number of steps so far.

        Call it once per optimizer step, after it: with gradient accumulation that is once
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
        return self._run.loader(iterable, name, split, weight)

    def section(self, name: str, *, sync: bool | None = None) -> Section:
        """Return ``profile_section(name, sync=sync)``.

        With ``memory="section"`` it also has its GPU memory sampled.
        """
        return self._run.section(name, sync)

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
        self._run.enter_phase(phase)

    def leave_phase(self, phase: str) -> None:
        """End what :meth:`enter_phase` began; after ``"setup"`` and ``"outside"`` come steps."""
        self._run.leave_phase(phase)

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self._run.steps

    @property
    def running(self) -> bool:
        """Whether the run is going on."""
        return self._run.running

    @property
    def last_metrics(self) -> Mapping[str, Metric]:
        """The latest value, sum and count of every metric key emitted so far."""
        return self._run.last_metrics

    def snapshot(self) -> Snapshot:
        """Return what was recorded so far, raw."""
        return self._run.snapshot()

    def report(self) -> Report:
        """Return what was recorded so far as a :class:`~fastprof.Report`."""
        return self._run.report()

    def __repr__(self) -> str:
        return f"<fastprof.Profiler {self._run.describe()}>"


def run_of(profiler: Profiler) -> Run:
    """Return the run behind ``profiler``, for integrations."""
    return profiler._run
