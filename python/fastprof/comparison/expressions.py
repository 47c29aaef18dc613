"""The conditions of ``--fail-if``: ``step>+3%``, ``p99(step)>+5ms``, ``gpu_util<80%``.

::

    condition = value OP [SIGN] number [unit]         with a sign: the change from before to after
    value     = name | figure "(" name ")"
    OP        = "<" | "<=" | ">" | ">=" | "=="
    name      = letters, digits, _ and ., also file.py:name; or anything in quotes
    unit      = % | points | ns | us | ms | s | B | KiB | MiB | GiB
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from fastprof.errors import ConditionError

#: Kinds of numbers; a plain number is a count or a factor.
TIME, SHARE, BYTES, NUMBER = "time", "share", "bytes", "number"
#: For changes only: percent of the value before, and percentage points.
RELATIVE, POINTS = "relative", "points"

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
_UNITS = {
    "": (NUMBER, 1.0),
    "%": (SHARE, 0.01),
    "ns": (TIME, 1e-6),
    "us": (TIME, 1e-3),
    "ms": (TIME, 1.0),
    "s": (TIME, 1e3),
    "B": (BYTES, 1.0),
    "KiB": (BYTES, 2.0**10),
    "MiB": (BYTES, 2.0**20),
    "GiB": (BYTES, 2.0**30),
    "points": (POINTS, 0.01),
}
#: Functions that apply to a name.
FUNCTIONS = (
    "mean", "median", "p50", "p95", "p99", "min", "max", "total", "self", "count", "share", "gpu",
    "section", "function", "kernel",
)  # fmt: skip

_MAX_LENGTH = 500

_CONDITION = re.compile(
    r"""\s*(?P<value>(?:(?P<function>\w+)\s*(?P<open>\())?\s*
        (?:(?P<word>[^\W\d][\w.]*(?::[\w.]+)?)|"(?P<double>[^"]*)"|'(?P<single>[^']*)')
        \s*(?(open)\)))
        \s*(?P<operator><=|>=|==|<|>)
        \s*(?P<sign>[+-]?)\s*(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
        \s*(?P<unit>%|[^\W\d]*)\s*""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Name:
    """A figure: a function of a name; ``function`` is empty for the plain name."""

    function: str
    name: str

    @property
    def text(self) -> str:
        """The source text of the figure."""
        return f"{self.function}({self.name})" if self.function else self.name


@dataclass(frozen=True, slots=True)
class Condition:
    """``value operator limit``; ``is_change`` if it compares before and after.

    ``limit`` is in the unit of its ``kind``: ms, bytes, 1.
    """

    text: str
    value: Name
    value_text: str
    operator: str
    limit: float
    kind: str
    limit_text: str
    is_change: bool


def parse(text: str) -> Condition:
    """Return the condition in ``text``.

    Raises:
        ConditionError: (a ValueError) it is not valid.
    """
    if len(text) > _MAX_LENGTH:
        raise ConditionError(
            f"condition {text[:40]!r}... has {len(text)} characters, at most {_MAX_LENGTH} are read"
        )
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ConditionError(
            f"condition {text!r} cannot be read; expected a value, one of < <= > >= == and a "
            "number, e.g. 'step>+3%' or 'p95(step)>20ms'"
        )
    function, unit, sign = found["function"] or "", found["unit"], found["sign"]
    if function and function not in FUNCTIONS:
        raise _error(text, f"no such figure as {function!r} ({', '.join(FUNCTIONS)})")
    if unit not in _UNITS:
        raise _error(text, f"no such unit as {unit!r} ({', '.join(filter(None, _UNITS))})")
    kind, factor = _UNITS[unit]
    limit = float(f"{sign}{found['number']}") * factor
    if not math.isfinite(limit):
        raise _error(text, "the number is out of range")
    if sign and found["operator"] == "==":
        raise _error(text, "a change is compared with < or >, not with ==")
    if kind == POINTS and not sign:
        raise _error(text, "points are for changes only (as in gpu_util<-5points)")
    name = next(part for part in found.group("word", "double", "single") if part is not None)
    return Condition(
        text=text.strip(),
        value=Name(function, name),
        value_text=found["value"].strip(),
        operator=found["operator"],
        limit=limit,
        kind=RELATIVE if sign and kind == SHARE else kind,
        limit_text=found["number"] + unit,
        is_change=bool(sign),
    )


def _error(text: str, what: str) -> ConditionError:
    return ConditionError(f"condition {text!r}: {what}")
