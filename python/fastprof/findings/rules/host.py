"""Rules about what the training thread does beside the four phases, or in them for nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    called_from,
    callers,
    need_functions,
    need_sample,
    need_steps,
    percent,
    share_draft,
    span_text,
)
from fastprof.findings.function_groups import (
    BACKWARD,
    CHECKPOINT,
    FORWARD,
    GROUPS,
    LOGGING,
    OPTIMIZER,
)
from fastprof.findings.measurements import Caller, Facts, located, where
from fastprof.findings.remedies import FUSED, can_fuse, fusing_saves, optimizer_fix
from fastprof.findings.thresholds import LIMITS, MIN_TIMES, Limit
from fastprof.names import ascii_name
from fastprof.report.figures import counted, duration, number, plural, size
from fastprof.report.operators import OperatorReport, OperatorRow

_OVERHEAD = LIMITS["overhead-share"]

#: From so many calls per span on, reading values is a loop over elements, whose own Python
#: counts as well, with at most so much per call.
_LOOP_CALLS = 16
_LOOP_MS = 0.01


def sync_item(facts: Facts) -> Draft | None:
    """Time of reading values of tensors one by one, and of waiting for the GPU for it.

    On a GPU: the time in which the host is blocked, as far as the GPU is idle meanwhile or
    later without work (the smaller of the two): waiting for a busy GPU costs nothing.
    Elsewhere: Tensor.item() and its like, and the own time of a loop that calls them (at
    most 10 us per call).
    """
    need_sample(facts)
    blocked = _blocked(facts)
    if blocked is not None:
        return blocked
    use = facts.use("item")
    # Reads of optimizer state by torch's optimizers belong to the optimizer.
    theirs = use.shared.get("optimizer", 0.0) if facts.optimizer.classes else 0.0
    operators = _operator_ms(facts, "aten::_local_scalar_dense", "aten::item")
    if not facts.has_functions and operators is None:
        raise Abstain("neither functions, operators nor the GPU were recorded")
    loops = sum(_loop_ms(c) for c in use.callers)
    if theirs and use.ms:
        loops *= 1 - min(1.0, theirs / use.ms)
        operators = max(0.0, operators - theirs) if operators else operators
    ms = max(use.ms - theirs + loops, operators or 0.0)
    seen = (
        f"{plural(use.calls, 'read')} per {facts.per} take {span_text(use.ms, facts)}, the loops "
        f"around them {span_text(loops, facts)}."
    )
    if operators is not None and operators > use.ms - theirs + loops:
        seen = f"aten::_local_scalar_dense takes {span_text(operators, facts)}."
    return share_draft(
        facts, _OVERHEAD, ms,
        rule="sync-item",
        title="Reading tensors' values with .item() takes {share} of the step",
        evidence=(seen, callers(facts, "item"), _split_places(facts, "gpu_wait")),
        group="item",
    )  # fmt: skip


def _loop_ms(caller: Caller) -> float:
    return min(caller.own_ms, caller.calls * _LOOP_MS) if caller.calls >= _LOOP_CALLS else 0.0


def _blocked(facts: Facts) -> Draft | None:
    """The draft from the GPU's waits, None where there was no GPU or too little waiting."""
    gpu, timeline = facts.gpu, facts.timeline
    if gpu is None or gpu.use is None or timeline is None:
        return None
    waited = gpu.use.blocked_ms / (facts.counted if facts.steps else 1)
    # Without phases they are of the whole run: a slow first step may make their mean longer.
    waited = min(waited, facts.span_ms)
    ms = min(waited, timeline.idle_ms)
    lines = [f"{ascii_name(line.text, 160)}." for line in gpu.lines[:3]]
    return share_draft(
        facts, _OVERHEAD, ms,
        rule="sync-item",
        title="Waiting for the GPU to read values (.item() or similar) takes {share} of the step",
        value=facts.share(waited),
        evidence=(
            (f"The host is blocked for {span_text(waited, facts)}, the GPU idle for "
            f"{span_text(timeline.idle_ms, facts)}."),
            " ".join(lines) or callers(facts, "item"),
        ),
    )  # fmt: skip


def _operator_ms(facts: Facts, *names: str, own: bool = False) -> float | None:
    """CPU time of operators per step of their windows; None if they were not recorded.

    The first name that was seen counts: the others contain it.  On a disturbed machine
    these few steps say nothing of single operators.  Recording operators makes steps
    longer, so times are those of a step as long as the measured ones.
    """
    operators = facts.report.operators
    if operators is None or not operators.steps or facts.disturbed:
        return None
    for name in names:
        rows = [row for row in operators.rows if row.name == name]
        if rows:
            ms = sum(_cpu_ms(row, own=own) for row in rows) / operators.steps
            return ms * _shrink(facts, operators)
    return 0.0


def _shrink(facts: Facts, operators: OperatorReport) -> float:
    """Ratio of a measured step to one of the windows, as torch.profiler timed it; at most 1."""
    ms = sum(
        row.cpu_ms
        for row in operators.rows
        if row.name.startswith("ProfilerStep") and not row.on_device
    )
    return min(1.0, facts.span_ms * operators.steps / ms) if ms > 0 else 1.0


def _cpu_ms(row: OperatorRow, *, own: bool) -> float:
    return row.self_cpu_ms if own else row.cpu_ms


def _split_places(facts: Facts, kind: str, most: int = 3) -> str:
    """Where time of a kind was spent, from the split of the steps; empty if not known."""
    for row in facts.report.steps.split:
        if row.name == kind and row.places:
            count = max(1, facts.steps)
            parts = [
                f"{ascii_name(text, 100)} {span_text(ns / 1e6 / count, facts)}"
                for text, ns in row.places[:most]
            ]
            return f"Most of it: {'; '.join(parts)}."
    return ""


def tensor_copies(facts: Facts) -> Draft | None:
    """Own time of operators and methods that copy or convert tensors."""
    need_sample(facts)
    use = facts.use("copies")
    parts = [
        _operator_ms(facts, name, own=True)
        for name in ("aten::copy_", "aten::to", "aten::_to_copy", "aten::clone", "aten::contiguous")
    ]
    operators = sum(ms for ms in parts if ms is not None)
    if facts.use("autocast").calls:  # most are conversions that it was asked for
        operators = 0.0
    if not facts.has_functions and facts.report.operators is None:
        raise Abstain("neither functions nor operators were recorded")
    ms = max(use.ms, operators)
    seen = (
        f".to(), .copy_() and the like: {plural(use.calls, 'call')} per {facts.per}, "
        + span_text(use.ms, facts)
    )
    if operators > use.ms:
        seen = f"aten::copy_, aten::to and their like take {span_text(operators, facts)}"
    alone = operators <= use.ms and _copies_alone(facts) > use.ms / 2
    return share_draft(
        facts, LIMITS["copy-share"], ms,
        rule="tensor-copies",
        title="Copies of tensors take {share} of the step" if alone else (
            "Copies and conversions of tensors (aten::copy_, aten::to) take {share} of the step"
        ),
        evidence=(
            f"{seen}: most are copies on one device in one dtype." if alone
            else f"{seen}: moves between devices or dtypes.",
            callers(facts, "copies"),
        ),
        fix=(("Copy less often, and only what is needed: fewer .clone(), .copy_() and "
              ".contiguous()."),) if alone else (),
        group="copies",
    )  # fmt: skip


#: Methods that leave the dtype as it is, and nearly always the device.
_COPIES_ALONE = re.compile(r"'(?:clone|contiguous)' of 'torch|torch\.clone>")


def _copies_alone(facts: Facts) -> float:
    """Time of methods that copy a tensor and convert nothing, ms per span."""
    rows = facts.inside("copies")
    return sum(ms for key, ms, _ in rows if key.kind == "c" and _COPIES_ALONE.search(key.name))


def host_device_transfers(facts: Facts) -> Draft | None:
    """Time of copies between host and GPU; without a GPU layer, of .cpu(), .cuda() and pinning.

    At most all of it is saved, or as far as no kernel ran beside it if that is known.
    """
    need_sample(facts)
    gpu, timeline = facts.gpu, facts.timeline
    if gpu is not None and gpu.use is not None and timeline is not None:
        ms = facts.copied * facts.span_ms
        made = share_draft(
            facts, LIMITS["transfer-share"], ms,
            rule="host-device-transfers",
            title="Copies between host and GPU take {share} of the time",
            evidence=(
                (f"{size(gpu.use.h2d_bytes)} to the GPU and {size(gpu.use.d2h_bytes)} back in "
                f"{plural(gpu.use.copies, 'copy')}, {span_text(ms, facts)}."),
                _copying_sections(facts),
                _copying_functions(facts),
            ),
            claims={"gpu-utilization": 0.0},  # the GPU is busy while it copies
        )  # fmt: skip
        if made is not None:
            return made
    need_functions(facts)
    use = facts.use("transfers")
    return share_draft(
        facts, LIMITS["transfer-share"], use.ms,
        rule="host-device-transfers",
        title="Moving tensors between host and device takes {share} of the step",
        evidence=(
            (f".cpu(), .cuda() and pinning: {plural(use.calls, 'call')} per {facts.per}, "
            f"{span_text(use.ms, facts)}."),
            callers(facts, "transfers"),
        ),
        group="transfers",
    )  # fmt: skip


def _copying_sections(facts: Facts) -> str:
    rows = [(s.gpu.transfer_ns, s) for s in facts.report.sections if s.gpu is not None]
    rows = sorted((r for r in rows if r[0]), key=lambda r: -r[0])[:3]
    parts = [f"{ascii_name(s.name, 60)} {duration(ns / 1e6)}" for ns, s in rows]
    return f"By section, over the recording: {', '.join(parts)}." if parts else ""


def _copying_functions(facts: Facts) -> str:
    """The innermost Python functions that asked for copies, most time first."""
    rows = [
        (f.gpu.transfer_ns, -f.gpu.gpu_ns, -f.cum_ms, f)
        for f in facts.report.functions
        if f.kind == "python" and f.gpu is not None and f.gpu.transfer_ns
    ]
    if not rows:
        return ""
    f = max(rows, key=lambda row: row[:3])[3]
    return f"Asked for in {located(f.qualname, f.file, f.line)}."


def logging_share(facts: Facts) -> Draft | None:
    """Time of logging, callbacks, metrics and of writing files, but for checkpoints and data."""
    need_steps(facts)
    use = facts.use("logging")
    phase = facts.phase("logging")
    if not facts.has_functions and phase is None:
        raise Abstain("no section logging or callbacks ran, and functions were not recorded")
    ms = max(use.ms - use.shared.get("checkpoint", 0.0) - use.shared.get("data", 0.0), 0.0)
    ms = max(ms, phase or 0.0)
    times = use.calls * facts.steps if use.calls else facts.section_count(LOGGING)
    if times < MIN_TIMES and _OVERHEAD.grade(facts.share(ms - facts.worst_ms)) is None:
        # The disk was busy once: to log less often would not help.
        return None
    return share_draft(
        facts, _OVERHEAD, ms,
        rule="logging-share",
        title="Logging takes {share} of the step",
        evidence=(
            (f"Logging, callbacks and writing files take {span_text(ms, facts)} in the training "
            f"thread ({plural(use.calls, 'call')})."),
            callers(facts, "logging"),
        ),
        group="logging", sections=LOGGING,
    )  # fmt: skip


#: Checkpoints of which one may be that at the end, and one that of the first epoch.
_FEW_SAVES = 3
#: So many per step are one in each: the last step may end without one.
_EVERY_STEP = 0.9


def checkpoint_often(facts: Facts) -> Draft | None:
    """Time of saving checkpoints, within steps and between them."""
    need_steps(facts)
    use = facts.use("checkpoint")
    phase = facts.phase("checkpoint")
    beside, times = facts.run_phase("checkpoint")
    if not facts.has_functions and phase is None and not beside:
        raise Abstain("no section checkpoint ran, and functions were not recorded")
    ms = max(use.ms, phase or 0.0) + beside
    if not ms:
        return None
    calls = use.calls if use.ms else facts.section_count(CHECKPOINT) / facts.counted
    # A function that saves is entered in a step, before the phase of the run begins.
    calls = max(calls, times)
    if calls and calls * facts.counted < _FEW_SAVES:
        return None  # one at the end, say: how often a longer run saves is not known
    often, each = "now and then", span_text(ms, facts)
    if calls:
        often = (
            "every step" if calls > _EVERY_STEP else
            "in most steps" if round(1 / calls) < 2 else
            f"{'' if (1 / calls).is_integer() else 'about '}every {1 / calls:.0f} steps"
        )  # fmt: skip
        each = f"{duration(ms / calls)} each"
    return share_draft(
        facts, _OVERHEAD, ms,
        rule="checkpoint-often",
        title=f"Checkpoints are saved {often}: "
        + (f"as long as {{share}} of the {facts.per}s" if beside else "{share} of the step"),
        evidence=(f"Saved {often}, {each}.", callers(facts, "checkpoint")
                  or called_from(facts.over_run("checkpoint"), facts)),
        group="checkpoint", sections=CHECKPOINT,
    )  # fmt: skip


def gc_pressure(facts: Facts) -> Draft | None:
    """Time of garbage collections in the training thread, asked for or not."""
    need_steps(facts)
    use = facts.use("gc")
    series = facts.report.steps.series.gc_ms
    known = facts.split.get("gc", sum(series) / len(series) if series else None)
    if known is None and not facts.has_functions:
        raise Abstain("garbage collections were not recorded")
    ms = use.ms if known is None else known
    runs = facts.report.steps.gc_runs
    told = (
        f"Collections in the measured steps: {', '.join(str(n) for n in runs)} of generation "
        f"0, 1 and 2; {span_text(ms, facts)}."
        if any(runs)
        else f"Collections take {span_text(ms, facts)}."
    )
    asked = callers(facts, "gc")
    return share_draft(
        facts, LIMITS["gc-share"], ms,
        rule="gc-pressure",
        title="Garbage collection takes {share} of the step",
        evidence=(
            told,
            f"{counted(use.calls)} gc.collect() per {facts.per}. {asked}" if asked else "",
            _split_places(facts, "gc"),
        ),
        group="gc" if use.ms >= ms / 2 else None,
        places=facts.split_by_section("gc"),
    )  # fmt: skip


def lock_contention(facts: Facts) -> Draft | None:
    """Time in which the training thread waits for a lock that another thread holds.

    Waits inside of data loading are left to that rule.  An interpreter does not tell a
    profiler that `with lock:` begins, only that it ends: of a function in which it ends,
    the own time counts if it is above 1 ms per call, as far as the thread was off the CPU
    for no other reason.
    """
    need_steps(facts)
    use = facts.use("lock")
    acquired = max(use.ms - use.shared.get("data", 0.0) - use.shared.get("logging", 0.0), 0.0)
    known = facts.split.get("lock")
    if known is None and not facts.has_functions:
        raise Abstain("waits for locks were not recorded: functions are off")
    behind = _behind_with(facts)
    waited = sum(c.own_ms for c in behind)
    if facts.split:
        waited = min(waited, facts.split.get("other", 0.0))
    ms = (acquired if known is None else known) + waited
    others = [t for t in facts.report.threads if facts.thread and t.ident != facts.thread.ident]
    busy = sorted(others, key=lambda t: -t.total_ms)[:2]
    named = "; ".join(
        f"{ascii_name(t.name, 60)} (most in {ascii_name(t.functions[0].qualname, 60)})"
        for t in busy
        if t.functions
    )
    return share_draft(
        facts, _OVERHEAD, ms,
        rule="lock-contention",
        title="The training thread waits for a lock {share} of the step",
        evidence=(
            f"Waiting for locks takes {span_text(ms, facts)}.",
            *(
                f"At the `with lock:` of {c.text} it seems to wait for "
                f"{span_text(c.own_ms, facts)}."
                for c in behind[:3]
            ),
            callers(facts, "lock") or _split_places(facts, "lock"),
            f"Other threads: {named}." if named else "",
        ),
        group="lock" if acquired >= ms / 2 else None,
        places=_waits_by_section(facts, waited),
    )  # fmt: skip


def _waits_by_section(facts: Facts, behind_with: float) -> Mapping[str, float]:
    """Time at locks by outermost section; that at a `with lock:` is where it ends."""
    rows = dict(facts.split_by_section("lock"))
    ends = facts.use("unlock").places
    whole = sum(ends.values())
    for name, ms in ends.items():
        rows[name] = rows.get(name, 0.0) + (behind_with * ms / whole if whole else 0.0)
    return rows


#: Own time per call from which on a function with a `with lock:` waits there.
_WITH_LOCK_MS = 1.0


def _behind_with(facts: Facts) -> list[Caller]:
    """Functions that seem to wait at a `with lock:`, longest first; empty without a split."""
    if not facts.split:
        return []
    found = facts.use("unlock").callers
    waiting = [c for c in found if c.calls and c.own_ms > _WITH_LOCK_MS * c.calls]
    return sorted(waiting, key=lambda c: -c.own_ms)


#: Calls on tensors per step, in the optimizer, that a fused one does not make.
_UNFUSED_CALLS = 40


def optimizer_unfused(facts: Facts) -> Draft | None:
    """An optimizer above its share that updates parameter by parameter.

    Saved is what the fused version of this class was measured to save, half of the time for
    an optimizer of the program's.  Silent where there is no fused version.
    """
    need_functions(facts)
    need_steps(facts)
    ms = facts.optimizer_ms
    if not ms:
        raise Abstain("no section optimizer and no optimizer of torch's was seen")
    classes = facts.optimizer.classes
    if classes and not can_fuse(facts):
        return None
    calls = facts.use("tensor-calls").calls_within.get("optimizer", 0.0)
    kernels = _kernels_per_step(facts, OPTIMIZER)
    small = max(calls, kernels or 0.0)
    # An Adam that is not fused goes over its state several times, however few tensors it has.
    passes = bool(classes) and all(name in FUSED for name in classes) and (
        "single" in facts.optimizer.modes
    )  # fmt: skip
    if not small or (small < _UNFUSED_CALLS and not passes):
        return None
    what = "kernels" if kernels and kernels > calls else "calls on tensors"
    made = share_draft(
        facts, LIMITS["optimizer-share"], ms,
        rule="optimizer-unfused",
        title=f"The optimizer makes {small:.0f} {what} per step, parameter by parameter: {{share}}",
        evidence=(
            (f"The optimizer takes {span_text(ms, facts)} for {small:.0f} {what}, "
            f"{number(1e3 * ms / small)} us each."),
            _python_in(facts, "optimizer"),
        ),
        fix=optimizer_fix(facts),
        group="optimizer", sections=OPTIMIZER,
    )  # fmt: skip
    if made is None or made.severity == "note":
        return None
    return made.saving(fusing_saves(facts, ms, small) if classes else ms / 2, of=ms)


def _python_in(facts: Facts, group: str) -> str:
    """The program's Python function with most own time in a group."""
    rows = [row for row in facts.inside(group) if row[0].kind == "python"]
    if not rows:
        return ""
    key, ms, _ = rows[0]
    return f"Its Python function with most own time is {where(key)}: {span_text(ms, facts)}."


def _kernels_per_step(facts: Facts, names: frozenset[str]) -> float | None:
    counts = [s.kernels for s in facts.report.sections if s.name in names and s.kernels is not None]
    return sum(counts) / max(1, facts.counted) if counts else None


#: What calling an operation costs, from Python through the dispatcher and autograd; what a
#: call takes beyond it is computing.
_CALL_MS = 0.008
#: The same without Python: operations that others call, and those of backward.
_OPERATION_MS = 0.005
#: And the modules and functions around a call, in Python.
_AROUND_MS = 0.02
#: Batches above this are not small: then nearly all of forward must be the cost of calls.
_SMALL_BATCH = 16
_ALMOST_ALL = 0.6
#: So many of a step's operations may be called elsewhere than in forward and the optimizer.
_BESIDE = 0.1


def small_batch_on_cpu(facts: Facts, sizes: list[int]) -> Draft | None:
    """Share of forward and backward that is calling operations: a larger batch spreads it.

    Of each call in forward count at most 8 us, and 20 us of Python around it; backward, which
    has about as many, as much of it as forward at most.  Where torch.profiler counted the
    operations, at most 5 us of each, which includes those that C functions call.
    """
    rows = facts.inside("forward")
    # A trainer's log() within it is no part of the network; another rule is about that.
    logged = facts.use("logging").shared.get("forward", 0.0)
    total = facts.use("forward").ms - logged
    if not rows or total <= 0:
        raise Abstain("no section forward ran, so the cost of its calls is not known")
    called = [(ms, n) for key, ms, n in rows if n and GROUPS["tensor-calls"](key)]
    calls, own = sum(n for _, n in called), sum(ms for ms, _ in called)
    here = facts.use("tensor-calls")
    if logged and calls:
        part = 1 - min(calls, here.calls_within.get("logging", 0.0)) / calls
        called = [(ms * part, n * part) for ms, n in called]
        calls, own = calls * part, own * part
    python = max(0.0, min(sum(ms for _, ms, _ in rows) - logged - own, calls * _AROUND_MS))
    spread = sum(min(ms, n * _CALL_MS) for ms, n in called) + python
    backward = facts.phase("backward") or 0.0
    ms = spread + min(spread / total * backward, spread)
    seen = f"Forward makes {plural(round(calls), 'call')} per {facts.per} of {_each(own, calls)}"
    count, ops_ms, cost = _operations(facts)
    if min(cost, backward + total) + python > ms:
        ms = min(cost + python, backward + total)
        seen = f"A step runs {plural(round(count), 'operation')} of {_each(ops_ms, count)}"
    ms = min(ms, total + backward)
    part = ms / (total + backward) if total + backward > 0 else 0.0
    limit = LIMITS["call-overhead"]
    small = bool(sizes) and min(sizes) <= _SMALL_BATCH
    if limit.grade(part) is None or (not small and part < _ALMOST_ALL):
        return None
    updates = here.calls_within.get("optimizer", 0.0)
    size = f"Batches hold {plural(min(sizes), 'sample')}. " if sizes else ""
    return share_draft(
        facts, _ANY, ms + min(facts.optimizer_ms or 0.0, updates * (_CALL_MS + _AROUND_MS)),
        rule="small-batch",
        title=(
            "Batches are too small: {share} of the step is the cost of calls" if small else
            "Operations are many and small: {share} of the step is the cost of calling them"
        ),
        evidence=(
            f"{size}{seen}; {percent(part)} of forward and backward is the cost of calling.",
        ),
        group="forward", sections=FORWARD | BACKWARD | OPTIMIZER,
    )  # fmt: skip


def _each(ms: float, count: float) -> str:
    return f"{duration(ms / count)} each" if count else "n/a"


def _operations(facts: Facts) -> tuple[float, float, float]:
    """Operations per step, their own time, and what calling them costs, in ms per step."""
    operators = facts.report.operators
    if operators is None or not operators.steps:
        return 0.0, 0.0, 0.0
    rows = [r for r in operators.rows
            if r.name.startswith(("aten::", "autograd::")) and not r.on_device]  # fmt: skip
    ran = [r for r in rows if r.name.startswith("aten::")]
    # Where in a step they ran is not known: only if they cannot be a loop beside forward.
    calls = facts.use("tensor-calls")
    inside = sum(calls.calls_within.get(group, 0.0) for group in ("forward", "optimizer"))
    if calls.calls - inside > _BESIDE * sum(r.calls for r in ran) / operators.steps:
        return 0.0, 0.0, 0.0
    scale = _shrink(facts, operators) / operators.steps
    cost = sum(min(r.self_cpu_ms, r.calls * _OPERATION_MS) for r in rows) * scale
    # Those of the optimizer, which are counted apart, call others as well.
    cost -= 2 * _OPERATION_MS * calls.calls_within.get("optimizer", 0.0)
    count = sum(r.calls for r in ran) / operators.steps
    return count, sum(r.self_cpu_ms for r in ran) * scale, max(0.0, cost)


#: Any share above 15 %; what decides is the limit of the share of forward.
_ANY = Limit(LIMITS["call-overhead"].metric, "%", None, 0.15, None, LIMITS["call-overhead"].origin)


def mixed_precision_scaler(facts: Facts) -> Draft | None:
    """Time of a GradScaler: scale, unscale_ and update."""
    need_functions(facts)
    use = facts.use("scaler")
    if not use.ms:
        return None
    return share_draft(
        facts, LIMITS["scaler-share"], use.ms,
        rule="mixed-precision-scaler",
        title="Scaling gradients for float16 takes {share} of the step",
        evidence=(
            f"scaler.scale, unscale_ and update take {span_text(use.ms, facts)}.",
            callers(facts, "scaler"),
        ),
        group="scaler",
    )  # fmt: skip


SYNC_ITEM = Rule(
    "sync-item", sync_item,
    "item(), tolist(), bool() and float() of a tensor need its value: on a GPU the host waits "
    "until all work before it is done and can launch nothing meanwhile; on a CPU each read is a "
    "call, and a loop over elements makes thousands. Metrics computed at every step are the "
    "usual place.",
)  # fmt: skip
TENSOR_COPIES = Rule(
    "tensor-copies", tensor_copies,
    "Tensors that have the wrong dtype, layout or device are copied before they are used, often "
    "at every step and unseen. One dtype throughout, and data that is where it is needed, make "
    "most of these copies go away.",
)  # fmt: skip
HOST_DEVICE_TRANSFERS = Rule(
    "host-device-transfers", host_device_transfers,
    "Copies between host and GPU go over a bus that is a hundred times slower than GPU memory, "
    "and from memory that is not pinned the host waits for each. What goes back and forth within "
    "a step should stay on the GPU.",
)  # fmt: skip
LOGGING_SHARE = Rule(
    "logging-share", logging_share,
    "Logging in the loop is training time: formatting, writing and flushing a line, sending it "
    "to a tracker, running callbacks. Once per hundred steps it is nothing, at every step it may "
    "be a good part of a short step.",
)  # fmt: skip
CHECKPOINT_OFTEN = Rule(
    "checkpoint-often", checkpoint_often,
    "A checkpoint copies the model and the optimizer's state to the host and writes them out "
    "while training stands still. How often is a matter of how much work may be lost; minutes "
    "are usual, every step is not.",
)  # fmt: skip
GC_PRESSURE = Rule(
    "gc-pressure", gc_pressure,
    "Python's collector runs when enough containers were made, and looks at all of them when the "
    "old generation is due: with a large program that takes 10 to 100 ms in the middle of a "
    "step, on each rank at another time. Freezing what stays and collecting at chosen steps "
    "avoids it.",
)  # fmt: skip
LOCK_CONTENTION = Rule(
    "lock-contention", lock_contention,
    "A lock that a background thread holds while it works stops the training thread, and a "
    "thread that computes in Python takes the interpreter from it. Hold locks for copies only, "
    "and put work into processes.",
)  # fmt: skip
OPTIMIZER_UNFUSED = Rule(
    "optimizer-unfused", optimizer_unfused,
    "An update written as a loop over parameters makes several small calls for each; hundreds of "
    "them take longer than the arithmetic, and each goes over the parameters in memory again. A "
    "fused optimizer does it in one call for all.",
)  # fmt: skip
MIXED_PRECISION_SCALER = Rule(
    "mixed-precision-scaler", mixed_precision_scaler,
    "float16 needs its loss scaled, its gradients unscaled and checked for infinities at every "
    "step. With small models that costs more than float16 saves; bfloat16 needs none of it.",
)  # fmt: skip
