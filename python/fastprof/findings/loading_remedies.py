"""Fixes of loading, with numbers from the run: workers for the CPUs that are free."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.findings.fixes import HF
from fastprof.findings.hot_functions import Hot
from fastprof.findings.hot_texts import _line_of, whole
from fastprof.findings.measurements import Facts
from fastprof.findings.uses import where
from fastprof.report.figures import counted
from fastprof.report.loaders import MIN_SAMPLES, LoaderRow, WorkerRow, most_workers
from fastprof.report.origin import is_library
from fastprof.snapshot import Key

#: The time to take a batch from an idle worker, and from a computing one: the worker's thread that
#: sends batches needs the interpreter, too (measured: 1.0 to 1.7 ms).
_SEND_MS, _SEND_BESIDE_MS = 0.5, 1.5

#: In a computing worker, loading takes this many times as long as in the loop (measured on two
#: CPUs: 1.13 to 1.19), plus this time between two batches (1.5 to 2.4).
_IN_WORKER, _HAND_OVER_MS = 1.2, 2.0

#: A CPU in use for less than this has room for a worker.
_ALMOST_IDLE = 0.25

#: With less of a step left, fastprof's cost is nearly all of it, and the rest is not known.
_LEAST_REST = 0.05


@dataclass(frozen=True, slots=True)
class Loading:
    """How the training loop gets its batches.

    ``needed`` workers would keep up with it, ``advised`` is the largest number of them that has
    CPUs (None: no more than today), ``have`` is today's number.  Loading takes ``load_ms`` of a
    span, the rest of it ``step_ms``.
    """

    have: int
    needed: int
    advised: int | None
    load_ms: float
    step_ms: float
    has_loader: bool

    @property
    def span_ms(self) -> float:
        """The length of a span."""
        return self.load_ms + self.step_ms


def loading(facts: Facts, ms: float, *, waits: bool, span_ms: float | None = None) -> Loading:
    """Return the run's figures of its loading, which takes ``ms`` per span.

    Args:
        ms: the training thread's time in loading.
        waits: loading waits rather than computes, and needs no CPU.
        span_ms: the length of a span, if it is not that of the recorded one.
    """
    rows = [row for row in train_loaders(facts) if row.workers]
    have = max((row.workers.workers for row in rows if row.workers), default=0)
    step_ms = max((facts.span_ms if span_ms is None else span_ms) - ms, 0.0)
    told = [row.workers.needed for row in rows if row.workers and row.workers.needed]
    loads, rest = _without_fastprof(facts, step_ms)  # like `needed`
    needed = max(told, default=0) or (
        math.ceil(ms * loads / (step_ms * rest)) if step_ms * rest > 0 else 1
    )
    advised = needed if (most := _most_workers(facts, have, waits=waits)) is None else (
        min(needed, most)
    )  # fmt: skip
    if not facts.steps:  # the rest of the run is not the loop
        needed, advised = 0, 0
    more = advised if advised > have else None
    return Loading(have, needed, more, ms, step_ms, has_loader(facts))


def _without_fastprof(facts: Facts, step_ms: float) -> tuple[float, float]:
    """Return the parts of loading's time, and of ``step_ms``, that remain without fastprof.

    If the table of a step has fastprof's cost as a row, loading's row is without it.
    """
    own = sum(facts.own_costs.values())
    rest = (step_ms - own) / step_ms if own and step_ms else 0.0
    return (1.0, rest) if rest >= _LEAST_REST else facts.unhooked


def has_loader(facts: Facts) -> bool:
    """Return whether the program uses a DataLoader of torch's: importing torch does not."""
    return bool(facts.report.loaders) or any(
        key.file.replace("\\", "/").endswith("torch/utils/data/dataloader.py")
        for key in facts.report.snapshot.keys
        if key.name != "<module>"
    )


def _most_workers(facts: Facts, have: int, *, waits: bool) -> int | None:
    """Return the largest number of workers that find a CPU; None: unknown."""
    own = facts.own_cpus
    if own is None:
        return None
    if facts.cpu_waits.matter and (have or not waits) and not facts.others_are_known:
        return have  # the training thread itself waits for a CPU
    # Loading that waits needs none.
    most = most_workers(own if waits else _whole_cpus(own - facts.others_cpus), waits=waits)
    if not have:
        return most
    # Whether the workers compute is unknown, but the CPUs that they leave free are known.
    used = facts.cpus_used
    idle = 0 if used is None else _whole_cpus(own - used - facts.others_cpus)
    return min(int(own), max(most, have + idle))


def _whole_cpus(cpus: float) -> int:
    return max(0, int(cpus + _ALMOST_IDLE))


def train_loaders(facts: Facts) -> list[LoaderRow]:
    """Return the loaders that supply training with batches."""
    return [row for row in facts.report.loaders if row.split == "train" and row.batches]


def loading_saves(facts: Facts, found: Loading, ms: float, *, waits: bool) -> float:
    """Return the most that the advised workers save: they load during the step, on free CPUs."""
    if found.advised is None:
        return ms
    if found.have:
        left = max(0.0, found.needed / found.advised - 1) * found.step_ms
        saved = ms - left
    else:
        loads, rest = _without_fastprof(facts, found.step_ms)
        load_ms, step_ms = found.load_ms * loads, found.step_ms * rest
        saved = load_ms + step_ms - _step_beside(facts, found, load_ms, step_ms, waits=waits)
        ms *= loads
    if not waits and facts.own_cpus and facts.cpus_used is not None:
        # Work that moves to another process still needs a CPU.
        used = facts.cpus_used + facts.others_cpus
        saved = min(saved, found.span_ms * (1 - min(1.0, used / facts.own_cpus)))
    return max(0.0, min(ms, saved))


def _step_beside(
    facts: Facts, found: Loading, load_ms: float, step_ms: float, *, waits: bool
) -> float:
    """Return the time of a span if the advised workers load, in ``load_ms``, during the rest."""
    workers = found.advised or 1
    rows = train_loaders(facts)
    count = facts.report.steps.count if facts.steps else 1
    batches = sum(row.batches for row in rows) / count
    # The first batch of a pass is loaded during no step; the length of a single pass is unknown.
    passes = sum(max(0, row.workers.passes - 1) for row in rows if row.workers) / count
    if waits:
        each, taking = load_ms / workers, step_ms + _SEND_MS * batches
    else:
        each = (_IN_WORKER * load_ms + _HAND_OVER_MS * batches) / workers
        taking = step_ms + _SEND_BESIDE_MS * batches
        # While workers compute, training has fewer CPUs for its threads.
        slower = _training_cpus(facts, found) / max(1.0, (facts.own_cpus or math.inf) - workers)
        if slower > 1.0:
            taking += min(each, taking * slower) * (1.0 - 1.0 / slower)
    return max(each, taking) + passes / max(batches, passes, 1.0) * min(each, taking)


def _training_cpus(facts: Facts, found: Loading) -> float:
    """Return the CPUs that a step uses, without one for its loading; 1 if unknown."""
    if facts.own_cpus is None or facts.cpus_used is None or not found.step_ms:
        return 1.0
    used = facts.cpus_used * found.span_ms - found.load_ms
    return min(facts.own_cpus, max(1.0, used / found.step_ms))


def loading_fix(facts: Facts, found: Loading, hot: Hot | None, *, waits: bool) -> tuple[str, ...]:
    """Return the changes: workers if they help, and the function that takes the time."""
    out = []
    if found.advised is not None:
        out.append(_workers(facts, found.advised) if found.has_loader else (
            "Prepare the next batch in another process while this step computes: a torch "
            f"DataLoader with num_workers={found.advised} does that."
        ))  # fmt: skip
    name = "" if hot is None or is_library(hot.key) else where(hot.key)
    if waits:
        out.append(f"Read less, or from faster storage{f', in {name}' if name else ''}.")
    elif name:
        line = None if hot is None else _line_of(facts, hot)
        first = "" if line is None or line.alone else f", line {line.number} first"
        out.append(f"Make {name} cheaper{first}: {_CHEAPER}.")
    elif found.advised is None or not found.has_loader:
        out.append(f"Do less per sample: {_CHEAPER}.")
        if found.have and hot is None:
            out.append("Run once without workers to see the functions and lines that take time.")
    return tuple(out)


#: Holds for random augmentations, too.
_CHEAPER = "store what never changes, and do the rest in fewer, larger calls"

#: torch calls them for an IterableDataset: where it loads, and in the training process.
_STREAM = ("_IterableDatasetFetcher", "_InfiniteConstantSampler.")


def _split(facts: Facts, count: int) -> str:
    """Return the warning about several workers that read one stream; empty if none does."""
    if count <= 1:
        return ""
    if any(key.qualname.startswith(_STREAM) for key in facts.report.snapshot.keys):
        of = "The dataset is a stream (IterableDataset): each"
    elif not facts.has_functions:
        of = "If the dataset is a stream (IterableDataset), each"
    else:
        return ""
    return (
        f" {of} worker must yield only its part of it (torch.utils.data.get_worker_info()), or the "
        "program trains on each sample several times."
    )


def _workers(facts: Facts, count: int) -> str:
    gpu, split = facts.gpu is not None, _split(facts, count)
    if facts.framework == "transformers":
        pinned = ", dataloader_pin_memory=True" if gpu else ""
        return (
            f"{HF}(dataloader_num_workers={count}, dataloader_prefetch_factor=4, "
            f"dataloader_persistent_workers=True{pinned}).{split}"
        )
    pinned = ", pin_memory=True" if gpu else ""
    text = f"DataLoader(num_workers={count}, prefetch_factor=4, persistent_workers=True{pinned})"
    if facts.framework == "accelerate" and gpu:
        text += ", and DataLoaderConfiguration(non_blocking=True) for the copies"
    return f"{text}.{split}"


@dataclass(frozen=True, slots=True)
class Receiving:
    """The time to receive batches that workers have ready, in ms.

    ``load_ms`` is a worker's time to load one, or an upper limit of it; None if unknown.
    ``function`` connects to a worker for each of the ``tensors`` of a batch, for ``connect_ms`` per
    batch; None if it did not run, or was not recorded.
    """

    span_ms: float
    batch_ms: float
    load_ms: float | None
    load_is_measured: bool
    tensors: float
    connect_ms: float
    function: Key | None


def receiving(facts: Facts, rows: Sequence[tuple[LoaderRow, WorkerRow]]) -> Receiving:
    """Return the run's figures of receiving from these loaders' workers."""
    batches = sum(w.ready for _, w in rows)
    total = sum((w.ready_ms or 0.0) * w.ready for _, w in rows)
    loads = [w.load_within_ms if w.load_samples < MIN_SAMPLES else w.load_ms for _, w in rows]
    known = [ms for ms in loads if ms is not None]
    taken = sum(row.batches for row, _ in rows) / max(1, facts.report.steps.count)
    use = facts.use("connect")
    name = next((k for k, _, _ in facts.inside("data") if k.name == "rebuild_storage_fd"), None)
    return Receiving(
        span_ms=total / max(1, facts.report.steps.count),
        batch_ms=total / batches,
        load_ms=max(known) if len(known) == len(loads) else None,
        load_is_measured=all(w.load_samples >= MIN_SAMPLES for _, w in rows),
        tensors=whole(use.calls / taken) if taken else 0.0,
        connect_ms=use.ms / taken if taken else 0.0,
        function=name,
    )


def receiving_saves(found: Receiving) -> float:
    """Return the largest possible saving: all of it if the loop can load, else connecting."""
    if _loads_quicker(found):
        # The loop then loads itself; only an upper limit of its time may be known.
        left = (found.load_ms or 0.0) / found.batch_ms if found.load_is_measured else 0.0
        return found.span_ms * (1.0 - left)
    return found.span_ms * min(1.0, found.connect_ms / found.batch_ms)


def receiving_fix(facts: Facts, found: Receiving) -> tuple[str, ...]:
    """Return the changes; none if nothing is known to help."""
    out = []
    if _loads_quicker(found):
        zero = "DataLoader(num_workers=0)"
        if facts.framework == "transformers":
            zero = f"{HF}(dataloader_num_workers=0)"
        out.append(f"{zero}: loading a batch takes less than receiving it.")
    if found.connect_ms:
        ways = [
            'torch.multiprocessing.set_sharing_strategy("file_system") before the loader starts'
        ]
        if found.tensors >= 1.5:
            ways.append(f"a collate_fn that puts the {counted(found.tensors)} tensors into one")
        out.append(f"{'Or, with workers: ' if out else ''}{'; or '.join(ways)}.")
    return tuple(out)


def _loads_quicker(found: Receiving) -> bool:
    return found.load_ms is not None and found.load_ms < found.batch_ms
