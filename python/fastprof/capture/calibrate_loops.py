"""The programs that ``calibrate`` measures the hook with: one loop per kind of event.

The loops use what the calls give, as programs do: calls whose arguments and results nobody
wants are specialised further and would look cheaper than real ones.  Some forms of a call
have a shorter way in the interpreter which they lose under the hook.  A loop makes several
forms of its kind, and what it measures is their mean: which of them a program uses is not
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Turns of each loop: some microseconds, so that most runs are not interrupted.
TURNS = 200


@dataclass(frozen=True)
class Loop:
    """``calls`` events of one kind per turn; ``labels`` are the callees' names.

    ``python``: they are functions written in Python, and nearly empty.
    """

    run: Callable[[], None]
    labels: frozenset[str]
    calls: int
    python: bool


def _echo(x: int) -> int:
    return x


def _keyword(x: int, *, scale: int = 1) -> int:
    return x


class _Item:
    def __init__(self, value: int, other: int) -> None:
        self.value = value
        self.other = other

    def _own(self, x: int) -> int:
        return x

    def __getitem__(self, index: int) -> int:
        return index


class _Empty:
    pass


def _python_calls() -> None:
    item = _ITEM
    total = 0
    for i in range(TURNS):
        total += _echo(i)
        total += item._own(i)
        total += _keyword(i, scale=2)


def _implicit_calls() -> None:
    item = _ITEM
    total = 0
    for i in range(TURNS):
        total += item[i]


def _resumes() -> None:
    total = 0
    for value in _yields():
        total += value


def _yields() -> Iterator[int]:
    for i in range(TURNS):
        yield i * 1000


def _c_calls() -> None:
    values = [1, 2, 3]
    total = 0
    for i in range(TURNS):
        total += len(values)
        total += abs(i)


def _method_calls() -> None:
    values: list[int] = []
    known = {1: 2}
    total = 0
    for i in range(TURNS):
        values.append(i)
        total += known.get(i, 1)


def _constructors() -> None:
    total = 0
    for _ in range(TURNS):
        total += int(1.5)
        total += _Empty() is not None


def _inits() -> None:
    total = 0
    for i in range(TURNS):
        total += _Item(i, 1).other


def _nothing() -> None:
    total = 0
    for i in range(TURNS):
        total += i


_ITEM = _Item(0, 0)


def _loop(run: Callable[[], None], *labels: str, python: bool = False) -> Loop:
    return Loop(run, frozenset(labels), max(1, len(labels)), python)


#: By the name of the kind's field in ``Calibration``; ``nothing`` is the loop alone.
LOOPS = {
    "nothing": _loop(_nothing),
    "python": _loop(_python_calls, "_echo", "_own", "_keyword", python=True),
    "resume": _loop(_resumes, "_yields"),
    "c": _loop(_c_calls, "len", "abs"),
    "method": _loop(_method_calls, "append", "get"),
    "implicit": _loop(_implicit_calls, "__getitem__", python=True),
    "constructor": _loop(_constructors, "int", "_Empty"),
    "init": _loop(_inits, "__init__", python=True),
}


class _Layer:
    """Calls as a network of objects makes them: several deep, of several kinds."""

    def __init__(self, below: list[_Layer]) -> None:
        self.below = below
        self.options: dict[str, int] = {}

    def run(self, value: int) -> int:
        if self.options.get("skip") is None:
            value = self.forward(value)
        return value

    def forward(self, value: int) -> int:
        if len(self.below):
            for layer in self.below:
                value = layer.run(value)
        return self.leaf(value=value)

    def leaf(self, value: int) -> int:
        return abs(value) + 1


_NETWORK = _Layer([_Layer([_Layer([]) for _ in range(3)]) for _ in range(3)])

#: Events of one run of ``mixed``: per layer run, forward, leaf; len, abs; dict.get.
_RUNS = 3
_LAYERS = 13 * _RUNS
MIXED_EVENTS = {"python": 3 * _LAYERS, "c": 2 * _LAYERS, "method": _LAYERS}


def mixed() -> None:
    """A small program of nested and mixed calls."""
    for _ in range(_RUNS):
        _NETWORK.run(1)
