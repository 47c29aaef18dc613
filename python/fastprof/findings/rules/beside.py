"""Rules about a step's time outside of its phases: in no section, or in one of the program's."""

from collections.abc import Sequence
from dataclasses import replace

from fastprof.findings.draft import (
    Abstain,
    Draft,
    Rule,
    need_steps,
    percent,
    share_draft,
    span_text,
    while_idle,
)
from fastprof.findings.fixes import HF, Fixes, fixes
from fastprof.findings.function_groups import BACKWARD, FORWARD
from fastprof.findings.hot_functions import Hot
from fastprof.findings.hot_texts import calls_text, parts_text, top_calls
from fastprof.findings.measurements import Facts
from fastprof.findings.places import KNOWN
from fastprof.findings.thresholds import OWN, Limit
from fastprof.findings.uses import where
from fastprof.names import readable
from fastprof.report.figures import duration, plural
from fastprof.report.rows import UNACCOUNTED
from fastprof.snapshot import Key

_LIMIT = Limit(
    "share of the step in no phase", "%", None, 0.25, None,
    f"{OWN}: a quarter (TraceML: 10 and 20 % for time in no phase)",
)  # fmt: skip
_VALIDATION = Limit(
    "validation's share of the steps and itself", "%", None, 0.30, None,
    f"{OWN}: the same as the critical one for loading data",
)  # fmt: skip
_UNACCOUNTED_FIXES: Fixes = {
    "torch": (
        ("Use fewer callbacks, less logging, or larger batches: the trainer does this work for "
        "each batch, whatever its size."),
    ),
    "lightning": (
        ("Lightning does this work for each batch, whatever its size: use fewer callbacks and "
        "self.log() calls, or larger batches. Trainer(barebones=True) shows the step without "
        "callbacks, loggers and the progress bar."),
    ),
    "transformers": (
        (f"The Trainer does this work for each batch, whatever its size: {HF}("
        'report_to="none", disable_tqdm=True), fewer callbacks, or a larger '
        "per_device_train_batch_size."),
    ),
}  # fmt: skip

#: A larger part counts as most of it.
_MOST = 0.5
#: A larger share of the step is reported if it is left out.
_SAID = 0.01
#: One may be a check before the training, another the last one.
_REPEATED = 3
#: At most this many of a trainer's functions are named.
_FUNCTIONS = 3
_UNKNOWN = "Record functions as well: then this finding names the function that takes it."


def unaccounted(facts: Facts) -> Draft | None:
    """Time of the step in no section; the most that can be saved is its hottest function's time.

    On a GPU it counts only the time in which the GPU is idle.
    """
    need_steps(facts)
    row = facts.rows.get(UNACCOUNTED)
    if row is None or len(facts.rows) < 2:
        raise Abstain("no section ran in the measured steps")
    if not any(name in FORWARD | BACKWARD for name in facts.rows) and facts.use("autograd").calls:
        return _no_phases(facts, row)
    hot = facts.hot_outside
    left_out = row * facts.left_out_outside
    known = facts.own_costs.get(UNACCOUNTED, 0.0)  # the row is without it
    ours = max(0.0, (row + known) * facts.ours_outside - known)
    row -= left_out + ours
    ms, stalled = while_idle(facts, row)
    theirs = min(ms, facts.free_ms)
    trainers = facts.trainer_outside if hot is None else ()
    if sum(part for _, part in trainers) <= _MOST:
        trainers = ()
    ours_seen = facts.share(ours) >= _SAID
    draft = share_draft(
        facts, _LIMIT, ms,
        rule="unaccounted",
        title="{share} of the step is in no phase"
        + (f", most of it in {facts.framework}'s own functions" if trainers else "")
        + _mostly(facts, hot)
        + (f" ({percent(facts.share(row + ours))} with fastprof's own time)" if ours_seen else ""),
        value=facts.share(row),
        evidence=(
            (f"It is neither data, forward, backward, optimizer nor another section: "
            f"{span_text(row, facts)}."),
            _left_out(facts, left_out),
            "" if not ours_seen else (
                f"Another {span_text(ours, facts)} there is fastprof's own work and its waits."
            ),
            stalled,
            _of_trainer(facts, trainers, theirs),
            "" if hot is None else parts_text(facts, hot, hot.share * theirs, " per step"),
            calls_text(hot, theirs) if hot is not None and facts.is_loop(hot.key) else "",
        ),
        on_host=True,
        fix=fixes(_UNACCOUNTED_FIXES, facts.framework) if trainers else (
            (_UNKNOWN if not facts.has_functions else
             'Put its parts into sections (profile_section("name")), to see which takes it.',)
            if hot is None else less_of(facts, hot)
        ),
        sections=frozenset({UNACCOUNTED}),
    )  # fmt: skip
    if draft is None:
        return None
    if hot is None:  # nothing to look at: many functions have a little of it
        return replace(draft, severity="note") if facts.has_functions else draft
    if facts.forward_outside is not None:
        fix = _in_a_section(hot.key, itself=facts.forward_outside.itself)
        return replace(draft, severity="note", promises=False, fix=(fix,))
    # How much less often the loop could call it is unknown, and a GPU keeps its own work.
    promises = not facts.is_loop(hot.key) and not facts.hidden_gpu
    return replace(draft.saving(hot.share * theirs, of=ms), promises=promises)


def _in_a_section(key: Key, *, itself: bool) -> str:
    """Return how a forward pass in no section gets one: training needs it as often as it runs."""
    if itself:
        return (
            f"The program calls {where(key)} itself, so this forward pass is in no section: call "
            'the module instead, as in layer(x), or put it into profile_section("forward").'
        )
    return (
        f"{where(key)} is a forward pass in no section: put its call into "
        'profile_section("forward").'
    )


def _of_trainer(facts: Facts, trainers: Sequence[tuple[Key, float]], ms: float) -> str:
    """Return which of the trainer's functions have most of ``ms``."""
    if not trainers:
        return ""
    named = ", ".join(f"{where(key)} {duration(part * ms)}" for key, part in trainers[:_FUNCTIONS])
    return f"Most of {plural(len(trainers), 'function')}: {named} per step."


def _left_out(facts: Facts, ms: float) -> str:
    """Return the rest of the time in no phase, which the table of steps has as well."""
    if facts.share(ms) < _SAID:
        return ""
    waits = ", or waits for other ranks" if facts.ranks > 1 else ""
    return f"Another {span_text(ms, facts)} there are imports{waits}."


def _no_phases(facts: Facts, ms: float) -> Draft | None:
    """Return the finding for a loop that trains, and whose forward and backward have no section."""
    draft = share_draft(
        facts, _LIMIT, ms,
        rule="unaccounted",
        title="{share} of the step is in no section: forward and backward have none",
        evidence=("So the report has no times for the phases of a step.",),
        fix=(
            ("Put `with fastprof.integrations.torch_loop.attach(profiler):` around the loop: it "
            'opens the sections. Or open them yourself: `with profile_section("forward"):`.'),
        ),
        sections=frozenset({UNACCOUNTED}),
    )  # fmt: skip
    return None if draft is None else replace(draft, promises=False)


def validation_share(facts: Facts) -> Draft | None:
    """Validation's share of the steps and itself, if it ran at least three times.

    How often the training needs it is not known, so nothing is promised.
    """
    need_steps(facts)
    ms, entries = facts.run_phase("validation")
    count = facts.report.steps.count
    times = round(entries * count)
    if times < _REPEATED:
        return None
    share, limit = ms / (ms + facts.span_ms), _VALIDATION
    if limit.grade(share) is None:
        return None
    return Draft(
        value=100 * share, unit="%",
        title=f"Validation takes {percent(share)} of the training time",
        severity="warning", threshold=limit.text("warning"), source=limit.origin,
        evidence=(
            (f"It ran {plural(times, 'time')}, {duration(ms * count / times)} each; the steps "
            f"between two validations take {duration(facts.span_ms * count / times)}."),
        ),
        ms=ms, promises=False, beside=True,
    )  # fmt: skip


def own_section(facts: Facts) -> Draft | None:
    """Time of the program's largest section outside forward and backward.

    Excludes the phases of a step within it. No finding if torch takes most of the rest: a loss is a
    part of training. On a GPU it counts only the time in which the GPU is idle.
    """
    need_steps(facts)
    if not any(row in FORWARD | BACKWARD for row in facts.rows):
        raise Abstain("neither a forward nor a backward section ran")
    rows = {
        name: ms
        for name, ms in facts.rows.items()
        if name not in KNOWN and not name.startswith("(")
    }
    for name in sorted(rows, key=lambda row: -rows[row]):
        if _LIMIT.grade(facts.share(rows[name])) is None:
            break
        draft = _own(facts, name, rows[name])
        if draft is not None:
            return draft
    return None


def _own(facts: Facts, name: str, whole_ms: float) -> Draft | None:
    hot, known = facts.hot_in_section(name)
    if known.torch > _MOST:
        return None
    row = whole_ms * (1 - known.known)
    ms, stalled = while_idle(facts, row)
    text = readable(name, 60)
    draft = share_draft(
        facts, _LIMIT, ms,
        rule="own-section",
        title=f"Section {text} takes {{share}} of the step" + _mostly(facts, hot),
        value=facts.share(row),
        evidence=(
            f"{text} is neither data, forward, backward nor optimizer: {span_text(row, facts)}.",
            stalled,
            "" if hot is None else parts_text(facts, hot, hot.share * row, " per step"),
        ),
        fix=(_UNKNOWN,) if hot is None and not facts.has_functions else less_of(facts, hot),
        sections=frozenset({name}), on_host=True,
    )  # fmt: skip
    # How much less of it the training needs is unknown.
    return None if draft is None else replace(draft, promises=False)


def _mostly(facts: Facts, hot: Hot | None) -> str:
    """Return the end of a title: the function with most of the time."""
    if hot is None:
        return ""
    between = ", between the phases" if facts.is_loop(hot.key) else ""
    return f", {hot.part} of it in {where(hot.key)}{between}"


def less_of(facts: Facts, hot: Hot | None) -> tuple[str, ...]:
    """Return the change if nothing is known about a section but its hottest function."""
    if hot is None:
        return ("Do the work of this section less often, or in parallel with the step.",)
    if not facts.is_loop(hot.key):
        return (
            (
                f"Look at {where(hot.key)}: call it less often, do more per call, or run it in "
                "parallel with the step."
            ),
        )
    called = top_calls(hot)
    if not called:
        return (f"Look at the loop's own code in {where(hot.key)}.",)
    names = ", ".join(called)
    return (
        f"Look at what the loop calls there: {names}. Call it less often, or once for many values.",
    )


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "unaccounted", "time in no section", unaccounted, order=200, limits=(_LIMIT,),
        fixes=_UNACCOUNTED_FIXES,
    ),
    Rule(
        "own-section", "the program's own sections", own_section, order=210,
    ),
    Rule(
        "validation-share", "validation's share of the training", validation_share,
        order=270, limits=(_VALIDATION,),
        fixes={
            "torch": (
                ("Validate less often or on fewer batches, with larger batches, in model.eval() "
                "and torch.inference_mode()."),
            ),
            "lightning": (
                ("Trainer(check_val_every_n_epoch=..., val_check_interval=..., "
                "limit_val_batches=...)."),
            ),
            "transformers": (
                (f'{HF}(eval_strategy="steps", eval_steps=...) less often, a larger '
                "per_device_eval_batch_size, a smaller eval_dataset."),
            ),
        },
    ),
)  # fmt: skip
