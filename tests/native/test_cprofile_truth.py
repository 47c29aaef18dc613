"""If cProfile is wrong by construction, ``fastprof.Profile`` must give the known truth.

Section 3 of the page on function profilers lists the defects.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastprof
import pytest
from fastprof.capture.convert import take_snapshot
from fastprof.capture.options import Recorder
from fastprof.results.report import build_report
from helpers import need_running_threads

SLEEP_S = 0.05


def stats_of(run: Callable[[], object], backend: str, **options: Any) -> dict[Any, Any]:
    profiler = fastprof.Profile(backend=backend, **options)
    profiler.enable()
    try:
        run()
    finally:
        profiler.disable()
    profiler.create_stats()
    return profiler.stats


def rows_named(stats: dict[Any, Any], name: str) -> list[Any]:
    return [row for label, row in stats.items() if label[2] == name]


def test_threads_are_each_counted_and_timed(backend: str) -> None:
    """cProfile: 3.11 sees none of them, 3.12 gives them 0.12 s of their 0.80 s."""

    def worker() -> None:
        time.sleep(SLEEP_S)

    def run() -> None:
        threads = [threading.Thread(target=worker) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    stats = stats_of(run, backend)
    [worker_row] = rows_named(stats, "worker")
    [sleep_row] = rows_named(stats, "<built-in method time.sleep>")
    assert worker_row[:2] == (8, 8)
    assert sleep_row[:2] == (8, 8)
    assert sleep_row[2] >= 8 * SLEEP_S
    assert worker_row[3] >= 8 * SLEEP_S
    # Their time is in sleep, and in no other row.
    assert worker_row[2] < sleep_row[2]
    [run_row] = rows_named(stats, "run")[:1]
    assert run_row is not None
    assert {caller[2] for caller in sleep_row[4]} == {"worker"}


def test_threads_that_run_already_are_counted(backend: str) -> None:
    need_running_threads(backend)
    begin, done, stop = threading.Event(), threading.Event(), threading.Event()

    def work() -> int:
        return 1

    def loop() -> None:
        begin.wait()
        for _ in range(100):
            work()
        done.set()
        stop.wait()

    thread = threading.Thread(target=loop)
    thread.start()
    try:

        def run() -> None:
            begin.set()
            done.wait()

        stats = stats_of(run, backend)
    finally:
        stop.set()
        thread.join()
    if backend == "setprofile" and sys.version_info >= (3, 14):
        pytest.skip("threads already running cannot be given the hook")
    [row] = rows_named(stats, "work")
    assert row[:2] == (100, 100)


def test_functions_with_one_label_are_summed(backend: str) -> None:
    """cProfile reports 1010 calls of two dataclasses' __init__ as 1000 or as 10."""

    @dataclasses.dataclass
    class First:
        x: int

    @dataclasses.dataclass
    class Second:
        y: int

    assert First.__init__.__code__.co_firstlineno == Second.__init__.__code__.co_firstlineno

    def run() -> None:
        for i in range(1000):
            First(i)
        for i in range(10):
            Second(i)

    stats = stats_of(run, backend)
    [row] = rows_named(stats, "__init__")
    assert row[:2] == (1010, 1010)
    assert [edge[:2] for edge in row[4].values()] == [(1010, 1010)]


class _List(list[int]):
    pass


class _Dict(dict[int, None]):
    pass


class _Made:
    def __new__(cls) -> _Made:  # noqa: PYI034
        return super().__new__(cls)


def test_a_method_in_c_has_the_name_of_the_class_that_defines_it(backend: str) -> None:
    """Subclasses share it, so the name of the first one called is wrong for the others."""
    recorder = Recorder(backend=backend)
    child: list[int] = _List()
    append, add = child.append, [].append
    recorder.enable()
    append(1)
    add(1)
    _Dict.fromkeys([1])
    dict.fromkeys([1])
    _Made()
    tuple.__new__(tuple)
    recorder.disable()
    rows = {row.qualname: row.calls for row in build_report(take_snapshot(recorder)).functions}
    assert rows["list.append"] == 2
    assert rows["dict.fromkeys"] == 2
    assert rows["__new__"] == 2


def test_lambdas_on_one_line_are_summed(backend: str) -> None:
    one, two = (lambda: time.sleep(0.01)), (lambda: time.sleep(0.02))

    def run() -> None:
        one()
        two()

    [row] = rows_named(stats_of(run, backend), "<lambda>")
    assert row[:2] == (2, 2)
    assert row[3] >= 0.03


def test_one_label_inside_itself_counts_time_once(backend: str) -> None:
    inner, outer = (lambda: time.sleep(0.02)), (lambda f: f())

    def run() -> None:
        outer(inner)

    started = time.perf_counter()
    [row] = rows_named(stats_of(run, backend), "<lambda>")
    elapsed = time.perf_counter() - started
    assert row[:2] == (1, 2)
    assert 0.02 <= row[3] <= elapsed


def test_a_resume_is_a_call_in_the_table_and_not_in_the_report(backend: str) -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)

    def run() -> None:
        for _ in numbers():
            pass

    profiler = fastprof.Profile(backend=backend)
    profiler.enable()
    run()
    profiler.disable()
    profiler.create_stats()
    [row] = rows_named(profiler.stats, "numbers")
    assert row[:2] == (6, 6)
    [function] = [f for f in profiler.report().functions if f.name == "numbers"]
    assert (function.calls, function.resumes) == (1, 5)
    if sys.version_info >= (3, 11):  # code objects know their qualified name
        assert function.qualname.endswith("<locals>.numbers")


def pybind_style_class() -> type:
    """Return a class with a builtin as a method, bound like pybind11's methods."""
    new = ctypes.pythonapi.PyInstanceMethod_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.py_object]

    class Extension:
        show = new(repr)

        def __repr__(self) -> str:
            return "shown"

    return Extension


@pytest.mark.parametrize("form", ["plain", "star"])
def test_nothing_vanishes_around_pybind11_methods(backend: str, form: str) -> None:
    """cProfile on 3.12.1 and 3.13.0 loses the rows of both functions."""
    extension = pybind_style_class()()

    def inner() -> object:
        return extension.show() if form == "plain" else extension.show(*())

    def outer() -> object:
        first = inner()
        time.sleep(SLEEP_S)
        return first, inner()

    def run() -> None:
        for _ in range(3):
            outer()

    stats = stats_of(run, backend)
    [outer_row] = rows_named(stats, "outer")
    [inner_row] = rows_named(stats, "inner")
    assert outer_row[:2] == (3, 3)
    assert inner_row[:2] == (6, 6)
    assert outer_row[3] >= 3 * SLEEP_S
    assert [(caller[2], edge[:2]) for caller, edge in inner_row[4].items()] == [("outer", (6, 6))]
    [shown] = rows_named(stats, "__repr__")
    assert shown[:2] == (6, 6)
    [run_row] = [row for label, row in stats.items() if label[2] == "run"]
    assert run_row[:2] == (1, 1)
    if form == "plain" and sys.version_info >= (3, 11):  # 3.10 has no event for it
        [method] = rows_named(stats, "<built-in method builtins.repr>")
        assert method[:2] == (6, 6)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="only sys.monitoring sees constructors")
def test_constructors_are_counted_when_asked_for() -> None:
    class Thing:
        pass

    def run() -> None:
        for _ in range(7):
            Thing()
            complex(1)

    def rows(constructors: bool) -> dict[str, int]:
        recorder = Recorder(backend="monitoring", constructors=constructors)
        recorder.enable()
        run()
        recorder.disable()
        report = build_report(take_snapshot(recorder))
        return {f.name: f.calls for f in report.functions}

    seen = rows(True)
    assert [n for name, n in seen.items() if "Thing" in name] == [7]
    assert [n for name, n in seen.items() if "complex" in name] == [7]
    unseen = rows(False)
    assert not [name for name in unseen if "Thing" in name or "complex" in name]

    names = [label[2] for label in stats_of(run, "monitoring")]
    assert not [name for name in names if "Thing" in name or "complex" in name]


def test_recursion_counts_time_once(backend: str) -> None:
    def down(n: int) -> None:
        time.sleep(0.002)
        if n:
            down(n - 1)

    started = time.perf_counter()
    [row] = rows_named(stats_of(lambda: down(9), backend), "down")
    elapsed = time.perf_counter() - started
    assert row[:2] == (1, 10)
    assert 0.02 <= row[3] <= elapsed


def test_what_was_begun_before_enable_is_no_row(backend: str) -> None:
    def inner(profiler: fastprof.Profile) -> None:
        profiler.enable()
        len(())

    profiler = fastprof.Profile(backend=backend)
    inner(profiler)
    abs(-1)
    profiler.disable()
    profiler.create_stats()
    assert sorted(label[2] for label in profiler.stats if label[0] == "~") == [
        "<built-in method builtins.abs>",
        "<built-in method builtins.len>",
        *[label[2] for label in profiler.stats if label[2].startswith("<method 'disable'")],
    ]
    assert not rows_named(profiler.stats, "inner")
