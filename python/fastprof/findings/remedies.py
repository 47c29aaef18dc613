"""Fixes of copies and optimizers, with numbers from the run."""

from fastprof.findings.fixes import HF, Fixes, fixes
from fastprof.findings.loading_remedies import has_loader
from fastprof.findings.measurements import Facts
from fastprof.findings.optimizers import Optimizer

# ---- copies between host and GPU ----

_COPIES_TO_GPU: Fixes = {
    "torch": (
        (
            "DataLoader(pin_memory=True) and .to(device, non_blocking=True) for batches: the host "
            "then goes on during a copy."
        ),
    ),
    "transformers": (f"{HF}(dataloader_pin_memory=True).",),
    "accelerate": ("DataLoader(pin_memory=True) and DataLoaderConfiguration(non_blocking=True).",),
}
_COPIES_TO_HOST: Fixes = {
    "torch": ("Fewer .cpu() and .numpy() in the loop: compute metrics on the device.",),
    "transformers": (
        "Trainer(preprocess_logits_for_metrics=...): return only what compute_metrics needs.",
    ),
    "accelerate": ("Fewer .cpu() in the loop: compute metrics on the device.",),
}
#: A direction with a smaller part of the bytes is no subject of advice.
_DIRECTION = 0.1


def pageable(facts: Facts) -> bool | None:
    """Return whether most copies to the GPU are from pageable memory; None if it is unknown."""
    operators = facts.report.operators
    rows = [r for r in operators.rows if r.name.startswith(_TO_GPU)] if operators else []
    total = sum(r.device_ms or 0.0 for r in rows)
    paged = sum(r.device_ms or 0.0 for r in rows if r.name.startswith(f"{_TO_GPU} (Pageable"))
    return paged > total / 2 if total else None


#: The start of the names of such copies, in torch.profiler's records.
_TO_GPU = "Memcpy HtoD"


def transfer_fix(facts: Facts) -> tuple[str, ...]:
    """Return the changes for the directions in which this run copies."""
    use = None if facts.gpu is None else facts.gpu.use
    there, back = (0, 0) if use is None else (use.h2d_bytes, use.d2h_bytes)
    least = _DIRECTION * (there + back)
    to_gpu, to_host = there >= least, back >= least
    out = []
    if to_gpu and to_host:
        out.append("Keep tensors on the GPU between steps.")
    if to_gpu and pageable(facts) is False:
        out.append("Copy the next batch on another CUDA stream, while this one computes.")
    elif to_gpu and not has_loader(facts):
        out.append(
            "tensor.pin_memory() once, before the loop, and .to(device, non_blocking=True) in it: "
            "the host then goes on during a copy."
        )
    elif to_gpu:
        out.extend(fixes(_COPIES_TO_GPU, facts.framework))
    if to_gpu:
        out.append("Copy fewer bytes: for example uint8, converted to float32 on the GPU.")
    if to_host:
        out.extend(fixes(_COPIES_TO_HOST, facts.framework))
    return tuple(out)


# ---- the optimizer ----

#: Classes that have fused=True, and the part of their step's time that it saves: measured on a CPU
#: with one thread, from 16,000 to 8 million parameters (Adam 65 to 86 %, Adagrad 58 to 80 %).
FUSED = {"Adam": 0.6, "AdamW": 0.6, "Adagrad": 0.5}
#: SGD's update already is one pass over memory: fusing it saves this much per call, and at most
#: this part.
SGD_CALL_MS, SGD_PART = 0.0015, 0.4
#: Adagrad's fused version runs on the CPU only.
_CPU_ONLY = ("Adagrad",)


def can_fuse(facts: Facts) -> bool:
    """Return whether all optimizers of the run have a fused version that torch takes, unused."""
    found = facts.optimizer
    if facts.fusing_is_refused:
        return False
    return bool(found.classes) and "fused" not in found.modes and all(
        (name in FUSED or name == "SGD") and not (facts.gpu is not None and name in _CPU_ONLY)
        for name in found.classes
    )  # fmt: skip


def fusing_is_measured(facts: Facts) -> bool:
    """Return whether :data:`FUSED` tells what fusing saves: on a CPU, parameter by parameter."""
    found = facts.optimizer
    return bool(found.classes) and "foreach" not in found.modes and facts.gpu is None


def fusing_saves(facts: Facts, ms: float, calls: float) -> float:
    """Return the time that fused=True saves of ``ms``, the time of ``calls`` calls on tensors."""
    classes = facts.optimizer.classes
    if "SGD" in classes:
        return min(SGD_PART * ms, calls * SGD_CALL_MS)
    return min(FUSED[name] for name in classes) * ms


def optimizer_fix(facts: Facts) -> tuple[str, ...]:
    """Return how to update the parameters in fewer calls, for this run's optimizer."""
    found = facts.optimizer
    if facts.fusing_is_refused:  # nor does torch.compile take sparse gradients
        return ()
    if can_fuse(facts):
        return (_fused(facts),)
    out = []
    if not found.classes:
        out.append(
            "fused=True, if the optimizer is torch's Adam, AdamW, SGD"
            + (" or Adagrad." if facts.gpu is None else ".")
        )
        out.append("For another optimizer: torch.compile its step.")
    elif "fused" not in found.modes:
        out.append(f"{_names(found)} has no fused version: torch.compile its step.")
    return tuple(out)


def _fused(facts: Facts) -> str:
    framework, found = facts.framework, facts.optimizer
    if framework == "transformers" and found.classes == ("AdamW",):
        return f'{HF}(optim="adamw_torch_fused").'
    where_ = " in configure_optimizers()" if framework == "lightning" else ""
    made = f"{_names(found)}(..., fused=True)"
    if found.or_adamw:
        made = "fused=True for the optimizer, torch.optim.Adam or AdamW"
    if "foreach" in found.modes and facts.cpu_only:
        # Without a GPU it is the program's argument, and torch takes only one of them.
        made = f"{made} instead of foreach=True"
    return f"{made}{where_}: it updates all parameters in one call."


def _names(found: Optimizer) -> str:
    return " and ".join(f"torch.optim.{name}" for name in found.classes)


#: This fix comes last: it changes the training.
STEP_LESS = {
    "torch": "Step less often: accumulate gradients over more micro-batches.",
    "lightning": (
        "Trainer(accumulate_grad_batches=...): step less often (with automatic optimization)."
    ),
    "transformers": f"{HF}(gradient_accumulation_steps=...): step less often.",
    # Alone, the argument only divides the loss.
    "accelerate": (
        "Accelerator(gradient_accumulation_steps=...) and `with accelerator.accumulate(model):` "
        "around each batch: step less often."
    ),
}
