"""Conditions on one run: ``fastprof.check("run.fprof", "data<10%", "p99(step)<1.5*p50(step)")``."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastprof.comparison.expressions import (
    BYTES,
    COMPARE,
    NUMBER,
    SHARE,
    TIME,
    Condition,
    Literal,
    Name,
    Node,
    Operation,
    parse,
)
from fastprof.comparison.figures import Figure, figure, span_ms
from fastprof.comparison.runs import Run, Source, open_run
from fastprof.errors import CheckError, ConditionError
from fastprof.report.figures import counted, duration, size, with_percent

#: Figures with a smaller relative difference could look the same with three digits.
_CLOSE = 0.02


@dataclass(frozen=True, slots=True)
class Checked:
    """A condition, whether it holds, and the values that decided it."""

    condition: str
    holds: bool
    text: str


def check(source: Source, *conditions: str) -> tuple[Checked, ...]:
    """Check conditions on a run; see :mod:`fastprof.comparison.expressions`.

    Args:
        source: a report, or the path of a saved run.
        conditions: at least one, e.g. ``"data<10%"``.

    Returns:
        one row per condition, all of which hold.

    Raises:
        CheckError: (an AssertionError) some do not hold; a line each, with the values.
        ConditionError: (a ValueError) a condition cannot be understood or is about something
            that was not recorded.
        LoadError: (a ValueError) the file is not a saved run.
        OSError: it cannot be read.
    """
    rows = examine(source, *conditions)
    failed = [row for row in rows if not row.holds]
    if failed:
        raise CheckError("; ".join(f"{row.condition} does not hold: {row.text}" for row in failed))
    return rows


def examine(source: Source, *conditions: str) -> tuple[Checked, ...]:
    """Return the same, with failed conditions in the rows instead of an error."""
    if not conditions:
        raise ConditionError("no condition to check; expected e.g. 'data<10%'")
    parsed = [parse(text) for text in conditions]
    run = open_run(source)
    return tuple(holds([run], condition) for condition in parsed)


def holds(runs: Sequence[Run], condition: Condition) -> Checked:
    """Check a condition on the means over several runs."""
    left, right = (_value(runs, node) for node in (condition.left, condition.right))
    (a, kind), b = left, right[0]
    if kind != right[1]:
        if {kind, right[1]} == {TIME, SHARE}:
            span = sum(span_ms(run) for run in runs) / len(runs)
            if not span:
                raise ConditionError(
                    f"{condition.text!r}: the run has no time, so a share cannot be computed"
                )
            a = a / span if kind == TIME else a
            b = b / span if right[1] == TIME else b
            kind = SHARE
        elif {kind, right[1]} != {NUMBER, SHARE}:
            raise ConditionError(
                f"{condition.text!r} compares {_called(kind)} with {_called(right[1])}"
            )
    write = _show_exactly if abs(a - b) < _CLOSE * abs(b) else show
    text = f"{_text(condition.left)} is {write(a, kind)}"
    if not isinstance(condition.right, Literal):
        text += f", {_text(condition.right)} is {write(b, kind)}"
    return Checked(condition.text, COMPARE[condition.operator](a, b), text)


def show(value: float, kind: str) -> str:
    """Return a figure with its unit."""
    if kind == TIME:
        return duration(value)
    if kind == SHARE:
        return with_percent(value)
    if kind == BYTES:
        return size(value)
    return counted(value)


def _show_exactly(value: float, kind: str) -> str:
    """Return a figure with enough digits to show why a condition holds or not."""
    unit, name = {TIME: (1.0, " ms"), SHARE: (0.01, " %"), BYTES: (2.0**20, " MiB")}.get(
        kind, (1.0, "")
    )
    return f"{value / unit:.6g}{name}"


def _called(kind: str) -> str:
    return {
        TIME: "a time (write its unit, e.g. 5ms)",
        SHARE: "a share",
        BYTES: "memory (write its unit, e.g. 2GiB)",
        NUMBER: "a plain number",
    }[kind]


def _text(node: Node) -> str:
    if isinstance(node, (Literal, Name)):
        return node.text
    left, right = _text(node.left), _text(node.right)
    if node.operator in "*/" and isinstance(node.left, Operation) and node.left.operator in "+-":
        left = f"({left})"
    if isinstance(node.right, Operation) and (node.operator in "-*/"):
        right = f"({right})"
    return f"{left} {node.operator} {right}"


def _value(runs: Sequence[Run], node: Node) -> Figure:
    if isinstance(node, Literal):
        return node.value, node.kind
    if isinstance(node, Name):
        found = [figure(run, node) for run in runs]
        return sum(value for value, _ in found) / len(found), found[0][1]
    return _combine(node, _value(runs, node.left), _value(runs, node.right))


def _combine(node: Operation, left: Figure, right: Figure) -> Figure:
    (a, x), (b, y) = left, right
    if node.operator in "+-":
        if x != y:
            raise ConditionError(f"{_text(node)!r} adds {_called(x)} and {_called(y)}")
        return (a + b if node.operator == "+" else a - b), x
    if node.operator == "*":
        kinds = {x, y} - {NUMBER}
        if len(kinds) > 1 and SHARE in kinds:
            kinds.discard(SHARE)
        if len(kinds) > 1 or (x == y and x in (TIME, BYTES)):
            raise ConditionError(f"{_text(node)!r} multiplies {_called(x)} by {_called(y)}")
        return a * b, kinds.pop() if kinds else NUMBER
    if b == 0:
        raise ConditionError(f"{_text(node)!r} divides by 0")
    if x == y:
        return a / b, NUMBER
    if y not in (NUMBER, SHARE):
        raise ConditionError(f"{_text(node)!r} divides {_called(x)} by {_called(y)}")
    return a / b, x
