"""Rules about the GPU's memory; their fixes save room, not time."""

from itertools import pairwise

from fastprof.findings.draft import Abstain, Draft, Rule, capped, percent, sentences
from fastprof.findings.fixes import HF
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import LIMITS
from fastprof.names import readable
from fastprof.report.figures import plural, size, size_of
from fastprof.report.model_gpu import MemoryReport

_MIB = 1 << 20
#: A leak rises in nearly every step, and by this much in all.
_RISING, _GROWN, _LEAK_SAMPLES = 0.8, 128 * _MIB, 10
#: Calls of cudaFree per step, or falls of reserved memory per sample; a steady run has none.
_FREES, _FALLS = 1.0, 0.2
_ORIGIN = "chosen by fastprof: a steady run allocates nothing new from step to step"


def _memory(facts: Facts) -> MemoryReport:
    memory = facts.report.memory
    if memory is None:
        raise Abstain("the GPU's memory was not recorded")
    return memory


def gpu_memory_low(facts: Facts) -> Draft | None:
    """Peak of reserved memory over the device's size, below one half."""
    return _filled(facts, "gpu-memory-low", "a larger batch fits")


def gpu_memory_high(facts: Facts) -> Draft | None:
    """The same above 95 %, or failed allocations."""
    memory = _memory(facts)
    if memory.ooms:
        return Draft(
            value=float(memory.ooms), unit="failed allocations",
            title=f"The GPU ran out of memory {plural(memory.ooms, 'time')}",
            severity="critical", threshold="above 0", source=_ORIGIN,
            evidence=_peak(memory),
        )  # fmt: skip
    return _filled(facts, "gpu-memory-high", "out-of-memory (OOM) risk")


def _filled(facts: Facts, rule: str, meaning: str) -> Draft | None:
    memory = _memory(facts)
    if memory.share is None:
        raise Abstain("the GPU's memory size is not known")
    if not memory.peak_reserved:
        raise Abstain("no GPU memory was allocated")
    limit = LIMITS[rule]
    severity = capped(limit.grade(memory.share), facts)
    if severity is None:
        return None
    return Draft(
        value=100 * memory.share, unit="%",
        title=f"{percent(memory.share)} of the GPU's memory is used: {meaning}",
        severity=severity,
        threshold=limit.text(limit.grade(memory.share) or severity), source=limit.origin,
        evidence=(*_peak(memory), *(_busy(facts) if limit.low else ())),
        yields_to=frozenset({"small-batch"}),
    )  # fmt: skip


def _busy(facts: Facts) -> tuple[str, ...]:
    """Return a sentence on a GPU that has work in any case."""
    busy = 0.0 if facts.timeline is None else facts.share(facts.timeline.busy_ms)
    if LIMITS["batch-gpu-busy"].grade(busy) is not None:
        return ()
    return (f"Unused memory itself costs no time: the GPU is busy {percent(busy)} of the time.",)


def _peak(memory: MemoryReport) -> tuple[str, ...]:
    top = max(memory.sections, key=lambda s: s.peak_allocated, default=None)
    return sentences(
        f"{size_of(memory.peak_reserved, memory.total_bytes)} were reserved at the peak, "
        f"{size(memory.peak_allocated)} allocated.",
        "" if top is None else f"The peak is in section {readable(top.name, 60)}.",
    )


def memory_leak(facts: Facts) -> Draft | None:
    """Allocated memory that rises from step to step: its slope, and the share of rising steps."""
    memory = _memory(facts)
    slope, rising, grown = memory.slope_bytes_per_step, memory.rising, memory.grown_bytes
    if len(memory.samples) < _LEAK_SAMPLES or slope is None or rising is None or grown is None:
        raise Abstain(f"fewer than {_LEAK_SAMPLES} samples of the memory were taken")
    if rising < _RISING or slope <= 0 or grown < _GROWN:
        return None
    left = ""
    if memory.total_bytes is not None:
        steps = max(0, memory.total_bytes - memory.current_allocated) / slope
        left = f"The memory is full in about {plural(round(steps), 'step')}."
    owners = [s for s in memory.sections if (s.self_grown_bytes or 0) > 0]
    owner = max(owners, key=lambda s: s.self_grown_bytes or 0, default=None)
    return Draft(
        value=slope / _MIB, unit="MiB per step",
        title=f"GPU memory grows by {size(slope)} per step: a leak",
        severity=capped("critical", facts) or "warning",
        threshold="above 0 MiB per step", source=_ORIGIN,
        evidence=sentences(
            f"It rose in {percent(rising)} of the steps, by {size(grown)} in total.",
            left,
            "" if owner is None
            else f"Most of it stays from section {readable(owner.name, 60)}.",
        ),
    )  # fmt: skip


def memory_fragmentation(facts: Facts) -> Draft | None:
    """Calls of cudaFree per step, retried allocations, reserved memory that goes up and down."""
    memory = _memory(facts)
    frees = memory.device_frees_per_step
    if frees is None:
        raise Abstain("no step was counted")
    reserved = [s.reserved for s in memory.samples]
    falls = sum(b < a for a, b in pairwise(reserved))
    saw_tooth = len(reserved) > _LEAK_SAMPLES and falls / (len(reserved) - 1) > _FALLS
    retried = memory.retries / max(1, facts.report.steps.count)
    if frees < _FREES and retried < _FREES / 10 and not saw_tooth:
        return None
    return Draft(
        value=frees, unit="cudaFree per step",
        title=f"GPU memory is fragmented: {plural(frees, 'call')} of cudaFree per step",
        severity="warning", threshold="above 1 per step", source=_ORIGIN,
        evidence=sentences(
            f"cudaMalloc is called {plural(memory.device_allocs, 'time')}, cudaFree "
            f"{plural(memory.device_frees, 'time')}; "
            f"{plural(memory.retries, 'allocation')} had to be retried.",
            f"Reserved memory fell in {falls} of {len(reserved)} samples." if saw_tooth else "",
        ),
    )  # fmt: skip


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "memory-leak", "growing GPU memory", memory_leak, order=170, knows_waits=True,
        fixes={
            "torch": (
                ("Store loss.detach() or loss.item(), because the loss keeps its whole graph "
                "alive; empty lists that grow; check hooks and caches."),
            ),
        },
    ),
    Rule(
        "memory-fragmentation", "fragmented GPU memory", memory_fragmentation,
        order=180, knows_waits=True,
        fixes={
            "torch": (
                ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; batches of few different "
                "shapes; torch.cuda.empty_cache() sparingly."),
            ),
        },
    ),
    Rule(
        "gpu-memory-low", "unused GPU memory", gpu_memory_low, order=340,
        fixes={
            "torch": ("Raise the batch size, until 85 to 95 % of the memory is used.",),
            "lightning": (
                ("Raise the batch size; lightning.pytorch.tuner.Tuner(trainer).scale_batch_size() "
                "finds it."),
            ),
            "transformers": (
                f"{HF}(per_device_train_batch_size=...) higher.",
            ),
        },
    ),
    Rule(
        "gpu-memory-high", "nearly full GPU memory", gpu_memory_high, order=350,
        fixes={
            "torch": (
                ("A smaller batch with gradient accumulation, activation checkpointing "
                "(torch.utils.checkpoint), mixed precision (AMP)."),
            ),
            "lightning": (
                ("A smaller batch with Trainer(accumulate_grad_batches=...), "
                'precision="bf16-mixed", activation checkpointing.'),
            ),
            "transformers": (
                (f"{HF}(per_device_train_batch_size=..., gradient_accumulation_steps=..., "
                "gradient_checkpointing=True, bf16=True)."),
            ),
            "accelerate": (
                (
                    "A smaller batch, activation checkpointing, "
                    'Accelerator(gradient_accumulation_steps=..., mixed_precision="bf16").'
                ),
            ),
        },
    ),
)  # fmt: skip
