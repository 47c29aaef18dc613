"""Rules about how the training loop gets its batches."""

from dataclasses import replace

from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    Uncertain,
    called_from,
    callers,
    capped,
    need_functions,
    need_sample,
    need_steps,
    percent,
    share_draft,
    span_text,
    while_idle,
)
from fastprof.findings.fixes import HF
from fastprof.findings.function_groups import DATA, WAITS
from fastprof.findings.hot_functions import Hot
from fastprof.findings.hot_texts import line_text, parts_text
from fastprof.findings.loading_remedies import (
    Loading,
    Receiving,
    loading,
    loading_fix,
    loading_saves,
    receiving,
    receiving_fix,
    receiving_saves,
    train_loaders,
)
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import LIMITS, Limit
from fastprof.findings.uses import where
from fastprof.report.figures import counted, duration, number, plural
from fastprof.report.loaders import SHORT_BATCH_MS, LoaderRow, WorkerRow, any_workers, called
from fastprof.report.origin import is_users
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.steps import sections_as_recorded

_OVERHEAD = LIMITS["overhead-share"]
#: A smaller part of the step is no saving.
_SAVES = 0.005
#: Workers that hide a smaller part of the loading are not the first advice.
_HIDES = 0.2
#: With fewer free CPUs a worker has too little CPU time.
_FREE_CPUS = 0.25
#: torch waits this long for a worker that does not end.
_JOIN_MS = 5000.0
#: Counting tokens takes 10 to 15 s in observed runs.
_TOKENS_MS = 10_000.0


def data_loading(facts: Facts) -> Draft | None:
    """Share of the step in the section data, and the part that workers on free CPUs would save.

    Without free CPUs for them, loading that takes most of a step must become cheaper.

    On a GPU only the part in which the GPU was idle counts: time hidden behind work on the GPU
    costs nothing. With workers only the time counts in which the loop waited for them. Batches that
    load faster than a worker sends them are no finding.
    """
    need_sample(facts)
    use = facts.use("data")
    ms = facts.phase("data") if facts.steps else use.ms or None
    if ms is None:
        ms = use.ms or None
    if ms is None:
        awaited = _awaited(facts)
        if awaited is not None:
            return awaited
        raise Abstain("no section data or data_loading ran, and no torch DataLoader was seen")
    measured, stalled = ms, ""
    if facts.timeline is not None:
        ms = min(ms, facts.timeline.idle_data_ms)
        stalled = f"The GPU is idle for {span_text(ms, facts)} of it."
    rows = [(row, row.workers) for row in train_loaders(facts) if row.workers]
    if rows and all(w.workers for _, w in rows):
        waited = sum(w.blocked_ms for _, w in rows) / max(1, facts.report.steps.count)
        ms = min(ms, waited) if facts.steps else ms
    # Sending such a batch from a worker takes as long.
    elif facts.steps and facts.cpu_waits.part(DATA) * _batch_ms(measured, rows) < SHORT_BATCH_MS:
        return None
    limit = LIMITS["data-share"]
    severity = capped(limit.grade(facts.share(ms)), facts)
    if severity is None:
        return None
    loud = severity in ("warning", "critical")
    waits = not any(w.workers for _, w in rows) and _waits(facts)
    found, saved, between = _saves(facts, measured, ms, waits=waits)
    little = ""
    if found.advised is not None and limit.grade(facts.share(saved)) is None:
        # Workers would save too little. If loading is most of a step, cheaper loading would not.
        if severity != "critical":
            return None
        much = "little"
        if facts.share(saved) >= _SAVES:
            much += f", an estimated {span_text(saved, facts)}"
        little = (
            f"{plural(found.advised, 'worker')} may save {much}: handing over a batch takes time, "
            "and a worker needs a CPU. Measure it."
        )
        found, saved = replace(found, advised=None), ms
    elif found.advised is not None and severity == "critical" and saved < _HIDES * ms:
        # The advice that matters comes first, and a promise must not be read as its limit.
        little = (
            f"{plural(found.advised, 'worker')} would save an estimated {span_text(saved, facts)}, "
            "because making batches takes far longer than the rest of the step."
        )
        found, saved = replace(found, advised=None), ms
    hot = facts.hot_in_workers if found.have else facts.hot_in("data")
    draft = share_draft(
        facts, limit, ms,
        rule="data-loading",
        title="Data loading is a bottleneck: {share} of the step" if loud else (
            "Data loading takes {share} of the step"
        ),
        value=facts.share(measured),
        evidence=(
            f"Fetching batches takes {span_text(measured, facts)}.",
            stalled,
            *(_loader_text(row, w, _corrected(facts, measured)) for row, w in rows),
            _content(facts, found, hot, measured),
            _limit_text(found, facts, little),
            between if found.advised is not None else "",
        ),
        fix=loading_fix(facts, found, hot, waits=waits),
        group="data",
        sections=DATA,
        # It is the cause of that idle time, however much of it workers save.
        claims={"gpu-utilization": ms},
        on_host=True,
    )  # fmt: skip
    if draft is None:
        return None
    draft = draft.saving(saved, of=ms)
    grade = draft.grade
    if little and grade is not None:
        # ... nor if another cause, such as the sampler, accounts for it.
        draft = replace(draft, grade=lambda rest: _most(grade(rest)))
    # How much cheaper loading can become is unknown.
    return replace(draft, promises=found.advised is not None)


def _saves(facts: Facts, measured: float, ms: float, *, waits: bool) -> tuple[Loading, float, str]:
    """Return the run's loading, what workers save of ``ms`` of it, and within which limits.

    On a busy machine they are of a step without its wait for a CPU, and the saving is the same part
    of ``ms``.
    """
    busy = facts.cpu_waits
    if not facts.steps or not busy.matter or facts.timeline is not None:
        found = loading(facts, measured, waits=waits)
        return found, loading_saves(facts, found, ms, waits=waits), ""
    share, span_ms = busy.without(measured, {}, DATA), busy.running_ms
    known = [
        loading(facts, part * span_ms, waits=waits, span_ms=span_ms)
        for part in (share.middle, share.low, share.high)
    ]
    shorter = [
        loading_saves(facts, one, one.load_ms * ms / measured, waits=waits) / span_ms
        for one in known
    ]
    low, high = percent(min(shorter)), percent(max(shorter))
    part = low if low == high else f"{low.removesuffix(' %')} to {high}"
    saved = shorter[0] / share.middle * measured if share.middle else 0.0
    return known[0], saved, f"Workers save {part} of a step without its wait for a CPU."


def _awaited(facts: Facts) -> Draft | None:
    """Return the finding for a training in a coroutine, whose event loop waits; None: it does not.

    It waits for nothing but what the training awaits: any other coroutine could run.
    """
    keys = facts.report.view.keys
    if not facts.steps or not any(key.qualname == "BaseEventLoop._run_once" for key in keys):
        return None
    ms = facts.use("event-loop").places.get(UNACCOUNTED, 0.0)
    draft = share_draft(
        facts, LIMITS["data-share"], ms,
        rule="data-loading",
        title="Training awaits its data, or another coroutine, for {share} of the step",
        evidence=(
            f"asyncio's event loop waits {span_text(ms, facts)}: no coroutine can go on.",
        ),
        fix=(
            ("Request the next batches before the step that comes first: a task "
            "(asyncio.create_task) that puts them into an asyncio.Queue of a few batches."),
            ("A step blocks the event loop, so other coroutines stand still meanwhile: if they do "
            "more than wait, run the step by `await asyncio.to_thread(step, batch)`."),
        ),
        claims={"unaccounted": ms, "lock-contention": ms},
        on_host=True,
    )  # fmt: skip
    return None if draft is None else replace(draft, promises=False)


def _most(severity: str | None) -> str | None:
    return severity if severity == "critical" else None


def _batch_ms(ms: float, rows: list[tuple[LoaderRow, WorkerRow]]) -> float:
    """Return the time of making a batch: ``ms``, if no loader tells it."""
    return max((w.load_ms for _, w in rows if w.load_ms is not None), default=ms)


def _waits(facts: Facts) -> bool:
    """Return whether the training thread mostly waits while it gets batches."""
    rows = [row for row in facts.inside("data") if row[0].kind in ("python", "c")]
    total = sum(ms for _, ms, _ in rows)
    return sum(ms for key, ms, _ in rows if WAITS(key)) > total / 2


def _corrected(facts: Facts, ms: float) -> float:
    """Return the part of the loop's own loading that remains of ``ms`` per step without fastprof.

    The loaders' times are as measured, and of all passes over them, not of the steps alone.
    Where plain steps are shown, the loaders' times are those of these.
    """
    if facts.report.plain is not None:
        return 1.0
    view = facts.report.view
    recorded = sections_as_recorded(view)
    measured = sum(recorded.get(name, 0) for name in DATA) / 1e6 / max(1, view.steps.measured)
    return min(1.0, ms / measured) if measured else 1.0


def _loader_text(row: LoaderRow, w: WorkerRow, part: float) -> str:
    """Return the state of one loader: who loads, how long, and whether the loop waits."""
    name = called(row.name, row.split)
    if not w.workers:
        if w.load_ms is None:
            return ""
        return (
            f"{name} has no workers: the loop makes its batches, {duration(part * w.load_ms)} each."
        )
    asked = w.ready + w.blocked
    load = "" if w.load_ms is None else f", each takes {duration(w.load_ms)} for a batch"
    return (
        f"{name} has {plural(w.workers, 'worker')}{load}; the loop waited for "
        f"{counted(w.blocked)} of {plural(asked, 'batch')}."
    )


def _limit_text(found: Loading, facts: Facts, little: str) -> str:
    """Return the number of workers that keep up, and their CPUs; ``little``: their saving."""
    if not found.has_loader or found.needed <= found.have:
        return ""
    text = f"To keep up, you need {plural(found.needed, 'worker')}"
    own, used = facts.own_cpus, facts.cpus_used or 0.0
    if own is None or (found.advised or 0) >= found.needed:
        return little or f"{text}."
    cpus, shared = plural(own, "CPU"), facts.ranks_on_cpus > 1
    if own > 1 and own - used < _FREE_CPUS:
        if shared:
            return (
                f"{text}, but this rank already uses {plural(used, 'CPU')}, and its part of the "
                f"machine is {cpus}."
            )
        return f"{text}, but the program already uses {number(used)} of the {cpus}."
    if facts.crowded:
        return f"{text}, but other programs have the CPUs of this machine."
    if little:
        return little
    if shared:
        return f"{text}, but this rank's part of the machine is {cpus}, and training needs one."
    return f"{text}, but the program may use only {cpus}, and training needs one."


def _content(facts: Facts, found: Loading, hot: Hot | None, ms: float) -> str:
    """Return the kind of work that takes the time: it determines the fix."""
    if found.have:
        # The training process waits for workers; their work is known only if it was recorded.
        if hot is None:
            return ""
        text = f"The workers spend {hot.part} of their time in {where(hot.key)}."
        lines = line_text(facts, hot)
        return f"{text} {lines}" if lines else text
    rows = [row for row in facts.inside("data") if row[0].kind in ("python", "c")]
    total = sum(own for _, own, _ in rows)
    if total <= 0:
        return ""
    waiting = sum(own for key, own, _ in rows if WAITS(key))
    named = "" if hot is None else " " + parts_text(
        facts, hot, hot.share * ms, " per step" if facts.per == "step" else " in total"
    )  # fmt: skip
    if waiting > total / 2:
        return (
            f"{percent(waiting / total)} of it is waiting for files, the network or sleep: the CPU "
            f"is not the limit.{named}"
        )
    return f"{percent(1 - waiting / total)} of it is computing: preprocessing is the limit.{named}"


def worker_shutdown(facts: Facts) -> Draft | None:
    """Time until worker processes have ended, per step of the run."""
    need_sample(facts)
    use = facts.over_run("shutdown")
    watched = [(row, row.workers) for row in facts.report.loaders if row.workers]
    seen = sum((w.shutdown_ms or 0.0) * w.shutdowns for _, w in watched)
    times = sum(w.shutdowns for _, w in watched) if watched else 2 * bool(use.total_ms)
    total = max(use.total_ms, seen)
    group = "shutdown"
    if not total and not facts.over_run("data").ms and facts.over_run("loader-workers").total_ms:
        # Without the name: in a program with loaders, waiting for a process is a poll.
        poll = facts.over_run("poll")
        if poll.total_ms >= _JOIN_MS:
            total, times, group = poll.total_ms, 1, "poll"
    if not total:
        if not facts.has_functions and not watched:
            raise Abstain("neither functions nor a loader of torch's were recorded")
        return None
    if total < _JOIN_MS and times < 2:
        return None
    name = "poll()" if group == "poll" else "_shutdown_workers"
    kept = bool(watched) and all(w.persistent for _, w in watched if w.shutdowns)
    draft = share_draft(
        facts, _floor(facts, total, _JOIN_MS), _per_span(facts, total),
        rule="worker-shutdown",
        title=f"DataLoader workers are shut down for {number(total / 1e3)} s: {_as_long(facts)}",
        evidence=(
            (f"{duration(total)} in {name}: torch waits up to 5 s for each worker to end, after "
            "each epoch unless the workers are kept."),
            called_from(facts.over_run(group), facts),
        ),
        fix=_BUILD_ONCE if kept else (),
        claims={"data-loading": facts.use("shutdown").shared.get("data", 0.0)},
        beside=True,
    )  # fmt: skip
    if draft is None or draft.ms is None or not watched or total > _JOIN_MS * times:
        return draft
    # The workers of the last pass are shut down in any case.
    return draft.saving(draft.ms * (times - 1) / times, of=draft.ms)


_BUILD_ONCE = (
    ("Build the DataLoader once, before the loop: persistent_workers is on, but each new loader "
    "starts new workers."),
)  # fmt: skip


def _as_long(facts: Facts) -> str:
    """Return text that compares a time outside of steps with theirs; see ``{share}``."""
    return "as long as {share} of the " + ("steps" if facts.steps else "run")


def _per_span(facts: Facts, total_ms: float) -> float:
    """Return a time of the whole recording, spread over its steps."""
    return total_ms / facts.report.steps.count if facts.steps else total_ms


def _floor(facts: Facts, total_ms: float, enough_ms: float) -> Limit:
    """Return the overhead limit; ``enough_ms`` of a run exceed it in any case."""
    if total_ms < enough_ms:
        return _OVERHEAD
    share = facts.share(_per_span(facts, total_ms))
    return Limit(
        _OVERHEAD.metric, "%", None, min(0.05, share * 0.99), 0.15,
        f"{_OVERHEAD.origin}, or {enough_ms / 1e3:g} s of a run",
    )  # fmt: skip


def loader_recreated(facts: Facts) -> Draft | None:
    """Time to restart workers: starts, slow first batches and shutdowns.

    A first batch counts with its time beyond the load time of any batch.
    """
    need_sample(facts)
    watched = [(row, row.workers) for row in facts.report.loaders if row.workers]
    if not watched:
        raise Abstain("no loader of torch's was watched")
    costs = [(row, w, *_starting(w)) for row, w in watched if w.starts >= 2 and w.workers]
    if not costs:
        return None
    total = sum(outside + first for _, _, outside, first in costs)
    shutdown = sum((w.shutdown_ms or 0.0) * (w.shutdowns - 1) for _, w, *_ in costs)
    if shutdown > total / 2:  # then the other rule describes it better
        total, shutdown = total - shutdown, 0.0
    costs.sort(key=lambda cost: -sum(cost[2:]))
    again = sum(w.starts - 1 for _, w, _, _ in costs)
    in_data = _per_span(facts, sum(first for *_, first in costs))
    if shutdown:  # done by the last next() of a pass
        in_data += facts.use("shutdown").shared.get("data", 0.0)
    return share_draft(
        facts, _OVERHEAD, _per_span(facts, total),
        rule="loader-recreated",
        title=f"Worker processes are started again {plural(again, 'time')}: {_as_long(facts)}",
        evidence=tuple(_start_text(row, w) for row, w, _, _ in costs),
        fix=_BUILD_ONCE if all(w.persistent for _, w, _, _ in costs) else (),
        claims={
            "data-loading": in_data,
            "worker-shutdown": _per_span(facts, shutdown),
        },
        beside=True,
    )  # fmt: skip


def _starting(w: WorkerRow) -> tuple[float, float]:
    """Return the time of starts and shutdowns, and of first batches, except one of each."""
    again = 1 - 1 / w.starts
    outside = (w.start_ms or 0.0) * w.starts + (w.shutdown_ms or 0.0) * w.shutdowns
    first = max(0.0, (w.first_ms or 0.0) - (w.load_ms or 0.0)) * w.passes
    return outside * again, first * again


def _start_text(row: LoaderRow, w: WorkerRow) -> str:
    def ms(value: float | None) -> str:
        return "n/a" if value is None else duration(value)

    kept = "" if w.persistent else ", persistent_workers is off"
    return (
        f"{called(row.name, row.split)} started {plural(w.workers, 'worker')} {w.starts} times in "
        f"{plural(w.passes, 'pass')}{kept}; a start takes {ms(w.start_ms)}, the first batch "
        f"{ms(w.first_ms)}, a shutdown {ms(w.shutdown_ms)}."
    )


def token_counting(facts: Facts) -> Draft | None:
    """Time in functions that count tokens by iterating over the loader, per step."""
    need_functions(facts)
    use = facts.over_run("tokens")
    of_loader = use.shared.get("data", 0.0)
    if not use.total_ms or (facts.report.has_tree and of_loader < use.ms / 2):
        return None  # a function of that name that reads no batches
    return share_draft(
        facts, _floor(facts, use.total_ms, _TOKENS_MS), _per_span(facts, use.total_ms),
        rule="token-counting",
        title=f"Tokens are counted for {number(use.total_ms / 1e3)} s: {_as_long(facts)}",
        evidence=(
            f"{duration(use.total_ms)} in num_tokens: it iterates over the whole loader.",
            called_from(use, facts),
        ),
        claims={"data-loading": facts.use("tokens").shared.get("data", 0.0)},
        beside=True,
    )  # fmt: skip


def sampler_time(facts: Facts) -> Draft | None:
    """Time of samplers and bucketing in the training process: cached indices take none."""
    need_functions(facts)
    need_steps(facts)
    use = facts.use("sampler")
    if not use.ms:
        return None
    hot = facts.hot_in("sampler")
    own = "" if hot is None or not is_users(hot.key) else where(hot.key)
    return share_draft(
        facts, _OVERHEAD, use.ms,
        rule="sampler-time",
        title="Choosing the samples takes {share} of the step",
        evidence=(
            f"Samplers and bucketing take {span_text(use.ms, facts)} in the training process.",
            f"Most of it is in {own}." if own else callers(facts, "sampler"),
        ),
        fix=(
            f"Make {own} cheaper, or cache the indices that it yields.",
            "A sampler runs in the training process even with workers.",
        ) if own else (),
        group="sampler", on_host=True,
    )  # fmt: skip


def batch_receiving(facts: Facts) -> Draft | None:
    """Time in which the loop receives batches that its workers have ready.

    A note if nothing is known to make it faster.
    """
    need_sample(facts)
    rows = [(row, w) for row in train_loaders(facts) if (w := row.workers) and w.ready_ms]
    if not any_workers(facts.report.loaders):
        raise Abstain("no loader with workers was watched")
    if not rows or not facts.steps:
        return None
    found = receiving(facts, rows)
    limit = LIMITS["data-share"]
    waits = facts.cpu_waits
    if waits.matter and limit.grade(found.span_ms / waits.running_ms) is not None:
        # A worker must answer, and how long it waits for a CPU is not known.
        raise Uncertain("a worker may have had no CPU to send its batch")
    fix = receiving_fix(facts, found)
    ms, stalled = while_idle(facts, found.span_ms)
    saved = min(receiving_saves(found), ms)
    helps = bool(fix) and limit.grade(facts.share(saved)) is not None
    # Otherwise the step is just faster than the transfer of its batches.
    if not helps and capped(limit.grade(facts.share(ms)), facts) in (None, "note"):
        return None
    draft = share_draft(
        facts, limit, ms,
        rule="batch-receiving",
        title="Receiving batches from workers takes {share} of the step",
        value=facts.share(found.span_ms),
        evidence=(
            " ".join((*(_ready_text(row, w) for row, w in rows), _connecting(found))).strip(),
            stalled,
            _worker_load(found, rows),
        ),
        fix=fix if helps else (_SMALLER,),
        sections=DATA,
        places={name: found.span_ms for name in facts.rows if name in DATA},
        # That rule is about batches that were not ready.
        claims={"data-loading": 0.0},
        on_host=True,
    )  # fmt: skip
    if draft is not None and not helps:
        return replace(draft, severity="note", grade=None)
    return None if draft is None else draft.saving(saved, of=ms)


#: A fix that may help if no certain one is known.
_SMALLER = "Fewer tensors in a batch, or fewer bytes (uint8 for float32), are quicker to receive."


def _ready_text(row: LoaderRow, w: WorkerRow) -> str:
    return (
        f"{called(row.name, row.split)} had {counted(w.ready)} of "
        f"{plural(w.ready + w.blocked, 'batch')} "
        f"ready, and the training process takes {duration(w.ready_ms or 0.0)} to receive one."
    )


def _connecting(found: Receiving) -> str:
    """Return a sentence on the function that receives batches, if it is known."""
    if found.function is None or not found.connect_ms:
        return ""
    each = f"each of the {counted(found.tensors)} tensors" if found.tensors >= 1.5 else "the tensor"
    return (
        f"{where(found.function)} takes {duration(found.connect_ms)} of it: it opens a connection "
        f"to the worker for {each} of a batch."
    )


def _worker_load(found: Receiving, rows: list[tuple[LoaderRow, WorkerRow]]) -> str:
    """Return a sentence on the time of loading, if it is known."""
    if found.load_ms is None:
        return ""
    exact = any(w.load_ms == found.load_ms for _, w in rows)
    return f"A worker loads a batch in {'' if exact else 'less than '}{duration(found.load_ms)}."


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "loader-recreated", "new workers in each epoch", loader_recreated,
        order=20, knows_waits=True,
        fixes={
            "torch": (
                ("Build the DataLoader once, before the loop over epochs, with "
                "persistent_workers=True."),
                "Keep the imports and data of a worker small; fork starts faster than spawn.",
            ),
            "lightning": (
                ("DataLoader(persistent_workers=True): the one that fit() is given or that "
                "train_dataloader() returns. Trainer(reload_dataloaders_every_n_epochs=...) must "
                "be 0, its default."),
            ),
            "transformers": (f"{HF}(dataloader_persistent_workers=True).",),
        },
    ),
    Rule(
        "worker-shutdown", "waiting for workers to exit", worker_shutdown,
        order=30, knows_waits=True,
        fixes={
            "torch": (
                "DataLoader(persistent_workers=True): the workers stay for the next epoch.",
                ("torch waits 5 s for a worker that does not exit: close files and threads of the "
                "dataset."),
            ),
            "transformers": (
                f"{HF}(dataloader_persistent_workers=True): the workers stay for the next epoch.",
            ),
        },
    ),
    Rule(
        "token-counting", "counting tokens", token_counting, order=40,
        fixes={
            "torch": (
                "Do not count tokens by iterating over the loader; count in the collator.",
                "With oumi: include_performance_metrics: false.",
            ),
            "transformers": (
                (f'{HF}(include_num_input_tokens_seen="no"); before release 5 also '
                "include_tokens_per_second=False."),
                "With oumi: include_performance_metrics: false.",
            ),
        },
    ),
    Rule(
        "sampler-time", "the sampler's time", sampler_time, order=50,
        fixes={
            "torch": (
                ("Sort and bucket once and cache the sorted indices; make the collate function "
                "cheaper."),
                "A sampler runs in the training process even with workers.",
            ),
            "transformers": (
                (f'{HF}(train_sampling_strategy="group_by_length") needs a precomputed column of '
                "lengths; cache the sorted indices of a sampler of your own."),
            ),
        },
    ),
    Rule(
        "batch-receiving", "receiving batches", batch_receiving, order=60,
    ),
    Rule(
        "data-loading", "data loading", data_loading, order=190,
    ),
)  # fmt: skip
