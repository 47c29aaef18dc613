"""The parts of a run, in one table: a new part is its file and one line here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from fastprof.ranks.exchange.live import LiveRanks
from fastprof.session.changes import Changes
from fastprof.session.compiling.part import Compilations
from fastprof.session.environment.cpu_use import CpuUse
from fastprof.session.function_hook import FunctionHook
from fastprof.session.function_windows import FunctionWindows
from fastprof.session.gpu.layer import GpuLayer
from fastprof.session.gpu.memory import MemorySampler
from fastprof.session.gpu.nvtx import NvtxRanges
from fastprof.session.history.part import History
from fastprof.session.line_samples import LineWindows
from fastprof.session.loaders.results import LoaderResults
from fastprof.session.operators.windows import OperatorWindows
from fastprof.session.output.emitter import MetricEmitter
from fastprof.session.output.files import Outputs, resolve
from fastprof.session.output.metrics import MetricWindow
from fastprof.session.output.printer import ReportPrinter
from fastprof.session.output.trace import TraceWindows
from fastprof.session.outside.reach import Reach
from fastprof.session.outside.status import Status
from fastprof.session.overhead_budget import Budget
from fastprof.session.own_costs import OwnCosts
from fastprof.session.pace import Pace
from fastprof.session.part import Part
from fastprof.session.patching.collector import collector_paused
from fastprof.session.run_phase import RunPhase
from fastprof.session.section_recording import Sections
from fastprof.session.stages import Stages
from fastprof.session.thread_notes import ThreadNotes
from fastprof.session.time_windows import TimeWindows
from fastprof.snapshot.history_sums import Passes

if TYPE_CHECKING:
    from fastprof.capture.options import Recorder
    from fastprof.results.report import Report
    from fastprof.session.environment.rank import Identity
    from fastprof.session.faults import Faults
    from fastprof.session.loaders.loading import Loading
    from fastprof.session.options import Options
    from fastprof.session.own_time import OwnTime
    from fastprof.snapshot import Snapshot

_P = TypeVar("_P", bound=Part)

#: Steps between occasional work if ``log_every`` does not say.
_USUALLY = 50


class Shared(Protocol):
    """What the parts of a run share: see :class:`fastprof.session.run.Run`."""

    recorder: Recorder
    faults: Faults
    identity: Identity
    own_time: OwnTime
    loading: Loading

    def report(self) -> Report: ...
    def soon(self) -> None: ...
    def switch_sections(self, on: bool) -> bool: ...
    def phase_changes(self) -> None: ...
    def snapshot(self, *, whole: bool = True) -> Snapshot: ...


class Parts(list[Part]):
    """The parts of one run; integrations append theirs."""

    def of(self, kind: type[_P]) -> _P:
        """Return the part of that class."""
        return next(part for part in self if isinstance(part, kind))

    #: Number of parts, and by method those that override it: integrations add and remove theirs.
    _known: tuple[int, dict[str, list[Part]]] = (0, {})
    #: Parts with work at steps, and the number of steps after which each has some.
    _planned: Sequence[tuple[int, Part]] = ()
    _planned_of = 0  # number of parts

    def with_own(self, method: str) -> Sequence[Part]:
        """Return the parts that override ``method`` of :class:`~fastprof.session.part.Part`."""
        if len(self) != self._known[0]:
            self._known = len(self), {}
        known = self._known[1]
        if method not in known:
            default = getattr(Part, method)
            known[method] = [part for part in self if getattr(type(part), method) is not default]
        return known[method]

    def plan(self, count: int) -> int:
        """Return the number of steps after which a part has work; ``count`` have ended."""
        self._planned_of = len(self)
        self._planned = [(part.next_step(count), part) for part in self.with_own("at_step")]
        return min([due for due, _ in self._planned])

    def renew(self) -> None:
        """Plan anew after the step that runs now."""
        self._planned_of = -1

    def due(self, count: int) -> list[Part]:
        """Return the parts that have work after ``count`` steps, by the last :meth:`plan`."""
        if len(self) != self._planned_of:
            self.plan(count - 1)
        return [part for due, part in self._planned if due <= count]


def make_parts(run: Shared, options: Options) -> Parts:
    """Return the parts of ``run``, in the order in which they begin.

    They end in the reverse order, those of the loop first.  Parts that measure the step which
    begins are the last ones.
    """
    recorder, faults, identity, own_time = run.recorder, run.faults, run.identity, run.own_time

    def is_primary() -> bool:
        return identity.rank == 0

    def rank() -> int:
        return identity.rank

    @contextmanager
    def aside() -> Iterator[None]:
        with hook.aside(), collector_paused(), own_time.blocking():
            yield

    def takes_unprofiled() -> bool:
        """Return whether some steps run without the function hook, to measure its cost."""
        return hook.recording and options.schedule is None and not trace.on

    every = 1 if options.log_every is None else options.log_every
    backend = None if options.functions is False else options.recorder.backend
    gpu = GpuLayer(recorder, options.gpu, faults)
    pace = Pace(options.log_every or _USUALLY)
    memory = MemorySampler(options.memory, pace, faults)
    hook = FunctionHook(recorder, options.functions, options.schedule, faults)
    trace = TraceWindows(options.trace, options.schedule, recorder, run.report, rank)
    stages = Stages(recorder, lambda tag: run.loading.registry.entries[tag].name)
    changes = Changes(recorder, lambda: stages.number)
    phase = RunPhase(recorder, own_time)
    history = History(
        recorder,
        memory.last,
        faults,
        lambda: stages.number,
        changes.ask,
        lambda: run.loading.workers_now,
        lambda: Passes(**phase.passes),
    )
    ranks = LiveRanks(recorder, identity, options.ranks, faults)
    operators = OperatorWindows(options.operators, faults, hook, rank)
    metrics = MetricEmitter(
        every,
        recorder,
        MetricWindow(run.loading.registry),
        options.logger,
        is_primary,
        faults,
        own_time,
        run.report,
        lambda: {**ranks.metrics, **stages.metrics(), **history.metrics()},
        history.texts,
        pace if options.log_every else None,
    )
    budget = Budget(
        options.overhead,
        recorder,
        lambda: own_time.ns + own_time.untimed_ns,
        lambda: identity.world_size > 1,
    )
    bound = budget if options.overhead else None
    windows = FunctionWindows(
        recorder,
        bound,
        takes_unprofiled,
        operators.are_between,
        options.skip_first,
        hook.stop,
        run.switch_sections,
        changes,
    )
    run.loading.join(phase, windows, metrics)
    outputs = Outputs(resolve(options.output), faults, run.report, identity, aside)
    reach = Reach(
        str(outputs.paths[0].parent) if outputs.paths else "",
        identity,
        faults,
        run.snapshot,
        aside,
        run.soon,
        Status(recorder, identity, lambda: faults.said, memory.last),
        history.called,
    )
    return Parts(
        [
            ThreadNotes(pace),
            history,
            reach,
            OwnCosts(recorder, backend, run.loading.registry, own_time, faults),
            gpu,
            NvtxRanges(options.nvtx, faults, lambda: gpu.tool),
            memory,
            phase,
            Sections(recorder, sync=bool(options.sync)),
            hook,
            Compilations(recorder, phase, pace, faults, run.phase_changes),
            LoaderResults(recorder, run.loading.registry, run.loading.watches),
            stages,
            metrics,
            ReportPrinter(lambda: run.snapshot(whole=False), memory.line, is_primary, faults),
            outputs,
            trace,
            operators,
            LineWindows(
                recorder,
                lambda: hook.recording,
                operators.are_between,
                run.loading.watches.profiles.lines,
            ),
            TimeWindows(recorder, bound, backend, takes_unprofiled, hook.stop),
            windows,
            ranks,
            CpuUse(),
        ]
    )
