"""What a change of the step time is said to come from: one planted cause each, in segments."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fastprof.session.history.causes import CAUSES
from fastprof.session.history.meanwhile import Meanwhile
from fastprof.session.history.watcher import Watcher
from fastprof.snapshot.codec import Known, read
from fastprof.snapshot.history import Segment
from fastprof.snapshot.history_sums import GpuClock, Loading, added, grown
from helpers import imported_script

changes = imported_script("benchmarks/changes.py")
_AT, _END = 60, 76


def line(plant, kind, part: float = 0.5) -> str:
    """Return the line of a run; ``plant(segment, since)`` adds what was measured meanwhile."""
    watcher, drawn = Watcher(), random.Random(5)
    for i in range(_END):
        since = i >= _AT
        made = changes.segment(i, drawn, kind if since else None, part * since, 0.005)
        found = watcher.add(plant(made, since), 0)
        if found is not None:
            return changes.text_of(found)
    raise AssertionError("no change was found")


DATA = changes.Kind("data", 0)


def loading(blocked: int, load_ms: int, workers: int = 4):
    def plant(segment: Segment, since: bool) -> Segment:
        waits, load = (blocked, load_ms) if since else (4, 40)
        return replace(
            segment,
            loading=Loading(
                workers=workers if since else 4,
                batches=100,
                blocked=waits,
                blocked_ns=waits * 22_000_000,
                loads=10,
                load_ns=load * 10_000_000,
            ),
        )

    return plant


def test_slow_workers_of_the_loader_are_named() -> None:
    assert (
        "the loop waits for 90.0 % of the batches of the loader's workers instead of 4.00 % (19.8 "
        "ms per batch instead of 0.880 ms, a worker takes 120 ms for one instead of 40.0 ms)"
    ) in line(loading(90, 120), DATA)


def test_a_loader_with_fewer_workers_is_named() -> None:
    text = line(loading(90, 40, workers=2), DATA)
    assert "instead of 0.880 ms, 2 workers instead of 4)" in text
    assert ";" not in text
    assert "a worker takes" not in text


def test_workers_that_are_no_cause_are_not_named() -> None:
    assert "workers" not in line(loading(5, 120), DATA)
    assert "workers" not in line(loading(90, 120), DATA, part=-0.1)


def test_waiting_for_other_ranks_is_named() -> None:
    def plant(segment: Segment, since: bool) -> Segment:
        ms = 21 if since else 2
        return replace(segment, waits_ns=segment.full.count * ms * 1_000_000)

    text = line(plant, changes.Kind("backward", 2))
    assert "waiting for other ranks +19.0 ms of it" in text
    assert "ranks" not in line(lambda segment, since: replace(segment, waits_ns=8), DATA)


def clock(mhz: int, slowed: int = 0):
    def plant(segment: Segment, since: bool) -> Segment:
        now = GpuClock(5, 5 * (mhz if since else 1755), 5, 5 * (84 if since else 70), 5, slowed)
        return replace(segment, gpu_clock=now if since else replace(now, slowed=0))

    return plant


def test_a_slower_clock_of_the_gpu_is_named_with_its_heat() -> None:
    text = line(clock(1200, 5), changes.Kind("forward", 1))
    assert (
        "; the GPU's clock is 1200 MHz instead of 1755 MHz at 84 °C instead of 70 °C, and "
        "throttled for 100 % of the time meanwhile"
    ) in text
    assert "throttled" not in line(clock(1200), changes.Kind("forward", 1))
    assert "GPU" not in line(clock(1740, 5), changes.Kind("forward", 1))


def test_the_clock_of_several_gpus_is_their_mean() -> None:
    def plant(segment: Segment, since: bool) -> Segment:
        made = clock(1200)(segment, since)
        assert made.gpu_clock is not None
        return replace(made, gpu_clock=replace(made.gpu_clock, devices=4))

    text = line(plant, changes.Kind("forward", 1))
    assert "; the mean clock of 4 GPUs is 1200 MHz instead of 1755 MHz at 84 °C" in text


def test_the_number_of_gpus_is_that_of_those_with_a_clock() -> None:
    none = {"sm_clock_mhz": None, "temperature_c": None, "reasons": None}
    health = ({**none, "sm_clock_mhz": (3, 3600)}, None, none, {**none, "sm_clock_mhz": (1, 900)})
    recorder = SimpleNamespace(gpu_status=lambda: {"health": health})
    meanwhile = Meanwhile(recorder, lambda: (-1, None), lambda: None)
    assert meanwhile._clock() == GpuClock(4, 4500, 0, 0, 0, 0, 2)


def test_the_number_of_gpus_is_no_sum() -> None:
    a, b = GpuClock(1, 1500, 1, 70, 1, 0, 2), GpuClock(3, 4500, 3, 210, 3, 1, 2)
    assert grown(b, a) == GpuClock(2, 3000, 2, 140, 2, 1, 2)
    assert added(a, b) == GpuClock(4, 6000, 4, 280, 4, 1, 2)
    old = GpuClock(1, 1500, 1, 70, 1, 0)  # of an earlier version
    assert added(old, old) == GpuClock(2, 3000, 2, 140, 2, 0)
    assert grown(old, old) == GpuClock(0, 0, 0, 0, 0, 0)


def test_a_saved_clock_without_a_number_of_gpus_is_read() -> None:
    clock = GpuClock(1, 1500, 1, 70, 1, 0)
    saved = clock.to_dict()
    saved.pop("devices", None)
    assert read(GpuClock, saved, "clock", Known({})) == clock


def counted(name: str, per_step: int):
    def plant(segment: Segment, since: bool) -> Segment:
        if not since:
            return segment
        plain, full = (
            replace(steps, **{name: per_step * steps.count})
            for steps in (segment.plain, segment.full)
        )
        return replace(segment, plain=plain, full=full)

    return plant


@pytest.mark.parametrize(
    ("name", "per_step", "words"),
    [
        ("gc_ns", 15_000_000, "garbage collection +15.0 ms of it"),
        ("cpu_wait_ns", 12_000_000, "waiting for a CPU +12.0 ms of it"),
        ("faults", 30, "30 more page faults per step wait for the disk"),
    ],
)
def test_what_steps_count_is_named(name: str, per_step: int, words: str) -> None:
    assert words in line(counted(name, per_step), DATA)
    assert words not in line(lambda segment, since: segment, DATA)


@pytest.mark.parametrize(
    ("name", "words"), [("rss_bytes", "memory of the process"), ("gpu_bytes", "GPU memory")]
)
def test_memory_that_grows_is_named(name: str, words: str) -> None:
    def plant(segment: Segment, since: bool) -> Segment:
        grown = segment.first // 1000 - _AT if since else 0
        return replace(segment, **{name: 10**9 + 10**8 * grown})

    assert f"; {words} grows " in line(plant, DATA)


def test_each_cause_has_a_name_of_its_own() -> None:
    names = [cause.name for cause in CAUSES]
    assert len(set(names)) == len(names) == 8


def test_sums_that_begin_anew_are_unknown() -> None:
    a, b = Loading(4, 10, 1, 5, 3, 9), Loading(2, 30, 2, 8, 4, 20)
    assert grown(b, a) == Loading(2, 20, 1, 3, 1, 11)
    assert grown(a, b) is grown(a, None) is grown(None, a) is None
    assert added(a, b) == Loading(2, 40, 3, 13, 7, 29)
    assert added(a, None) is None
