"""Measures the cost of one timed section: fastprof on and off, and other ways to time a block."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import baseline
import fastprof_adapter
import harness
from harness import Candidate, CaseResult, Options, Table

EMPTY_LOOP = "empty loop"
FLOOR = "empty C context manager, by name"
TARGETS = {"fastprof, recording": 1.35, "fastprof, nothing records": 1.1}

Section = Callable[[str], AbstractContextManager[object]]


@contextlib.contextmanager
def _generator_section(name: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        _generator_totals[name] += time.perf_counter() - begin


_generator_totals: dict[str, float] = defaultdict(float)


class _ActionProfiler:
    """Works like a usual trainer's profiler: begins and ends actions by name, keeps durations in
    lists."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self.durations: dict[str, list[float]] = defaultdict(list)

    def start(self, action: str) -> None:
        if action in self._running:
            raise ValueError(f"{action!r} runs already")
        self._running[action] = time.monotonic()

    def stop(self, action: str) -> None:
        if action not in self._running:
            raise ValueError(f"{action!r} was not started")
        self.durations[action].append(time.monotonic() - self._running.pop(action))

    @contextlib.contextmanager
    def profile(self, action: str) -> Iterator[str]:
        try:
            self.start(action)
            yield action
        finally:
            self.stop(action)


_class_totals: dict[str, float] = defaultdict(float)


class _ClassSection:
    """A plain Python class with ``__enter__`` and ``__exit__``, created at every use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        _class_totals[self._name] += time.perf_counter() - self._begin


def _loop(n: int) -> None:
    for _ in range(n):
        pass


def _pair(n: int) -> float:
    clock = time.perf_counter
    total = 0.0
    for _ in range(n):
        begin = clock()
        total += clock() - begin
    return total


def _with(section: Section) -> Callable[[int], None]:
    def run(n: int) -> None:
        for _ in range(n):
            with section("forward"):
                pass

    return run


def _with_kept(section: Section) -> Callable[[int], None]:
    def run(n: int) -> None:
        kept = section("forward")
        for _ in range(n):
            with kept:
                pass

    return run


def _entries() -> list[tuple[Candidate, Callable[[int], object]]]:
    actions = _ActionProfiler()
    entries: list[tuple[Candidate, Callable[[int], object]]] = [
        (Candidate(EMPTY_LOOP), _loop),
        (Candidate("perf_counter pair"), _pair),
    ]
    native = baseline.load()
    if isinstance(native, str):
        entries.append((Candidate(FLOOR, missing=native), _loop))
    else:
        entries.append((Candidate(FLOOR), _with(native.empty_section)))
    entries += _fastprof_entries()
    entries += [
        (Candidate("Python class"), _with(_ClassSection)),
        (Candidate("@contextmanager"), _with(_generator_section)),
        (
            Candidate("trainer's action profiler", stop=actions.durations.clear),
            _with(actions.profile),
        ),
        _library("torch record_function (no profiler on)", "torch", _record_function),
        _library("nvtx.annotate (no tool attached)", "nvtx", _nvtx_annotate),
    ]
    return entries


def _fastprof_entries() -> list[tuple[Candidate, Callable[[int], object]]]:
    names = ("fastprof, nothing records", "fastprof, recording", "fastprof, recording, object kept")
    why = fastprof_adapter.missing()
    if why:
        return [(Candidate(name, missing=why), _loop) for name in names]
    section = fastprof_adapter.profile_section()
    stack = contextlib.ExitStack()

    def start() -> None:
        stack.enter_context(fastprof_adapter.sections_on())

    return [
        (Candidate(names[0]), _with(section)),
        (Candidate(names[1], start, stack.close), _with(section)),
        (Candidate(names[2], start, stack.close), _with_kept(section)),
    ]


def _library(
    name: str, module: str, make: Callable[[], Section]
) -> tuple[Candidate, Callable[[int], object]]:
    if importlib.util.find_spec(module) is None:
        return Candidate(name, missing="not installed"), _loop
    return Candidate(name), _with(make())


def _record_function() -> Section:
    import torch

    section: Section = torch.profiler.record_function
    return section


def _nvtx_annotate() -> Section:
    import nvtx

    section: Section = nvtx.annotate
    return section


def run(options: Options) -> CaseResult:
    """Time every way to mark an empty section."""
    rounds = options.round_count(25, 3)
    repeat = options.pick(20_000, 2_000)
    entries = _entries()
    harness.settle()
    samples: dict[str, harness.Samples] = {}
    for number in range(rounds):
        order = entries[number % len(entries) :] + entries[: number % len(entries)]
        for candidate, loop in order:
            if not candidate.missing:
                one = samples.setdefault(candidate.name, harness.Samples())
                one.seconds.append(harness.time_slice(candidate, loop, repeat))
    nanoseconds = {name: s.best * 1e9 for name, s in samples.items()}
    cost = {n: v - nanoseconds[EMPTY_LOOP] for n, v in nanoseconds.items() if n != EMPTY_LOOP}
    rows = []
    for candidate, _ in entries:
        if candidate.name != EMPTY_LOOP:
            own = cost.get(candidate.name)
            goal = TARGETS.get(candidate.name)
            rows.append(
                (
                    candidate.name,
                    own,
                    harness.ratio(own, cost.get(FLOOR)),
                    f"<= {goal}" if goal else "",
                )
            )
    data: dict[str, Any] = {
        "rounds": rounds,
        "empty_loop_ns": nanoseconds[EMPTY_LOOP],
        "candidates": {
            name: {
                "min_ns": nanoseconds[name],
                "median_ns": s.median * 1e9,
                "cost_ns": cost.get(name),
                "of_floor": harness.ratio(cost.get(name), cost.get(FLOOR)),
            }
            for name, s in samples.items()
        },
        "missing": {c.name: c.missing for c, _ in entries if c.missing},
    }
    table = Table(
        "sections: one `with section(name): pass`, empty loop subtracted",
        ("candidate", "cost ns", "of the C one", "target"),
        tuple(rows),
        tuple(f"{name}: {why}" for name, why in data["missing"].items()),
    )
    return CaseResult("sections", (table,), data)
