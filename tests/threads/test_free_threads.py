"""Recording on a free-threaded build without the GIL: eight threads at the same time."""

from __future__ import annotations

import pytest
from helpers import FREE_THREADED, run_child

pytestmark = pytest.mark.skipif(not FREE_THREADED, reason="needs a free-threaded build")

PRELUDE = """
import random, sys, threading, time
import fastprof._core as core
from fastprof import profile_section
assert not sys._is_gil_enabled()

def leaf(x=0): return x + 1
def generator(n):
    for i in range(n): yield i

def work(n):
    for i in range(n):
        leaf()
        len("abc")
        with profile_section("outer"):
            with profile_section("inner %d" % (i % 7)): leaf(x=1)
    return sum(generator(n))

def threads(n, target, *args):
    all_of_them = [threading.Thread(target=target, args=args) for _ in range(n)]
    for t in all_of_them: t.start()
    return all_of_them

def calls_of(exported):
    sums, resumes = {}, {}
    for _, _, columns in exported["threads"]:
        for key, calls, again in zip(columns[1], columns[2], columns[3]):
            name = exported["keys"][key][3]
            sums[name] = sums.get(name, 0) + calls
            resumes[name] = resumes.get(name, 0) + again
    return sums, resumes

def check(exported, threads, n):
    sums, resumes = calls_of(exported)
    assert sums["leaf"] == 2 * threads * n, sums["leaf"]
    assert sums["outer"] == threads * n, sums["outer"]
    assert sum(sums["inner %d" % i] for i in range(7)) == threads * n
    assert sums["generator"] == threads, sums["generator"]
    assert resumes["generator"] == threads * n, resumes["generator"]
    if "<built-in method builtins.len>" in sums:
        assert sums["<built-in method builtins.len>"] >= threads * n
    wrong = {k: v for k, v in exported["counters"].items() if v}
    assert wrong == {}, wrong
    counted = {}
    for section in exported["sections"]:
        name = exported["keys"][section[0]][3]
        counted[name] = counted.get(name, 0) + section[2]
        assert sum(row[2] for row in section[9]) == section[2], section
    assert counted["outer"] == threads * n, counted
"""


def check(code: str, timeout: float = 120.0) -> None:
    run_child(PRELUDE + code, timeout=timeout).check()


def test_f39_eight_threads_are_counted_exactly_while_another_reads(backend: str) -> None:
    check(f"""
r = core.Recorder(backend={backend!r}); r.start_sections(); r.enable()
running = threads(8, work, 5000)
while any(t.is_alive() for t in running):
    d = r.export()
    for s in d["sections"]: assert sum(row[2] for row in s[9]) == s[2]
    r.memory(); r.take_loaders(); r.code_objects()
for t in running: t.join()
r.disable(); r.stop_sections()
check(r.export(), 8, 5000)
""")


def test_f39_switching_while_eight_threads_run(backend: str) -> None:
    """Pauses, phases, traces and clears at random; then the counts are exact again."""
    check(f"""
rng = random.Random(5)
r = core.Recorder(backend={backend!r}, outliers=3); r.start_sections(); r.mark(); r.enable()
stop = False
def busy():
    while not stop: work(20)
running = threads(8, busy)
def trace():
    r.trace_open(min_ns=0, max_events=1000); leaf(); r.trace_close()
def pause():
    r.pause_functions(unhook=rng.random() < 0.3)
    leaf(); r.rehook(); r.resume_functions()
def again():
    r.disable(); r.enable()
actions = [r.clear, trace, pause, again, r.export, lambda: r.set_phase(rng.randrange(3, 7)),
           lambda: (r.mark(), r.step()), lambda: (r.stop_sections(), r.start_sections()),
           r.take_loaders, r.memory]
ends = time.monotonic() + 4
while time.monotonic() < ends: rng.choice(actions)()
stop = True
for t in running: t.join()
r.disable(); r.stop_sections(); r.clear()
r.start_sections(); r.enable()
for t in threads(8, work, 1000): t.join()
r.disable(); r.stop_sections()
check(r.export(), 8, 1000)
""")


def test_recorders_come_and_go_while_eight_threads_run() -> None:
    check("""
stop = False
def busy():
    while not stop: work(20)
running = threads(8, busy)
ends = time.monotonic() + 3
n = 0
while time.monotonic() < ends:
    r = core.Recorder(); r.start_sections(); r.enable()
    time.sleep(0.002)
    if n % 3 == 0: r.disable()
    del r
    n += 1
stop = True
for t in running: t.join()
assert n > 2, n
""")


def test_threads_load_batches_of_their_own() -> None:
    check("""
import fastprof
def train(profiler, name):
    for batch in profiler.loader([[1, 2]] * 300, name=name):
        with profile_section("forward"): sorted(batch)
with fastprof.Profiler(functions=True, skip_first=0) as profiler:
    running = [threading.Thread(target=train, args=(profiler, "extra%d" % i)) for i in range(7)]
    for t in running: t.start()
    for batch in profiler.loader([[1, 2]] * 300, name="main"):
        with profile_section("forward"): sorted(batch)
        profiler.step()
    for t in running: t.join()
snapshot = profiler.snapshot()
counted = {}
for section in snapshot.sections:
    name = snapshot.keys[section.key].name
    counted[name] = counted.get(name, 0) + section.count
assert counted == {"data": 8 * 300, "forward": 8 * 300}, counted
assert snapshot.steps.count == 300, snapshot.steps.count
""")


def test_f39_a_fork_beside_eight_threads() -> None:
    check("""
import os, warnings
warnings.simplefilter("ignore")
r = core.Recorder(); r.start_sections(); r.enable()
stop = False
def busy():
    while not stop: work(20)
running = threads(8, busy)
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        mine = core.Recorder(); mine.start_sections(); mine.enable()
        work(50)
        mine.disable(); mine.stop_sections()
        check(mine.export(), 1, 50)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
for t in running: t.join()
r.disable(); r.stop_sections()
assert {k: v for k, v in r.export()["counters"].items() if v} == {}
""")


@pytest.mark.parametrize("recording", ["r.disable(); r.stop_sections()", "del r", "pass"])
def test_f39_the_program_ends_while_daemon_threads_run(recording: str) -> None:
    for _ in range(5):
        check(
            f"""
r = core.Recorder(); r.start_sections(); r.enable()
def busy():
    while True: work(20)
for _ in range(4): threading.Thread(target=busy, daemon=True).start()
time.sleep(0.1)
{recording}
""",
            timeout=30,
        )


def test_an_operator_window_takes_the_hook_out_while_threads_run() -> None:
    """As `fastprof run` does around torch.profiler: nothing that runs on is lost or moved."""
    check("""
r = core.Recorder(); r.start_sections(); r.enable(callers=True)
stop = False
def inner():
    for _ in range(50): leaf()
def outer():
    while not stop: inner()
running = threads(4, outer)
for _ in range(30):
    r.pause_functions(unhook=True); time.sleep(0.003)
    r.rehook(); r.resume_functions(); time.sleep(0.003)
stop = True
for t in running: t.join()
r.disable(); r.stop_sections()
d = r.export()
for _, _, columns in d["threads"]:
    names = [d["keys"][k][3] for k in columns[1]]
    for parent, name in zip(columns[0], names):
        if name == "leaf": assert names[parent] == "inner", names[parent]
        if name == "inner": assert names[parent] == "outer", names[parent]
""")


COLLECTING = """
import gc
stop = False
def collect():
    while not stop:
        garbage = []
        for i in range(500):
            one = []; one.append(one); garbage.append({i: one})
        gc.collect()
def busy():
    while not stop: work(20)
running = [threading.Thread(target=f) for f in (collect, collect, busy, busy)]
"""


def test_f39_recorders_are_dropped_beside_collections() -> None:
    """A collection frees a tracked object without references a second time."""
    check(f"""{COLLECTING}
def drop():
    while not stop:
        r = core.Recorder(); r.enable(); del r
running.append(threading.Thread(target=drop))
for t in running: t.start()
time.sleep(3)
stop = True
for t in running: t.join()
""")


@pytest.mark.parametrize("action", ["clear", "pause_functions", "loader_totals"])
def test_f39_three_threads_switch_at_once(action: str) -> None:
    check(f"""{COLLECTING}
r = core.Recorder(); r.start_sections(); r.enable()
def switch():
    while not stop:
        r.{action}(); r.resume_functions()
def short():
    while not stop:
        for t in threads(4, work, 5): t.join()
running += [threading.Thread(target=f) for f in (switch, switch, switch, short)]
for t in running: t.start()
time.sleep(3)
stop = True
for t in running: t.join()
r.disable(); r.stop_sections(); r.clear()
r.start_sections(); r.enable()
for t in threads(8, work, 300): t.join()
r.disable(); r.stop_sections()
check(r.export(), 8, 300)
""")


def test_f39_phases_change_beside_collections() -> None:
    check(f"""{COLLECTING}
r = core.Recorder(); r.start_sections(); r.enable()
for t in running: t.start()
ends = time.monotonic() + 3
while time.monotonic() < ends:
    for phase in (3, 4, 5, 6): r.set_phase(phase)
stop = True
for t in running: t.join()
r.disable(); r.stop_sections()
assert {{k: v for k, v in r.export()["counters"].items() if v}} == {{}}
""")


def test_f39_a_fork_beside_collections(backend: str) -> None:
    """A thread of the parent may be about to stop the world at that moment."""
    check(f"""{COLLECTING}
import os, warnings
warnings.simplefilter("ignore")
r = core.Recorder(backend={backend!r}); r.start_sections(); r.enable()
for t in running: t.start()
for _ in range(40):
    pid = os.fork()
    if pid == 0:
        work(50)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
for t in running: t.join()
""")
