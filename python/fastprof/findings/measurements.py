"""Measurements of a report for the rules, computed once.

Times are in ms per *span*: per step if steps were measured, else over the whole recording.  Shares
are of the span.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

from fastprof.findings.element_loops import ElementLoop, element_loop
from fastprof.findings.forward_callers import ForwardCaller, forward_caller
from fastprof.findings.function_groups import GROUPS, is_of_modules
from fastprof.findings.hot_functions import NAMED, Hot, hottest, is_named
from fastprof.findings.measured_functions import FunctionFacts
from fastprof.findings.measured_steps import MS
from fastprof.findings.optimizers import Optimizer, optimizers
from fastprof.findings.places import Inside, Outside, inside, of_package, outside
from fastprof.findings.recomputed import recomputed
from fastprof.findings.serial_loops import is_serial
from fastprof.lazy import Lazy
from fastprof.report.build import in_phase
from fastprof.report.loading_cost import unhooked_parts
from fastprof.report.model import Report
from fastprof.report.origin import is_library
from fastprof.report.phase_names import PHASES
from fastprof.report.run_phases import chosen_phase
from fastprof.report.source_files import lines_of
from fastprof.report.tree import at_or_below
from fastprof.snapshot import Key, ThreadTree

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


def of_steps(report: Report) -> Report:
    """Return the report on measured steps, the subject of advice; without any, on the whole run."""
    phase = chosen_phase(report.snapshot, None)
    return in_phase(report, phase)


class Facts(FunctionFacts):
    """A report from the view of the rules; computes every property at most once."""

    # ---- phases ----

    # ---- functions ----

    @Lazy
    def recomputed(self) -> tuple[float, float]:
        """Per step, the ms in which backward computes forwards again, and how many of them."""
        thread = self.thread
        if thread is None or not self.report.has_tree or not self.counted:
            return 0.0, 0.0
        ns, calls = recomputed(thread.nodes, self._self_ns, self.report.view.keys)
        return ns / MS / self.counted, calls / self.counted

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
        scale = self.use("forward").ms / (whole.ns / MS)
        return found.scaled(scale / MS, scale), serial is False

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
        return max(0.0, ns / MS - self._beyond_ms) / self.counted

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
        beyond = self._beyond_ms * MS
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

    # ---- GPU ----

    # ---- other signals ----
