"""Rules about the training thread's other work: logging, saving, collecting garbage, waiting."""

from collections.abc import Mapping
from dataclasses import replace

from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    called_from,
    callers,
    need_steps,
    percent,
    sentences,
    share_draft,
    span_text,
    split_places,
    while_idle,
)
from fastprof.findings.fixes import HF, Fixes, fixes
from fastprof.findings.function_groups import CHECKPOINT, LOGGING
from fastprof.findings.hot_texts import parts_text
from fastprof.findings.measurements import Facts
from fastprof.findings.rules.beside import less_of
from fastprof.findings.thresholds import LIMITS, MIN_TIMES, OWN, Limit
from fastprof.findings.uses import Caller, where
from fastprof.names import readable
from fastprof.report.figures import counted, duration, plural

_COLLECTIONS = Limit(
    "share of garbage collection", "%", None, 0.03, 0.10,
    f"{OWN}: torchtitan saw 1.5 % and moved collections to shared steps",
)  # fmt: skip
CHECKPOINT_FIXES: Fixes = {
    "torch": (
        ("Save every few hundred steps or minutes; torch.distributed.checkpoint.async_save "
        "writes in the background."),
    ),
    "lightning": (
        ("ModelCheckpoint(every_n_train_steps=500) or train_time_interval=; "
        "AsyncCheckpointIO() writes in the background."),
    ),
    "transformers": (
        f'{HF}(save_strategy="steps", save_steps=500).',
    ),
    "accelerate": ("Call accelerator.save_state() every few hundred steps.",),
}  # fmt: skip

_LOGGING_FIXES: Fixes = {
    "torch": (
        ("Log every 100 steps, not in every step; write files from another thread "
        "(logging.handlers.QueueHandler), and do not flush each line."),
        "Switch W&B off while profiling.",
    ),
    "lightning": (
        ("Call self.log() in every 50th training_step, not in each: it takes time even if "
        "Trainer(log_every_n_steps=...) writes nothing. Check the callbacks' work per "
        "batch."),
    ),
    "transformers": (
        f'{HF}(logging_steps=100), report_to="none" while profiling.',
    ),
}  # fmt: skip

_OVERHEAD = LIMITS["overhead-share"]


def logging_share(facts: Facts) -> Draft | None:
    """Time of logging, callbacks, metrics and of writing files, except checkpoints and data."""
    need_steps(facts)
    use = facts.use("logging")
    phase = facts.phase("logging")
    if not facts.has_functions and phase is None:
        raise Abstain("no section logging or callbacks ran, and functions were not recorded")
    ms = max(use.ms - use.shared.get("checkpoint", 0.0) - use.shared.get("data", 0.0), 0.0)
    ms = max(ms, phase or 0.0)
    times = use.calls * facts.steps if use.calls else facts.section_count(LOGGING)
    if times < MIN_TIMES and _OVERHEAD.grade(facts.share(ms - facts.worst_ms)) is None:
        # The disk was busy once: logging less often would not help.
        return None
    rare = 0 < use.calls < _RARE_LOGS
    draft = share_draft(
        facts, _OVERHEAD, ms,
        rule="logging-share",
        title="Logging takes {share} of the step",
        evidence=(
            (f"Logging, callbacks and writing files take {span_text(ms, facts)} in the training "
            f"thread ({plural(use.calls, 'call')} per {facts.per})."),
            callers(facts, "logging"),
        ),
        fix=_LESS_LOGGING if rare else (),
        group="logging", sections=LOGGING, on_host=True,
    )  # fmt: skip
    if draft is None or not _other_callbacks(facts, ms):
        return draft if draft is None or not rare else replace(draft, promises=False)
    hot = facts.hot_in_section(_CALLBACKS)[0]
    if hot is None:  # functions were not recorded
        return replace(
            draft, title=draft.title.replace("Logging takes", "Logging and callbacks take")
        )
    inside = facts.rows[_CALLBACKS]
    part = f"{percent(facts.share(inside))} of the step, {hot.part} of it in {where(hot.key)}"
    logs_too = _OVERHEAD.grade(facts.share(ms - inside)) is not None
    return replace(
        draft,
        value=draft.value if logs_too else 100 * facts.share(inside),
        title=f"{draft.title}, callbacks {part}" if logs_too else f"Callbacks take {part}",
        evidence=sentences(
            parts_text(facts, hot, hot.share * inside, " per step"),
            *(draft.evidence if logs_too else draft.evidence[1:]),
        ),
        fix=(*less_of(facts, hot), *(fixes(_LOGGING_FIXES, facts.framework) if logs_too else ())),
        promises=False,  # how much less of it the training needs is unknown
    )


def _other_callbacks(facts: Facts, ms: float) -> bool:
    """Return whether most of the time is callbacks that are not known to log."""
    logs = facts.use("log-calls").places.get(_CALLBACKS, 0.0)
    return facts.rows.get(_CALLBACKS, 0.0) - logs > ms / 2


#: The section that integrations open around a trainer's callbacks.
_CALLBACKS = "callbacks"
#: With fewer calls per step, a program logs as rarely as the rule advises.
_RARE_LOGS = 0.02
_LESS_LOGGING = (
    "Log less at a time, or write from another thread (logging.handlers.QueueHandler).",
)

#: Checkpoints among which one may be at the end, and one from the first epoch.
_FEW_SAVES = 3
#: From this many steps between two saves on, they are as rare as the rule advises.
_RARE_SAVES = 200
_LESS_SAVING = (
    ("Save less often, or less: only what is needed to go on. torch.distributed.checkpoint"
     ".async_save writes in the background, as does Lightning's AsyncCheckpointIO()."),
)  # fmt: skip
#: At least this many per step count as one in each: the last step may end without one.
_EVERY_STEP = 0.9
#: A smaller part of a checkpoint's time is not mentioned.
_PART = 0.05


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
    calls = use.calls if use.ms else facts.section_rate(CHECKPOINT)
    # The run's phase counts several files of one checkpoint once.
    calls = times if times and beside > ms / 2 else max(calls, times)
    if calls and calls * facts.counted < _FEW_SAVES:
        return None  # one at the end, for example: how often a longer run saves is unknown
    inside, stalled = while_idle(facts, ms - beside)
    often, each = "now and then", span_text(ms, facts)
    if calls:
        often = (
            "every step" if calls > _EVERY_STEP else
            "in most steps" if round(1 / calls) < 2 else
            f"{'' if (1 / calls).is_integer() else 'about '}every {1 / calls:.0f} steps"
        )  # fmt: skip
        each = f"{duration(beside / times if times else ms / calls)} each"
        if times and ms - beside >= _PART * ms:
            each += f" outside of the steps, and {span_text(ms - beside, facts)} in them"
    rare = 0 < calls * _RARE_SAVES <= 1
    draft = share_draft(
        facts, _OVERHEAD, inside + beside,
        rule="checkpoint-often",
        title=f"Checkpoints are saved {often}: "
        + (f"as long as {{share}} of the {facts.per}s" if beside else "{share} of the step"),
        value=facts.share(ms),
        evidence=(f"Saved {often}, {each}.", stalled, callers(facts, "checkpoint")
                  or called_from(facts.over_run("checkpoint"), facts)),
        fix=_LESS_SAVING if rare else (),
        group="checkpoint", sections=CHECKPOINT, beside=beside > ms / 2,
    )  # fmt: skip
    if draft is None:
        return None
    return replace(draft, promises=not rare, on_host=not beside)


def gc_pressure(facts: Facts) -> Draft | None:
    """Time of garbage collections in the training thread, automatic or explicit."""
    need_steps(facts)
    use = facts.use("gc")
    series = facts.report.shown_steps.series.gc_ms
    known = facts.split.get("gc", sum(series) / len(series) if series else None)
    if known is None and not facts.has_functions:
        raise Abstain("garbage collections were not recorded")
    ms = use.ms if known is None else known
    longest = max(series) / len(series) if series else 0.0
    if _COLLECTIONS.grade(facts.share(ms - longest)) is None:
        return None  # one long collection is an event, and no time of each step
    runs = facts.report.shown_steps.gc_runs
    told = (
        f"Collections in the measured steps: {', '.join(str(n) for n in runs)} of generation "
        f"0, 1 and 2; {span_text(ms, facts)}."
        if any(runs)
        else f"Collections take {span_text(ms, facts)}."
    )
    asked = callers(facts, "gc")
    return share_draft(
        facts, _COLLECTIONS, ms,
        rule="gc-pressure",
        title="Garbage collection takes {share} of the step",
        evidence=(
            told,
            f"{counted(use.calls)} gc.collect() per {facts.per}. {asked}" if asked else "",
            split_places(facts, "gc"),
        ),
        group="gc" if use.ms >= ms / 2 else None,
        places=facts.split_by_section("gc"), on_host=True,
    )  # fmt: skip


def lock_contention(facts: Facts) -> Draft | None:
    """Time in which the training thread waits for a lock that another thread holds.

    Waits inside of data loading belong to that rule. An interpreter does not report the begin of
    `with lock:` to a profiler, only its end: the own time of a function with such an end counts if
    it is above 1 ms per call, up to the time that the thread was off the CPU for no other reason.
    """
    need_steps(facts)
    use = facts.use("lock")
    acquired = max(use.ms - use.shared.get("data", 0.0) - use.shared.get("logging", 0.0), 0.0)
    known = facts.split.get("lock")
    if known is None and not facts.has_functions:
        raise Abstain("waits for locks were not recorded: functions are off")
    behind = _behind_with(facts)
    ends = facts.use("unlock")
    # Handing over in logging or loading belongs to those rules, as a wait in acquire() does.
    handing = sum(ends.calls_within.get(group, 0.0) for group in ("data", "logging"))
    waited = sum(c.own_ms for c in behind) * (1.0 - min(1.0, handing / max(1.0, ends.calls)))
    if facts.split:
        waited = min(waited, facts.split.get("other", 0.0))
    ms = acquired if known is None else known
    if use.ms:  # the split's waits are also those of these rules
        ms = min(ms, acquired)
    ms += waited
    others = [t for t in facts.report.threads if facts.thread and t.ident != facts.thread.ident]
    busy = sorted(others, key=lambda t: -t.total_ms)[:2]
    named = "; ".join(
        f"{readable(t.name, 60)} (most in {readable(t.functions[0].qualname, 60)})"
        for t in busy
        if t.functions
    )
    # A queue or a future that has nothing yet: nobody holds the lock.
    handed = use.shared.get("handover", 0.0) > acquired / 2 and acquired >= ms / 2
    draft = share_draft(
        facts, _OVERHEAD, ms,
        rule="lock-contention",
        title="The training thread waits for another thread {share} of the step" if handed
        else "The training thread waits for a lock {share} of the step",
        fix=_HANDED if handed else (),
        evidence=(
            (f"It waits for {span_text(ms, facts)} in a queue, an event or a future." if handed
             else f"Waiting for locks takes {span_text(ms, facts)}."),
            *(
                f"At the `with lock:` of {c.text} it seems to wait for "
                f"{span_text(c.own_ms, facts)}."
                for c in behind[:3]
            ),
            callers(facts, "lock") or split_places(facts, "lock"),
            f"Other threads: {named}." if named else "",
        ),
        group="lock" if acquired >= ms / 2 else None,
        places=_waits_by_section(facts, waited), on_host=True,
    )  # fmt: skip
    return None if draft is None else replace(draft, promises=not handed)


_HANDED = (
    "Make the other thread's work cheaper, or share it among several threads or processes.",
    "Let it begin the next item while this thread computes: use a queue that holds several.",
)


def _waits_by_section(facts: Facts, behind_with: float) -> Mapping[str, float]:
    """Return the time at locks by outermost section; a `with lock:` counts where it ends."""
    rows = dict(facts.split_by_section("lock"))
    ends = facts.use("unlock").places
    whole = sum(ends.values())
    for name, ms in ends.items():
        rows[name] = rows.get(name, 0.0) + (behind_with * ms / whole if whole else 0.0)
    return rows


#: From this own time per call on, a function with a `with lock:` waits there.
_WITH_LOCK_MS = 1.0


def _behind_with(facts: Facts) -> list[Caller]:
    """Return functions that seem to wait at a `with lock:`, longest first; needs a split."""
    if not facts.split:
        return []
    found = facts.use("unlock").callers
    waiting = [c for c in found if c.calls and c.own_ms > _WITH_LOCK_MS * c.calls]
    return sorted(waiting, key=lambda c: -c.own_ms)


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "checkpoint-often", "saving checkpoints", checkpoint_often, order=70,
        fixes=CHECKPOINT_FIXES,
    ),
    Rule(
        "gc-pressure", "garbage collection", gc_pressure, order=80, limits=(_COLLECTIONS,),
        fixes={
            "torch": (
                ("gc.collect(); gc.freeze() after the model is built: later collections skip the "
                "objects that exist then."),
                ("gc.disable() in the loop and gc.collect(1) every few hundred steps (in "
                "distributed runs at the same steps on all ranks), or gc.set_threshold(50_000, 20, "
                "20)."),
                "Create fewer containers per step; do not keep graphs or lists of Python objects.",
            ),
        },
    ),
    Rule(
        "lock-contention", "waiting for locks", lock_contention, order=90, knows_waits=True,
        fixes={
            "torch": (
                ("Hold the lock for a shorter time: copy the data, release the lock, then work on "
                "the copy; or hand the data over with queue.SimpleQueue."),
                "Move pure Python work from threads to a process: threads share the interpreter.",
            ),
        },
    ),
    Rule(
        "logging-share", "logging", logging_share, order=160,
        fixes=_LOGGING_FIXES,
    ),
)  # fmt: skip
