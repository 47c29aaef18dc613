"""CPU time of a run: its threads, its workers, and their effect on the training thread."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
import types

import fastprof
import pytest
from fastprof.session.environment.cpu_use import CpuUse, used_ns
from helpers import check_patiently, run_child

MS = 1_000_000


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_time_of_all_threads_counts_and_sleeping_does_not():
    use = CpuUse()
    assert use.to_meta() == {}
    use.begin()
    threads = [threading.Thread(target=burn, args=(0.05,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.3)
    so_far = use.to_meta()["process_cpu_ns"]
    use.end()
    burn(0.05)
    assert 150 * MS <= so_far <= use.to_meta()["process_cpu_ns"] < so_far + 50 * MS


def burn_and_wait(ready, done):
    burn(0.2)
    ready.set()
    done.wait(30)


def test_workers_count_while_they_live_and_after():
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    before = used_ns()
    worker = context.Process(target=burn_and_wait, args=(ready, done))
    worker.start()
    assert ready.wait(30)
    living = used_ns()
    done.set()
    worker.join()
    ended = used_ns()
    # The system counts in ticks of 10 ms.
    assert living - before >= 190 * MS
    assert ended >= living - 20 * MS


@pytest.mark.parametrize("children", [None, 5, [types.SimpleNamespace(pid=None)], [object()]])
def test_p9_whatever_multiprocessing_keeps_breaks_nothing(monkeypatch, children):
    fake = types.SimpleNamespace(_children=children)
    monkeypatch.setitem(sys.modules, "multiprocessing.process", fake)
    assert used_ns() is None or used_ns() > 0
    with fastprof.Profiler(functions=False) as profiler:
        profiler.step()
    assert profiler.report()


def test_a_program_that_uses_all_cpus_itself_is_reported():
    """The program runs ten processes beside the training thread, on one CPU.

    Other programs may use much of that CPU: then nothing is promised.
    """
    code = """
import multiprocessing, os, time
from fastprof import Profiler
from fastprof.report.figures import number

def spin(ready):
    ready.release()
    while True:
        pass

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

# Imports what it needs.  Beside the others this takes up to a minute on free-threaded 3.13, which
# gives up the CPU 40 times whenever it closes a file.
with Profiler(functions=False) as profiler:
    profiler.step()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
context = multiprocessing.get_context("fork")
ready = context.Semaphore(0)
helpers = [context.Process(target=spin, args=(ready,), daemon=True) for _ in range(10)]
for helper in helpers:
    helper.start()
for _ in helpers:
    ready.acquire()
with Profiler(functions=False) as profiler:
    for _ in range(12):
        burn(0.005)
        profiler.step()
for helper in helpers:
    helper.kill()
report = profiler.report()
used = report.meta["process_cpu_ns"] / report.snapshot.duration_ns
found = {f.rule: f for f in (*report.examination.findings, *report.examination.notes)}
assert "cpu-contention" in found, (used, report.to_text())
finding = found["cpu-contention"]
assert finding.value > 50, finding
assert f"{number(used)} of 1 CPU " in " ".join(finding.evidence), finding
split = {row.name: row.mean_ms for row in report.steps.split}
saved = finding.saving_ms
assert used < 0.8 if saved is None else abs(saved - split["cpu_wait"]) < 1e-6, finding
"""
    # Twelve steps beside eleven other processes: the scheduler decides how the time is shared.
    check_patiently(lambda result: result.check(), lambda _: run_child(code))
