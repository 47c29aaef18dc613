"""Checks of single values of a saved run, which may come from anywhere.

Each function returns the value if it is what it must be, else it raises
:class:`~fastprof.SnapshotError` with ``where`` (the field's name) and the value in one short line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastprof.errors import SnapshotError

#: A count or a time that does not fit in a signed 64-bit integer is damage, not data.
MAX_INT = 2**63 - 1


def fail(where: str, value: object, wanted: str) -> SnapshotError:
    return SnapshotError(f"{where} is {show(value)}, expected {wanted}")


def show(value: object) -> str:
    """A short form of any value: ``repr`` of a hostile one may be huge, deep, or fail."""
    if isinstance(value, str):
        return repr(value[:80])
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return repr(value) if value.bit_length() <= 256 else "a huge integer"
    if isinstance(value, (list, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return f"a {type(value).__name__}"


def as_dict(value: object, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise fail(where, value, "an object")
    return value


def as_list(value: object, where: str) -> list[Any]:
    # A live recording hands over tuples as well.
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, list):
        raise fail(where, value, "a list")
    return value


def as_str(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise fail(where, value, "a string")
    return value


def as_int(value: object, where: str, low: int = 0, high: int = MAX_INT) -> int:
    # Above 2**53 saved runs hold integers as strings, as many JSON readers have no others.
    if type(value) is str and len(value) <= 20 and value.isascii() and value.isdecimal():
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise fail(where, value, f"an integer from {low} to {high}")
    return value


def int_or_none(value: object) -> int | None:
    """Return a value of somebody else's if it is an integer of 0 or more."""
    return value if type(value) is int and value >= 0 else None


def as_float(value: object, where: str) -> float:
    if type(value) not in (int, float):
        raise fail(where, value, "a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise fail(where, value, "a finite number") from None
    if not number - number == 0.0:  # nan or infinite
        raise fail(where, value, "a finite number")
    return number


def as_ints(value: object, where: str, n: int, first_below: int | None = None) -> list[int]:
    items = as_list(value, where)
    if len(items) != n:
        raise fail(where, value, f"{n} integers")
    out = [as_int(v, where) for v in items]
    if first_below is not None and out[0] >= first_below:
        raise fail(where, out[0], f"a key index below {first_below}")
    return out


def as_column(
    t: Mapping[str, object], name: str, where: str, n: int, high: int = MAX_INT
) -> tuple[int, ...]:
    items = as_list(t.get(name), f"{where}.{name}")
    if len(items) != n:
        raise fail(f"{where}.{name}", len(items), f"{n} rows")
    # Columns may have a million rows: look for the one that is wrong only if there is one.
    if set(map(type, items)) == {int} and min(items) >= 0 and max(items) <= high:
        return tuple(items)
    return tuple([as_int(v, f"{where}.{name}[{i}]", 0, high) for i, v in enumerate(items)])
