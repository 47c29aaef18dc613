"""When a run has changed, and when it has not: simulated segments."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from fastprof.comparison.stats.changepoint import Watch, change_in
from fastprof.results.report import build_report
from fastprof.session.history.watcher import Watcher
from fastprof.snapshot import Snapshot
from fastprof.snapshot.history import Change, History, SegmentSteps, bucket
from helpers import imported_script

changes = imported_script("benchmarks/changes.py")
healthy = imported_script("benchmarks/healthy_runs.py")
alarms, normal = healthy.alarms, healthy.normal

#: Segments of 5 s in an hour.
_HOUR = 720
#: Kinds of noise without levels that last for minutes.
NOISE = [
    pytest.param(noise, id=name.replace(" ", "-"))
    for name, noise in healthy.NOISE.items()
    if "0.99" not in name and "minutes" not in name
]


@pytest.mark.parametrize("noise", NOISE)
def test_a_healthy_run_has_no_alarm(noise) -> None:
    assert alarms(noise(random.Random(11), 12 * _HOUR)) == []


@pytest.mark.parametrize("noise", NOISE)
def test_healthy_runs_of_ten_minutes_have_no_alarm(noise) -> None:
    assert [alarms(noise(random.Random(seed), _HOUR // 6)) for seed in range(36)] == [[]] * 36


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISE)
def test_a_healthy_run_of_250_hours_has_at_most_one_alarm(noise) -> None:
    assert len(alarms(noise(random.Random(12), 250 * _HOUR))) <= 1


def test_a_restless_run_remains_known_as_such_after_a_change() -> None:
    noise = [3 * x for x in healthy.NOISE["autocorrelation 0.95"](random.Random(5), 900)]
    large = noise[:600] + [1.0 + x for x in noise[600:660]]
    small = [1.06 + 0.08 * x for x in noise[660:]]
    assert [600 <= at < 660 for at in alarms(large + small)] == [True]
    quiet = [1.0 + 0.08 * x for x in noise[600:660]]
    assert [60 <= at < 84 for at in alarms(quiet + small)] == [True]


def test_a_second_shift_is_found_within_a_minute_although_the_first_is_recent() -> None:
    drawn = random.Random(7)
    values = normal(drawn, 60, sd=0.005)
    for level in (0.1, 0.25):
        values += [level + x for x in normal(drawn, 12, sd=0.005)]
    first, second = alarms(values)
    assert 60 <= first < 72
    assert 72 <= second < 84


@pytest.mark.parametrize("drift", [False, True])
def test_a_change_that_is_settled_is_in_no_resolution(drift: bool) -> None:
    watch = Watch()
    ago = 44
    for i in range(300):
        since = max(0, i - (300 - ago) + 1)
        watch.add(0.0 if not since else since / ago if drift else 1.0)
    watch.settle(ago, drift)
    for values in watch._values:
        assert all(value == pytest.approx(1.0, abs=0.1 if drift else 1e-9) for value in values)


@pytest.mark.parametrize("part", [0.05, 0.1, 0.25])
@pytest.mark.parametrize("seed", range(8))
def test_a_shift_is_found_within_a_minute_at_its_segment(part: float, seed: int) -> None:
    drawn = random.Random(seed)
    watch = Watch()
    for value in normal(drawn, 50, sd=0.005):
        assert watch.add(value) is None
    found, since, ago = None, 0, 0
    for value in normal(drawn, 12, sd=0.005):
        since += 1
        change = watch.add(math.log1p(part) + value)
        if change is not None:
            found, ago = change
            break
    assert found is not None
    assert not found.drift
    assert abs(ago - since) <= 2
    assert math.expm1(found.after - found.before) == pytest.approx(part, abs=0.02)


def test_a_drift_is_found_as_one() -> None:
    drawn = random.Random(4)
    values = [0.002 * i + x for i, x in enumerate(normal(drawn, 150, sd=0.005))]
    watch, found = Watch(), []
    for value in values:
        change = watch.add(value)
        if change is not None:
            found.append(change[0])
            watch.settle(change[1], True)
    assert found
    assert all(change.drift and change.after > change.before for change in found)


def test_a_single_pause_is_no_change() -> None:
    drawn = random.Random(6)
    values = normal(drawn, 200, sd=0.002)
    values[120] += 3.0
    assert alarms(values) == []


def test_few_values_are_no_change() -> None:
    assert change_in([0.0] * 8 + [1.0] * 2) is None
    assert change_in([0.0] * 8 + [1.0] * 3) is not None


# ---- a run's segments, with a planted change


@pytest.mark.parametrize("kind", changes.KINDS, ids=lambda kind: kind.name.replace(" ", "-"))
@pytest.mark.parametrize("part", [0.05, 0.25])
def test_a_planted_change_is_found_and_named(kind, part: float) -> None:
    assert changes.judged(kind, part, 3) == (True, True, True, True)


def test_healthy_runs_have_no_line() -> None:
    drawn = random.Random(8)
    assert changes.changes(None, 0.0, drawn, 2 * _HOUR, noise=0.02) == []


def test_the_sentence_has_the_step_the_size_the_section_the_function_and_memory() -> None:
    kind = next(kind for kind in changes.KINDS if kind.leaks)
    found = changes.changes(kind, 0.2, random.Random(1), 72)
    text = changes.text_of(found[0][1])
    assert text.startswith("since step 60,001 (")
    assert "steps take 20." in text or "steps take 19." in text
    assert "backward +" in text
    assert "in loss (loss.py:10)" in text
    assert "memory of the process grows 9" in text


def test_a_machine_that_is_slower_is_named_as_such_if_it_is_much() -> None:
    everything = changes.Kind("slower machine", None)
    assert changes.changes(everything, 0.1, random.Random(2), 90) == []
    ((_, change),) = changes.changes(everything, 0.3, random.Random(2), 90)
    assert "all parts of a step by the same factor" in changes.text_of(change)


def test_a_wait_that_became_shorter_meanwhile_is_named() -> None:
    found = changes.changes(changes.KINDS[2], 0.25, random.Random(1), 72)
    change = found[0][1]

    def waiting(segment):
        plain = segment.plain
        return replace(segment, plain=replace(plain, cpu_wait_ns=plain.count * 5_000_000))

    busy = replace(change, before=tuple(map(waiting, change.before)))
    assert "in spite of waiting for a CPU -5.00 ms" in changes.text_of(busy)
    assert "in spite" not in changes.text_of(change)


def test_the_metric_is_known_from_the_earliest_moment_at_which_a_change_can_be_found() -> None:
    found, knew = [], set()
    for planted in range(10, 60):
        watcher, drawn = Watcher(), random.Random(3)
        known = None
        for i in range(100):
            kind = changes.KINDS[0] if i >= planted else None
            change = watcher.add(changes.segment(i, drawn, kind, 1.0, 0.0005), 0)
            if watcher.knows and known is None:
                known = i
            if change is not None and not change.drift:
                found.append(i)
                break
        knew.add(known)
    assert knew == {min(found)}


def test_another_stage_begins_anew() -> None:
    watcher, drawn = Watcher(), random.Random(3)
    for i in range(120):
        stage = i // 60
        kind = changes.KINDS[0] if stage else None
        assert watcher.add(changes.segment(i, drawn, kind, 0.5, 0.005), stage) is None


def test_steps_without_functions_are_not_compared_with_steps_that_have_them() -> None:
    watcher, drawn = Watcher(), random.Random(3)
    for i in range(120):
        made = changes.segment(i, drawn, None, 0.0, 0.005)
        if i < 60:
            made = replace(made, plain=SegmentSteps(), full=slower(made.plain))
        assert watcher.add(made, 0) is None


def test_windows_that_fill_some_segments_do_not_hide_a_change() -> None:
    watcher, drawn = Watcher(), random.Random(3)
    found = []
    for i in range(120):
        made = changes.segment(i, drawn, changes.KINDS[0] if i >= 60 else None, 0.25, 0.005)
        if 60 <= i < 66:  # a window of slow steps, as it opens when they have changed
            made = replace(made, plain=SegmentSteps(), full=slower(made.plain))
        found.append(watcher.add(made, 0))
    assert any(found)


def slower(steps: SegmentSteps) -> SegmentSteps:
    ns = 2 * steps.sum_ns
    return replace(steps, sum_ns=ns, hist=((bucket(ns // steps.count), steps.count),))


# ---- the report


def test_the_report_has_the_change(capsys) -> None:
    text = "since step 501 (14:03) steps take 18.0 % longer (48.2 ms instead of 40.8): data +7 ms"
    change = Change("shift", 500, 10**9, 40_800_000, 48_200_000, text)
    snapshot = Snapshot({}, 10**9, history=History(changes=(change,)))
    report = build_report(snapshot)
    assert f"Over time: {text}." in report.notes
    report.show()
    shown = " ".join(capsys.readouterr().out.split())
    assert f"S{text[1:]}." in shown
