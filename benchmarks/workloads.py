"""Programs to profile: small, with a number of calls known by construction.

A :class:`Workload` is called with a repeat count; ``calls(n)`` is the number of calls of Python and
C functions that this makes (a resume of a generator counts as a call).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """A program to profile; ``repeat`` makes one timed slice last some milliseconds."""

    name: str
    what: str
    run: Callable[[int], object]
    calls: Callable[[int], int]
    repeat: int


class _Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int) -> None:
        self.value += amount


def _python_calls(n: int) -> int:
    counter = _Counter()
    for i in range(n):
        counter.add(i)
    return counter.value


def _c_calls(n: int) -> int:
    """Half builtin functions, half method descriptors: profilers treat them differently."""
    items = [1, 2, 3]
    total = 0
    for _ in range(n):
        total += len(items)
        total += items.count(2)
    return total


class Module:
    """The calling pattern of nn.Module: ``__call__``, ``_call_impl``, ``forward``, children."""

    def __init__(self, children: list[Module], scale: float) -> None:
        self._children = children
        self._hooks: dict[int, object] = {}
        self.scale = scale

    def __call__(self, x: float) -> float:
        return self._call_impl(x)

    def _call_impl(self, x: float) -> float:
        if self._hooks.get(0) is not None:
            return x
        return self.forward(x)

    def forward(self, x: float) -> float:
        if isinstance(self._children, list):
            for child in self._children:
                x = child(x)
        return abs(x * self.scale)


def module_tree(width: int, depth: int) -> Module:
    children = [module_tree(width, depth - 1) for _ in range(width)] if depth else []
    return Module(children, 0.9)


_TREE = module_tree(4, 2)
_TREE_MODULES = 1 + 4 + 16


def _module_calls(n: int) -> float:
    x = 1.0
    for _ in range(n):
        x = _TREE(1.0)
    return x


def _fib(n: int) -> int:
    return n if n < 2 else _fib(n - 1) + _fib(n - 2)


_FIB_N = 12
_FIB_CALLS = 465  # 2 * fib(13) - 1


def _recursion(n: int) -> int:
    total = 0
    for _ in range(n):
        total += _fib(_FIB_N)
    return total


def _ten() -> Iterator[int]:
    value = 0
    while value < 10:
        yield value
        value += 1


def _generators(n: int) -> int:
    total = 0
    for _ in range(n):
        for value in _ten():
            total += value
    return total


def distinct_functions(count: int) -> list[Callable[[int], int]]:
    """Return ``count`` functions with a code object each."""
    source = "\n".join(f"def f{i}(x):\n    return x + {i}" for i in range(count))
    namespace: dict[str, Callable[[int], int]] = {}
    exec(compile(source, "<generated>", "exec"), namespace)
    return [namespace[f"f{i}"] for i in range(count)]


_NEIGHBOURS = 50


def _in_random_orders(count: int, length: int) -> Callable[[int], int]:
    """Call ``count`` functions in orders that differ from pass to pass.

    A fixed order would let a profiler that predicts the next callee look better than it is.
    The order is random among neighbours only: over megabytes of functions the result would depend
    on the processor's caches and on other processes.
    """

    @functools.cache
    def orders() -> list[list[Callable[[int], int]]]:
        functions = distinct_functions(count)
        source = random.Random(count)
        made = []
        for _ in range(3):
            order: list[Callable[[int], int]] = []
            while len(order) < length:
                for begin in range(0, count, _NEIGHBOURS):
                    near = functions[begin : begin + _NEIGHBOURS]
                    order.extend(source.sample(near, len(near)))
            made.append(order[:length])
        return made

    def run(n: int) -> int:
        chosen = orders()
        total = 0
        for i in range(n):
            for function in chosen[i % 3]:
                total = function(total)
        return total

    return run


def function_workloads() -> list[Workload]:
    """Return the programs of the ``functions`` case."""
    return [
        Workload("calls", "Python method calls", _python_calls, lambda n: n, 60_000),
        Workload("ccalls", "builtins and C methods", _c_calls, lambda n: 2 * n, 40_000),
        Workload(
            "mod",
            "tree of nn.Module-like objects",
            _module_calls,
            lambda n: n * _TREE_MODULES * 6,
            400,
        ),
        Workload("recursion", "fib", _recursion, lambda n: n * _FIB_CALLS, 100),
        Workload("generators", "10 values each", _generators, lambda n: n * 11, 5_000),
        Workload("few", "10 functions", _in_random_orders(10, 10_000), lambda n: n * 10_000, 12),
        Workload(
            "many",
            "10 000 functions",
            _in_random_orders(10_000, 10_000),
            lambda n: n * 10_000,
            12,
        ),
    ]
