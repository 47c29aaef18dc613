"""Measurements of a report for the rules, computed once.

Times are in ms per *span*: per step if steps were measured, else over the whole recording.  Shares
are of the span.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import median

from fastprof.findings.cpu_waits import CpuWaits, cpu_waits
from fastprof.findings.element_loops import ElementLoop, element_loop
from fastprof.findings.forward_callers import ForwardCaller, forward_caller
from fastprof.findings.function_groups import (
    GROUPS,
    NEVER_IN,
    OPENED,
    is_of_modules,
    sought,
)
from fastprof.findings.gpu_time import Timeline, timeline_of
from fastprof.findings.group_times import GroupTime, marks, walk
from fastprof.findings.hot_functions import NAMED, Hot, hottest, is_named
from fastprof.findings.optimizers import Optimizer, optimizers
from fastprof.findings.places import Inside, Outside, inside, of_package, outside
from fastprof.findings.recomputed import recomputed
from fastprof.findings.serial_loops import is_serial
from fastprof.lazy import Lazy
from fastprof.names import file_name, readable
from fastprof.report.build import in_phase
from fastprof.report.correct import correct
from fastprof.report.framework import framework_of
from fastprof.report.functions import split_by_section
from fastprof.report.gpu import NO_SECTION as NOT_IN_SECTION
from fastprof.report.loading_cost import unhooked_parts
from fastprof.report.model import Report
from fastprof.report.model_gpu import GpuReport
from fastprof.report.origin import is_library
from fastprof.report.phase_names import PHASES
from fastprof.report.plain_steps import function_scale
from fastprof.report.rows import OWN_COST, UNACCOUNTED, FunctionRow, StepTable, key_of
from fastprof.report.run_phases import (
    ALL,
    between_steps_ns,
    beyond_steps_ns,
    chosen_phase,
    steps_in,
)
from fastprof.report.source_files import lines_of
from fastprof.report.step_costs import NO_SECTION
from fastprof.report.step_table import costs_of_steps
from fastprof.report.steps import StepSeriesView
from fastprof.report.threads import training_thread
from fastprof.report.tree import at_or_below
from fastprof.snapshot import Key, ThreadTree
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

_MS = 1e6
#: A function that spends this part of its time in one library function only started it.
_STARTED = 0.9
#: The operators of backward that make sparse gradients; only those of embeddings do.
_SPARSE = frozenset({"aten::embedding_sparse_backward", "aten::_embedding_bag_sparse_backward"})

#: torch's module that makes batches in a worker.
_FETCHES = "utils/data/_utils/fetch.py"


@dataclass(frozen=True, slots=True)
class ForwardOutside:
    """A forward pass in no section: ms per step; ``itself``: the program calls it, no module."""

    ms: float
    itself: bool


@dataclass(frozen=True, slots=True)
class Caller:
    """The place of calls: a text such as ``train (train.py:12)``; figures per span."""

    text: str
    ms: float
    calls: float
    own_ms: float


@dataclass(frozen=True, slots=True)
class Use:
    """Time of a group of functions: ms and calls per span, ``total_ms`` over the recording.

    ``places`` splits ``ms`` by the outermost section, ``shared`` by the other groups to which it
    also belongs, ``calls_within`` by the groups around the calls.
    """

    ms: float
    calls: float
    total_ms: float
    places: Mapping[str, float]
    shared: Mapping[str, float]
    calls_within: Mapping[str, float]
    callers: tuple[Caller, ...]


#: Groups that rules look for in the whole recording.
_OF_THE_RUN = ("shutdown", "poll", "loader-workers", "tokens", "data", "checkpoint")

NOTHING = Use(0.0, 0.0, 0.0, {}, {}, {}, ())


def of_steps(report: Report) -> Report:
    """Return the report on measured steps, the subject of advice; without any, on the whole run."""
    phase = chosen_phase(report.snapshot, None)
    return in_phase(report, phase)


class Facts:
    """A report from the view of the rules; computes every property at most once."""

    def __init__(self, report: Report) -> None:
        self.report = report
        steps = report.steps
        #: Steps that the figures cover, 0 if none was measured.
        self.steps = steps.measured if steps.wall_ns else 0
        #: Steps that functions, sections and GPU work cover: all of the run in a recording without
        #: phases.
        self.counted = steps_in(report.phase, steps.count, self.steps)
        #: A step's mean wall time, or the recording's.
        self.span_ms = (report.shown_steps.mean_ms or 0.0) if self.steps else report.wall_ms
        self.per = "step" if self.steps else "recording"

    def share(self, ms: float) -> float:
        """Return a time as a fraction of the span."""
        return ms / self.span_ms if self.span_ms > 0 else 0.0

    # ---- phases ----

    @Lazy
    def rows(self) -> Mapping[str, float]:
        """The rows of the step table without fastprof's: name -> ms per step."""
        steps = self.report.shown_steps
        return {row.name: row.mean_ms for row in steps.rows if row.name != OWN_COST}

    @Lazy
    def own_costs(self) -> Mapping[str, float]:
        """fastprof's cost by row of the step table, which leaves it out: name -> ms per step."""
        if all(row.name != OWN_COST for row in self.report.shown_steps.rows):
            return {}
        if self.report.plain is not None:
            return {
                UNACCOUNTED: sum(r.mean_ms for r in self.report.plain.rows if r.name == OWN_COST)
            }
        keys = self.report.snapshot.keys
        out: dict[str, float] = {}
        for key, ns in costs_of_steps(self.report.snapshot).items():
            name = UNACCOUNTED if key == NO_SECTION else keys[key].name
            out[name] = out.get(name, 0.0) + ns / _MS / self.steps
        return out

    @property
    def _plain(self) -> StepTable | None:
        """The steps whose sections ``report.sections`` shows, if those are plain ones."""
        return self.report.plain if self.report.phase == "steps" else None

    @Lazy
    def nested(self) -> Mapping[str, float]:
        """Sections of the whole recording: name -> ms per step, inside others or not."""
        plain = self._plain
        whole_ms = None if plain is None else plain.mean_ms
        if whole_ms is not None:  # rows of steps with functions and without
            return {s.name: s.share * whole_ms for s in self.report.sections if s.share is not None}
        count = self.counted or 1
        return {s.name: s.total_ms / count for s in self.report.sections if s.total_ms is not None}

    def phase(self, name: str) -> float | None:
        """Return the ms per span of a phase; None if none of its sections ran.

        A phase at the top level of steps counts there, else inside other sections.
        """
        names = PHASES[name]
        at_top = [ms for row, ms in self.rows.items() if row in names]
        if at_top:
            return sum(at_top)
        inside = [ms for row, ms in self.nested.items() if row in names]
        return sum(inside) if inside and self.report.steps.count else None

    def run_phase(self, name: str) -> tuple[float, float]:
        """Return the ms per step of a phase of the run outside of steps, and its entries."""
        row = next((row for row in self.report.phases if row.name == name), None)
        if row is None or not self.steps or self.report.phase == name:
            return 0.0, 0.0
        return row.wall_ms / self.report.steps.count, row.entries / self.report.steps.count

    def section_count(self, names: frozenset[str]) -> int:
        """Return how often sections of these names were entered."""
        return sum(s.count for s in self.report.sections if s.name in names)

    def section_rate(self, names: frozenset[str]) -> float:
        """Return the same per step."""
        steps = self.counted if self._plain is None else self._plain.measured
        return self.section_count(names) / max(1, steps)

    # ---- functions ----

    @Lazy
    def has_functions(self) -> bool:
        """Return whether function calls were recorded."""
        if not self.report.has_tree:
            return any(row.kind in ("python", "c") for row in self.report.functions)
        view = self.report.view
        seen = [key.kind in ("python", "c") for key in view.keys]
        columns = ((t.nodes.key, t.nodes.calls, t.nodes.resumes) for t in view.threads)
        return any(
            seen[key] and (calls or resumes)
            for of_thread in columns
            for key, calls, resumes in zip(*of_thread, strict=True)
        )

    @Lazy
    def _trained(self) -> int:
        """Index of the thread that ran the sections of steps."""
        return training_thread(self.report.view)

    @property
    def thread(self) -> ThreadTree | None:
        """The training thread."""
        threads = self.report.view.threads
        return threads[self._trained] if threads else None

    @Lazy
    def _self_ns(self) -> Sequence[float]:
        """Exclusive times of the training thread's nodes, as far as steps contain them.

        Times and the step's are those of the same steps: see :func:`function_scale`.

        Between two steps fastprof may work outside of all functions: it starts and saves operator
        windows, which takes seconds on a busy machine.
        """
        view = self.report.view
        own = correct(view, enabled=self.report.overhead.corrected).self_ns[self._trained]
        if self.report.phase != RUN_PHASES[STEPS] or not view.steps.sum_ns:
            return own
        inside = (max(0, own[0] - between_steps_ns(view, self._trained)), *own[1:])
        return inside if self._to_shown == 1.0 else [ns * self._to_shown for ns in inside]

    @Lazy
    def _to_shown(self) -> float:
        """By what recorded times of functions in steps were multiplied."""
        return function_scale(self.report)

    @Lazy
    def _beyond_ms(self) -> float:
        """Time of the training thread in the view that no completed step contains."""
        return beyond_steps_ns(self.report.view, self.report.phase, self._trained) / _MS

    @Lazy
    def _groups(self) -> Mapping[str, GroupTime]:
        thread = self.thread
        if thread is None:
            return {}
        keys = self.report.view.keys
        return walk(thread.nodes, self._self_ns, keys, self._marks, GROUPS, OPENED, NEVER_IN)

    @Lazy
    def _marks(self) -> Sequence[int]:
        """The groups of each key."""
        keys = self.report.view.keys
        return marks(keys, GROUPS, sought(keys))

    def hot_in(self, group: str) -> Hot | None:
        """Return the program's function with most of a group's time; None if unknown."""
        thread = self.thread
        if thread is None or not self.report.has_tree:
            return None
        keys = self.report.view.keys
        chosen = at_or_below(thread.nodes, [GROUPS[group](key) for key in keys])
        return hottest(thread.nodes, self._self_ns, keys, chosen)

    @Lazy
    def recomputed(self) -> tuple[float, float]:
        """Per step, the ms in which backward computes forwards again, and how many of them."""
        thread = self.thread
        if thread is None or not self.report.has_tree or not self.counted:
            return 0.0, 0.0
        ns, calls = recomputed(thread.nodes, self._self_ns, self.report.view.keys)
        return ns / _MS / self.counted, calls / self.counted

    @Lazy
    def element_loop(self) -> tuple[ElementLoop | None, bool]:
        """The loop over elements with most of forward's calls on tensors, and whether it is sure.

        In ms and calls per span.  It is sure if the source shows that no pass of the loop needs the
        result of the last one; if one does, there is none.
        """
        thread, whole = self.thread, self._groups.get("forward")
        if thread is None or not self.report.has_tree or whole is None or not whole.ns:
            return None, False
        keys = self.report.view.keys
        found = element_loop(thread.nodes, self._self_ns, keys, GROUPS["forward"])
        if found is None:
            return None, False
        lines = lines_of(found.key.file, self.report.snapshot)
        serial = is_serial(lines, found.key, found.operation)
        if serial:
            return None, False
        scale = self.use("forward").ms / (whole.ns / _MS)
        return found.scaled(scale / _MS, scale), serial is False

    @Lazy
    def forward_caller(self) -> ForwardCaller | None:
        """The program's function that makes most of forward's calls, if there are several."""
        thread = self.thread
        if thread is None or not self.report.has_tree:
            return None
        return forward_caller(thread.nodes, self._self_ns, self.report.view.keys)

    @Lazy
    def _outside(self) -> Outside:
        """The nodes in no section."""
        thread = self.thread
        if thread is None or not self.report.has_tree:
            return Outside((), 0.0, 0.0, frozenset())
        rows = frozenset(self.rows)
        keys, ranks = self.report.view.keys, self.ranks > 1
        return outside(thread.nodes, self._self_ns, keys, rows, ranks=ranks)

    @property
    def left_out_outside(self) -> float:
        """The part of the time in no section that imports and waits for other ranks take."""
        return self._outside.left_out

    @property
    def ours_outside(self) -> float:
        """The part of the time in no section that fastprof's own functions take."""
        return self._outside.ours

    @Lazy
    def free_ms(self) -> float:
        """The functions' time per step in no section."""
        chosen = self._outside.chosen
        if not chosen or not self.counted:
            return 0.0
        ns = sum(ns for ns, is_chosen in zip(self._self_ns, chosen, strict=True) if is_chosen)
        return max(0.0, ns / _MS - self._beyond_ms) / self.counted

    def is_loop(self, key: Key) -> bool:
        """Return whether sections of steps run in a function: it has the loop, or calls it."""
        keys = self.report.view.keys
        return any(keys[i] == key for i in self._outside.loops)

    def hot_in_section(self, name: str) -> tuple[Hot | None, Inside]:
        """Return the function with most of a section's time, and the section's nodes."""
        thread = self.thread
        if thread is None or not self.report.has_tree:
            return None, Inside((), 0.0, 0.0)
        nodes, keys = thread.nodes, self.report.view.keys
        found = inside(nodes, self._self_ns, keys, name)
        return hottest(nodes, self._self_ns, keys, found.chosen), found

    @Lazy
    def hot_outside(self) -> Hot | None:
        """The program's function with most of the time in no section."""
        thread, chosen = self.thread, self._outside.chosen
        if thread is None or not chosen:
            return None
        keys = self.report.view.keys
        hot = hottest(thread.nodes, self._self_ns, keys, chosen, libraries=False)
        if hot is not None and self._starts_only(hot):
            called = self._hot_in_callbacks(thread, chosen, hot.key)
            if called is None and hot.key.name == "<module>":
                return None
            hot = called or hot
        beyond = self._beyond_ms * _MS
        if hot is None or not beyond:
            return hot
        # All of that may be this function's: only the rest surely belongs to steps.
        total = sum(ns for ns, is_chosen in zip(self._self_ns, chosen, strict=True) if is_chosen)
        left = hot.share * total - beyond
        if left <= 0:
            return None
        calls = ((key, share * total - beyond) for key, share in hot.calls)
        return replace(
            hot,
            share=left / (total - beyond),
            calls=tuple((key, ns / (total - beyond)) for key, ns in calls if ns > 0),
        )

    @Lazy
    def trainer_outside(self) -> Sequence[tuple[Key, float]]:
        """The trainer's functions, each with its part of the time in no section, largest first."""
        thread, chosen = self.thread, self._outside.chosen
        if thread is None or not chosen or self.framework == "torch":
            return ()
        keys = self.report.view.keys
        return of_package(thread.nodes, self._self_ns, keys, chosen, self.framework)

    def _starts_only(self, hot: Hot) -> bool:
        """Return whether it only started a library, which has the loop, and waits for it."""
        first, share = hot.parts[0] if hot.parts else (None, 0.0)
        if first is None or not is_library(first) or share < _STARTED:
            return False
        return hot.key.name == "<module>" or self.is_loop(first)

    def _hot_in_callbacks(
        self, thread: ThreadTree, chosen: Sequence[bool], starter: Key
    ) -> Hot | None:
        """Return the function with most of this time, of those that the started library calls."""
        keys, loops = self.report.view.keys, self._outside.loops
        theirs = [is_named(key) and i not in loops and key != starter for i, key in enumerate(keys)]
        below = at_or_below(thread.nodes, theirs)
        inner = [here and under for here, under in zip(chosen, below, strict=True)]
        hot = hottest(thread.nodes, self._self_ns, keys, inner, libraries=False)
        whole = sum(compress(self._self_ns, chosen))
        if hot is None or whole <= 0:
            return None
        part = sum(compress(self._self_ns, inner)) / whole
        if part * hot.share < NAMED:
            return None
        calls = tuple((key, part * share) for key, share in hot.calls)
        return replace(hot, share=part * hot.share, calls=calls)

    @Lazy
    def forward_outside(self) -> ForwardOutside | None:
        """The forward pass in no section, if it has most of that time."""
        hot, thread = self.hot_outside, self.thread
        if hot is None or thread is None or hot.key.name != "forward":
            return None
        nodes, keys = thread.nodes, self.report.view.keys
        callers = {
            keys[nodes.key[parent]]
            for parent, key, here in zip(nodes.parent, nodes.key, self._outside.chosen, strict=True)
            if here and keys[key] == hot.key
        }
        hooks = "steps_ended_by" in self.report.meta
        if hooks and any(map(is_of_modules, callers)):
            return None  # the hooks saw this module, and not in a forward of the training
        owner = hot.key.qualname.rpartition(".")[0]
        is_method = owner != "" and not owner.endswith("<locals>")
        applied = any("apply" in key.name for key in callers)  # of a torch.autograd.Function
        return ForwardOutside(hot.share * self.free_ms, hooks and is_method and not applied)

    @Lazy
    def hot_in_workers(self) -> Hot | None:
        """The program's function with most of the time in the loaders' workers."""
        snapshot = self.report.view
        found = None
        most = 0
        for thread in snapshot.worker_threads:
            # Other threads of a worker wait.
            fetches = at_or_below(thread.nodes, [_FETCHES in key.file for key in snapshot.keys])
            chosen = fetches if any(fetches) else [True] * len(thread.nodes)
            here = hottest(thread.nodes, thread.nodes.self_ns, snapshot.keys, chosen)
            if here is not None and sum(thread.nodes.self_ns) > most:
                found, most = here, sum(thread.nodes.self_ns)
        return found

    @Lazy
    def _run_groups(self) -> Mapping[str, GroupTime]:
        """The groups before, between and after the steps as well."""
        snapshot = self.report.snapshot
        if not snapshot.threads:
            return {}
        columns = correct(snapshot, enabled=self.report.overhead.corrected).self_ns
        nodes, column = snapshot.threads[self._trained].nodes, columns[self._trained]
        if snapshot is self.report.view and column is self._self_ns:
            return self._groups
        return walk(nodes, column, snapshot.keys, self._marks, GROUPS, only=_OF_THE_RUN)

    def over_run(self, group: str) -> Use:
        """Return a group's use in the whole recording, spread over its steps.

        Only for groups outside of steps, or partly outside: see ``_OF_THE_RUN``.
        """
        if not self.report.has_tree:
            return self._from_table(group)
        found = self._run_groups.get(group)
        if found is None or not found.ns:
            return NOTHING
        count = self.report.steps.count if self.steps else 1
        return self._scaled(found, found.ns / _MS / count, {}, 1 / count)

    def use(self, group: str) -> Use:
        """Return the use of a group of functions inside of steps."""
        if not self.report.has_tree:
            return self._from_table(group)
        found = self._groups.get(group)
        if found is None or not found.ns:
            return NOTHING
        return replace(self._use(found), total_ms=found.ns / _MS / self._to_shown)

    def _use(self, found: GroupTime) -> Use:
        keys = self.report.view.keys
        count = self.counted if self.steps else 1
        places: dict[str, float] = {}
        for key, ns in found.by_section.items():
            name = keys[key].name if key >= 0 else UNACCOUNTED
            if self.steps and key >= 0 and name not in self.rows:
                continue  # validation, for example: not in a step
            places[name] = places.get(name, 0.0) + ns / _MS / count
        whole = places.get(UNACCOUNTED, 0.0)
        if self.steps:
            # Time beyond a section's time in the steps lies outside of them.
            places = {name: min(ms, self.rows.get(name, 0.0)) for name, ms in places.items()}
            # This much of the time in no section may be outside of steps.
            beyond = self._beyond_ms / count
            if UNACCOUNTED in places:
                places[UNACCOUNTED] = max(0.0, min(whole - beyond, places[UNACCOUNTED]))
        ms = sum(places.values())
        return self._scaled(found, ms, places, ms / (found.ns / _MS))

    def _scaled(
        self, found: GroupTime, ms: float, places: Mapping[str, float], scale: float
    ) -> Use:
        """Return a use of ``ms`` per span; ``scale`` is from the recording to the span."""
        callers = (
            Caller(
                self._place(*place),
                site.ns / _MS * scale,
                site.calls * scale,
                site.own_ns / _MS * scale,
            )
            for place, site in found.sites.items()
        )
        return Use(
            ms,
            found.calls * scale,
            found.ns / _MS,
            places,
            {name: ns / _MS * scale for name, ns in found.shared.items()},
            {name: calls * scale for name, calls in found.calls_within.items()},
            tuple(sorted(callers, key=lambda c: -c.ms)),
        )

    def _place(self, key: int, above: int) -> str:
        keys = self.report.view.keys
        at = keys[key]
        if at.kind == "section":
            inside = f" in {where(keys[above])}" if above >= 0 else ""
            return f"section {readable(at.name, 60)}{inside}"
        return where(at) if at.kind in ("python", "c", "type") else "the top level"

    @Lazy
    def _table(self) -> Sequence[tuple[FunctionRow, Key]]:
        """The functions that may belong to a group."""
        keyed = [(row, key_of(row)) for row in self.report.functions]
        return [keyed[i] for i in sought([key for _, key in keyed])]

    def _from_table(self, group: str) -> Use:
        """Return a use without contexts: cumulative times of matches, as if none nested."""
        rows = [row for row, key in self._table if GROUPS[group](key)]
        if not rows:
            return NOTHING
        total = min(sum(row.cum_ms for row in rows), self.report.wall_ms)
        callers: dict[str, tuple[float, int]] = {}
        for row in rows:
            for edge in row.callers:
                text = located(edge.qualname, edge.file, edge.line)
                ms, calls = callers.get(text, (0.0, 0))
                callers[text] = (ms + edge.cum_ms, calls + edge.calls)
        sites = (Caller(text, ms, calls, 0.0) for text, (ms, calls) in callers.items())
        return Use(
            total, sum(r.calls for r in rows), total, {}, {}, {},
            tuple(sorted(sites, key=lambda c: -c.ms)),
        )  # fmt: skip

    def inside(self, group: str) -> Sequence[tuple[Key, float, float]]:
        """Return the contents of a group: key, own ms per span and calls, most time first.

        Only for the groups in :data:`fastprof.findings.function_groups.OPENED`.
        """
        found = self._groups.get(group) if self.report.has_tree else None
        if found is None or not found.ns:
            return ()
        keys = self.report.view.keys
        scale = self.use(group).ms / (found.ns / _MS)
        rows = [
            (keys[key], ns / _MS * scale, calls * scale)
            for key, (ns, calls) in found.inside.items()
        ]
        return sorted(rows, key=lambda row: -row[1])

    @Lazy
    def unhooked(self) -> tuple[float, float]:
        """The parts of loading's time, and of the rest of a step's, without the hook."""
        return unhooked_parts(self.report.view)

    # ---- the optimizer ----

    @Lazy
    def optimizer_ms(self) -> float | None:
        """The optimizer's time per span, without forward and backward in its closure."""
        ms, groups = self.phase("optimizer"), ("data", "forward", "backward")
        if ms is not None:
            # A trainer's closure has separate sections: they are outside this one.
            held = (self.use(group).places for group in groups)
            nested = sum(places.get(name, 0.0) for places in held for name in PHASES["optimizer"])
        else:
            use = self.use("optimizer")
            ms = use.ms or None
            nested = sum(use.shared.get(group, 0.0) for group in groups)
        return None if ms is None else max(0.0, ms - nested)

    @Lazy
    def optimizer(self) -> Optimizer:
        """The optimizers of torch's that ran in the steps, and their modes."""
        stepped = (key for key, _, _ in self.inside("optimizer"))
        return optimizers(stepped, self.report.snapshot.keys)

    @Lazy
    def fusing_is_refused(self) -> bool:
        """Whether torch's fused optimizers refuse the gradients or parameters of this run.

        The functions and operators tell it of a loop that fastprof was not attached to.
        """
        if self.report.meta.get("torch_refuses_fused"):
            return True
        if self.use("unfusable").calls_within.get("optimizer", 0.0):
            return True
        operators = self.report.operators
        return operators is not None and any(row.name in _SPARSE for row in operators.rows)

    # ---- the machine ----

    @Lazy
    def cpus(self) -> float | None:
        """CPUs that the program may use; None: not recorded."""
        known = (self.report.meta.get(name) for name in ("cpus", "cpu_limit"))
        limits = [float(value) for value in known if isinstance(value, (int, float)) and value > 0]
        limits += [float(w.cpus) for row in self.report.loaders if (w := row.workers) and w.cpus]
        return min(limits, default=None)

    @property
    def own_cpus(self) -> float | None:
        """A rank's part of the CPUs if the ranks of the job share them, else all of them."""
        return None if self.cpus is None else self.cpus / self.ranks_on_cpus

    @property
    def ranks_on_cpus(self) -> int:
        """Ranks of the job that share this process's CPUs; 1 if none does, or it is unknown."""
        told = self.report.meta.get("ranks_on_cpus")
        return told if isinstance(told, int) and told > 1 else 1

    @Lazy
    def cpus_used(self) -> float | None:
        """CPUs in use by the program and its workers in steps; None: not recorded.

        Only the CPU time of the whole recording is known.  Where it runs no network (imports,
        set-up) a program mostly uses one CPU, while torch computes with several threads in steps.
        """
        ns = self.report.meta.get("process_cpu_ns")
        duration = self.report.snapshot.duration_ns
        if not isinstance(ns, int) or duration <= 0:
            return None
        average = ns / duration
        trains = sum(row.wall_ms for row in self.report.phases if row.name in _TRAINS)
        trains = 1e6 * max(trains, self.report.steps.wall_ms or 0.0)
        if not 0.0 < trains < duration:
            return average
        used = max(average, (ns - (duration - trains)) / trains)
        return used if self.cpus is None else max(average, min(used, self.cpus))

    @property
    def others_are_known(self) -> bool:
        """Whether the CPU use of other programs was recorded.

        With other ranks it is not known: most of it is theirs, and they have their part.
        """
        told = isinstance(self.report.meta.get("others_cpu_ns"), int)
        return told and self.own_cpus is not None and self.ranks_on_cpus == 1

    @Lazy
    def others_cpus(self) -> float:
        """CPUs of :attr:`own_cpus` in use by other programs; 0 if unknown."""
        ns, duration = self.report.meta.get("others_cpu_ns"), self.report.snapshot.duration_ns
        if not self.others_are_known or not isinstance(ns, int) or self.own_cpus is None:
            return 0.0
        if duration <= 0:
            return 0.0
        allowed = self.report.meta.get("cpus")
        # Within a container's limit, they first have the CPUs that it leaves to them anyway.
        left = allowed - self.own_cpus if isinstance(allowed, (int, float)) else 0.0
        return max(0.0, min(self.own_cpus, ns / duration - max(0.0, left)))

    @property
    def crowded(self) -> bool:
        """Whether other programs have CPUs that further workers would need."""
        return self.cpu_waits.matter or self.others_cpus > _IDLE

    # ---- GPU ----

    @property
    def gpu(self) -> GpuReport | None:
        """The GPU layer, None if it was off."""
        gpu = self.report.gpu
        return gpu if gpu is not None and gpu.status == "on" and gpu.devices else None

    @property
    def cpu_only(self) -> bool:
        """Whether the machine is known to have no GPU."""
        gpu = self.report.gpu
        return gpu is not None and gpu.lacks_device

    @property
    def hidden_gpu(self) -> bool:
        """Whether there may be a GPU that was not observed."""
        return self.report.gpu is not None and self.gpu is None and not self.cpu_only

    @property
    def lacks_bfloat16(self) -> bool:
        """Whether a GPU is older than compute capability 8.0: it has no bfloat16 units.

        See NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities".
        """
        devices = () if self.gpu is None else self.gpu.devices
        return any(d.capability.partition(".")[0] in ("5", "6", "7") for d in devices)

    @Lazy
    def timeline(self) -> Timeline | None:
        """The devices' time per span; several count as one that is as busy as their mean."""
        return None if self.gpu is None else timeline_of(self.gpu, self.span_ms)

    @Lazy
    def idle(self) -> Mapping[str, float]:
        """The GPU's idle time in steps that the program causes: outermost section -> ms per span.

        Leaves out fastprof's own cost, and sections between steps (validation, for example).
        """
        rows = () if self.timeline is None else self.timeline.idle
        idle = {UNACCOUNTED if name == NOT_IN_SECTION else name: ms for name, ms in rows}
        return {
            name: max(0.0, ms - self.own_costs.get(name, 0.0))
            for name, ms in idle.items()
            if not self.steps or name in self.rows
        }

    @Lazy
    def copied(self) -> float:
        """Copies between device and host: their part of the time in the report's phase."""
        gpu = self.gpu
        if gpu is None or gpu.use is None:
            return 0.0
        view = self.report.view
        wall = sum(d.whole.wall_ns for d in gpu.devices)
        if self.report.phase != ALL and view.phases:
            wall = view.duration_ns * len(gpu.devices)
        return gpu.use.transfer_ns / wall if wall else 0.0

    # ---- other signals ----

    @property
    def ranks(self) -> int:
        """Processes of the job; 1 if it has no others, or the number is unknown."""
        told = self.report.meta.get("world_size")
        return told if isinstance(told, int) and told > 1 else 1

    @Lazy
    def split(self) -> Mapping[str, float]:
        """The exclusive split of a step: kind -> ms per step; empty if unknown."""
        rows = getattr(self.report.shown_steps, "split", ())
        return {row.name: row.mean_ms for row in rows}

    @Lazy
    def cpu_waits(self) -> CpuWaits:
        """The training thread's wait for a CPU: it was ready, and had none."""
        rows = {row.name: row.mean_ms for row in self.report.shown_steps.rows}
        waits = self.split_by_section("cpu_wait")
        wait_ms = self.split.get("cpu_wait", 0.0)
        series = sections = self.own_series
        if self.report.stages:  # most steps without a wait are of the stage with short ones
            sections = replace(series, names={})
        elif not series.names:  # most plain steps had no automatic sections
            sections = self._outside_operators(self.report.steps.series)
        of_steps = self.report.shown_steps.measured
        return cpu_waits(rows, wait_ms, waits, series, sections, self.steps, of_steps)

    def split_by_section(self, kind: str) -> Mapping[str, float]:
        """Return the ms per step of a kind of the split by outermost section, as far as known."""
        found = split_by_section(self.report.snapshot, kind)
        recorded = sum(row.mean_ms for row in self.report.steps.split if row.name == kind)
        if self.report.plain is None or not recorded:
            return found
        # The places are those of steps with functions, and the sum is the one that is shown.
        part = self.split.get(kind, 0.0) / recorded
        return {name: ms * part for name, ms in found.items()}

    @Lazy
    def own_series(self) -> StepSeriesView:
        """The single steps, without those that torch.profiler slowed down."""
        return self._outside_operators(self.report.shown_steps.series)

    def _outside_operators(self, series: StepSeriesView) -> StepSeriesView:
        operators = self.report.operators
        windows = operators.windows if operators is not None else ()
        kept = [
            row
            for row, number in enumerate(series.numbers)
            if not any(low <= number <= high for low, high in windows)
        ]
        return series.only(kept)

    @Lazy
    def worst_ms(self) -> float:
        """The slowest step's contribution to the mean step, beyond the median step."""
        wall = self.report.shown_steps.series.wall_ms
        return (max(wall) - median(wall)) / len(wall) if wall else 0.0

    @Lazy
    def disturbed(self) -> bool:
        """Whether other programs repeatedly took the CPU from the training thread.

        If so, the times of a few steps are chance: a time slice is some milliseconds.
        """
        series = self.report.shown_steps.series
        wall_s = sum(series.wall_ms) / 1e3
        return bool(series.switches) and sum(series.switches) > BUSY_SWITCHES * wall_s

    @Lazy
    def framework(self) -> str:
        """The trainer in use: torch, lightning, transformers or accelerate."""
        return framework_of(self.report)


#: Phases of the run in which a network runs.
_TRAINS = frozenset({"steps", "warmup", "unprofiled", "validation"})

#: Other programs that use less of a CPU leave it to this one.
_IDLE = 0.25

#: Involuntary context switches per second; an idle machine has a few.
BUSY_SWITCHES = 20.0


def where(key: Key) -> str:
    """Return a function with its place: ``Trainer.fit (train.py:12)``."""
    return located(key.qualname or key.name, key.file, key.line)


def located(name: str, file: str, line: int) -> str:
    """Return a name with file and line, printable and of bounded length.

    Code of a script outside of functions has the name of its file.
    """
    text = readable(name, 80)
    if not line:
        return text
    if name == "<module>":
        return readable(file_name(file), 60)
    return f"{text} ({readable(file_name(file), 60)}:{line})"
