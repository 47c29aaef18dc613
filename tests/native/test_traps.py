"""Calls and returns that do not pair as expected; every trap on both backends."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType

import pytest
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from helpers import BACKENDS, FREE_THREADED, run_child
from trees import counts, paths, record


def leaf() -> None:
    pass


def three() -> Iterator[int]:
    for i in range(3):
        leaf()
        yield i


def test_a_generators_calls_and_resumes_are_apart(backend: str) -> None:
    snapshot = record(lambda: list(three()), backend)
    # Four requests for three values: begun once, resumed three times.
    assert counts(snapshot, "three") == (1, 3)
    assert counts(snapshot, "leaf") == (3, 0)


def test_a_generator_expression_and_yield_from(backend: str) -> None:
    def chained() -> Iterator[int]:
        yield from three()
        yield from (i for i in (1, 2))

    snapshot = record(lambda: list(chained()), backend)
    assert counts(snapshot, "chained") == (1, 5)
    assert counts(snapshot, "three") == (1, 3)
    assert counts(snapshot, "<genexpr>") == (1, 2)


def throw_and_close() -> None:
    def stubborn() -> Iterator[int]:
        while True:
            try:
                yield 1
            except KeyError:
                leaf()

    one = stubborn()
    next(one)
    one.throw(KeyError("a"))
    one.throw(KeyError("b"))
    one.close()
    leaf()


def test_throwing_into_and_closing_a_generator_stay_balanced(backend: str) -> None:
    snapshot = record(throw_and_close, backend)
    calls, resumes = counts(snapshot, "stubborn")
    assert calls == 1
    # In some versions close() resumes the frame only if necessary.
    assert 2 <= resumes <= 3
    assert counts(snapshot, "leaf") == (3, 0)
    # throw_and_close itself calls the last leaf(), not an open call.
    assert paths(snapshot)[("throw_and_close", "leaf"), "calls"] == 1
    assert "unbalanced" not in snapshot.counters


def test_f28_a_generator_collected_while_it_is_suspended(backend: str) -> None:
    def make_garbage() -> None:
        for _ in range(50):
            ring: list[object] = []
            one = three()
            next(one)
            ring.append((ring, one))
        del ring, one
        gc.collect()
        leaf()

    snapshot = record(make_garbage, backend)
    assert counts(snapshot, "three")[0] == 50
    assert paths(snapshot)[("make_garbage", "leaf"), "calls"] == 1


def test_exceptions_unwind_as_many_calls_as_they_leave(backend: str) -> None:
    def inner() -> None:
        int("no number")

    def middle() -> None:
        try:
            inner()
        finally:
            leaf()

    def outer() -> None:
        for _ in range(100):
            with suppress(ValueError):
                middle()
            leaf()

    snapshot = record(outer, backend)
    found = paths(snapshot)
    assert found[("outer", "middle", "inner"), "calls"] == 100
    assert found[("outer", "middle", "leaf"), "calls"] == 100
    assert found[("outer", "leaf"), "calls"] == 100
    assert "unbalanced" not in snapshot.counters


def test_a_c_function_that_raises_is_left(backend: str) -> None:
    def run() -> None:
        for _ in range(10):
            with suppress(ZeroDivisionError):
                divmod(1, 0)
            leaf()

    found = paths(record(run, backend))
    assert found[("run", "<built-in method builtins.divmod>"), "calls"] == 10
    assert found[("run", "leaf"), "calls"] == 10


def test_recursion_is_a_separate_path(backend: str) -> None:
    def down(n: int) -> None:
        if n:
            down(n - 1)

    found = paths(record(lambda: down(5), backend))
    assert found[("<lambda>", *("down",) * 6), "calls"] == 1


def test_f5_started_and_stopped_at_different_depths(backend: str) -> None:
    recorder = Recorder(backend=backend)

    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        else:
            recorder.enable()
            leaf()

    def stop_inside() -> None:
        leaf()
        recorder.disable()
        leaf()

    for _ in range(50):
        deep(20)
        leaf()
        stop_inside()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "leaf") == (150, 0)
    assert counts(snapshot, "deep") == (0, 0)
    assert counts(snapshot, "stop_inside") == (50, 0)
    # Returns of calls that began before the recording are no fault.
    assert "unmatched" not in snapshot.counters


def test_a_generator_begun_before_and_continued_while_recording(backend: str) -> None:
    one = three()
    next(one)
    snapshot = record(lambda: list(one), backend)
    assert counts(snapshot, "three") == (0, 3)
    assert counts(snapshot, "leaf") == (2, 0)


def test_a_pause_leaves_out_what_happens_in_it(backend: str) -> None:
    recorder = Recorder(backend=backend)

    def windows() -> None:
        for i in range(10):
            if i % 2:
                recorder.resume_functions()
            else:
                recorder.pause_functions()
            leaf()

    recorder.enable()
    windows()
    recorder.disable()
    snapshot = take_snapshot(recorder)
    assert counts(snapshot, "leaf") == (5, 0)
    assert "unbalanced" not in snapshot.counters


def test_coroutines_count_their_continuations(backend: str) -> None:
    async def wait() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(wait() for _ in range(20)))

    snapshot = record(lambda: asyncio.run(main()), backend)
    assert counts(snapshot, "wait") == (20, 40)


def test_calls_made_by_c_code_are_below_it(backend: str) -> None:
    def run() -> None:
        sorted([3, 1, 2], key=lambda x: x)

    found = paths(record(run, backend))
    assert found[("run", "<built-in method builtins.sorted>", "<lambda>"), "calls"] == 3


def test_builtins_can_be_left_out(backend: str) -> None:
    def run() -> None:
        leaf()
        len("abc")

    assert counts(record(run, backend, builtins=False), "leaf") == (1, 0)
    names = {k.kind for k in record(run, backend, builtins=False).keys}
    assert not {"c", "type"} & names


@pytest.mark.skipif("monitoring" not in BACKENDS, reason="only sys.monitoring sees them")
def test_constructors_and_callable_objects_are_seen_by_monitoring() -> None:
    class Thing:
        def __init__(self) -> None:
            leaf()

        def __call__(self) -> None:
            leaf()

    made: list[object] = []

    def run() -> None:
        thing = Thing()
        thing()
        made.append(dict())  # noqa: C408 - the call is what is recorded

    snapshot = record(run, "monitoring")
    kinds = {k.name: k.kind for k in snapshot.keys}
    assert kinds["<class 'dict'>"] == "type"
    assert [n for n, kind in kinds.items() if kind == "type" and n.startswith("<callable 'Thing'")]
    assert counts(snapshot, "<class 'Thing'>") == (1, 0)
    assert counts(snapshot, "leaf") == (2, 0)
    # Left out on request.
    kinds = {k.name: k.kind for k in record(run, "monitoring", constructors=False).keys}
    assert "type" not in kinds.values()


@pytest.mark.skipif(
    FREE_THREADED and sys.version_info < (3, 14),
    reason="free-threaded 3.13 never frees code objects once a thread was started",
)
def test_f33_code_objects_are_kept_until_clear_and_arguments_never(backend: str) -> None:
    class Argument:
        pass

    scope: dict[str, Callable[[object], object]] = {}
    exec("def short_lived(x): return [x].append(x)", scope)
    function = scope.pop("short_lived")
    code: weakref.ref[CodeType] = weakref.ref(function.__code__)
    argument = Argument()
    gone = weakref.ref(argument)
    recorder = Recorder(backend=backend)
    recorder.enable()
    function(argument)
    recorder.disable()
    del function, argument
    gc.collect()
    assert gone() is None
    assert code() is not None
    recorder.clear()
    gc.collect()
    assert code() is None


def test_f33_counts_never_land_on_another_function(backend: str) -> None:
    recorder = Recorder(backend=backend)
    wanted: dict[str, int] = {}
    recorder.enable()
    for i in range(4000):
        name = f"made_{i % 400}"
        scope: dict[str, Callable[[], None]] = {}
        exec(f"def {name}(): pass", scope)
        for _ in range(i % 3):
            scope[name]()
        wanted[name] = wanted.get(name, 0) + i % 3
        del scope
    recorder.disable()
    snapshot = take_snapshot(recorder)
    found: dict[str, int] = {}
    for i, k in enumerate(snapshot.threads[0].nodes.key):
        name = snapshot.keys[k].name
        if name.startswith("made_"):
            found[name] = found.get(name, 0) + snapshot.threads[0].nodes.calls[i]
    assert found == {name: n for name, n in wanted.items() if n}


def test_f29_recursion_a_hundred_thousand_deep(backend: str) -> None:
    run_child(
        f"""
import sys, threading
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot

def down(n):
    if n:
        down(n - 1)

recorder = Recorder(backend={backend!r})

def run():
    recorder.enable()
    down(99_999)
    recorder.disable()

sys.setrecursionlimit(1_000_000)
threading.stack_size(512 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
snapshot = take_snapshot(recorder)
calls = sum(
    n
    for t in snapshot.threads
    for k, n in zip(t.nodes.key, t.nodes.calls)
    if snapshot.keys[k].name == "down"
)
assert calls == 100_000, calls
assert snapshot.counters["truncated"] > 90_000
assert max(map(len, (t.nodes for t in snapshot.threads))) < 2000
""",
        timeout=120,
    ).check()


def test_f31_many_functions_cost_bounded_memory(backend: str) -> None:
    recorder = Recorder(backend=backend)
    functions = []
    for i in range(0, 20_000, 1000):
        scope: dict[str, Callable[[], None]] = {}
        exec("\n".join(f"def g{j}(): pass" for j in range(i, i + 1000)), scope)
        functions += [f for name, f in scope.items() if name.startswith("g")]
    recorder.enable()
    for function in functions:
        function()
    recorder.disable()
    memory = recorder.memory()
    assert memory["nodes"] >= 20_000
    # 100 bytes per context and 100 per function, both tables half full at worst.
    assert memory["bytes"] < 20_000 * 300 + (1 << 20)


def test_a_node_cap_keeps_counts_exact(backend: str) -> None:
    def b() -> None:
        leaf()

    def a() -> None:
        b()
        leaf()

    def run() -> None:
        for _ in range(10):
            a()
            b()
            leaf()

    snapshot = record(run, backend, max_nodes=16, max_depth=4)
    assert counts(snapshot, "leaf") == (40, 0)
    assert counts(snapshot, "b") == (20, 0)
    assert snapshot.counters["truncated"] > 0
    assert any(k.kind == "truncated" for k in snapshot.keys)


def test_self_times_add_up_to_the_recorded_time(backend: str) -> None:
    def run() -> None:
        for _ in range(1000):
            leaf()
            len("abc")

    snapshot = record(run, backend)
    [thread] = snapshot.threads
    total = sum(thread.nodes.self_ns)
    # Only the time before the first event and after the last is missing.
    assert 0 < total <= snapshot.duration_ns * 1.01
    assert all(ns >= 0 for ns in thread.nodes.self_ns)


def test_the_hook_never_touches_a_live_exception(backend: str) -> None:
    """F13: an exception is raised while the hook sees functions for the first time."""

    def run() -> list[str]:
        seen = []
        for make in (int, float, complex):
            try:
                make("x")
            except ValueError as error:
                seen.append(type(error).__name__)
                leaf()
                seen.append(type(sys.exc_info()[1]).__name__)
        return seen

    recorder = Recorder(backend=backend)
    recorder.enable()
    seen = run()
    recorder.disable()
    assert seen == ["ValueError"] * 6


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there is no RESUME")
def test_an_interpreter_without_resume_is_refused() -> None:
    """Each resume of a generator would count as a call."""
    said = run_child(
        """
import opcode
opcode.opmap = {name: n for name, n in opcode.opmap.items() if name != "RESUME"}
try:
    import fastprof._core
except KeyError as e:
    print(e)
"""
    ).check()
    assert said.stdout == "'RESUME'\n"
