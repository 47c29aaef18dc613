"""The table of fixes that can be applied from outside.  A new one is its entry.

Each names the rules of findings that it answers, takes its values from the evidence of the first
run, and says how it is written in a program.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastprof.report.loaders import LoaderRow, WorkerRow, most_workers
from fastprof.report.model import Report
from fastprof.report.phase_names import DATA
from fastprof.trial import effects
from fastprof.trial.changes import FUSABLE, LOADER, OPTIMIZERS, THREADS, ZERO_GRAD, Changes
from fastprof.trial.model import Answer, Call, Values


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the first run shows: its report, and the calls that it made."""

    report: Report
    answer: Answer

    def calls(self, *kinds: str) -> list[Call]:
        """Return the calls of these kinds."""
        return [call for call in self.answer.calls if call.kind in kinds]

    @property
    def has_gpu(self) -> bool:
        """Whether the program used CUDA."""
        return bool(self.answer.facts.get("cuda"))

    @property
    def training(self) -> list[tuple[LoaderRow, WorkerRow]]:
        """The loaders of torch's that supply training."""
        rows = [row for row in self.report.loaders if row.split == "train" and row.batches]
        return [(row, row.workers) for row in rows if row.workers is not None]

    @property
    def needed(self) -> int:
        """The workers that keep up with a step, by the part of it that takes data."""
        rows = self.report.shown_steps.rows
        share = min(0.99, sum(row.share or 0.0 for row in rows if row.name in DATA))
        return max(1, math.ceil(share / (1 - share)))

    @property
    def cpus(self) -> int | None:
        """The CPUs that the program may use."""
        cpus = self.report.meta.get("cpus")
        return cpus if isinstance(cpus, int) and not isinstance(cpus, bool) else None


@dataclass(frozen=True, slots=True)
class Intervention:
    """A fix from outside.

    ``rules`` are the findings that it answers.  ``values`` returns its values, None if there is
    nothing to change in this program.  ``apply`` applies it in the process of a run.  ``kinds`` are
    the calls that it changes, for a patch: the values are then their arguments.
    """

    id: str
    subject: str
    rules: tuple[str, ...]
    values: Callable[[Evidence], Values | None]
    apply: Callable[[Changes, Values], None]
    spelled: Callable[[Values], str]
    kinds: tuple[str, ...] = ()
    changes_results: bool = False


def arguments(values: Values) -> str:
    """Return values as the arguments of a call."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _of_loader(values: Values) -> str:
    return f"DataLoader({arguments(values)})"


def _of_optimizer(values: Values) -> str:
    return f"optimizer {arguments(values)}"


# ---- loaders ----


def _workers(evidence: Evidence) -> Values | None:
    made, cpus = evidence.calls(LOADER), evidence.cpus
    if not made or cpus is None:
        return None
    have = max(call.arguments.get("num_workers") or 0 for call in made)
    told = [row.needed for _, row in evidence.training if row.needed]
    needed = max(told, default=0) or evidence.needed
    # One even if no CPU is free for it: loading that waits needs none.
    wanted = max(1, min(needed, most_workers(cpus, waits=False)))
    if wanted <= have:
        return None
    # Not persistent ones, which shuffle otherwise: they are another intervention.
    return {"num_workers": wanted}


def _no_workers(evidence: Evidence) -> Values | None:
    return {"num_workers": 0} if any(row.workers for _, row in evidence.training) else None


def _persistent(evidence: Evidence) -> Values | None:
    kept = [row for _, row in evidence.training if row.workers and row.passes > 1]
    return {"persistent_workers": True} if any(not row.persistent for row in kept) else None


def _prefetch(evidence: Evidence) -> Values | None:
    late = [row for _, row in evidence.training if row.workers and (row.blocked_share or 0) > 0]
    depth = max([row.prefetch or 2 for row in late], default=0)
    return {"prefetch_factor": 2 * depth} if depth else None


def _pinned(evidence: Evidence) -> Values | None:
    made = evidence.calls(LOADER)
    unpinned = any(not call.arguments.get("pin_memory") for call in made)
    return {"pin_memory": True} if evidence.has_gpu and unpinned else None


# ---- optimizers ----


def _fused(evidence: Evidence) -> Values | None:
    made = [call for call in evidence.calls(*OPTIMIZERS) if not call.arguments.get("fused")]
    refused = evidence.report.meta.get("torch_refuses_fused")
    possible = made and all(call.kind in FUSABLE for call in made) and not refused
    return {"fused": True} if possible else None


def _foreach(evidence: Evidence) -> Values | None:
    if _fused(evidence) is not None:  # which saves more
        return None
    made = [c for c in evidence.calls(*OPTIMIZERS) if not c.arguments.get("fused")]
    # Without a GPU torch updates parameter by parameter; with one it chooses this itself.
    chosen = any(c.arguments.get("foreach") for c in made) or evidence.has_gpu
    return {"foreach": True} if made and not chosen else None


def _set_to_none(evidence: Evidence) -> Values | None:
    kept = [c for c in evidence.calls(ZERO_GRAD) if c.arguments.get("set_to_none") is False]
    return {"set_to_none": True} if kept else None


# ---- the process ----


def _one_thread(evidence: Evidence) -> Values | None:
    threads = evidence.answer.facts.get("threads") or 1
    return {"threads": 1} if threads > 1 and not evidence.has_gpu else None


def _queued(evidence: Evidence) -> Values | None:
    return {"handlers": "all"} if evidence.calls("log") else None


def _on_gpu(evidence: Evidence) -> Values | None:
    return {"device": "cuda"} if evidence.has_gpu else None


def _always(evidence: Evidence) -> Values | None:
    return {"device": "cuda" if evidence.has_gpu else "cpu"}


def _text(text: str) -> Callable[[Values], str]:
    return lambda values: text


def _changing(name: str, kinds: tuple[str, ...]) -> Callable[[Changes, Values], None]:
    return lambda changes, values: changes.edit(name, kinds, effects.edit(name, values))


def _simple(name: str) -> Callable[[Changes, Values], None]:
    apply: Any = getattr(effects, name.replace("-", "_"))
    return lambda changes, values: apply(changes, name, values)


_STEPS = ("forward-share", "backward-share", "small-batch", "kernel-launch-overhead")

INTERVENTIONS: tuple[Intervention, ...] = (
    Intervention(
        "workers", "more workers of loaders", ("data-loading",), _workers,
        _changing("workers", (LOADER,)), _of_loader, (LOADER,),
    ),
    Intervention(
        "no-workers", "loading in the training process",
        ("loader-recreated", "worker-shutdown", "batch-receiving"), _no_workers,
        _changing("no-workers", (LOADER,)), _of_loader, (LOADER,),
    ),
    Intervention(
        "persistent", "workers that stay between epochs", ("loader-recreated", "worker-shutdown"),
        _persistent, _changing("persistent", (LOADER,)), _of_loader, (LOADER,),
    ),
    Intervention(
        "prefetch", "more batches ahead", ("data-loading",), _prefetch,
        _changing("prefetch", (LOADER,)), _of_loader, (LOADER,),
    ),
    Intervention(
        "pinned", "pinned memory of batches", ("host-device-transfers", "data-loading"), _pinned,
        _changing("pinned", (LOADER,)), _of_loader, (LOADER,),
    ),
    Intervention(
        "fused", "the optimizer in one call", ("optimizer-unfused", "optimizer-share"), _fused,
        _changing("fused", FUSABLE), _of_optimizer, FUSABLE,
    ),
    Intervention(
        "foreach", "the optimizer in few calls", ("optimizer-unfused", "optimizer-share"),
        _foreach, _changing("foreach", OPTIMIZERS), _of_optimizer, OPTIMIZERS,
    ),
    Intervention(
        "set-to-none", "gradients that are dropped, not zeroed",
        ("optimizer-share", "optimizer-unfused", "backward-share", "unaccounted"), _set_to_none,
        _changing("set-to-none", (ZERO_GRAD,)), _text("zero_grad(set_to_none=True)"), (ZERO_GRAD,),
    ),
    Intervention(
        "threads", "one thread for torch", ("cpu-contention", *_STEPS), _one_thread,
        _simple("threads"), lambda values: f"torch.set_num_threads({values['threads']})",
        (THREADS,),
    ),
    Intervention(
        "thresholds", "rarer collections of garbage", ("gc-pressure",),
        lambda _: {"thresholds": [50_000, 20, 20]}, _simple("thresholds"),
        lambda values: f"gc.set_threshold({', '.join(map(str, values['thresholds']))})",
    ),
    Intervention(
        "freeze", "objects of the set-up left out of collections", ("gc-pressure",),
        lambda _: {"at": "first step"}, _simple("freeze"),
        _text("gc.freeze() after the first step"),
    ),
    Intervention(
        "queued-logging", "log handlers in a thread", ("logging-share",), _queued,
        _simple("queued-logging"), _text("logging by a QueueHandler"),
    ),
    Intervention(
        "non-blocking", "copies that the program does not wait for", ("host-device-transfers",),
        _on_gpu, _simple("non-blocking"), _text(".to(device, non_blocking=True)"),
    ),
    Intervention(
        "cudnn-benchmark", "the fastest convolutions of cuDNN", ("forward-share", "backward-share"),
        _on_gpu, _simple("cudnn-benchmark"), _text("cudnn.benchmark = True"),
    ),
    Intervention(
        "compile", "torch.compile", _STEPS, _always, _simple("compile"),
        _text("model.compile()"), changes_results=True,
    ),
    Intervention(
        "tf32", "matrix products in TF32", ("forward-share", "backward-share"), _on_gpu,
        _simple("tf32"), _text('set_float32_matmul_precision("high")'), changes_results=True,
    ),
    Intervention(
        "bf16", "the model in bfloat16", ("forward-share", "backward-share"), _always,
        _simple("bf16"), _text("autocast to bfloat16"), changes_results=True,
    ),
)  # fmt: skip

BY_ID = {intervention.id: intervention for intervention in INTERVENTIONS}


def chosen(names: Sequence[str]) -> list[Intervention]:
    """Return the interventions with these ids.

    Raises:
        ValueError: there is no such intervention.
    """
    for name in names:
        if name not in BY_ID:
            raise ValueError(f"no intervention {name!r:.60}; there are: {', '.join(BY_ID)}")
    return [BY_ID[name] for name in names]
