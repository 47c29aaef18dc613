"""``profile_section``: context manager and decorator, through the real recorder."""

from __future__ import annotations

import asyncio
import gc
import inspect
import random
import sys

import fastprof
import pytest
from fastprof import profile_section
from fastprof.session.output.periodic import timings
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def prof():
    with fastprof.Profiler(functions=False, skip_first=0) as profiler:
        yield profiler


def counts(prof) -> dict[str, int]:
    return {row.name: row.count for row in timings(prof.snapshot())}


def rows(prof):
    snapshot = prof.snapshot()
    return {snapshot.keys[s.key].name: s for s in snapshot.sections}


def test_dormant_sections_do_nothing() -> None:
    with profile_section("dormant") as section:
        assert section.name == "dormant"

    @profile_section("dormant")
    def f() -> int:
        return 5

    assert f() == 5
    with fastprof.Profiler(functions=False) as prof:
        pass
    assert counts(prof) == {}


def test_s3_03_e9_context_manager_and_decorator(prof) -> None:
    with profile_section("x"):
        pass

    @profile_section("x")
    def f(a: int, b: int = 2) -> int:
        "Docstring."
        return a + b

    assert [f(1), f(1, b=5)] == [3, 6]
    assert f.__doc__ == "Docstring."
    assert str(inspect.signature(f)) == "(a: 'int', b: 'int' = 2) -> 'int'"
    assert counts(prof) == {"x": 3}


def test_s3_03_f1_an_exception_propagates_and_the_time_is_still_recorded(prof) -> None:
    error = LookupError("x")
    for _ in range(100):
        with pytest.raises(LookupError) as caught:
            with profile_section("raises"):
                raise error
        assert caught.value is error

    @profile_section("decorated")
    def f() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        f()
    assert (rows(prof)["raises"].count, rows(prof)["raises"].errors) == (100, 100)
    assert (rows(prof)["decorated"].count, rows(prof)["decorated"].errors) == (1, 1)
    assert rows(prof)["raises"].open == 0


def test_methods_static_class_and_plain(prof) -> None:
    class Model:
        @profile_section("plain")
        def plain(self):
            return self

        @profile_section("class")
        @classmethod
        def clsmethod(cls):
            return cls

        @classmethod
        @profile_section("class")
        def clsmethod_inside(cls):
            return cls

        @profile_section("static")
        @staticmethod
        def static(x):
            return x

    model = Model()
    assert model.plain() is model
    assert model.clsmethod() is Model
    assert Model.clsmethod_inside() is Model
    assert Model.static(5) == 5
    assert counts(prof) == {"plain": 1, "class": 2, "static": 1}


def test_builtins_and_callable_objects(prof) -> None:
    class Callable:
        def __call__(self, x):
            return x + 1

    assert profile_section("len")(len)([1, 2]) == 2
    assert profile_section("object")(Callable())(1) == 2
    assert counts(prof) == {"len": 1, "object": 1}


def test_decorating_what_is_no_function_is_a_clear_error() -> None:
    with pytest.raises(TypeError, match="class"):
        profile_section("x")(dict)
    for junk in (5, "f", None):
        with pytest.raises(TypeError, match="decorates functions"):
            profile_section("x")(junk)


def test_a_decorated_generator_is_timed_while_it_runs_only(prof) -> None:
    @profile_section("gen")
    def numbers():
        got = yield 1
        try:
            yield got
        except KeyError:
            yield "caught"
        return "result"

    assert inspect.isgeneratorfunction(numbers)

    def consumer():
        return (yield from numbers())

    g = consumer()
    assert next(g) == 1
    with profile_section("consumer"):
        pass
    assert rows(prof)["gen"].open == 0, "not open while it is suspended"
    assert g.send("sent") == "sent"
    assert g.throw(KeyError) == "caught"
    with pytest.raises(StopIteration) as end:
        next(g)
    assert end.value.value == "result"
    assert rows(prof)["gen"].count == 4
    assert rows(prof)["gen"].errors == 0


def test_a_decorated_generator_can_be_closed_and_can_raise(prof) -> None:
    closed = []

    @profile_section("gen")
    def numbers():
        try:
            yield 1
            raise LookupError
        finally:
            closed.append(True)

    g = numbers()
    assert next(g) == 1
    g.close()
    assert closed == [True]
    with pytest.raises(LookupError):
        list(numbers())
    assert rows(prof)["gen"].errors == 1
    assert rows(prof)["gen"].open == 0


def test_f27_coroutines_and_async_generators_are_wrapped_as_what_they_are(prof) -> None:
    @profile_section("coroutine")
    async def f(x):
        await asyncio.sleep(0)
        return x

    @profile_section("async_gen")
    async def numbers():
        for i in range(3):
            await asyncio.sleep(0)
            yield i

    assert inspect.iscoroutinefunction(f)
    assert inspect.isasyncgenfunction(numbers)

    async def main():
        assert await f(5) == 5
        assert [i async for i in numbers()] == [0, 1, 2]
        left = numbers()
        async for _ in left:
            break
        await left.aclose()
        gen = numbers()
        assert await gen.asend(None) == 0
        with pytest.raises(LookupError):
            await gen.athrow(LookupError())

    asyncio.run(main())
    assert rows(prof)["coroutine"].count == 1
    assert rows(prof)["async_gen"].open == 0
    assert rows(prof)["async_gen"].errors == 1


def test_f27_two_tasks_interleave_one_section_name(prof) -> None:
    async def task(name: str, turns: int) -> None:
        for _ in range(turns):
            with profile_section("shared"):
                await asyncio.sleep(0)
                with profile_section(name):
                    await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(task(f"inner{i % 3}", 5) for i in range(10)))

    asyncio.run(main())
    assert counts(prof) == {"shared": 50, "inner0": 20, "inner1": 15, "inner2": 15}
    for row in rows(prof).values():
        assert row.open == 0
        assert 0 <= row.min_ns <= row.max_ns
    snapshot = prof.snapshot()
    assert all(ns >= 0 for thread in snapshot.threads for ns in thread.nodes.self_ns)


def test_f27_a_hundred_tasks_one_cancelled_one_generator_left_early(prof) -> None:
    @profile_section("stream")
    async def stream():
        while True:
            await asyncio.sleep(0)
            yield 1

    async def task(i: int) -> None:
        with profile_section("task"):
            await asyncio.sleep(0)
            if i == 7:
                await asyncio.sleep(3600)
            if i == 8:
                source = stream()
                async for _ in source:
                    break
                await source.aclose()

    async def main() -> None:
        tasks = [asyncio.ensure_future(task(i)) for i in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks[7].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert (rows(prof)["task"].count, rows(prof)["task"].errors) == (100, 1)
    assert rows(prof)["task"].open == 0


def test_a_section_inside_a_generator_stays_open_while_it_is_suspended(prof) -> None:
    def generator():
        with profile_section("inside"):
            yield 1
            yield 2

    for _ in generator():
        with profile_section("loop"):
            pass
    assert counts(prof) == {"inside": 1, "loop": 2}


def test_f28_generators_collected_while_suspended_close_their_sections(prof) -> None:
    def generator():
        with profile_section("inside"):
            yield 1

    for _ in range(200):
        suspended = generator()
        next(suspended)
        cycle = [suspended]
        cycle.append(cycle)
        del suspended, cycle
    gc.collect()
    assert rows(prof)["inside"].count == 200
    assert rows(prof)["inside"].open == 0


def test_recursion_counts_every_entry_and_the_outermost_time(prof) -> None:
    @profile_section("recursive")
    def f(depth: int) -> None:
        if depth:
            f(depth - 1)

    f(9)
    row = rows(prof)["recursive"]
    assert row.count == 10
    assert row.outer_ns <= row.sum_ns
    assert row.outer_ns == row.max_ns


def test_f2_exits_out_of_order_twice_and_never(prof) -> None:
    a, b = profile_section("a"), profile_section("b")
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    b.__exit__(None, None, None)
    b.__exit__(None, None, None)
    a.__enter__()
    snapshot = prof.snapshot()
    row = rows(prof)
    assert (row["a"].count, row["a"].open) == (1, 1)
    assert (row["b"].count, row["b"].open) == (1, 0)
    assert sum(snapshot.counters.values()) >= 2, "both faults are counted"
    assert all(ns >= 0 for thread in snapshot.threads for ns in thread.nodes.self_ns)


ACTIONS = st.lists(st.tuples(st.sampled_from("ex"), st.sampled_from("abcd")), max_size=60)


@given(ACTIONS)
def test_f2_random_enters_and_exits_agree_with_a_model(actions) -> None:
    entered = dict.fromkeys("abcd", 0)
    left = dict.fromkeys("abcd", 0)
    with fastprof.Profiler(functions=False) as prof:
        for action, name in actions:
            section = profile_section(name)
            if action == "e":
                section.__enter__()
                entered[name] += 1
            else:
                section.__exit__(None, None, None)
                if left[name] < entered[name]:
                    left[name] += 1
        snapshot = prof.snapshot()
    found = {snapshot.keys[s.key].name: (s.count, s.open) for s in snapshot.sections}
    expected = {n: (left[n], entered[n] - left[n]) for n in "abcd" if entered[n]}
    assert found == expected
    assert all(ns >= 0 for thread in snapshot.threads for ns in thread.nodes.self_ns)


@pytest.mark.parametrize("junk", [5, None, b"x", ["a"], 1.5, object()])
def test_a_name_that_is_not_a_string_is_a_type_error(junk) -> None:
    with pytest.raises(TypeError):
        profile_section(junk)


def test_an_empty_name_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        profile_section("")


@pytest.mark.parametrize(
    "name",
    ["\ud800", "a\0b", "a\nb", "\x1b[31m", "\u202e", "../x", "é" * 50, "n" * 10_000_000],
    ids=lambda n: ascii(n)[:10],
)
def test_f43_strange_names_are_recorded_and_reported(prof, name, tmp_path) -> None:
    with profile_section(name):
        pass
    assert sum(counts(prof).values()) == 1
    report = prof.report()
    report.to_text().encode("utf-8")
    report.to_json().encode("utf-8")
    report.save(tmp_path / "run.fprof")
    assert len(fastprof.load(tmp_path / "run.fprof").sections) == 1


def test_junk_arguments_never_crash(prof) -> None:
    section = profile_section("x")
    for arguments in ((), (1,), (1, 2), (1, 2, 3, 4), (None,) * 3):
        try:
            section.__exit__(*arguments)
        except TypeError:
            assert len(arguments) != 3
    with pytest.raises(TypeError):
        section()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        type(section)()
    with pytest.raises((TypeError, AttributeError)):
        section.name = "y"  # type: ignore[misc]


def test_the_same_name_is_one_shared_section() -> None:
    assert profile_section("same") is profile_section("sa" + "me")


def test_f32_a_million_sections_are_counted_exactly_without_growing(prof) -> None:
    section = profile_section("x")

    def many(count: int) -> None:
        for _ in range(count):
            with section:
                pass

    many(1000)
    before = sys.getallocatedblocks()
    many(300_000)
    after = sys.getallocatedblocks()
    assert after - before < 100
    assert rows(prof)["x"].count == 301_000
    assert sum(count for _, _, count in rows(prof)["x"].hist.rows) == 301_000


def test_percentiles_are_those_of_the_durations_within_one_percent() -> None:
    numpy = pytest.importorskip("numpy")
    import time

    durations = []
    order = random.Random(3)
    with fastprof.Profiler(functions=False) as prof:
        for _ in range(200):
            pause = order.uniform(0, 0.001)
            began = time.perf_counter_ns()
            with profile_section("x"):
                time.sleep(pause)
            durations.append(time.perf_counter_ns() - began)
    row = prof.report().section("x")
    assert row.count == 200
    # The outer clock readings include slightly more time, on a busy machine sometimes much more,
    # but rarely at the same ranks: compare the median.
    assert row.p50_ms == pytest.approx(numpy.percentile(durations, 50) / 1e6, rel=0.1)
    assert row.min_ms <= row.p50_ms <= row.p95_ms <= row.p99_ms <= row.max_ms
