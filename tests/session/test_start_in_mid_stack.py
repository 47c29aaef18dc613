"""A run that begins in the middle of a stack: calls open at that moment are callers."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fastprof
import pytest
from fastprof.export.pstats_ import stats_dict
from fastprof.snapshot import Snapshot
from helpers import need_running_threads, run_command
from trees import counts, paths


def leaf() -> None:
    pass


def step(prof: fastprof.Profiler) -> None:
    leaf()
    prof.step()


def loop(prof: fastprof.Profiler) -> None:
    for _ in range(6):
        step(prof)


def contexts(snapshot: Snapshot, name: str) -> set[tuple[str, ...]]:
    """Return the paths to `name`, of functions of this file only."""
    found = set()
    for thread in snapshot.threads:
        so_far: list[tuple[str, ...]] = []
        for key_index, parent in zip(thread.nodes.key, thread.nodes.parent, strict=True):
            above = so_far[parent] if so_far else ()
            key = snapshot.keys[key_index]
            so_far.append((*above, key.name) if so_far and key.file == __file__ else above)
            if key.name == name and key.file == __file__:
                found.add(so_far[-1])
    return {path[path.index("main") :] if "main" in path else path for path in found}


@pytest.fixture
def prof(backend: str) -> fastprof.Profiler:
    return fastprof.Profiler(
        functions=True,
        recorder={"backend": backend},
        gpu=False,
        memory=False,
        nvtx=False,
        log_every=0,
    )


def with_statement(prof: fastprof.Profiler) -> None:
    with prof:
        loop(prof)


def methods(prof: fastprof.Profiler) -> None:
    prof.start()
    loop(prof)
    prof.stop()


def generator(prof: fastprof.Profiler) -> None:
    def values() -> Iterator[int]:
        with prof:
            yield 1

    for _ in values():
        loop(prof)


@pytest.mark.parametrize("train", [with_statement, methods, generator])
def test_what_was_open_is_the_caller(
    prof: fastprof.Profiler, train: Callable[[fastprof.Profiler], None]
) -> None:
    def main() -> None:
        train(prof)

    main()
    snapshot = prof.snapshot()
    assert contexts(snapshot, "leaf") == {("main", train.__name__, "loop", "step", "leaf")}
    assert counts(snapshot, "leaf") == (6, 0)
    # They were called before the run: the report invents no calls.
    assert counts(snapshot, "main") == counts(snapshot, train.__name__) == (0, 0)
    assert not {"unmatched", "unbalanced"} & set(snapshot.counters)


def test_what_returns_below_the_start_is_the_caller_until_then(prof: fastprof.Profiler) -> None:
    def inner() -> None:
        prof.start()
        leaf()

    def outer() -> None:
        inner()
        leaf()

    def main() -> None:
        outer()
        leaf()
        prof.stop()

    main()
    assert contexts(prof.snapshot(), "leaf") == {
        ("main", "outer", "inner", "leaf"),
        ("main", "outer", "leaf"),
        ("main", "leaf"),
    }
    assert "unmatched" not in prof.snapshot().counters


def test_the_profilers_own_functions_are_one_row_as_in_the_loop(prof: fastprof.Profiler) -> None:
    with_statement(prof)
    snapshot = prof.snapshot()
    keys = [snapshot.keys[key] for thread in snapshot.threads for key in thread.nodes.key]
    session = Path(fastprof.__file__).parent / "session"
    assert not [k for k in keys if session in Path(k.file).parents or k.name.endswith("enable")]
    assert "(fastprof)" in {key.name for key in keys}


def test_a_thread_that_waits_when_the_run_begins(prof: fastprof.Profiler, backend: str) -> None:
    need_running_threads(backend)
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work() -> None:
        leaf()

    def worker() -> None:
        while asked.get():
            work()

    thread = threading.Thread(target=worker)
    thread.start()
    with prof:
        asked.put(1)
        asked.put(0)
        thread.join()
    assert contexts(prof.snapshot(), "leaf") == {("worker", "work", "leaf")}


def test_cprofiles_table_has_calls_that_were_seen_only(prof: fastprof.Profiler) -> None:
    def main() -> None:
        with_statement(prof)

    main()
    table = {name: entry for (_, _, name), entry in stats_dict(prof.snapshot()).items()}
    assert not {"main", "with_statement"} & set(table)
    assert table["loop"][:2] == (1, 1)
    assert table["loop"][4] == {}
    assert table["leaf"][:2] == (6, 6)


PROGRAM = """\
import fastprof
def main():
    pass
main()
"""


def test_a_profiled_script_is_called_by_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)
    run_command(
        [sys.executable, "-m", "fastprof", "run", "-o", "out", "script.py"], cwd=tmp_path
    ).check()
    (saved,) = (tmp_path / "out").rglob("*.fprof")
    found = {path for path, _ in paths(fastprof.load(saved).snapshot) if path[-1] == "main"}
    assert found == {("<built-in method builtins.exec>", "<module>", "main")}
