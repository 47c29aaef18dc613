"""Calls through bound methods over builtins, types and callable objects.

The interpreter unwraps the method during the call, so the events of its two ends name different
objects, or one end sends no event.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator

import pytest
from fastprof import profile_section
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from fastprof.snapshot import Snapshot
from helpers import BACKENDS
from trees import counts, paths, record

needs_monitoring = pytest.mark.skipif("monitoring" not in BACKENDS, reason="needs sys.monitoring")

Method = Callable[..., object]


class Made:
    """A type; its calls fail for 0, as those of all targets."""

    def __init__(self, *numbers: int, n: int = 1) -> None:
        check(*numbers, n)

    def __round__(self, n: int) -> None:
        check(n)


def check(*numbers: int) -> None:
    if 0 in numbers:
        raise ValueError


@functools.cache
def cached(*numbers: int, n: int = 1) -> None:
    check(*numbers, n)


@functools.cache
def outer(call: Callable[[int], object]) -> None:
    for n in (0, 1, 2):
        with contextlib.suppress(TypeError, ValueError):
            call(n)
    after()


def after(*_: object) -> None:
    pass


#: What a bound method calls, and the label of its key.
TARGETS: dict[str, tuple[Method, str]] = {
    "type": (types.MethodType(Made, 1), "<class 'Made'>"),
    "callable": (types.MethodType(cached, 1), "<callable 'functools._lru_cache_wrapper' object>"),
    "builtin": (types.MethodType(round, Made()), "<built-in method builtins.round>"),
    "method": (types.MethodType(types.MethodType(max, 1), 2), "<built-in method builtins.max>"),
}

FORMS: dict[str, Callable[[Method], Callable[[int], object]]] = {
    "plain": lambda method: lambda n: method(n),
    "keywords": lambda method: lambda n: method(n=n),
    "star": lambda method: lambda n: method(*(n,)),
}


@contextlib.contextmanager
def instruction_events(wanted: bool) -> Iterator[None]:
    """Let another tool receive an event for each instruction, as debuggers do."""
    if not wanted:
        yield
        return
    monitoring = sys.monitoring
    tool = monitoring.DEBUGGER_ID
    monitoring.use_tool_id(tool, "test")
    monitoring.register_callback(tool, monitoring.events.INSTRUCTION, lambda *_: None)
    monitoring.set_events(tool, monitoring.events.INSTRUCTION)
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


def recorded_with_sections(run: Callable[[], None], backend: str) -> Snapshot:
    recorder = Recorder(backend=backend)
    recorder.start_sections()
    recorder.enable()
    run()
    recorder.disable()
    recorder.stop_sections()
    return take_snapshot(recorder)


def path_of_after(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the path of the function `after`, which is called once."""
    [(path, _)] = [found for found in paths(snapshot) if found[0][-1] == "after"]
    return path


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=needs_monitoring)])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
def test_a_bound_method_is_counted_and_its_caller_stays_open(
    backend: str, form: str, target: str, beside: bool
) -> None:
    method, label = TARGETS[target]
    call = FORMS[form](method)
    outer.cache_clear()
    cached.cache_clear()
    with instruction_events(beside):
        snapshot = record(lambda: outer(call), backend)
    assert not {"unbalanced", "unmatched"} & set(snapshot.counters)
    assert path_of_after(snapshot)[-2:] == ("outer", "after")
    if backend == "monitoring" and (form != "star" or sys.version_info >= (3, 13)):
        # Up to 3.12.1 there is no event with a star.  PyEval_SetProfile sees builtins only.
        assert counts(snapshot, label) == (4 if target == "callable" else 3, 0)


def test_a_call_site_may_call_bound_methods_and_others(backend: str) -> None:
    """Of these calls with `*`, 3.13 sends no C_RETURN for the bound method alone."""
    calls: list[tuple[Method, tuple[object, ...]]]
    calls = [(types.MethodType(len, [1, 2]), ()), (int, ("3",)), (abs, (3,))]

    def dispatch() -> None:
        for _ in range(100):
            for f, args in calls:
                f(*args)

    snapshot = record(dispatch, backend)
    assert not {"unbalanced", "unmatched"} & set(snapshot.counters)
    assert len(snapshot.threads[0].nodes) < 12


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has no event for it")
def test_a_bound_method_is_counted_inside_a_section(backend: str) -> None:
    """On 3.12.0 to 3.12.4 the profile function gets the end alone."""

    def run() -> None:
        with profile_section("inside"):
            types.MethodType(len, [1])()
        after()

    snapshot = recorded_with_sections(run, backend)
    assert not {"unbalanced", "unmatched"} & set(snapshot.counters)
    [path] = [path for path, _ in paths(snapshot) if "builtins.len" in path[-1]]
    assert path[-3:-1] == ("run", "inside")
    assert counts(snapshot, path[-1]) == (1, 0)


def test_what_follows_a_bound_method_is_not_called_by_it(backend: str) -> None:
    """With `*`, 3.12.5 and later send the profile function no c_return for it."""
    method = types.MethodType(len, [1])

    def numbers() -> Iterator[int]:
        method(*())
        yield 1
        method(*())
        after()

    def run() -> None:
        for _ in range(3):
            method(*())
            after()
            method(*())
        with profile_section("inside"):
            after()
        after(method(*()))
        with profile_section("inside"):
            method(*())
        for _ in numbers():
            after()
        method(*())

    snapshot = recorded_with_sections(run, backend)
    assert not {"unbalanced", "unmatched"} & set(snapshot.counters)
    found = paths(snapshot)
    callers = {path[-2]: n for (path, _), n in found.items() if path[-1] == "after"}
    assert callers == {"run": 5, "inside": 1, "numbers": 1}
    assert all(path[-3] == "run" for path, _ in found if path[-2:] == ("inside", "after"))
    lens = {path: n for (path, _), n in found.items() if "builtins.len" in path[-1]}
    # 3.14 reports no call of a method with `*` to a profile function.
    last = (3, 13) if backend == "setprofile" else sys.version_info[:2]
    if (3, 13) <= sys.version_info[:2] <= last:
        assert {path[-2]: n for path, n in lens.items()} == {"run": 8, "inside": 1, "numbers": 2}
    nodes = snapshot.threads[0].nodes
    names = [snapshot.keys[k].name for k in nodes.key]
    times = [ns for name, ns in zip(names, nodes.self_ns, strict=True) if "builtins.len" in name]
    assert not any(times), "the time of such a call is unknown"
