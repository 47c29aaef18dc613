"""A pause does not change the tree: calls during it are missing, all others stay in place."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from fastprof import profile_section
from fastprof.capture import Recorder
from fastprof.capture.convert import take_snapshot
from fastprof.snapshot import Snapshot
from trees import counts, paths

pytest.importorskip("hypothesis")
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st


def recorded(backend: str, run: Callable[[Recorder], object], *, callers: bool = False) -> Snapshot:
    """Record `run(recorder)`; sections are recorded, too."""
    recorder = Recorder(backend=backend)
    recorder.start_sections()
    recorder.enable(callers=callers)
    try:
        run(recorder)
    finally:
        recorder.disable()
        recorder.stop_sections()
    snapshot = take_snapshot(recorder)
    assert not {"unmatched", "stray_exit"} & set(snapshot.counters)
    return snapshot


def parents_of(snapshot: Snapshot, name: str) -> Counter[str]:
    """Return the calls of `name` by caller."""
    found: Counter[str] = Counter()
    for (path, kind), count in paths(snapshot).items():
        if kind == "calls" and path[-1] == name:
            found[path[-2] if len(path) > 1 else ""] += count
    return found


def leaf() -> None:
    pass


# -- calls open in a pause ---------------------------------------------------------


def test_the_caller_of_what_follows_a_pause_is_known(backend: str) -> None:
    def main(recorder: Recorder) -> None:
        leaf()
        for _ in range(12):
            recorder.pause_functions()
            leaf()
            recorder.resume_functions()
            leaf()

    assert parents_of(recorded(backend, main), "leaf") == {"main": 13}


def test_what_began_in_the_pause_is_a_caller_that_was_not_called(backend: str) -> None:
    def inner(recorder: Recorder) -> None:
        recorder.resume_functions()
        leaf()

    def outer(recorder: Recorder) -> None:
        inner(recorder)
        leaf()

    def main(recorder: Recorder) -> None:
        recorder.pause_functions()
        outer(recorder)
        leaf()

    found = paths(recorded(backend, main))
    leaves = {path: n for (path, _), n in found.items() if path[-1] == "leaf"}
    assert leaves == {
        ("main", "outer", "inner", "leaf"): 1,
        ("main", "outer", "leaf"): 1,
        ("main", "leaf"): 1,
    }
    assert not {path for path, _ in found if path[-1] in ("outer", "inner")}


def test_what_has_ended_in_the_pause_is_no_caller(backend: str) -> None:
    def inner(recorder: Recorder) -> None:
        recorder.pause_functions()

    def outer(recorder: Recorder) -> None:
        inner(recorder)

    def main(recorder: Recorder) -> None:
        outer(recorder)
        recorder.resume_functions()
        leaf()

    assert parents_of(recorded(backend, main), "leaf") == {"main": 1}


def test_a_section_stays_where_it_was_opened(backend: str) -> None:
    def work(recorder: Recorder) -> None:
        with profile_section("inner"):
            leaf()

    def main(recorder: Recorder) -> None:
        with profile_section("outer"):
            recorder.pause_functions()
            work(recorder)
        with profile_section("between"):
            work(recorder)
            recorder.resume_functions()
            work(recorder)

    found = paths(recorded(backend, main))
    assert {path: n for (path, _), n in found.items()} == {
        ("main",): 1,
        ("main", "outer"): 1,
        ("main", "outer", "work", "inner"): 1,
        ("main", "between"): 1,
        ("main", "between", "work"): 1,
        ("main", "between", "work", "inner"): 2,
        ("main", "between", "work", "inner", "leaf"): 1,
    }


def test_a_pause_takes_no_time_of_functions(backend: str) -> None:
    def main(recorder: Recorder) -> None:
        with profile_section("all"):
            recorder.pause_functions()
            sum(i * i for i in range(200_000))
            recorder.resume_functions()

    def ratio() -> float:
        snapshot = recorded(backend, main)
        own = {
            snapshot.keys[thread.nodes.key[i]].name: thread.nodes.self_ns[i]
            for thread in snapshot.threads
            for i in range(1, len(thread.nodes))
        }
        return own["all"] / own["main"]

    # A wait for a CPU may be anywhere, but not every time.
    assert any(ratio() > 10 for _ in range(5))


def test_a_generator_that_leaves_its_section_open(backend: str) -> None:
    def values(recorder: Recorder) -> Iterator[int]:
        with profile_section("open"):
            recorder.pause_functions()
            yield 1
            recorder.resume_functions()
            leaf()
            yield 2

    def main(recorder: Recorder) -> None:
        for _ in values(recorder):
            leaf()

    def whole(recorder: Recorder) -> None:
        main(Nothing())  # type: ignore[arg-type]

    found = paths(recorded(backend, main))
    assert {path for path, _ in found} <= {path[1:] for path, _ in paths(recorded(backend, whole))}


def test_threads_keep_their_callers(backend: str) -> None:
    turns: list[queue.SimpleQueue[int]] = [queue.SimpleQueue(), queue.SimpleQueue()]

    def work() -> None:
        leaf()

    def loop() -> None:
        while turns[0].get():
            work()
            turns[1].put(1)

    def main(recorder: Recorder) -> None:
        thread = threading.Thread(target=loop)
        thread.start()
        for i in range(9):
            if i % 3 == 0:
                recorder.pause_functions()
            turns[0].put(1)
            turns[1].get()
            if i % 3 == 1:
                recorder.resume_functions()
        turns[0].put(0)
        thread.join()

    found = paths(recorded(backend, main))
    assert [(p[-2], n) for (p, _), n in found.items() if p[-1] == "work"] == [("loop", 3)]
    assert [(p[-3:-1], n) for (p, _), n in found.items() if p[-1] == "leaf"] == [
        (("loop", "work"), 3)
    ]


def test_callers_from_before_the_recording_if_wanted(backend: str) -> None:
    def work(recorder: Recorder) -> None:
        recorder.disable()
        recorder.enable(callers=True)
        leaf()

    def main(recorder: Recorder) -> None:
        work(recorder)
        leaf()
        recorder.disable()
        recorder.enable()
        leaf()

    found = paths(recorded(backend, main))
    leaves = {path[-3:]: n for (path, _), n in found.items() if path[-1] == "leaf"}
    assert leaves == {("main", "work", "leaf"): 1, ("recorded", "main", "leaf"): 1, ("leaf",): 1}


class Nothing:
    """Replaces the recorder if no pause is wanted."""

    def pause_functions(self, **options: bool) -> None:
        pass

    def resume_functions(self) -> None:
        pass


def test_what_replaced_all_of_the_path_while_the_hook_was_out(backend: str) -> None:
    recorder = Recorder(backend=backend)

    def train() -> None:
        leaf()
        recorder.pause_functions(unhook=True)

    def validate() -> None:
        recorder.rehook()
        recorder.resume_functions()
        leaf()

    recorder.enable()
    train()
    validate()
    leaf()
    recorder.disable()
    snapshot = take_snapshot(recorder)
    assert parents_of(snapshot, "leaf") == {"train": 1, "validate": 1, "": 1}
    assert counts(snapshot, "validate") == (0, 0)
    assert "unmatched" not in snapshot.counters


def test_no_function_gets_the_time_of_a_pause_from_an_external_timer() -> None:
    now = 0

    def timer() -> int:
        nonlocal now
        now += 1
        return now

    recorder = Recorder(timer, 1e-9, builtins=False, backend="setprofile")

    def outer() -> None:
        recorder.resume_functions()
        leaf()

    recorder.enable()
    leaf()
    recorder.pause_functions()
    now += 1000  # none of it is `outer`'s
    outer()
    recorder.disable()
    (thread,) = take_snapshot(recorder).threads
    assert sum(thread.nodes.self_ns[1:]) < 1000 <= thread.nodes.self_ns[0]


# -- random programs -----------------------------------------------------------------

#: A program is a list of operations; operations that hold a program call it.
Program = list[tuple[str, "Program"]]

_leaves = st.sampled_from(
    ["c", "method", "raise_c", "nothing", "pause", "resume", "pause", "resume"]
).map(lambda op: (op, []))
_programs = st.recursive(
    st.lists(_leaves, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            _leaves,
            st.tuples(
                st.sampled_from(
                    [
                        *["call", "bound", "raise", "generate", "abandon", "throw", "sort"],
                        *["section", "section_of_generator", "recurse", "coroutine"],
                    ]
                ),
                inner,
            ),
        ),
        max_size=4,
    ),
    max_leaves=25,
)


class Machine:
    """Runs a program with calls of many kinds."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.pause = pause
        self.resume = resume

    def run(self, program: Program) -> None:
        for op, inner in program:
            if op == "pause":
                self.pause()
            elif op == "resume":
                self.resume()
            else:
                getattr(self, "do_" + op)(inner)

    def do_nothing(self, inner: Program) -> None:
        pass

    def do_c(self, inner: Program) -> None:
        len(inner)

    def do_method(self, inner: Program) -> None:
        [1].append(2)
        "a".join(["b"])

    def do_raise_c(self, inner: Program) -> None:
        with contextlib.suppress(ZeroDivisionError):
            divmod(1, 0)

    def do_call(self, inner: Program) -> None:
        Machine.run(self, inner)

    def do_recurse(self, inner: Program) -> None:
        self.deeper(inner, 3)

    def deeper(self, inner: Program, depth: int) -> None:
        if depth:
            self.deeper(inner, depth - 1)
        self.run(inner)

    def do_bound(self, inner: Program) -> None:
        run = self.run
        run(inner)

    def do_raise(self, inner: Program) -> None:
        with contextlib.suppress(KeyError):
            self.fail(inner)

    def fail(self, inner: Program) -> None:
        self.run(inner)
        raise KeyError

    def do_section(self, inner: Program) -> None:
        with profile_section(f"={len(inner)}"):
            self.run(inner)

    def values(self, inner: Program) -> Iterator[int]:
        try:
            for i in range(3):
                self.run(inner)
                yield i
        except KeyError:
            yield 3

    def section_values(self, inner: Program) -> Iterator[int]:
        with profile_section("=generator"):
            yield from self.values(inner)

    def do_generate(self, inner: Program) -> None:
        for _ in self.values(inner):
            self.do_nothing(inner)

    def do_section_of_generator(self, inner: Program) -> None:
        for _ in self.section_values(inner):
            self.run(inner)

    def do_abandon(self, inner: Program) -> None:
        for _ in self.section_values(inner):
            break

    def do_throw(self, inner: Program) -> None:
        values = self.values(inner)
        next(values)
        values.throw(KeyError())

    def do_sort(self, inner: Program) -> None:
        def key(x: int) -> int:
            self.run(inner)
            return x

        sorted([2, 1], key=key)

    async def wait(self, inner: Program) -> None:
        self.run(inner)

    async def together(self, inner: Program) -> None:
        await self.wait(inner)
        self.run(inner)

    def do_coroutine(self, inner: Program) -> None:
        with contextlib.suppress(StopIteration):
            self.together(inner).send(None)


def contexts(snapshot: Snapshot) -> Counter[tuple[tuple[str, ...], str]]:
    """Return `paths`, including nodes without calls, whose paths must exist, too."""
    found = paths(snapshot)
    for thread in snapshot.threads:
        nodes, path = thread.nodes, []
        for i in range(len(nodes)):
            key = snapshot.keys[nodes.key[i]]
            above = path[nodes.parent[i]] if i else ()
            path.append(above if i == 0 or key.kind == "type" else (*above, key.name))
            if path[-1]:
                found[path[-1], "calls"] += 0
    return found


def without_callbacks(
    found: Counter[tuple[tuple[str, ...], str]],
) -> Counter[tuple[tuple[str, ...], str]]:
    """Remove C functions above others: the interpreter does not show that one is open."""
    less: Counter[tuple[tuple[str, ...], str]] = Counter()
    for (path, kind), n in found.items():
        above = tuple(name for name in path[:-1] if not name.startswith("<"))
        less[(*above, path[-1]), kind] += n
    return less


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    # A later collection may run foreign Python code at any allocation.
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def check(backend: str, program: Program, pause: str, resume: str) -> None:
    """Check that code for `pause` and `resume`, with the recorder as ``r``, loses only calls."""

    def tree(pause: str, resume: str) -> Counter[tuple[tuple[str, ...], str]]:
        def run(recorder: Recorder) -> None:
            operations = [eval(f"lambda: ({code})", {"r": recorder}) for code in (pause, resume)]
            Machine(*operations).run(program)

        return without_callbacks(contexts(recorded(backend, run)))

    whole, paused = tree("None", "None"), tree(pause, resume)
    assert paused.keys() <= whole.keys()
    assert {k: n for k, n in paused.items() if n > whole[k]} == {}
    # Sections are recorded in a pause, too.
    for (path, kind), n in whole.items():
        assert paused[path, kind] == n or not path[-1].startswith("="), path


@settings(max_examples=examples(150), deadline=None)
@given(_programs)
def test_random_programs(backend: str, program: Program) -> None:
    check(backend, program, "r.pause_functions()", "r.resume_functions()")


@settings(max_examples=examples(50), deadline=None)
@given(_programs)
def test_random_programs_whose_hook_is_taken_out(backend: str, program: Program) -> None:
    check(backend, program, "r.pause_functions(unhook=True)", "r.rehook(), r.resume_functions()")


def test_the_recorder_s_switches_are_not_recorded():
    recorder = Recorder()
    recorder.enable()
    recorder.pause_functions()
    recorder.resume_functions()
    recorder.rehook()
    recorder.rest("module.py")
    recorder.end_rest(None)
    recorder.begin_unprofiled()
    recorder.end_unprofiled(True)
    recorder.disable()
    described = " ".join(key[3] for key in recorder.export()["keys"])
    for name in ("functions", "hook", "rest", "unprofiled"):
        assert name not in described
