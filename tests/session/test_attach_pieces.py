"""An attach works in the main thread in short pieces, between which the program goes on."""

from __future__ import annotations

import os
import sys
import time

import pytest
from fastprof.cli import main
from fastprof.session.outside import places
from fastprof.session.outside.ask import named, send
from helpers import child_env, run_child, time_scale

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

PROGRAM = """
import os, select, sys
import fastprof
from fastprof.integrations._torch.attached import Attached
from fastprof.session.outside import standby

turns, seen, made = 0, [], []

class Recording(Attached):
    def __init__(self):
        super().__init__()
        made.append(self)
    def prepare(self):
        seen.append(turns)
        return super().prepare() {more}
    def start(self):
        seen.append(-1)
        super().start()

standby.begin(Recording)
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    turns += 1
    if len(seen) == 1 and {once}:
        {between}
if standby.current.running():
    standby.current.running().stop()
print(*seen)
"""


@pytest.fixture
def begin(top, start_program):
    def begin(between="pass", once="True", more=""):
        code = PROGRAM.format(between=between, once=once, more=more)
        return start_program(code, child_env({places.VARIABLE: str(top)}))

    return begin


def attached(capsys, pid):
    status = main(["attach", str(pid), "--seconds", "0.3"])
    return status, " ".join("".join(capsys.readouterr()).split())


def taken(place):
    last = time.monotonic() + 30 * time_scale()
    while os.listdir(place.path(places.REQUESTS)):
        assert time.monotonic() < last
        time.sleep(0.05)
    time.sleep(0.05)


def end(child):
    out, err = child.communicate("\n", timeout=60 * time_scale())
    assert (child.returncode, err) == (0, "")
    return [int(word) for word in out.split()]


def test_the_program_goes_on_between_the_pieces(begin, capsys):
    child = begin()
    status, text = attached(capsys, child.pid)
    assert status == 0, text
    first, second, third, start = end(child)
    assert first < second < third
    assert start == -1


def test_a_fork_between_the_pieces_leaves_the_child_alone(begin, capsys):
    child = begin(
        "import warnings; warnings.simplefilter('ignore', DeprecationWarning)  # threads, fork\n"
        "        number = os.fork()\n"
        "        if not number: import time; time.sleep(0.7); os._exit(len(seen) != 1)\n"
        "        seen.append(-(100 + os.waitpid(number, 0)[1]))"
    )
    status, text = attached(capsys, child.pid)
    assert status == 0, text
    assert -100 in end(child)  # the child has seen no other piece


def test_a_program_that_ends_between_the_pieces_ends_as_it_would(begin, capsys):
    child = begin("break")
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert "has ended" in text
    assert len(end(child)) == 1


def test_a_run_that_the_program_starts_between_the_pieces_goes_first(begin, capsys):
    child = begin("run = fastprof.Profiler().start()", once="standby.current.running() is None")
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert "the program has started a run of its own meanwhile" in text
    assert -1 not in end(child)


def test_whoever_gives_up_between_the_pieces_leaves_no_recording(begin, capsys):
    child = begin(more="or len(made) == 1")  # the first one is never ready
    process, place = named(str(child.pid))
    first = send(process, place, places.ATTACH, {"seconds": 30.0})
    taken(place)
    status, text = attached(capsys, child.pid)
    assert status == 2
    assert "another `fastprof attach` records this process now" in text
    send(process, place, places.DETACH, {"name": first})
    taken(place)
    status, text = attached(capsys, child.pid)
    assert status == 0, text
    assert end(child).count(-1) == 1


PREPARED = """
import sys, threading
{importing}
from fastprof.capture import calibrate

def ready():
    def make():
        from fastprof.integrations._torch.attached import Attached
        made.append(Attached())
    made = []
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    pieces = 0
    while made[0].prepare():
        pieces += 1
    assert pieces == 2, pieces
    return made[0]

recording = ready()
known = set(sys.modules)
def refuse(*args):
    raise AssertionError("the start measures")
calibrate._measure = calibrate._measure_sections = refuse
if "torch" in known:
    from fastprof.integrations._torch import dynamo
    assert not list(dynamo._codes(id(sys.modules["torch"]._C._dynamo.eval_frame)))
recording.start()
sum(map(abs, range(1000)))
recording.stop()
assert not set(sys.modules) - known, set(sys.modules) - known
assert not recording.snapshot().notes, recording.snapshot().notes
print("ok")
"""


@pytest.mark.parametrize("framework", ["", "torch"])
def test_the_start_imports_and_measures_nothing_and_neither_does_the_stop(framework):
    if framework:
        pytest.importorskip(framework)
    importing = f"import {framework}" if framework else ""
    assert run_child(PREPARED.format(importing=importing)).check().stdout == "ok\n"


def test_nothing_here_waits_for_the_disk(tmp_path, monkeypatch):
    def refuse(fd):
        raise AssertionError("it waits for the disk")

    monkeypatch.setattr(os, "fsync", refuse)
    place = places.Place(str(tmp_path), 1, 1)
    os.makedirs(place.path(places.REQUESTS))
    os.utime(place.path(places.REQUESTS), (1, 1))
    place.put({"a": 1}, places.STATUS)
    place.wake()
    assert place.get(places.STATUS) == {"a": 1}
    assert os.stat(place.path(places.REQUESTS)).st_mtime > 1
    assert os.listdir(place.path(places.REQUESTS)) == []
