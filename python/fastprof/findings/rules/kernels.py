"""Rules about kernels, batch size and communication."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fastprof.findings.draft import (
    BUSY,
    Abstain,
    Draft,
    Rule,
    capped,
    need_sample,
    need_steps,
    percent,
    sentences,
    share_draft,
    span_text,
)
from fastprof.findings.fixes import HF, Fixes, fixes
from fastprof.findings.function_groups import BACKWARD, COMMUNICATION, DATA, H2D
from fastprof.findings.measurements import Facts
from fastprof.findings.operator_times import shrink
from fastprof.findings.rules.calls import small_batch_on_cpu
from fastprof.findings.thresholds import LIMITS, OWN, Limit
from fastprof.names import readable
from fastprof.report.figures import counted, duration, number
from fastprof.report.model_gpu import KernelRow
from fastprof.report.rows import UNACCOUNTED

_ATTENTION = Limit(
    "bmm's share of operators", "%", None, 0.20, None,
    f"{OWN}: twice the 5 to 10 % that softmax usually takes",
)  # fmt: skip
_LAUNCHES = Limit(
    "share of launching kernels", "%", None, 0.10, 0.20,
    f"{OWN}: TraceML's 10 and 20 % for time in no phase",
)  # fmt: skip
_ALL_REDUCE: Fixes = {
    "torch": (
        ("DistributedDataParallel(gradient_as_bucket_view=True, bucket_cap_mb=100 (default "
        "25)), a faster interconnect, fewer synchronizations (no_sync() while "
        "accumulating)."),
    ),
    "lightning": (
        ("DDPStrategy(gradient_as_bucket_view=True, bucket_cap_mb=100 (default 25)), "
        "Trainer(accumulate_grad_batches=...), a faster interconnect."),
    ),
    "transformers": (
        (f"{HF}(ddp_bucket_cap_mb=100, gradient_accumulation_steps=...), "
        "gradient_as_bucket_view=True where the model is wrapped, a faster interconnect."),
    ),
    "accelerate": (
        ("DistributedDataParallelKwargs(gradient_as_bucket_view=True, bucket_cap_mb=100 "
        "(default 25)), a faster interconnect."),
    ),
}  # fmt: skip
_SMALL_BATCH: Fixes = {
    "torch": (
        ("Raise the batch size (or the tokens per batch). Gradient accumulation does not help "
        "here, because its batches stay small."),
        "torch.compile merges operators, so that fewer calls remain.",
    ),
    "transformers": (
        f"{HF}(per_device_train_batch_size=...) higher: more tokens per batch.",
    ),
}  # fmt: skip
_SMALL_KERNELS: Fixes = {
    "torch": (
        "Fuse them: torch.compile, a fused optimizer (fused=True); raise the batch size.",
    ),
}  # fmt: skip
_CUDA_GRAPHS: Fixes = {
    "torch": ('torch.compile(mode="reduce-overhead") replays kernels as CUDA graphs.',),
    "transformers": (
        (f'{HF}(torch_compile=True, torch_compile_mode="reduce-overhead") replays kernels as '
        "CUDA graphs."),
    ),
}  # fmt: skip
_SHARDING: Fixes = {
    "torch": (
        ("If these are parameters that FSDP or ZeRO shards: do not shard them if they fit into "
        "a GPU's memory; else shard within a machine only (FSDP's HYBRID_SHARD), and wrap "
        "larger modules: fewer, larger exchanges."),
        "A faster interconnect.",
    ),
}  # fmt: skip
_UNFUSABLE: Fixes = {
    "torch": ("Fuse them: torch.compile; raise the batch size.",),
}  # fmt: skip

#: Kernels that are not fused with others as a rule.
_APART = ("gemm", "convolution", "attention", "communication")
#: Kernels that fill the tensor cores with few blocks by design; their occupancy tells nothing.
_BY_DESIGN = (*_APART, "copy")
#: The others count only if they have this part of the kernels' time.
_WORTH = 0.20
#: A GPU that is idle for a smaller part of the step does not wait for the host.
_IDLE = 0.05


def small_batch(facts: Facts) -> Draft | None:
    """A GPU that waits for the host between short kernels, and half of whose memory is unused.

    A larger batch divides the host's work per sample, and neither the GPU's work nor that of
    loading and copying the batch: at most the other idle time can be saved. Without a GPU:
    :func:`~fastprof.findings.rules.calls.small_batch_on_cpu`.
    """
    need_sample(facts)
    gpu, timeline = facts.gpu, facts.timeline
    sizes = [row.workers.batch_size for row in facts.report.loaders
             if row.split == "train" and row.workers and row.workers.batch_size]  # fmt: skip
    if gpu is None or timeline is None:
        return small_batch_on_cpu(facts, sizes)
    memory = facts.report.memory
    if memory is None or memory.share is None:
        raise Abstain("the GPU's memory was not recorded")
    if gpu.small is None or gpu.small.of_time is None:
        raise Abstain("no kernel was recorded")
    limits = (busy, low, short) = [
        LIMITS[name] for name in ("batch-gpu-busy", "gpu-memory-low", "small-kernels")
    ]
    values = facts.share(timeline.busy_ms), memory.share, gpu.small.of_time
    if any(limit.grade(value) is None for limit, value in zip(limits, values, strict=True)):
        return None
    grows = DATA | H2D
    ms = sum(ms for name, ms in facts.idle.items() if name not in grows)
    # A torch DataLoader may run in no section.
    ms = max(0.0, ms - facts.use("data").places.get(UNACCOUNTED, 0.0))
    if facts.share(ms) <= _IDLE:
        return None
    mean = _mean_us(facts.report.kernels)
    sized = f" of {', '.join(str(s) for s in sizes)} samples" if sizes else ""
    return Draft(
        value=100 * values[0], unit="%",
        title=(
            f"The GPU waits for the host for {percent(facts.share(ms))} of the "
            f"{'step' if facts.steps else 'run'}: batches{sized} are small, and kernels short"
        ),
        severity="warning",
        threshold=(
            f"GPU busy {busy.text('warning')}, memory {low.text('warning')}, small kernels "
            f"{short.text('warning')}"
        ),
        source=busy.origin,
        evidence=sentences(
            f"The GPU is busy {percent(values[0])} of the time, and {percent(memory.share)} of its "
            "memory is used.",
            f"{percent(gpu.small.of_time)} of the kernels' time is in kernels below 100 us"
            + (f", the mean is {number(mean)} us." if mean is not None else "."),
            "A larger batch makes a step longer, and the time per sample shorter: the estimate is "
            "the GPU's idle time, without that of loading and copying batches.",
        ),
        fix=(*fixes(_SMALL_BATCH, facts.framework), *fixes(_CUDA_GRAPHS, facts.framework)),
        ms=ms, grade=lambda rest: "warning" if facts.share(rest) > _IDLE else None,
        everywhere=True, without=grows, on_host=True,
    )  # fmt: skip


def _mean_us(kernels: Sequence[KernelRow]) -> float | None:
    count = sum(k.count for k in kernels)
    return sum(k.total_ns for k in kernels) / count / 1e3 if count else None


def _gpu_ms(facts: Facts, share_of_kernels: float) -> float:
    """Return the time per span of a part of the kernels' time."""
    timeline = facts.timeline
    return 0.0 if timeline is None else share_of_kernels * timeline.kernel_ms


def _kernels(facts: Facts) -> Sequence[KernelRow]:
    if facts.gpu is None:
        raise Abstain("the GPU was not recorded")
    need_sample(facts)
    if not facts.report.kernels:
        raise Abstain("no kernel was recorded")
    return facts.report.kernels


def small_kernels(facts: Facts) -> Draft | None:
    """Share of the kernels' time in kernels below 100 us.

    Nothing is promised: how much of it fusing saves is unknown, at most the part that is no matrix
    product, convolution or attention.
    """
    kernels = _kernels(facts)
    small = facts.gpu.small if facts.gpu else None
    if small is None or small.of_time is None:
        raise Abstain("no kernel was recorded")
    limit = LIMITS["small-kernels"]
    if limit.grade(small.of_time) is None:
        return None
    whole = sum(k.total_ns for k in kernels)
    fused = sum(k.small_ns or 0 for k in kernels if k.kind not in _APART)
    rows = sorted(kernels, key=lambda k: -(k.small_ns or 0))[:3]
    names = "; ".join(
        f"{readable(k.name, 60)} ({counted(k.small_count)})" for k in rows if k.small_ns
    )
    return Draft(
        value=100 * small.of_time, unit="%",
        title=(
            f"Kernel efficiency is low: {percent(small.of_time)} of the kernels' time is in "
            "kernels below 100 us"
        ),
        severity="warning", threshold=limit.text("warning"), source=limit.origin,
        evidence=sentences(f"Most time in: {names}." if names else ""),
        fix=fixes(
            _UNFUSABLE if facts.fusing_is_refused else _SMALL_KERNELS, facts.framework
        ),
        ms=_gpu_ms(facts, fused / whole if whole else 0.0), promises=False,
        yields_to=frozenset({"small-batch"}), claims=BUSY,
    )  # fmt: skip


def blocks_per_sm(facts: Facts) -> Draft | None:
    """Mean blocks per multiprocessor, by duration; below 1 some multiprocessors are idle.

    The most that can be saved is the idle multiprocessors' part, 1 - blocks per SM.
    """
    known = [k for k in _kernels(facts) if k.blocks_per_sm is not None]
    known = [k for k in known if k.kind != "communication"]
    small = facts.gpu.small if facts.gpu else None
    told = LIMITS["small-kernels"].grade((small and small.of_time) or 0.0) is not None
    # That rule has the time of short kernels.
    times = [k.total_ns - (k.small_ns or 0 if told else 0) for k in known]
    total = sum(times)
    if not total:
        raise Abstain("the launches' blocks are not known")
    rows = list(zip(known, times, strict=True))
    value = sum((k.blocks_per_sm or 0.0) * ns for k, ns in rows) / total
    lost = sum(max(0.0, 1 - (k.blocks_per_sm or 0.0)) * ns for k, ns in rows)
    lost /= sum(k.total_ns for k in known)
    return _kernel_draft(
        facts, "blocks-per-sm", value, "", lost,
        f"Kernel efficiency is low: {value:.2f} blocks per SM",
        _worst(known, lambda k: max(0.0, 1 - (k.blocks_per_sm or 0.0))),
    )  # fmt: skip


def occupancy(facts: Facts) -> Draft | None:
    """Estimated occupancy, by duration, of the kernels for which it matters.

    Matrix products, convolutions and attention do not count: they fill tensor cores with few blocks
    by design.
    """
    kernels = _kernels(facts)
    whole = sum(k.total_ns for k in kernels)
    known = [k for k in kernels if k.occupancy is not None and k.kind not in _BY_DESIGN]
    total = sum(k.total_ns for k in known)
    if not whole or total < _WORTH * whole:
        raise Abstain("kernels whose occupancy matters take less than 20 % of the kernels' time")
    value = sum((k.occupancy or 0.0) * k.total_ns for k in known) / total
    return _kernel_draft(
        facts, "occupancy", value, "%", None,
        f"Kernel efficiency is low: SM occupancy is estimated at {percent(value)}",
        _worst(known, lambda k: 1 - (k.occupancy or 0.0)),
    )  # fmt: skip


def _worst(kernels: Sequence[KernelRow], lost: Callable[[KernelRow], float]) -> str:
    rows = sorted(kernels, key=lambda k: -lost(k) * k.total_ns)[:3]
    return "; ".join(f"{readable(k.name, 60)} ({duration(k.total_ms)})" for k in rows)


def _kernel_draft(
    facts: Facts, rule: str, value: float, unit: str, lost: float | None, title: str, names: str
) -> Draft | None:
    limit = LIMITS[rule]
    severity = capped(limit.grade(value), facts)
    if severity is None:
        return None
    return Draft(
        value=100 * value if unit == "%" else value, unit=unit or "blocks per SM",
        title=title, severity=severity, threshold=limit.text(severity), source=limit.origin,
        evidence=sentences(f"Most lost in: {names}." if names else ""),
        ms=None if lost is None else _gpu_ms(facts, lost),
        yields_to=frozenset({"small-batch"}), claims=BUSY,
    )  # fmt: skip


def kernel_launch_overhead(facts: Facts) -> Draft | None:
    """Time of cudaLaunchKernel on the host, from torch.profiler's operators.

    Not reported with small-batch, which is about the same time and more.
    """
    need_sample(facts)
    operators = facts.report.operators
    if operators is None or not operators.device or not operators.steps:
        raise Abstain("operators on a device were not recorded")
    rows = [r for r in operators.rows if r.name in ("cudaLaunchKernel", "cudaLaunchKernelExC")]
    ms = sum(r.self_cpu_ms for r in rows) / operators.steps * shrink(facts, operators)
    draft = share_draft(
        facts, _LAUNCHES, ms,
        rule="kernel-launch-overhead",
        title="Launching kernels takes {share} of the step",
        evidence=(
            (f"cudaLaunchKernel: {sum(r.calls for r in rows) / operators.steps:.0f} per step, "
            f"{span_text(ms, facts)}. Gradient checkpointing launches the kernels of forward "
            "twice."),
        ),
        on_host=True,
    )  # fmt: skip
    return None if draft is None else replace(draft, yields_to=frozenset({"small-batch"}))


def attention_unfused(facts: Facts) -> Draft | None:
    """Share of batched matrix products in a run that has softmax and no attention kernel."""
    need_sample(facts)
    operators = facts.report.operators
    if operators is None or not operators.steps:
        raise Abstain("operators were not recorded")
    names = {row.name for row in operators.rows}
    if any(k.kind == "attention" for k in facts.report.kernels) or any(
        "scaled_dot_product" in name or "flash" in name for name in names
    ):
        return None
    if not {"aten::softmax", "aten::_softmax"} & names:
        return None
    if not operators.device and facts.cpu_waits.matter:
        raise Abstain("chance decides which operators of few steps wait for a CPU")
    rows = [r for r in operators.rows if r.name in ("aten::bmm", "aten::baddbmm")]
    shares = [
        (r.device_share if operators.device else r.share) or 0.0 for r in rows if not r.on_device
    ]
    share = sum(shares)
    limit = _ATTENTION
    if limit.grade(share) is None:
        return None
    return Draft(
        value=100 * share, unit="%",
        title=f"Attention is not fused: aten::bmm takes {percent(share)} of the operators' time",
        severity="warning", threshold=limit.text("warning"), source=limit.origin,
        evidence=("There is aten::bmm and softmax, but no attention kernel (flash, fmha, sdpa).",),
        ms=share * (facts.timeline.busy_ms if facts.timeline else facts.span_ms), claims=BUSY,
        grade=lambda rest: "warning" if facts.share(rest) > 0.05 else None,
    )  # fmt: skip


def all_reduce_share(facts: Facts) -> Draft | None:
    """Communication's share of backward; the saving is the part that no computation hides.

    On a GPU: communication kernels against backward, the part without a concurrent compute kernel.
    Elsewhere: sections and calls that wait for other ranks.
    """
    need_steps(facts)
    backward = facts.phase("backward")
    if not backward:
        raise Abstain("no section backward ran in the measured steps")
    timeline, what = facts.timeline, "backward"
    if timeline is not None:
        ms, exposed = timeline.communication_ms, timeline.communication_ms - timeline.overlap_ms
        # The host may only launch it: its section is then shorter than the kernels that it starts.
        rows = [s.gpu_ms or 0.0 for s in facts.report.sections if s.name in BACKWARD]
        kernels = sum(rows) / max(1, facts.counted)
        if kernels > backward:
            backward, what = kernels, "backward's kernels"
    else:
        ms = exposed = max(
            facts.use("communication").ms,
            facts.split.get("communication", 0.0),
            facts.phase("communication") or 0.0,
        )
    if not ms:
        raise Abstain("no communication was seen")
    if facts.ranks > 1 and (timeline is None or exposed > backward):
        # An early rank waits there for the late one: its own communication is not the problem.
        raise Abstain("with several ranks it includes the wait for a late one: see fastprof merge")
    limit: Limit = LIMITS["all-reduce-share"]
    severity = capped(limit.grade(ms / backward), facts)
    if severity is None:
        return None
    if facts.share(exposed) <= _HIDDEN:
        severity = "note"
    others = _other_collectives(facts)
    title = f"All-reduce takes {percent(ms / backward)} of backward"
    if others:
        title = f"Communication ({others}) takes {percent(ms / backward)} of the time of backward"
    return Draft(
        value=100 * ms / backward, unit="%",
        title=title,
        severity=severity,
        threshold=limit.text("warning" if severity == "note" else severity),
        source=limit.origin,
        evidence=(
            (f"Communication takes {span_text(ms, facts)}, {what} {span_text(backward, facts)}; "
            f"computation hides {percent(1 - exposed / ms)} of it."),
        ),
        fix=fixes(_SHARDING if others else _ALL_REDUCE, facts.framework),
        ms=exposed, group="communication", sections=COMMUNICATION,
    )  # fmt: skip


#: Parts of the names of NCCL's kernels, and what exchanges more than gradients in a job.
_OTHER_COLLECTIVES = {"AllGather": "all-gather", "ReduceScatter": "reduce-scatter"}


def _other_collectives(facts: Facts) -> str:
    """Return the collectives of sharded parameters if they take most of the communication."""
    rows = [k for k in facts.report.kernels if k.kind == "communication"]
    times = {
        name: sum(k.total_ns for k in rows if part in k.name)
        for part, name in _OTHER_COLLECTIVES.items()
    }
    if sum(times.values()) <= sum(k.total_ns for k in rows) / 2:
        return ""
    return ", ".join(name for name, ns in times.items() if ns)


#: Communication costs nothing if the part that is not hidden is below this part of the step.
_HIDDEN = 0.02

#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "all-reduce-share", "all-reduce", all_reduce_share, order=220, knows_waits=True,
        fixes=_ALL_REDUCE,
    ),
    Rule(
        "attention-unfused", "attention in separate matmuls", attention_unfused,
        order=240, limits=(_ATTENTION,),
        fixes={
            "torch": (
                ("torch.nn.functional.scaled_dot_product_attention (flash attention) instead of "
                "bmm, softmax, bmm; check by the kernels' names that it is used, and that "
                "bucketing keeps padding small."),
            ),
            "transformers": (
                ('from_pretrained(attn_implementation="sdpa" or "flash_attention_2"); check by the '
                "kernels' names that flash attention is used, and that bucketing keeps padding "
                "small."),
            ),
        },
    ),
    Rule(
        "small-batch", "small batches", small_batch, order=290, changes_training=True,
        fixes=_SMALL_BATCH,
    ),
    Rule(
        "kernel-launch-overhead", "launching kernels", kernel_launch_overhead,
        order=300, limits=(_LAUNCHES,),
        fixes={
            "torch": (
                ('Operator fusion: torch.compile(mode="reduce-overhead") replays CUDA graphs; '
                "larger batches; is gradient checkpointing needed?"),
            ),
            "transformers": (
                (f'{HF}(torch_compile=True, torch_compile_mode="reduce-overhead"); is '
                "gradient_checkpointing needed?"),
            ),
        },
    ),
    Rule(
        "small-kernels", "small kernels", small_kernels, order=310,
        fixes=_SMALL_KERNELS,
    ),
    Rule(
        "blocks-per-sm", "launches too small for the GPU", blocks_per_sm, order=320,
        fixes={
            "torch": ("A larger batch or fused kernels: more blocks per launch.",),
        },
    ),
    Rule(
        "occupancy", "few warps per multiprocessor", occupancy, order=330,
        fixes={
            "torch": (
                ("A larger batch, larger micro-batches, gradient accumulation in fewer and larger "
                "parts; torch.compile."),
            ),
        },
    ),
)  # fmt: skip
