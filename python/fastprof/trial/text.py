"""The screen of a trial."""

from collections.abc import Sequence

from fastprof.report.figures import duration, plural
from fastprof.tables.layout import wrapped
from fastprof.trial.model import (
    CRASHED,
    EARLY,
    HUNG,
    LOSSES,
    NO_DIFFERENCE,
    NO_EFFECT,
    OPEN,
    REAL,
    WORSE,
    TrialData,
    Tried,
)

_NAME = 33
_MS = 9

#: A wider interval of a step's part is shown, also where nothing was found; one that is wider than
#: the step itself shows only that runs vary.
_WIDE, _WIDEST = 0.05, 1.0

_WORDS = {
    NO_DIFFERENCE: "no difference beyond chance",
    OPEN: "not decided",
    CRASHED: "crashed",
    HUNG: "did not end",
    EARLY: "ended early",
    LOSSES: "other losses: not recommended",
    NO_EFFECT: "not tried",
}


def to_text(data: TrialData, width: int = 80) -> str:
    """Return the result as plain text."""
    lines = []
    if data.baseline_ms is not None:
        lines.append(_row("baseline", duration(data.baseline_ms) + " per step", width))
    tried = [*data.tried, *([] if data.together is None else [data.together])]
    for one in tried:
        lines += _lines(one, width)
    if not data.tried:
        lines += wrapped(
            "Nothing to try: no finding has a fix that can be applied from outside "
            "(fastprof try --list shows all).",
            width,
        )
    for text in _closing(data):
        lines += wrapped(text, width, rest="  ")
    return "\n".join(lines) + "\n"


def _row(name: str, rest: str, width: int) -> str:
    return f"{name:<{_NAME}} {rest}".rstrip()


def _lines(one: Tried, width: int) -> list[str]:
    name, spelled = one.candidate.spelled, ""
    if len(name) > _NAME:
        name, spelled = "", name
    step = "" if one.step_ms is None else duration(one.step_ms)
    said = _said(one)
    first = _row(name, f"{step:>{_MS}}  {said}", width)
    lines = [spelled] if spelled else []
    if len(first) > width:
        begin = " " * (_NAME + _MS + 3)
        words = wrapped(said, width - len(begin))
        lines.append(_row(name, f"{step:>{_MS}}  {words[0]}", width))
        lines += [begin + word for word in words[1:]]
    else:
        lines.append(first)
    for text in _more(one):
        lines += wrapped(text, width, "  ", "  ")
    return lines


def _said(one: Tried) -> str:
    if one.status == NO_DIFFERENCE and one.share_high is not None and one.share_high < 0:
        return "no saving"
    if one.status not in (REAL, WORSE):
        return _WORDS[one.status]
    sign, word, way = ("-", "real", 1) if one.status == REAL else ("+", "slower", -1)
    shares = (way * (share or 0.0) for share in (one.share, one.share_low, one.share_high))
    share, *ends = map(_percent, shares)
    return f"{sign}{share} % ({' to '.join(ends[::way])})  {word}"


def _percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 3 else f"{value:.1f}"


def _change(share: float) -> str:
    return f"{_percent(abs(share))} % {'faster' if share > 0 else 'slower'}"


def _more(one: Tried) -> list[str]:
    """Return lines below a row: the reason, the prediction, losses that differ a little."""
    out = []
    if one.reason:
        out.append(f"{one.reason[:1].upper()}{one.reason[1:]}.")
    elif one.losses:
        out.append(f"{one.losses[:1].upper()}{one.losses[1:]}.")
    low, high = one.share_low, one.share_high
    if one.status == NO_DIFFERENCE and low is not None and high is not None:
        if high - low > _WIDEST and high > 0:
            out.append("These runs vary too much to show a difference.")
        elif high - low > _WIDE:
            out.append(f"Possible: from {_change(low)} to {_change(high)}.")
    if one.predicted_ms is not None and one.step_ms is not None:
        out.append(f"Predicted by the finding: {duration(one.predicted_ms)}.")
    return out


def _closing(data: TrialData) -> list[str]:
    out = [*data.notes]
    if data.stopped:
        out.append(f"Ended by {data.stopped}: what is known so far.")
    # With one run of each, losses were not compared.
    known = [one for one in data.tried if one.runs > 1]
    others = [one.candidate.spelled for one in known if one.status == LOSSES]
    if known and all(one.losses is None for one in known):
        out.append("No losses were seen, so the fixes may change the results.")
    elif others:
        out.append(f"All other runs have the losses of the baseline; not: {', '.join(others)}.")
    elif known:
        rounded = ", but for differences as above" if any(one.losses for one in known) else ""
        out.append(f"All runs have the same losses{rounded}.")
    if data.places:
        out.append(f"To keep what helped: {'; '.join(data.places)}")
    if data.by_hand:
        out.append(f"To be changed by hand, not in the diff: {'; '.join(data.by_hand)}")
    runs = f"The program ran {plural(data.processes, 'time')}"
    if data.steps:
        runs += f", up to {plural(data.steps, 'step')} each"
    out.append(f"{runs}; recordings: {data.folder}")
    return out


def table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return rows of ``--list``: id, what it does, and which findings it answers."""
    size = max(len(name) for name, _, _ in rows)
    lines = []
    for name, subject, rules in rows:
        begin, rest = f"{name:<{size}}  ", " " * (size + 2)
        lines += wrapped(f"{subject}. Findings: {rules}.", 80, begin, rest)
    return "\n".join(lines) + "\n"
