"""Reading a recording under way: the last steps, the thread's place, its contexts."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from array import array

import pytest
from fastprof import _core, profile_section
from fastprof.ranks.exchange.recording import Recording
from fastprof.snapshot.run_phases import RUN_PHASES
from helpers import run_child

CHECKPOINT = RUN_PHASES.index("checkpoint")


@pytest.fixture
def recorder(backend):
    made = _core.Recorder(backend=backend, skip_steps=1)
    made.start_sections()
    made.enable()
    made.mark()
    yield made
    made.disable()
    made.stop_sections()


def sleeping(ms):
    time.sleep(ms / 1000)


def steps(recorder, count, ms=1.0):
    for _ in range(count):
        with profile_section("data"):
            sleeping(ms)
        recorder.step()


def column(raw, name):
    return list(array("q", raw[name]))


def test_the_steps_from_a_number_on_are_those_of_the_export(recorder):
    steps(recorder, 8)
    raw = recorder.window(5)
    recorder.disable()
    whole = recorder.export()["steps"]
    series = whole["series"]
    assert raw["steps"] == whole["count"] == 8
    assert raw["measured"] == 7
    assert column(raw, "number") == [5, 6, 7] == series["number"][-3:]
    assert column(raw, "wall_ns") == series["wall_ns"][-3:]
    assert column(raw, "cpu_ns") == series["cpu_ns"][-3:]
    ((name, times),) = raw["sections"]
    assert name == "data"
    assert list(array("q", times)) == series["sections"][0][1][-3:]
    assert min(array("q", times)) >= 10**6
    assert column(recorder.window(8), "number") == []
    assert column(recorder.window(-5), "number") == [1, 2, 3, 4, 5, 6, 7]


def test_time_between_steps_is_that_of_its_phase(recorder):
    rank = Recording(recorder, "job", 0, 2, "n0")
    steps(recorder, 4)
    assert rank.window().between == {}
    for _ in range(2):
        recorder.set_phase(CHECKPOINT)
        sleeping(30)
        recorder.set_phase(0)
        steps(recorder, 5)
    times = recorder.window(0)["phases_ns"]
    recorder.disable()
    assert len(times) == len(RUN_PHASES)
    told = dict(p[:2] for p in recorder.export()["phases"])[CHECKPOINT]
    assert times[CHECKPOINT] == pytest.approx(told, abs=1000)  # the clock is calibrated anew
    between = rank.window().between
    assert between == {"checkpoint": times[CHECKPOINT] // 10 // 1000}
    assert between["checkpoint"] >= 6000


def test_more_steps_than_the_ring_has_are_its_newest(backend):
    made = _core.Recorder(backend=backend, skip_steps=0)
    made.start_sections()
    made.mark()
    for _ in range(4100):
        made.step()
    assert column(made.window(0), "number") == list(range(4, 4100))
    assert column(made.window(4098), "number") == [4098, 4099]
    assert set(column(made.window(4098), "communication_ns")) == {-1}  # no functions
    made.stop_sections()


def test_it_says_where_the_training_thread_stands(recorder):
    found = []

    def look():
        found.append(recorder.window(0))
        done.set()

    done = threading.Event()
    recorder.step()
    with profile_section("outer"), profile_section("inner"):
        thread = threading.Thread(target=look)
        thread.start()
        done.wait(10)
    thread.join()
    (raw,) = found
    assert raw["open"] == ["outer", "inner"]
    assert raw["thread"] == threading.get_ident()
    assert raw["waiting"] is False


def test_times_of_contexts_are_those_of_the_export(recorder):
    recorder.step()
    steps(recorder, 5)
    times = array("q", recorder.node_times())
    rows, keys = recorder.nodes(array("q", range(len(times))).tobytes())
    assert list(rows) == list(range(len(times)))
    assert rows[0] == (-1, -1)  # the root, where measured steps are
    named = {i: keys[key] for i, (_, key) in rows.items() if key >= 0}
    slept = sum(times[i] for i, key in named.items() if key[4] == "time.sleep" or key[4] == "sleep")
    assert slept >= 5 * 10**6
    mine = [i for i, key in named.items() if key[3] == "sleeping"]
    assert mine
    for i in mine:  # each under the section, somewhere
        above = rows[i][0]
        assert named[above][:2] == ("section", "")
        assert named[above][3] == "data"
    (one, *_) = mine
    some, _ = recorder.nodes(array("q", [one, -1, 10**9]).tobytes())
    chain, node = [], one
    while node >= 0:
        chain.append(node)
        node = rows[node][0]
    assert list(some) == sorted(chain)
    assert all(some[node][0] == rows[node][0] for node in chain)
    assert recorder.nodes(b"")[0] == {}


def test_nothing_steps_and_wrong_arguments():
    made = _core.Recorder()
    assert made.window(0) is None
    assert made.node_times() is None
    assert made.nodes(b"") is None
    with pytest.raises(TypeError):
        made.window("0")
    with pytest.raises(TypeError):
        made.nodes([0])
    with pytest.raises(TypeError):
        made.run_unrecorded(7)


def test_a_thread_that_is_left_out_is_in_no_export(recorder):
    done = threading.Event()

    def unseen():
        sleeping(0.1)
        with profile_section("unseen"):
            recorder.window(0)

    def run():
        unseen()
        done.set()

    recorder.step()
    _thread.start_new_thread(recorder.run_unrecorded, (run,))
    assert done.wait(10)
    steps(recorder, 3)
    recorder.disable()
    data = recorder.export()
    assert len(data["threads"]) == 1
    names = {key[3] for key in data["keys"]}
    assert "unseen" not in names
    assert "sleeping" in names


def test_what_it_raises_comes_through_and_the_thread_is_recorded_again(recorder):
    def fails():
        raise KeyError("x")

    recorder.step()
    with pytest.raises(KeyError):
        recorder.run_unrecorded(fails)
    assert recorder.run_unrecorded(lambda: 7) == 7
    steps(recorder, 2)
    assert column(recorder.window(0), "number") == [1, 2]


def test_looks_from_another_thread_while_the_tree_grows(backend):
    run_child(
        f"""
import threading, types
from fastprof import _core
made = _core.Recorder(backend={backend!r}, skip_steps=0)
made.start_sections(); made.enable(); made.mark()
going = True
def look():
    while going:
        made.window(0); made.node_times(); made.nodes(made.node_times())
thread = threading.Thread(target=look)
thread.start()
for i in range(300):
    space = {{}}
    exec(f"def f{{i}}(n):\\n    return n and f{{i}}(n - 1)", space)
    space[f"f{{i}}"](i % 40)
    made.step()
going = False
thread.join()
made.disable(); made.stop_sections()
assert len(made.export()["threads"][0][2][0]) > 300
"""
    ).check()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="no collection inside an allocation")
def test_a_recording_is_not_cleared_while_its_contexts_are_read():
    """The garbage collector ran a finalizer before the recording was in use."""
    run_child(
        """
import gc
from array import array
from fastprof import _core
made = _core.Recorder(skip_steps=0)
made.start_sections(); made.enable(); made.mark()
for _ in range(3):
    sorted([1]); made.step()
made.disable()
wanted = array("q", range(len(made.node_times()) // 8)).tobytes()
before = made.nodes(wanted)
outcomes = []
def clear(phase, info):
    try:
        outcomes.append(made.clear())
    except RuntimeError as error:
        outcomes.append(str(error))
gc.disable()
kept = [{} for _ in range(300)], [[] for _ in range(300)]  # no unused object is left to take
gc.callbacks.append(clear)
gc.set_threshold(1)
gc.enable()
read = made.nodes(wanted)
gc.disable()
assert read == before, read
# Afterwards it may be cleared.
assert outcomes[0] == "clear() called while the recorder is being read", outcomes
made.stop_sections()
"""
    ).check()


def read_spent(recorder, state):
    """Return the sums of phases and contexts since the last look, and what was new."""
    known, place = state
    sums, at, new = array("q", bytes(16 * 2000)), 0, {}
    while True:
        _, count, then, rows = recorder.add_spent(at, 10**6, known, place, sums)
        numbers = array("q", rows)
        new |= {numbers[i]: tuple(numbers[i + 1 : i + 3]) for i in range(0, len(numbers), 3)}
        at = then
        if at == count:
            return sums, new
        more = count - len(place)
        place.extend(array("i", [-1]) * more)
        known.extend(array("q", [0]) * 2 * more)


def test_what_contexts_have_spent_is_the_difference_of_their_times(recorder):
    state = array("q"), array("i")
    recorder.step()
    steps(recorder, 5)
    before, new = read_spent(recorder, state)
    _, place = state
    times = array("q", recorder.node_times())
    assert len(times) - len(place) < 10  # this test calls functions, too
    rows, keys = recorder.nodes(array("q", new).tobytes())
    names = {node: keys[rows[node][1]][4] for node in new}
    assert {"data", "time.sleep"} <= set(names.values())
    assert all(ns == times[node] for node, (ns, _) in new.items() if names[node] == "time.sleep")
    for i, node in enumerate(new):
        place[node] = 100 + i
    steps(recorder, 3)
    recorder.disable()
    since, _ = read_spent(recorder, state)
    after = array("q", recorder.node_times())
    for i, node in enumerate(new):
        # Each of the three is rounded from ticks to ns.
        assert since[2 * (100 + i)] >= after[node] - times[node] - 1
    slept = [100 + i for i, node in enumerate(new) if names[node] == "time.sleep"]
    assert sum(since[2 * at + 1] for at in slept) == 3
    assert abs(sum(before[::2]) + sum(since[::2]) - sum(after)) < len(after) * 5
    assert sum(read_spent(recorder, state)[0]) == 0


def test_buffers_that_do_not_match_are_refused_and_their_content_is_not_trusted(recorder):
    steps(recorder, 3)
    place, sums = array("i", [2**31 - 1, -(2**31)] * 20), array("q", bytes(16 * 40))
    with pytest.raises(ValueError, match="wrong sizes"):
        recorder.add_spent(0, 0, array("q", bytes(8)), place, sums)
    with pytest.raises(ValueError, match="wrong sizes"):
        recorder.add_spent(-1, 0, array("q", bytes(16 * 40)), place, sums)
    with pytest.raises(ValueError, match="wrong sizes"):
        recorder.add_spent(0, 0, array("q", bytes(16 * 40)), place, array("q"))
    with pytest.raises(TypeError):
        recorder.add_spent(0, 0, bytes(640), place, sums)
    recorder.add_spent(0, 0, array("q", bytes(16 * 40)), place, sums)
    assert all(-40 < at < 40 for at in place[:10])
    assert _core.Recorder().add_spent(0, 0, array("q"), array("i"), array("q", bytes(640))) is None
