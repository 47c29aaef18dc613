"""Formats figures for readers: three significant digits, seconds above one second.

Every text that fastprof prints formats numbers, times, percentages and sizes here.
"""

_MANY = ((1e9, "billion"), (1e6, "million"))
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
#: From the first relative change on (ten times as much) the text is a factor; from the second one
#: on, the value before was too small to compare with.
_TIMES, _NOTHING = 9.0, 999.0


def number(value: float | None, decimals: int | None = None) -> str:
    """Format a number with three significant digits, or with ``decimals``; None: ``n/a``.

    All digits before the point are kept, and at most three after it.
    """
    if value is None:
        return "n/a"
    if decimals is None:
        if not value:
            return "0"
        decimals = _decimals(value, 3)
    return f"{value:.{decimals}f}"


def _decimals(value: float, most: int) -> int:
    size = abs(value)
    return min(most, 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3)


def counted(value: float | None) -> str:
    """Format a count, or a mean of counts: ``1.5``, ``128``, ``12,345``, ``7.45 million``.

    A fraction has three significant digits, and so has a count from a million on.
    """
    if value is None:
        return "n/a"
    for unit, name in _MANY:
        if abs(value) >= 0.9995 * unit:
            return f"{number(value / unit)} {name}"
    if abs(value) >= 9999.5:
        return f"{value:,.0f}"
    return number(value).removesuffix(".00").removesuffix(".0")


def plural(count: float | None, noun: str) -> str:
    """Format a count of things with their name: ``1 worker``, ``2 workers``, ``1.50 batches``."""
    shown = counted(count)
    if shown == "1":
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{shown} {noun[:-1]}ies"
    return f"{shown} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"


def p_text(value: float | None) -> str:
    """Return a probability of chance: ``0.031``, ``<0.001``, ``n/a``."""
    if value is None:
        return "n/a"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Format a difference with its sign: ``+12.3``, ``-0.042``."""
    if value is None:
        return "n/a"
    return f"{value:+.{_decimals(value, 3)}f}" if value else "0"


def span(low: float | None, high: float | None) -> str:
    """Format the interval of a difference: ``-0.123 .. +1.20``."""
    return "n/a" if low is None or high is None else f"{signed(low)} .. {signed(high)}"


def percent(share: float | None) -> str:
    """Format a fraction of 1 in percent: three significant digits, at most two decimals."""
    if share is None:
        return "n/a"
    value = 100 * share
    return number(value, _decimals(value, 2)) if value else "0"


def with_percent(share: float | None) -> str:
    """Format a fraction of 1 in percent with its sign: ``45.7 %``; None: ``n/a``."""
    return "n/a" if share is None else f"{percent(share)} %"


def percent_at_most(share: float | None, most: float | None) -> str:
    """Format a fraction of 1 with its bound: ``0.62 % (at most 0.91 %)``.

    One figure if both have the same text; ``n/a``: unknown.
    """
    if share is None or most is None or percent(share) == percent(most):
        return with_percent(share)
    return f"{percent(share)} % (at most {percent(most)} %)"


def chosen_percent(share: float) -> str:
    """Format a chosen fraction, such as a limit or a level: ``95 %``, ``99.5 %``."""
    return f"{100 * share:.3g} %"


def change(relative: float | None) -> str:
    """Format a relative change in percent with its sign: ``+54%``, ``-0.4%``.

    Words replace a meaningless percentage: ``12 times``, ``from nearly nothing``. No figure falls
    by more than 100 %, so an interval ends at -100 %.
    """
    if relative is None:
        return "n/a"
    if relative >= _TIMES:
        return "from nearly nothing" if relative >= _NOTHING else f"{1 + relative:.0f} times"
    value = 100 * max(relative, -1.0)
    return f"{value:+.0f}%" if abs(value) >= 9.95 else f"{value:+.1f}%"


def duration(ms: float | None) -> str:
    """Format milliseconds with three significant digits and a unit; from 1 s on in seconds."""
    if ms is None:
        return "n/a"
    return f"{number(ms / 1000)} s" if abs(ms) >= 999.5 else f"{number(ms)} ms"


def size(count: float | None) -> str:
    """Format bytes with three significant digits and a unit: ``24.0 GiB``, ``512 B``."""
    if count is None:
        return "n/a"
    unit, name = _unit(count)
    return f"{counted(count) if unit == 1 else number(count / unit)} {name}"


def size_of(part: float, whole: float | None) -> str:
    """Format bytes out of others in one unit: ``24.0 of 40.0 GiB``; None: ``24.0 GiB``."""
    if whole is None:
        return size(part)
    unit, name = _unit(max(part, whole))
    return f"{number(part / unit)} of {number(whole / unit)} {name}"


def _unit(count: float) -> tuple[int, str]:
    # 1023.7 MiB would become 1024 MiB.
    return next(((of, name) for of, name in _UNITS if abs(count) >= 0.9995 * of), (1, "B"))


def torch_size(count: int | None) -> str:
    """Format bytes as in the tables of torch.profiler: ``512.00 Mb``, ``16 b``."""
    if count is None:
        return "n/a"
    unit, name = next((each for each in _UNITS if abs(count) >= each[0]), (1, ""))
    return f"{count} b" if unit == 1 else f"{count / unit:.2f} {name[0]}b"


def step_number(number: int) -> str:
    """Return the number of a step, from 1 on, as text: ``9999``, ``12,400``."""
    return f"{number:,}" if number > 9999 else str(number)
