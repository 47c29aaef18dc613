"""Fixes with numbers from the run: workers for the available CPUs, this run's optimizer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.findings.fixes import fixes
from fastprof.findings.hot_functions import Hot
from fastprof.findings.measurements import Facts, where
from fastprof.findings.optimizers import Optimizer
from fastprof.findings.slow_lines import SlowLine, slow_line
from fastprof.names import readable
from fastprof.report.figures import chosen_percent, counted, duration, number, plural
from fastprof.report.lines import lines_by_function
from fastprof.report.loaders import MIN_SAMPLES, LoaderRow, WorkerRow, most_workers
from fastprof.report.origin import is_library, shown_name
from fastprof.report.source_files import lines_of
from fastprof.snapshot import Key

_HF = "TrainingArguments"
#: A line is named if it takes this part of its function's time.
_SLOW_LINE = 0.25
_NAMELESS = {
    "<listcomp>": "a list comprehension", "<setcomp>": "a set comprehension",
    "<dictcomp>": "a dict comprehension", "<genexpr>": "a generator expression",
    "<lambda>": "a lambda",
}  # fmt: skip
#: At most this many callees are named, each with at least this part of the time.
_MOST_PARTS, _PART = 3, 0.05

# ---- loading data ----

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
    has_loader = _has_loader(facts)
    return Loading(have, needed, advised if advised > have else None, ms, step_ms, has_loader)


def _without_fastprof(facts: Facts, step_ms: float) -> tuple[float, float]:
    """Return the parts of loading's time, and of ``step_ms``, that remain without fastprof.

    If the table of a step has fastprof's cost as a row, loading's row is without it.
    """
    own = sum(facts.own_costs.values())
    rest = (step_ms - own) / step_ms if own and step_ms else 0.0
    return (1.0, rest) if rest >= _LEAST_REST else facts.unhooked


def _has_loader(facts: Facts) -> bool:
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
            f"{_HF}(dataloader_num_workers={count}, dataloader_prefetch_factor=4, "
            f"dataloader_persistent_workers=True{pinned}).{split}"
        )
    pinned = ", pin_memory=True" if gpu else ""
    text = f"DataLoader(num_workers={count}, prefetch_factor=4, persistent_workers=True{pinned})"
    if facts.framework == "accelerate" and gpu:
        text += ", and DataLoaderConfiguration(non_blocking=True) for the copies"
    return f"{text}.{split}"


# ---- taking batches from workers ----


#: A callee's number of calls is stated from here on.
_SEVERAL = 1.5
#: A figure per batch this near to a whole number stands for it.
_ALMOST = 0.03


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
        tensors=_whole(use.calls / taken) if taken else 0.0,
        connect_ms=use.ms / taken if taken else 0.0,
        function=name,
    )


def _whole(count: float) -> float:
    """Return the whole number next to ``count`` if it is near: the run cut off a batch."""
    nearest = float(round(count))
    return nearest if abs(count - nearest) <= _ALMOST * count else count


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
            zero = f"{_HF}(dataloader_num_workers=0)"
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


def _line_of(facts: Facts, hot: Hot) -> SlowLine | None:
    """Return the line of a function with most of its time, if it is known and takes enough."""
    snapshot = facts.report.snapshot
    sampled = lines_by_function(snapshot).get(hot.key)
    line = slow_line(hot, lines_of(hot.key.file, snapshot), sampled)
    return line if line is not None and line.share >= _SLOW_LINE else None


def parts_text(facts: Facts, hot: Hot, ms: float, unit: str) -> str:
    """Return the parts of a function's time: ``f (a.py:3) takes 11.7 ms: sleep 5.1 (3 calls)``.

    The calls are in the time that ``ms`` and ``unit`` say.

    The slowest line follows, if the source shows which one it is.
    """
    rates = hot.rates or (0.0,) * len(hot.parts)
    shown = [
        f"{'its own code' if key is None else _short(key)} {number(share * ms)}{_calls(rate * ms)}"
        for (key, share), rate in zip(hot.parts[:_MOST_PARTS], rates, strict=False)
        if share >= _PART
    ]
    inside = f": {', '.join(shown)}" if shown and hot.parts[:1] != ((None, 1.0),) else ""
    text = f"{where(hot.key)} takes {duration(ms)}{unit}{inside}."
    line = _line_of(facts, hot)
    if line is None:
        return text
    if line.alone or line.samples:
        return f"{text} {_part_text(line)}"
    taken = duration(line.share * ms)
    return f"{text} The calls in {_at(line)}, take {taken} of it."


def line_text(facts: Facts, hot: Hot) -> str:
    """Return a sentence on the lines with most of a function's time, "it"; empty if unknown."""
    line = _line_of(facts, hot)
    return "" if line is None else _part_text(line)


def _part_text(line: SlowLine) -> str:
    if line.alone:
        return f"All of it is {_at(line)}."
    if not line.samples:
        return f"The calls in {_at(line)}, take {chosen_percent(round(line.share, 2))} of it."
    first, *others = (
        f"on line {one.number} ({readable(one.text, 60)})" for one in (line, *line.others)
    )
    shares = (
        f", {chosen_percent(round(one.share, 2))} {at}"
        for one, at in zip(line.others, others, strict=True)
    )
    most = f"{chosen_percent(round(line.share, 2))} are {first}"
    return f"Of {plural(line.samples, 'sample')} of it, {most}{''.join(shares)}."


def _at(line: SlowLine) -> str:
    return f"line {line.number}, {readable(line.text, 60)}"


def _calls(count: float) -> str:
    """Return a number of calls in brackets; empty for about one."""
    return f" ({plural(_whole(count), 'call')})" if count >= _SEVERAL else ""


def top_calls(hot: Hot) -> list[str]:
    """Return the names of a function's callees with most time, the program's and libraries'."""
    parts = [(key, share * hot.share) for key, share in hot.parts if key is not None]
    parts += ((key, share) for key, share in hot.calls)
    parts.sort(key=lambda part: -part[1])
    least = _PART * hot.share
    return [_short(key) for key, share in parts[:_MOST_PARTS] if share >= least]


def calls_text(hot: Hot, whole_ms: float) -> str:
    """Return a sentence on the program's functions that a loop calls; empty if they take little.

    Args:
        whole_ms: the time of which ``hot.share`` and the shares of its calls are parts.
    """
    shown = [
        f"{where(key)} {number(share * whole_ms)}"
        for key, share in hot.calls[:_MOST_PARTS]
        if share >= _PART
    ]
    return f"It also calls (ms): {', '.join(shown)}." if shown else ""


def _short(key: Key) -> str:
    return _NAMELESS.get(key.name) or readable(shown_name(key), 60)


# ---- copies between host and GPU ----

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
    elif to_gpu and not _has_loader(facts):
        out.append(
            "tensor.pin_memory() once, before the loop, and .to(device, non_blocking=True) in it: "
            "the host then goes on during a copy."
        )
    elif to_gpu:
        out.extend(fixes("transfers-to-gpu", facts.framework))
    if to_gpu:
        out.append("Copy fewer bytes: for example uint8, converted to float32 on the GPU.")
    if to_host:
        out.extend(fixes("transfers-to-host", facts.framework))
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
        return f'{_HF}(optim="adamw_torch_fused").'
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
    "transformers": f"{_HF}(gradient_accumulation_steps=...): step less often.",
    # Alone, the argument only divides the loss.
    "accelerate": (
        "Accelerator(gradient_accumulation_steps=...) and `with accelerator.accumulate(model):` "
        "around each batch: step less often."
    ),
}
