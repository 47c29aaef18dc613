"""Figures as a reader wants them: three significant digits, seconds above one second."""

from __future__ import annotations


def number(value: float | None, decimals: int | None = None) -> str:
    """Format a number with three significant digits, or so many decimals; None: ``n/a``.

    Digits before the point are all kept, and there are at most three behind it.
    """
    if value is None:
        return "n/a"
    if decimals is None:
        size = abs(value)
        if not size:
            return "0"
        decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:.{decimals}f}"


def counted(value: float) -> str:
    """Format a mean of counts: a whole number as one, else with three significant digits."""
    return f"{value:.0f}" if value == round(value) else number(value)


def percent(share: float | None) -> str:
    """Format a fraction of 1 in percent with three significant digits; None: ``n/a``."""
    if share is None:
        return "n/a"
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


def duration(ms: float | None) -> str:
    """Format milliseconds with three significant digits and a unit; from 1 s on in seconds."""
    if ms is None:
        return "n/a"
    return f"{number(ms / 1000)} s" if abs(ms) >= 999.5 else f"{number(ms)} ms"
