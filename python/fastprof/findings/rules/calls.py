"""Rules about many calls of small operations: the cost of calling."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    callers,
    need_functions,
    need_observed,
    need_steps,
    percent,
    share_draft,
    span_text,
)
from fastprof.findings.function_groups import BACKWARD, FORWARD, GROUPS, OPTIMIZER
from fastprof.findings.measurements import Facts
from fastprof.findings.operator_times import shrink
from fastprof.findings.remedies import (
    FUSED,
    can_fuse,
    fusing_is_measured,
    fusing_saves,
    optimizer_fix,
)
from fastprof.findings.serial_loops import filling_line
from fastprof.findings.thresholds import LIMITS, OWN, Limit
from fastprof.findings.uses import where
from fastprof.names import readable
from fastprof.report.figures import number, plural
from fastprof.report.origin import is_own, is_users, shown_name
from fastprof.report.source_files import lines_of
from fastprof.snapshot import Key

_CALL_COST = Limit(
    "share of forward that is the cost of calls", "%", None, 0.50, None,
    f"{OWN}: the same as for small kernels",
)  # fmt: skip

#: Tensor calls per step in the optimizer that a fused version avoids.
_UNFUSED_CALLS = 40


#: Longer calls on tensors compute: what costs is their work.
_LONG_MS = 0.1
#: Optimizers with a fused version that take sparse gradients; SparseAdam has none.
_TAKES_SPARSE = frozenset({"Adagrad", "SGD"})
#: Layers that compute for a smaller part of the update's time have few parameters.
_FEW = 1 / 30


def optimizer_unfused(facts: Facts) -> Draft | None:
    """An optimizer above its share that updates parameter by parameter.

    The saving is the measured one of this class's fused version; it is unknown for an optimizer of
    the program's.  Not reported if there is no fused version.
    """
    need_functions(facts)
    need_steps(facts)
    ms = facts.optimizer_ms
    if not ms:
        raise Abstain("no section optimizer and no optimizer of torch's was seen")
    classes = facts.optimizer.classes
    if facts.fusing_is_refused or (classes and not can_fuse(facts)):
        return None
    calls = facts.use("tensor-calls").calls_within.get("optimizer", 0.0)
    kernels = _kernels_per_step(facts, OPTIMIZER)
    small = max(calls, kernels or 0.0)
    # An Adam that is not fused passes over its state several times, even with few tensors.
    passes = bool(classes) and all(name in FUSED for name in classes) and (
        "single" in facts.optimizer.modes
    )  # fmt: skip
    if not small or (small < _UNFUSED_CALLS and not passes):
        return None
    what = "kernels" if kernels and kernels > calls else "calls on tensors"
    each = "" if "foreach" in facts.optimizer.modes else ", one parameter at a time"
    title = f"The optimizer makes {small:.0f} {what} per step{each}: {{share}} of the step"
    long = ms * facts.cpu_waits.part(OPTIMIZER) > small * _LONG_MS and facts.gpu is None
    if long and passes:  # the number of calls is not what costs
        title = "The optimizer passes over large tensors several times: {share} of the step"
    made = share_draft(
        facts, LIMITS["optimizer-share"], ms,
        rule="optimizer-unfused",
        title=title,
        evidence=(
            (f"The optimizer takes {span_text(ms, facts)} for {small:.0f} {what}, "
            f"{number(1e3 * ms / small)} us each."),
            _python_in(facts, "optimizer"),
        ),
        fix=(*optimizer_fix(facts), *(_sparse(facts, ms) if long else ())),
        group="optimizer", sections=OPTIMIZER,
    )  # fmt: skip
    if made is None or made.severity == "note":
        return None
    if not fusing_is_measured(facts):
        return replace(made, promises=False)
    return made.saving(fusing_saves(facts, ms, small), of=ms)


def _sparse(facts: Facts, ms: float) -> tuple[str, ...]:
    """Return the advice to make embeddings sparse, if they have nearly all of the parameters.

    Layers read each of their parameters, and an update passes over it several times: a network
    that computes for a small part of the update's time has few parameters in its layers.
    """
    if not facts.optimizer.classes or not set(facts.optimizer.classes) <= _TAKES_SPARSE:
        return ()
    rows = [(key, own) for key, own, n in facts.inside("forward") if n]
    rest = sum(
        own for key, own in rows if GROUPS["tensor-calls"](key) and not GROUPS["embeddings"](key)
    )
    if rest > _FEW * ms or not any(GROUPS["embeddings"](key) for key, _ in rows):
        return ()
    return (
        ("Or, without fused=True and weight_decay: nn.Embedding(..., sparse=True), so that a step "
        "updates only the rows of its batch."),
    )  # fmt: skip


def _python_in(facts: Facts, group: str) -> str:
    """Return the program's Python function with most own time in a group."""
    rows = [r for r in facts.inside(group) if r[0].kind == "python" and not is_own(r[0])]
    if not rows:
        return ""
    key, ms, _ = rows[0]
    return f"Its Python function with most self time is {where(key)}: {span_text(ms, facts)}."


def _kernels_per_step(facts: Facts, names: frozenset[str]) -> float | None:
    counts = [s.kernels for s in facts.report.sections if s.name in names and s.kernels is not None]
    return sum(counts) / max(1, facts.counted) if counts else None


def argument_checks(facts: Facts) -> Draft | None:
    """Time in which torch.distributions checks its arguments, by functions of its base class."""
    need_functions(facts)
    use = facts.use("argument-checks")
    if not use.ms:
        return None
    return share_draft(
        facts, LIMITS["overhead-share"], use.ms,
        rule="argument-checks",
        title="torch.distributions checks its arguments for {share} of the step",
        evidence=(
            f"The checks take {span_text(use.ms, facts)} ({plural(use.calls, 'call')}).",
            callers(facts, "argument-checks"),
        ),
        group="argument-checks", on_host=True,
    )  # fmt: skip


def tensor_loop(facts: Facts) -> Draft | None:
    """A loop over elements in forward that calls small operations on tensors.

    A larger batch has more elements.  At most the time of the function with the loop can be saved.
    """
    need_observed(facts)
    need_functions(facts)
    loop, sure = facts.element_loop
    if loop is None:
        return _cell_loop(facts) or _filling(facts)
    # Long calls compute something: their number is not what costs.
    if facts.cpu_waits.part(FORWARD) * loop.calls_time > loop.calls * _CALL_MS:
        return None
    at, name = where(loop.key), readable(shown_name(loop.operation), 60)
    each = loop.operations / loop.entries if loop.entries else 0.0
    again = f", {plural(round(each), 'time')} per call" if each else ""
    draft = share_draft(
        facts, _ANY, loop.time,
        rule="tensor-loop",
        title=f"{{share}} of the step is a loop of small operations on tensors in {at}",
        evidence=(
            (f"{at} takes {span_text(loop.time, facts)} in {plural(loop.entries, 'call')}. It "
            f"calls {name} {plural(round(loop.operations), 'time')} per {facts.per}{again}."),
        ),
        fix=(
            (f"Compute on whole tensors instead of element by element in {at}: one call in place "
            "of its loop. A larger batch is no help if it has more elements."),
        ),
        group="forward", sections=FORWARD, on_host=True,
        # Without a GPU that rule leaves it out itself.
        claims={"small-batch": 0.0} if facts.gpu is None else {},
    )  # fmt: skip
    return draft if sure or draft is None else replace(draft, promises=False)


def _cell_loop(facts: Facts) -> Draft | None:
    """A loop over time that calls a recurrent cell: torch has the loop in C.

    What it saves is unknown, and it needs the inputs of all times before the loop.
    """
    use = facts.use("cells")
    if use.calls < _TIMES:
        return None
    cells = [key for key in facts.report.view.keys if GROUPS["cells"](key)]
    if len(cells) != 1:
        return None
    cell = cells[0].qualname.partition(".")[0]
    whole = f"torch.nn.{cell.removesuffix('Cell')}"
    draft = share_draft(
        facts, _ANY, use.ms,
        rule="tensor-loop",
        title=f"{{share}} of the step is a loop over time that calls {cell}",
        evidence=(
            (f"Its forward takes {span_text(use.ms, facts)} in "
            f"{plural(round(use.calls), 'call')}, and backward as many operations again."),
            callers(facts, "cells"),
        ),
        fix=(
            (f"Use {whole}: one call computes all times, and its weights have the same shapes. The "
            "inputs must be known before the loop: the output of a time cannot be the next input."),
        ),
        group="cells", sections=FORWARD, on_host=True,
        claims={"small-batch": 0.0} if facts.gpu is None else {},
    )  # fmt: skip
    return None if draft is None else replace(draft, promises=False)


def _filling(facts: Facts) -> Draft | None:
    """A loop in forward that fills a tensor piece by piece: ``mask[i, i + 1:] = value``.

    Operators of Python are no calls that a hook sees, so their time is the function's own.  The
    source shows the loop, and torch.profiler how many pieces it fills: other operators of the
    function, such as ``a @ b``, take the rest.
    """
    operators = facts.report.operators
    hot = facts.hot_in("forward") if operators is not None and operators.steps else None
    if operators is None or hot is None or not is_users(hot.key):
        return None
    pieces = sum(row.calls for row in operators.rows if row.name in _PIECES) / operators.steps
    found = filling_line(lines_of(hot.key.file, facts.report.snapshot), hot.key)
    if found is None or pieces < _TIMES:
        return None
    own = dict(hot.parts).get(None, 0.0) * hot.share * facts.use("forward").ms
    ms = min(own, pieces * _CALL_MS / facts.cpu_waits.part(FORWARD))
    at, most = where(hot.key), f", at most {span_text(ms, facts)} of it here" if ms < own else ""
    return share_draft(
        facts, _ANY, ms,
        rule="tensor-loop",
        title=f"{{share}} of the step is a loop that fills a tensor piece by piece in {at}",
        evidence=(
            f"Its own code takes {span_text(own, facts)}{most}.",
            (f"A pass fills one piece in line {found}; "
            f"a step runs {plural(round(pieces), 'operation')} that {_CHOOSE}."),
        ),
        fix=(
            ("Fill it by one call on whole tensors (torch.triu, torch.where, masked_fill), and "
            "only once if it never changes (register_buffer)."),
        ),
        group="forward", sections=FORWARD, on_host=True,
    )  # fmt: skip


#: Operators that choose a piece of a tensor to assign to it.
_PIECES = frozenset({"aten::select", "aten::slice", "aten::index_put_"})
_CHOOSE = "choose a piece of a tensor"
#: Fewer calls of a cell, or pieces, in a step are no loop.
_TIMES = 20
#: Cost of calling an operation, from Python through the dispatcher and autograd; the rest of a
#: call's time is computing.
_CALL_MS = 0.008
#: The same without Python: operations called by others, and those of backward.
_OPERATION_MS = 0.005
#: Cost of the modules and functions around a call, in Python.
_AROUND_MS = 0.02
#: Larger batches are not small: then nearly all of forward must be the cost of calls.
_SMALL_BATCH = 16
_ALMOST_ALL = 0.6
#: Up to this part of a step's operations may run outside of forward and the optimizer.
_BESIDE = 0.1


@dataclass(frozen=True, slots=True)
class _Forward:
    """Forward per span: its time, its calls on tensors as (own ms, calls), and Python's time.

    All without the wait for a CPU, which does not show what a call costs.
    """

    total: float
    called: Sequence[tuple[float, float]]
    around: float

    @property
    def calls(self) -> float:
        return sum(n for _, n in self.called)

    @property
    def own(self) -> float:
        return sum(ms for ms, _ in self.called)

    @property
    def python(self) -> float:
        """The part of Python's time that is the cost of calling."""
        return max(0.0, min(self.around, self.calls * _AROUND_MS))

    @property
    def cost(self) -> float:
        return sum(min(ms, n * _CALL_MS) for ms, n in self.called) + self.python

    def without(self, *, ms: float, own: float, calls: float) -> "_Forward":
        """Return forward without ``calls`` of it, ``own`` ms of their own, and ``ms`` in all."""
        left = 1 - min(1.0, calls / self.calls) if self.calls else 1.0
        times = 1 - min(1.0, own / self.own) if self.own else 1.0
        return _Forward(
            max(0.0, self.total - ms),
            [(ms * times, n * left) for ms, n in self.called],
            max(0.0, self.around - (ms - own)),
        )


def _forward(facts: Facts) -> _Forward:
    rows = facts.inside("forward")
    # A trainer's log() within it is not part of the network; another rule covers it.
    logged = facts.use("logging").shared.get("forward", 0.0)
    total = facts.use("forward").ms - logged
    if not rows or total <= 0:
        raise Abstain("no section forward ran, so the cost of its calls is not known")
    called = [(ms, n) for key, ms, n in rows if n and GROUPS["tensor-calls"](key)]
    calls, own = sum(n for _, n in called), sum(ms for ms, _ in called)
    if logged and calls:
        logs = facts.use("tensor-calls").calls_within.get("logging", 0.0)
        part = 1 - min(calls, logs) / calls
        called = [(ms * part, n * part) for ms, n in called]
        calls, own = calls * part, own * part
    # A function that is called more often computes something itself, unless it is the library's.
    beside = sum(ms for key, ms, n in rows if n > calls and _computes(key))
    around = sum(ms for _, ms, _ in rows) - logged - own - beside
    on_cpu = facts.cpu_waits.part(FORWARD)
    return _Forward(on_cpu * total, [(on_cpu * ms, n) for ms, n in called], on_cpu * around)


def small_batch_on_cpu(facts: Facts, sizes: list[int]) -> Draft | None:
    """Share of forward and backward that is the cost of calls: a larger batch spreads it.

    Each call in forward counts with at most 8 us, and 20 us of Python around it; backward, which
    has about as many calls, counts with at most as much as forward.  If torch.profiler counted the
    operations, each counts with at most 5 us, including those that C functions call.  A loop over
    elements does not count, and if most calls are made where nothing is trained, only these do.
    The promise is that of a batch twice as large: half of the cost.
    """
    need_observed(facts)
    forward, on_cpu = _forward(facts), facts.cpu_waits.part(FORWARD)
    loop = facts.element_loop[0] if tensor_loop(facts) is not None else None
    if loop is not None:  # a larger batch has more elements
        forward = forward.without(
            ms=on_cpu * loop.time, own=on_cpu * loop.calls_time, calls=loop.calls
        )
    most = facts.forward_caller
    backward = facts.cpu_waits.part(BACKWARD) * (facts.phase("backward") or 0.0)
    updates = facts.cpu_waits.part(OPTIMIZER) * (facts.optimizer_ms or 0.0)
    passes, place, told = "forward and backward", "", ""
    if most is not None and loop is None:
        if not most.gradless:
            told = f"Most of the calls are made in {where(most.key)}."
        else:
            forward = forward.without(
                ms=forward.total * (1 - most.of_time),
                own=forward.own * (1 - most.of_calls),
                calls=forward.calls * (1 - most.of_calls),
            )
            backward, updates = 0.0, 0.0
            passes, place = "its time", f" in {where(most.key)}, without gradients"
    total = forward.total
    if total <= 0:
        return None
    ms = forward.cost + min(forward.cost / total * backward, forward.cost)
    # The hook sees no operator of Python's: a == b, x[i] = y.
    seen = (
        f"Forward makes at least {plural(round(forward.calls), 'call')} per {facts.per}{place}, "
        f"{_each(forward.own, forward.calls)}"
    )
    if loop is None and not place:
        count, ops_ms, cost = _operations(facts)
        if min(cost, backward + total) + forward.python > ms:
            ms = min(cost + forward.python, backward + total)
            seen = f"A step runs {plural(round(count), 'operation')} of {_each(ops_ms, count)}"
    ms = min(ms, total + backward)
    part = ms / (total + backward)
    limit = _CALL_COST
    small = bool(sizes) and min(sizes) <= _SMALL_BATCH
    if limit.grade(part) is None or (not small and part < _ALMOST_ALL):
        return None
    stepping = facts.use("tensor-calls").calls_within.get("optimizer", 0.0)
    updates = min(updates, stepping * (_CALL_MS + _AROUND_MS))
    more = f", and {span_text(updates, facts)} of the optimizer" if updates else ""
    size = f"Batches hold {plural(min(sizes), 'sample')}. " if sizes else ""
    draft = share_draft(
        facts, _ANY, (ms + updates) / facts.cpu_waits.part(FORWARD | BACKWARD | OPTIMIZER),
        rule="small-batch",
        title=(
            "Batches are too small: {share} of the step is the cost of calls" if small else
            "Operations are many and small: {share} of the step is the cost of calling them"
        ),
        evidence=(
            f"{size}{seen}; the cost of calling is {percent(part)} of {passes}{more}.",
            told, "" if place else _TWICE,
        ),
        fix=() if not place or most is None else (
            (f"Raise the batch in {where(most.key)}: call the network there once for many samples. "
            "A larger batch of the training saves nothing of it."),
        ),
        group="forward", sections=FORWARD | BACKWARD | OPTIMIZER,
    )  # fmt: skip
    if draft is None or draft.ms is None or place:  # there one call takes the place of many
        return draft
    return draft.saving(draft.ms / 2, of=draft.ms)


_TWICE = (
    "The estimate is for a batch twice as large, which has half of this cost per sample; one four "
    "times as large saves half as much again."
)


def _computes(key: Key) -> bool:
    return is_users(key) or (key.kind != "python" and not GROUPS["tensor-calls"](key))


def _each(ms: float, count: float) -> str:
    return f"{number(1e3 * ms / count)} us each" if count else "n/a"


def _operations(facts: Facts) -> tuple[float, float, float]:
    """Return operations per step, their own time, and the cost of calling them, in ms per step."""
    operators = facts.report.operators
    if operators is None or not operators.steps:
        return 0.0, 0.0, 0.0
    rows = [r for r in operators.rows
            if r.name.startswith(("aten::", "autograd::")) and not r.on_device]  # fmt: skip
    ran = [r for r in rows if r.name.startswith("aten::")]
    # Where in a step they ran is unknown: only use them if they cannot be a loop outside forward.
    calls = facts.use("tensor-calls")
    inside = sum(calls.calls_within.get(group, 0.0) for group in ("forward", "optimizer"))
    beside = calls.calls - inside
    if beside > _BESIDE * sum(r.calls for r in ran) / operators.steps:
        return 0.0, 0.0, 0.0
    scale, on_cpu = shrink(facts, operators) / operators.steps, facts.cpu_waits.part(FORWARD)
    cost = sum(min(on_cpu * r.self_cpu_ms, r.calls * _OPERATION_MS) for r in rows) * scale
    # Operations of the optimizer, which count separately, call others as well.
    cost -= 2 * _OPERATION_MS * calls.calls_within.get("optimizer", 0.0)
    if beside >= 1:
        # Operators on tensors (a - b) are no calls: all other time of the step may be theirs.
        phases = facts.use("forward").ms + (facts.phase("backward") or 0.0)
        left = facts.span_ms - phases - (facts.optimizer_ms or 0.0)
        cost -= max(0.0, on_cpu * left)
    count = sum(r.calls for r in ran) / operators.steps
    return count, on_cpu * sum(r.self_cpu_ms for r in ran) * scale, max(0.0, cost)


#: Any share above 15 %; the limit of the share of forward decides.
_ANY = Limit(_CALL_COST.metric, "%", None, 0.15, None, _CALL_COST.origin)

#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "argument-checks", "checking the arguments of distributions", argument_checks, order=100,
        fixes={
            "torch": (
                ("When the program works, switch the checks off before the loop: "
                "torch.distributions.Distribution.set_default_validate_args(False). A NaN among "
                "the parameters then raises no error."),
            ),
        },
    ),
    Rule(
        "optimizer-unfused", "updating parameter by parameter", optimizer_unfused, order=150,
    ),
    Rule(
        "tensor-loop", "loops over elements of tensors", tensor_loop,
        order=280, limits=(_CALL_COST,),
    ),
)  # fmt: skip
