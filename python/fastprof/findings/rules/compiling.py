"""Compiling again, code that leaves the compiled graph, and an empty cache."""

from collections.abc import Iterable

from fastprof.findings.draft import Abstain, Draft, Rule, capped, percent, sentences
from fastprof.findings.measurements import Facts
from fastprof.findings.thresholds import OWN, Limit
from fastprof.names import file_name, readable
from fastprof.report.compilations import CompileBreak, CompileReport, CompileRow
from fastprof.report.compile_reasons import FROM_BREAK, Reason, why_again
from fastprof.report.figures import duration, plural
from fastprof.report.origin import is_users_file

_AGAIN = Limit(
    "share of the run in which functions are compiled again", "%", None, 0.05, 0.20,
    f"{OWN}: a function needs one compilation, or two if a size varies",
)  # fmt: skip

#: Functions and reasons that the evidence names.
_FUNCTIONS, _REASONS, _BREAKS = 2, 2, 4
#: If steps have a smaller part of the time, the title says so.
_MOSTLY = 0.95
#: An empty cache is worth a sentence if compiling takes this long, and this part of the run.
_COLD_MS, _COLD_SHARE = 20_000.0, 0.10

_OF_BREAK = {
    "print": "Move the print out of the compiled code.",
    "item": "Keep the value a tensor in the compiled code, and read it after the step.",
    "control flow": "Replace the branch on a tensor's value by torch.where or torch.cond.",
    "call": "Move the call out of the compiled code, or register it by torch.library.custom_op.",
    "other": "Move the line out of the compiled code; TORCH_LOGS=graph_breaks has torch's words.",
}


def compiling_again(facts: Facts) -> Draft | None:
    """Time of compilations after each function's first, as a share of the run; limits; breaks.

    Of the first compilations only a cold cache counts: they are what a compiler is for.
    """
    found = facts.report.compilations
    if found is None:
        raise Abstain("nothing was compiled")
    whole = facts.report.wall_ms
    share, limit = found.again_ms / whole if whole else 0.0, _AGAIN
    severity = limit.grade(share)
    stopped = [row for row in found.rows if row.limit]
    cold = found.cold and found.ms > max(_COLD_MS, _COLD_SHARE * whole)
    breaks = [each for each in found.breaks if is_users_file(each.file)]
    if severity is None and not stopped and not breaks and not cold:
        return None
    again = [row for row in found.rows if row.reasons] if severity or stopped else []
    own = [row for row in again if is_users_file(row.file) and row.line]
    again = sorted(own or again, key=lambda row: (not row.limit, -row.again_ms))
    named = again[:_FUNCTIONS]
    steps = facts.report.steps.count
    return Draft(
        value=100 * share, unit="%",
        title=_title(found, stopped, steps, whole, len(breaks),
                     again=severity is not None, cold=bool(cold)),
        severity=capped(severity or ("warning" if stopped else "note"), facts)
        or ("warning" if stopped else "note"),
        threshold=limit.text(severity) if severity else "above 0", source=limit.origin,
        evidence=sentences(
            *(_compiled(row) for row in named),
            *(_stopped(row, found) for row in stopped[:_FUNCTIONS]),
            *_broken(breaks),
            _cold(found) if cold else "",
        ),
        fix=tuple(dict.fromkeys([
            *(_fix(reason, row) for row in named for reason in row.reasons[:_REASONS]),
            *(_OF_BREAK[each.kind] for each in breaks[:_BREAKS]),
            *([_KEEP] if cold else []),
        ])),
        ms=found.again_ms / steps if steps and severity is not None else None,
        promises=False, beside=True,
    )  # fmt: skip


_KEEP = (
    "Keep the cache between jobs: TORCHINDUCTOR_CACHE_DIR in a folder that outlives them, on a "
    "disk that all jobs of this kind can read."
)


def _title(
    found: CompileReport,
    stopped: list[CompileRow],
    steps: int,
    whole: float,
    breaks: int,
    *,
    again: bool,
    cold: bool,
) -> str:
    if again or cold:
        of = f" of {steps}" if steps > found.steps else ""
        where = f" in {found.steps}{of} {'step' if steps == 1 else 'steps'}" if steps else ""
        share = percent(found.ms / whole)
        if steps and found.in_steps_ms < _MOSTLY * found.ms:
            where += " and between steps" if found.steps else ""
        why = "" if again else ", from an empty cache"
        return f"Compiling takes {duration(found.ms)}{where} ({share} of the run){why}"
    if stopped:
        return (
            f"{stopped[0].name} is not compiled any more: it has reached torch's {stopped[0].limit}"
        )
    count = plural(breaks, "line")
    return f"Compiled code ends at {count} of the program, and Python goes on there (graph breaks)"


def _compiled(row: CompileRow) -> str:
    why = ", and ".join(why_again(reason) for reason in row.reasons[:_REASONS])
    more = len(row.reasons) - _REASONS
    rest = f", and for {plural(more, 'other reason')}" if more > 0 else ""
    called = f", called at {row.called_at}," if row.called_at else ""
    times = plural(row.times, "time")
    if row.again_ms:
        times = f"{times} ({duration(row.again_ms)} after the first)"
    times += f" and then no more ({row.limit})" if row.limit else ""
    return f"{row.place}{called} was compiled {times}: {why}{rest}."


def _stopped(row: CompileRow, found: CompileReport) -> str:
    at = f" ({found.limit})" if found.limit else ""
    return (
        f"{row.place} has reached {row.limit}{at}: where no earlier compilation fits, it runs "
        "uncompiled."
    )


def _broken(found: Iterable[CompileBreak]) -> Iterable[str]:
    by: dict[tuple[str, str], list[CompileBreak]] = {}
    for each in found:
        by.setdefault((each.file, each.name), []).append(each)
    for (file, name), breaks in list(by.items())[:_FUNCTIONS]:
        lines = ", ".join(f"{_what(b)} ({file_name(file)}:{b.line})" for b in breaks[:_BREAKS])
        more = f", {len(breaks) - _BREAKS} more" if len(breaks) > _BREAKS else ""
        yield f"{name} has {plural(len(breaks), 'graph break')}: {lines}{more}."


def _what(each: CompileBreak) -> str:
    return f"a call of {each.what}" if each.kind == "call" else each.what


def _cold(found: CompileReport) -> str:
    where = f" ({readable(found.cache, 80)})" if found.cache else ""
    of = f"the first {plural(found.cold, 'graph')}" if found.hits else plural(found.misses, "graph")
    return f"The compiler's cache{where} had none of {of}."


def _is_number(text: str) -> bool:
    return text.lstrip("-")[:1].isdigit()


def _fix(reason: Reason, row: CompileRow) -> str:
    what = reason.what
    if FROM_BREAK in what:
        at = f" in line {row.after_line}" if row.after_line else ""
        return (
            f"Remove the graph break{at}, whose value changes, or keep its value a tensor (no "
            ".item())."
        )
    if reason.kind == "size":
        other = "drop_last=True in the DataLoader" if reason.dim == 0 else "pad to a few lengths"
        dim = max(0, reason.dim)
        if row.after_line:  # what is a local variable there
            function = row.name.partition(" after line ")[0]
            return (
                f"torch._dynamo.mark_dynamic for the argument of {function} that decides dimension "
                f"{dim} of {what}, or {other}."
            )
        return f"torch._dynamo.mark_dynamic({what}, {dim}) before {row.name} is called, or {other}."
    if reason.kind == "value":
        return f"Pass {what} as a tensor, or keep it constant."
    if reason.kind == "attribute" and not all(map(_is_number, reason.values)):
        return f"Set {what} before the first call of the compiled code, and do not change it later."
    if reason.kind == "attribute":
        return f"Do not change {what} between calls, or make it a tensor (register_buffer)."
    if reason.kind == "global":
        return f"Pass {what} to {row.name} as a tensor, or do not change it between calls."
    if reason.kind == "type":
        return f"Give {what} the same type in each call."
    if reason.kind == "mode":
        return "Call the compiled code always in the same mode: the original module for validation."
    if reason.kind == "shapes":
        return (
            f"Call {row.name} with few shapes (pad), always the same types and static arguments; "
            "jax.log_compiles() shows those of each compilation."
        )
    if reason.kind == "tensor":
        return f"Keep {what} the same in each call."
    if reason.kind == "unknown":
        return f"See why {row.name} is compiled again: TORCH_LOGS=recompiles, or a newer torch."
    return f"Keep it true in each call that {what}: TORCH_LOGS=recompiles has torch's words."


#: See :class:`~fastprof.findings.draft.Rule`.
RULES = (
    Rule(
        "compiling-again", "compiling, and code not compiled", compiling_again,
        order=275, limits=(_AGAIN,),
    ),
)  # fmt: skip
