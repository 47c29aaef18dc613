"""The text of a hot function: what it calls, and its slowest line."""

from fastprof.findings.hot_functions import Hot
from fastprof.findings.measurements import Facts
from fastprof.findings.slow_lines import SlowLine, slow_line
from fastprof.findings.uses import where
from fastprof.names import readable
from fastprof.report.figures import chosen_percent, duration, number, plural
from fastprof.report.lines import lines_by_function
from fastprof.report.origin import shown_name
from fastprof.report.source_files import lines_of
from fastprof.snapshot import Key

#: A callee's number of calls is stated from here on.
SEVERAL = 1.5
#: A figure per batch this near to a whole number stands for it.
_ALMOST = 0.03
#: A line is named if it takes this part of its function's time.
_SLOW_LINE = 0.25

_NAMELESS = {
    "<listcomp>": "a list comprehension", "<setcomp>": "a set comprehension",
    "<dictcomp>": "a dict comprehension", "<genexpr>": "a generator expression",
    "<lambda>": "a lambda",
}  # fmt: skip

#: At most this many callees are named, each with at least this part of the time.
_MOST_PARTS, _PART = 3, 0.05


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
    return f" ({plural(whole(count), 'call')})" if count >= SEVERAL else ""


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


def whole(count: float) -> float:
    """Return the whole number next to ``count`` if it is near: the run cut off a batch."""
    nearest = float(round(count))
    return nearest if abs(count - nearest) <= _ALMOST * count else count
