"""The little language of conditions: ``step>+3%``, ``p99(step)<1.5*p50(step)``, ``data<10%``.

::

    condition  = change | comparison
    change     = value OP SIGN number [unit]          the change from before to after
    comparison = sum OP sum                           the value of one run
    OP         = "<" | "<=" | ">" | ">=" | "=="
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = number [unit] | value | "(" sum ")"
    value      = name | function "(" name ")"
    name       = letters, digits, _ and ., also file.py:name; or anything in quotes
    unit       = % | points | ns | us | ms | s | B | KiB | MiB | GiB

Nothing is evaluated by Python, and both length and depth are bounded.
"""

from __future__ import annotations

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
_MAX_DEPTH = 50

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d][\w.]*(?::[\w.]+)?)
      | "(?P<double>[^"]*)" | '(?P<single>[^']*)'
      | (?P<op><=|>=|==|[<>()+\-*/%])
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Literal:
    """A number and the kind of its unit."""

    value: float
    kind: str
    text: str


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
class Operation:
    """Two values joined by ``+``, ``-``, ``*`` or ``/``."""

    operator: str
    left: Node
    right: Node


Node = Literal | Name | Operation


@dataclass(frozen=True, slots=True)
class Condition:
    """``left operator right``; ``is_change`` if it compares before and after."""

    text: str
    operator: str
    left: Node
    right: Node
    is_change: bool = False


def parse(text: str, *, changes: bool = False) -> Condition:
    """Return the condition in ``text``.

    Args:
        changes: whether ``value > +3%`` means a change.

    Raises:
        ConditionError: (a ValueError) it is not valid; the message names the place.
    """
    if not isinstance(text, str):
        raise ConditionError(f"condition is {text!r:.80}, expected a string")
    if len(text) > _MAX_LENGTH:
        raise ConditionError(
            f"condition {text[:40]!r}... has {len(text)} characters, at most {_MAX_LENGTH} are read"
        )
    return _Parser(text, changes).condition()


class _Parser:
    def __init__(self, text: str, changes: bool) -> None:
        self._text = text
        self._changes = changes
        self._tokens = self._split()
        self._at = 0
        self._depth = 0

    def _split(self) -> list[tuple[str, str, int]]:
        tokens = []
        at = 0
        text = self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error("cannot be read", at + len(text[at:]) - len(text[at:].lstrip()))
            kind = str(match.lastgroup)
            name = "quoted" if kind in ("double", "single") else kind
            tokens.append((name, match[kind], match.start(kind)))
            at = match.end()
        tokens.append(("end", "", len(text)))
        return tokens

    def _error(self, what: str, at: int | None = None) -> ConditionError:
        if at is None:
            at = self._tokens[self._at][2]
        near = self._text[at : at + 20]
        where = f"at {near!r}" if near.strip() else "at its end"
        return ConditionError(f"condition {self._text!r}: {what} {where}")

    def _peek(self) -> str:
        kind, value, _ = self._tokens[self._at]
        return value if kind == "op" else kind

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def condition(self) -> Condition:
        left = self._sum()
        if self._peek() not in COMPARE:
            raise self._error("expected one of < <= > >= ==")
        compared = self._next()
        right: Node
        is_change = self._changes and isinstance(left, Name) and self._peek() in ("+", "-")
        if is_change:
            sign = -1.0 if self._next() == "-" else 1.0
            if self._peek() != "number":
                raise self._error("expected a number after the sign")
            size = self._literal()
            kind = RELATIVE if size.kind == SHARE else size.kind
            right = Literal(sign * size.value, kind, ("-" if sign < 0 else "+") + size.text)
            if compared == "==":
                raise self._error("a change is compared with < or >, not with ==", 0)
        else:
            right = self._sum()
            if _has_points(right) or _has_points(left):
                raise self._error("points are for changes only (as in gpu_util<-5points)", 0)
        if self._peek() != "end":
            raise self._error("expected nothing more")
        return Condition(self._text.strip(), compared, left, right, is_change)

    def _sum(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("too many brackets")
        node = self._product()
        while self._peek() in ("+", "-"):
            node = Operation(self._next(), node, self._product())
        self._depth -= 1
        return node

    def _product(self) -> Node:
        node = self._factor()
        while self._peek() in ("*", "/"):
            node = Operation(self._next(), node, self._factor())
        return node

    def _factor(self) -> Node:
        what = self._peek()
        if what == "number":
            return self._literal()
        if what in ("name", "quoted"):
            return self._value()
        if what == "(":
            self._next()
            node = self._sum()
            if self._peek() != ")":
                raise self._error("expected )")
            self._next()
            return node
        raise self._error("expected a number or a name")

    def _literal(self) -> Literal:
        text = self._next()
        value = float(text)
        if not math.isfinite(value):
            raise self._error("number out of range", self._tokens[self._at - 1][2])
        unit = ""
        if self._peek() == "%" or (self._peek() == "name" and self._tokens[self._at][1] in _UNITS):
            unit = self._next()
        elif self._peek() in ("name", "quoted"):
            raise self._error(f"expected a unit ({', '.join(_UNITS)})")
        if not unit:
            return Literal(value, NUMBER, text)
        kind, factor = _UNITS[unit]
        return Literal(value * factor, kind, text + unit)

    def _value(self) -> Name:
        at = self._at
        quoted = self._peek() == "quoted"
        name = self._next()
        if quoted or self._peek() != "(":
            return Name("", name)
        if name not in FUNCTIONS:
            self._at = at
            raise self._error(f"no such figure ({', '.join(FUNCTIONS)})")
        self._next()
        if self._peek() not in ("name", "quoted"):
            raise self._error("expected a name")
        inner = self._next()
        if self._peek() != ")":
            raise self._error("expected )")
        self._next()
        return Name(name, inner)


def _has_points(node: Node) -> bool:
    if isinstance(node, Operation):
        return _has_points(node.left) or _has_points(node.right)
    return isinstance(node, Literal) and node.kind == POINTS
