"""Rules about reading, copying, moving and scaling tensors."""

import re

from fastprof.findings.draft import (
    BUSY,
    Abstain,
    Draft,
    Rule,
    callers,
    need_functions,
    need_observed,
    need_sample,
    share_draft,
    span_text,
    split_places,
    while_idle,
)
from fastprof.findings.fixes import HF
from fastprof.findings.function_groups import H2D
from fastprof.findings.measurements import Facts
from fastprof.findings.operator_times import copying_ms, operator_ms
from fastprof.findings.remedies import pageable, transfer_fix
from fastprof.findings.thresholds import LIMITS, OWN, Limit
from fastprof.findings.uses import Caller, Use, located
from fastprof.names import readable
from fastprof.report.figures import duration, plural, size
from fastprof.report.origin import is_own_file

_COPIES = Limit(
    "share of copies and conversions", "%", None, 0.10, 0.20,
    f"{OWN}: TraceML's 10 and 20 % for copies to the device",
)  # fmt: skip
_SCALER = Limit(
    "share of gradient scaling", "%", None, 0.10, None,
    f"{OWN}: Accelerate's profiling guide warns if it dominates",
)  # fmt: skip

_OVERHEAD = LIMITS["overhead-share"]
#: From this many calls per span on, reading values is a loop over elements, whose own Python time
#: counts as well, up to this much per call.
_LOOP_CALLS = 16
_LOOP_MS = 0.01


def sync_item(facts: Facts) -> Draft | None:
    """Time to read values of tensors one by one, and to wait for the GPU for it.

    On a GPU: the time in which the host is blocked, limited to the time in which the GPU is idle
    then or later: waiting for a busy GPU costs nothing. Elsewhere: Tensor.item() and its like, the
    own time of a loop that calls them (at most 10 us per call), and the time in which it makes a
    tensor of each element.
    """
    need_sample(facts)
    blocked = _blocked(facts)
    if blocked is not None or facts.timeline is not None:
        return blocked
    need_observed(facts)
    use = facts.use("item")
    # torch's optimizers read their own state; these reads belong to the optimizer.
    theirs = use.shared.get("optimizer", 0.0) if facts.optimizer.classes else 0.0
    operators = operator_ms(facts, "aten::_local_scalar_dense", "aten::item")
    if not facts.has_functions and operators is None:
        raise Abstain("neither functions, operators nor the GPU were recorded")
    elements: dict[tuple[str, str], float] = {}
    for caller in facts.use("elements").callers:
        elements[_function(caller)] = elements.get(_function(caller), 0.0) + caller.ms
    loops = sum(_loop_ms(c, elements) for c in use.callers)
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
        title=f"Reading tensors' values with {_reader(facts)} takes {{share}} of the step",
        evidence=(seen, callers(facts, "item"), split_places(facts, "gpu_wait")),
        group="item",
    )  # fmt: skip


_METHOD = re.compile(r"'(\w+)' of 'torch")


def _reader(facts: Facts) -> str:
    """Return the method that reads most of the time: ``.item()``."""
    rows = facts.inside("item")
    named = _METHOD.search(rows[0][0].name) if rows else None
    return f".{named[1]}()" if named and not named[1].startswith("_") else ".item()"


def _loop_ms(caller: Caller, elements: dict[tuple[str, str], float]) -> float:
    """Return the time of a loop of reads; takes that of making its elements out of ``elements``."""
    if caller.calls < _LOOP_CALLS:
        return 0.0
    own = min(caller.own_ms, caller.calls * _LOOP_MS)
    return own + elements.pop(_function(caller), 0.0)


_IN_BRACKETS = re.compile(r"(?:\.<locals>)?\.?<(?:genexpr|(?:list|set|dict)comp)>")


def _function(caller: Caller) -> tuple[str, str]:
    """Return name and file of the function that a caller is, or is in.

    What a comprehension or generator loops over is made outside of it.
    """
    name, _, place = caller.text.rpartition(" (")
    return _IN_BRACKETS.sub("", name), place.partition(":")[0]


def _blocked(facts: Facts) -> Draft | None:
    """Return the draft from the GPU's waits; None without a GPU or with too little waiting."""
    gpu, timeline = facts.gpu, facts.timeline
    if gpu is None or gpu.use is None or timeline is None:
        return None
    waited = gpu.use.blocked_ms / (facts.counted if facts.steps else 1)
    # Without phases the waits cover the whole run: a slow first step may raise their mean.
    waited = min(waited, facts.span_ms)
    ms = min(waited, timeline.idle_ms)
    lines = [f"{readable(line.text, 160)}." for line in gpu.lines[:3]]
    reads = facts.use("item").ms  # the host may also wait elsewhere, as in synchronize()
    draft = share_draft(
        facts, _OVERHEAD, ms,
        rule="sync-item",
        title="Waiting for the GPU to read values (.item() or similar) takes {share} of the step",
        value=facts.share(waited),
        evidence=(
            (f"The host is blocked for {span_text(waited, facts)}, the GPU idle for "
            f"{span_text(timeline.idle_ms, facts)}."),
            " ".join(lines) or callers(facts, "item"),
        ),
        group="item" if reads > waited / 2 else None, on_host=True,
    )  # fmt: skip
    if draft is None or reads >= ms:
        return draft
    return draft.scaled_places(reads / ms)  # where the host waits otherwise is unknown


def tensor_copies(facts: Facts) -> Draft | None:
    """Own time of methods that copy or convert tensors, without copies between host and GPU.

    Without functions, the own time of the operators, which torch itself also calls: in autocast, in
    backward, in a convolution that needs another layout.
    """
    need_sample(facts)
    use = facts.use("copies")
    if facts.has_functions:
        moving = _moving(facts, use)
        ms = use.ms - moving
        seen = (
            f".to(), .copy_() and similar: {plural(use.calls, 'call')} per {facts.per}, "
            + span_text(use.ms, facts)
            + (
                f", {duration(moving)} of it between host and GPU, which is not counted here"
                if moving
                else ""
            )
        )
    elif facts.report.operators is not None:
        ms = sum(operator_ms(facts, name, own=True) or 0.0 for name in _COPYING)
        seen = f"aten::copy_, aten::to and similar operators take {span_text(ms, facts)}"
    else:
        raise Abstain("neither functions nor operators were recorded")
    ms, _ = while_idle(facts, ms)  # the rest may wait for a busy GPU
    places = _without_moves(use, ms)
    alone = facts.has_functions and _copies_alone(facts) > ms / 2
    return share_draft(
        facts, _COPIES, ms,
        rule="tensor-copies",
        title="Copies of tensors take {share} of the step" if alone else (
            "Copies and conversions of tensors (aten::copy_, aten::to) take {share} of the step"
        ),
        evidence=(
            f"{seen}: mostly plain copies." if alone
            else f"{seen}: conversions of dtypes." if facts.cpu_only
            else f"{seen}: conversions of dtypes, and copies within a device."
            if facts.timeline is not None
            else f"{seen}: moves between devices or dtypes.",
            callers(facts, "copies"),
        ),
        fix=(("Copy less often, and only what is needed: fewer .clone(), .copy_() and "
              ".contiguous()."),) if alone else _ON_CPU if facts.cpu_only
        else _ON_GPU if facts.timeline is not None and facts.framework == "torch" else (),
        group="copies", places=places, on_host=True,
    )  # fmt: skip


def _without_moves(use: Use, ms: float) -> dict[str, float] | None:
    """Return where ``ms`` of the time of ``use`` is, without moves to the GPU; None: as all of it.

    fastprof opens the section h2d around these moves.
    """
    if not any(name in use.places for name in H2D):
        return None
    kept = {name: there for name, there in use.places.items() if name not in H2D}
    whole = sum(kept.values())
    return {name: there * min(1.0, ms / whole) for name, there in kept.items()} if whole else {}


_ON_CPU = ("Create batches in the dtype of the model, once, so that no step converts them.",)
#: Without copies between host and GPU, which are not counted.
_ON_GPU = (
    ("One dtype throughout: torch.autocast(dtype=torch.bfloat16), batches in the dtype of the "
    "model."),
    "Create tensors where they are used (device=, dtype=); fewer .clone() and .contiguous().",
)  # fmt: skip
_COPYING = ("aten::copy_", "aten::to", "aten::_to_copy", "aten::clone", "aten::contiguous")
#: Methods that keep the dtype and nearly always the device; without a GPU there is one more.
_COPIES_ALONE = re.compile(r"'(?:clone|contiguous)' of 'torch|torch\.clone>")
_WITHOUT_GPU = re.compile(rf"{_COPIES_ALONE.pattern}|'copy_' of 'torch")


def _copies_alone(facts: Facts) -> float:
    """Return the time in ms per span of methods that copy a tensor without conversion."""
    alone = _WITHOUT_GPU if facts.gpu is None else _COPIES_ALONE
    rows = facts.inside("copies")
    return sum(ms for key, ms, _ in rows if key.kind == "c" and alone.search(key.name))


def host_device_transfers(facts: Facts) -> Draft | None:
    """Time of copies between host and GPU; without a GPU layer, of .cpu(), .cuda() and pinning.

    The most that can be saved is all of it or, if known, the part without a concurrent kernel.
    """
    need_sample(facts)
    gpu, timeline = facts.gpu, facts.timeline
    if gpu is not None and gpu.use is not None and timeline is not None:
        ms = facts.copied * facts.span_ms
        # Copies within the device, and memsets, are no transfers.
        others = max(0.0, timeline.copy_ms - ms)
        alone = min(ms, max(0.0, timeline.copy_alone_ms - others))
        return share_draft(
            facts, LIMITS["transfer-share"], alone,
            rule="host-device-transfers",
            title="Copies between host and GPU take {share} of the time",
            value=facts.share(ms),
            evidence=(
                (f"{size(gpu.use.h2d_bytes)} to the GPU and {size(gpu.use.d2h_bytes)} back, "
                f"{span_text(ms, facts)}."),
                _FROM_PAGEABLE if pageable(facts) else "",
                "" if alone == ms else f"No kernel runs during {span_text(alone, facts)} of it.",
                _copying_sections(facts),
                _copying_functions(facts),
            ),
            fix=transfer_fix(facts),
            claims=BUSY,
        )  # fmt: skip
    need_functions(facts)
    need_observed(facts)
    use = facts.use("transfers")
    if not use.ms:
        return None
    return share_draft(
        facts, LIMITS["transfer-share"], use.ms,
        rule="host-device-transfers",
        title="Moving tensors between host and device takes {share} of the step",
        evidence=(
            (f".cpu(), .cuda() and pinning: {plural(use.calls, 'call')} per {facts.per}, "
            f"{span_text(use.ms, facts)}."),
            callers(facts, "transfers"),
        ),
        fix=transfer_fix(facts),
        group="transfers",
    )  # fmt: skip


_FROM_PAGEABLE = "Most are from pageable memory: the host waits for each of them."


def _moving(facts: Facts, use: Use) -> float:
    """Return the part of the time of ``use`` that copies between host and GPU take, in ms per span.

    A recording of operators has the time of the calls that copy, which may wait for earlier work.
    """
    if facts.timeline is None:
        return 0.0
    called = copying_ms(facts)
    ms = facts.copied * facts.span_ms if called is None else called
    # fastprof opens this section around moves to the GPU.
    return min(use.ms, max(ms, sum(use.places.get(name, 0.0) for name in H2D)))


def _copying_sections(facts: Facts) -> str:
    rows = [(s.gpu.transfer_ns, s) for s in facts.report.sections if s.gpu is not None]
    rows = sorted((r for r in rows if r[0]), key=lambda r: -r[0])[:3]
    parts = [f"{readable(s.name, 60)} {duration(ns / 1e6)}" for ns, s in rows]
    return f"By section, over the recording: {', '.join(parts)}." if parts else ""


def _copying_functions(facts: Facts) -> str:
    """Return the innermost Python functions that requested copies, most time first."""
    rows = [
        (f.gpu.transfer_ns, -f.gpu.gpu_ns, -f.cum_ms, f)
        for f in facts.report.functions
        if f.kind == "python"
        and f.gpu is not None
        and f.gpu.transfer_ns
        and not is_own_file(f.file)  # a wrapper of Tensor.to
    ]
    if not rows:
        return ""
    f = max(rows, key=lambda row: row[:3])[3]
    return f"The largest part was requested in {located(f.qualname, f.file, f.line)}."


def mixed_precision_scaler(facts: Facts) -> Draft | None:
    """Time of a GradScaler: scale, unscale_ and update."""
    need_functions(facts)
    use = facts.use("scaler")
    if not use.ms or (facts.lacks_bfloat16 and facts.fusing_is_refused):
        return None
    return share_draft(
        facts, _SCALER, use.ms,
        rule="mixed-precision-scaler",
        title="Scaling gradients for float16 takes {share} of the step",
        evidence=(
            f"scaler.scale, unscale_ and update take {span_text(use.ms, facts)}.",
            callers(facts, "scaler"),
        ),
        fix=_IN_UPDATE if facts.lacks_bfloat16 else (),
        group="scaler", on_host=True,
    )  # fmt: skip


_IN_UPDATE = (
    ("A fused optimizer of torch (fused=True) unscales the gradients in its update, unless the "
    "program calls unscale_ to clip them."),
)  # fmt: skip

#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "sync-item", "reading single values from tensors", sync_item, order=110,
        fixes={
            "torch": (
                ("Read values every 50 or 100 steps, not in every step: add up metrics in a tensor "
                "(loss.detach()) and read it once."),
                ("Compute on whole tensors instead of element by element; tensor.tolist() reads "
                "all elements at once."),
            ),
            "lightning": (
                ("self.log(..., on_step=False, on_epoch=True) or Trainer(log_every_n_steps=100); "
                "log tensors, not .item()."),
            ),
            "transformers": (
                (f"{HF}(logging_steps=100, logging_nan_inf_filter=False); compute metrics in "
                "evaluation, not in compute_loss."),
                f"{HF}(use_liger_kernel=True) avoids large logits.",
            ),
            "accelerate": (
                ("Add up loss.detach() and call .item() and accelerator.gather() every 50 or 100 "
                "steps."),
            ),
        },
    ),
    Rule(
        "host-device-transfers", "copies between host and GPU", host_device_transfers, order=120,
    ),
    Rule(
        "tensor-copies", "copying and converting tensors", tensor_copies,
        order=130, limits=(_COPIES,),
        fixes={
            "torch": (
                ("One dtype throughout: torch.autocast(dtype=torch.bfloat16), batches in the dtype "
                "of the model; put data on the device before forward."),
                ("Create tensors where they are used (device=, dtype=); fewer .cpu(), .clone() and "
                ".contiguous()."),
            ),
            "lightning": ('Trainer(precision="bf16-mixed"), batches in the same dtype.',),
            "transformers": (f"{HF}(bf16=True), batches in the same dtype.",),
            "accelerate": ('Accelerator(mixed_precision="bf16"), batches in the same dtype.',),
        },
    ),
    Rule(
        "mixed-precision-scaler", "scaling gradients", mixed_precision_scaler,
        order=140, limits=(_SCALER,),
        fixes={
            "torch": (
                "bfloat16 needs no scaler: torch.autocast(dtype=torch.bfloat16).",
                ("Else torch.amp.GradScaler(growth_interval=4000) (default 2000): fewer steps "
                "overflow and are skipped."),
            ),
            "lightning": ('Trainer(precision="bf16-mixed") needs no scaler.',),
            "transformers": (f"{HF}(bf16=True, fp16=False) needs no scaler.",),
            "accelerate": (
                'Accelerator(mixed_precision="bf16") needs no scaler.',
                ("Else GradScalerKwargs(growth_interval=4000) (default 2000): fewer steps overflow "
                "and are skipped."),
            ),
        },
    ),
)  # fmt: skip
