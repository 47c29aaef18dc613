"""Sections in many threads."""

from __future__ import annotations

import sys
import threading

import fastprof
import pytest
from fastprof import profile_section
from fastprof.session.output.periodic import timings
from helpers import run_child, sanitized


def counts(prof) -> dict[str, int]:
    return {row.name: row.count for row in timings(prof.snapshot())}


def run_threads(target, count: int) -> None:
    threads = [threading.Thread(target=target, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_f3_a_section_left_in_another_thread_is_refused_and_counted() -> None:
    with fastprof.Profiler(functions=False) as prof:
        section = profile_section("x")
        with section:
            run_threads(lambda _: section.__exit__(None, None, None), 1)
            with profile_section("inner"):
                pass
        with profile_section("x"):
            pass
    snapshot = prof.snapshot()
    assert counts(prof) == {"x": 2, "inner": 1}
    assert snapshot.counters["wrong_thread"] == 1
    assert snapshot.counters.get("out_of_order", 0) == 0


def test_f15_threads_that_end_keep_their_figures() -> None:
    def work(i: int) -> None:
        for _ in range(10):
            with profile_section("x"):
                pass
        profile_section("left_open").__enter__()

    with fastprof.Profiler(functions=False) as prof:
        run_threads(work, 50)
    assert counts(prof)["x"] == 500


@pytest.mark.skipif(sanitized(), reason="a sanitizer keeps what is freed")
def test_f16_two_thousand_short_threads_take_bounded_memory() -> None:
    # In a separate process: the peak after other tests would mean nothing.
    code = """
import threading, fastprof
from fastprof import profile_section

def peak_kib():
    # Not ru_maxrss: after exec it has the peak of who started this process.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

def work():
    with profile_section("x"):
        pass

def run(rounds):
    for _ in range(rounds):
        threads = [threading.Thread(target=work) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return peak_kib()

with fastprof.Profiler(functions=False) as prof:
    before = run(20)
    grown_kib = run(180) - before
snapshot = prof.snapshot()
assert sum(s.count for s in snapshot.sections) == 2000
assert len(snapshot.threads) < 100
assert grown_kib < 4096, grown_kib
print(grown_kib)
"""
    run_child(code).check()


def test_f16_two_thousand_short_threads_are_counted_exactly() -> None:
    def work(_: int) -> None:
        with profile_section("x"):
            pass

    with fastprof.Profiler(functions=False) as prof:
        for _ in range(200):
            run_threads(work, 10)
    snapshot = prof.snapshot()
    assert sum(s.count for s in snapshot.sections) == 2000
    assert len(snapshot.threads) < 100


def test_f17_eight_threads_switching_all_the_time_are_counted_exactly() -> None:
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:

        def work(i: int) -> None:
            for _ in range(2000):
                with profile_section("shared"), profile_section(f"own{i}"):
                    pass

        with fastprof.Profiler(functions=False) as prof:
            run_threads(work, 8)
    finally:
        sys.setswitchinterval(old)
    expected = {"shared": 16000} | {f"own{i}": 2000 for i in range(8)}
    assert counts(prof) == expected
    assert not any(prof.snapshot().counters.values())


def test_sections_open_when_the_run_starts_and_stops_are_handled() -> None:
    outer = profile_section("outer")
    with outer:
        with fastprof.Profiler(functions=False) as prof:
            with profile_section("x"):
                pass
            profile_section("open").__enter__()
    profile_section("open").__exit__(None, None, None)
    assert counts(prof) == {"x": 1}
    with fastprof.Profiler(functions=False) as prof, profile_section("open"):
        pass
    assert counts(prof) == {"open": 1}


@pytest.mark.parametrize("loaders", [1, 3])
def test_loaders_in_threads_are_counted_apart(loaders) -> None:
    with fastprof.Profiler(functions=False, log_every=None) as prof:

        def work(i: int) -> None:
            for _ in prof.loader(range(100), f"t{i}"):
                with profile_section("forward"):
                    pass

        run_threads(work, loaders)
        prof.step()
    rows = {row.name: row for row in prof.snapshot().loaders}
    for i in range(loaders):
        assert rows[f"t{i}"].batches == 100
        assert rows[f"t{i}"].phases["data"][0] == 100
        assert rows[f"t{i}"].phases["forward"][0] == 100
        assert prof.last_metrics[f"profile/train/dl_t{i}/time_forward_ms"].count == 100
