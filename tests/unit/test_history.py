"""The run over time: segments are joined, bounded, saved, and make a part of the run."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import pytest
from fastprof.cli import main
from fastprof.errors import SnapshotError
from fastprof.read.fprof import write_snapshot
from fastprof.read.part_of_run import part_of_run, steps_at
from fastprof.results.report import build_report
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.history import (
    MAX_CONTEXTS,
    PER_SIZE,
    SAMPLED,
    Contexts,
    History,
    Sampled,
    Segment,
    SegmentSteps,
    add,
    bounds,
    bucket,
    frozen,
    joined,
    spent_of,
)

_STEPS, _FIRST_UNIX_MS = 250, 1_700_000_000_000
KEYS = (
    Key("root", "", 0, "", ""),
    Key("section", "", 0, "data", "data"),
    Key("section", "", 0, "forward", "forward"),
    Key("python", "dataset.py", 31, "decode", "decode"),
    Key("python", "model.py", 7, "layer", "layer"),
)


def sums(first: int, step_ns: int, count: int, data_ns: int) -> SegmentSteps:
    """Return steps of one length."""
    numbers = tuple(range(first, first + count))[:SAMPLED]
    n = len(numbers)
    return SegmentSteps(
        count=count,
        sum_ns=count * step_ns,
        sum_sq=count * (step_ns / 1e9) ** 2,
        min_ns=step_ns,
        max_ns=step_ns,
        cpu_ns=count * step_ns,
        hist=((bucket(step_ns), count),),
        rows=((0, count, count * data_ns), (1, count, count * (step_ns - data_ns))),
        sampled=Sampled(
            numbers, (step_ns,) * n, (), (), ((data_ns,) * n, (step_ns - data_ns,) * n)
        ),
    )


def segment(i: int, step_ns: int = 20_000_000, data_ns: int = 2_000_000) -> Segment:
    """Return segment ``i`` of a run: 5 s with functions in 10 of the steps."""
    spent = {0: (10, 0), 1: (10, 0), 2: (10, 10 * data_ns), 3: (40, 10 * (step_ns - data_ns))}
    return Segment(
        first=i * _STEPS,
        steps=_STEPS,
        start_ns=i * 5 * 10**9,
        end_ns=(i + 1) * 5 * 10**9,
        full=sums(i * _STEPS, step_ns, 10, data_ns),
        plain=sums(i * _STEPS + 10, step_ns, _STEPS - 10, data_ns),
        phases_ns=(10 * step_ns, 0, 0, 0, 0, 0, (_STEPS - 10) * step_ns),
        idle_ns=(0,),
        spent=spent_of(spent),
        rss_bytes=10**9 + i,
    )


def run_of(segments: list[Segment]) -> Snapshot:
    """Return a run with that history."""
    history = History(
        sections=(1, 2),
        began_unix_ms=_FIRST_UNIX_MS,
        contexts=Contexts((-1, -1, 0, 1), (1, 2, 3, 4), (0, 0, 0, 0)),
        segments=tuple(map(frozen, segments)),
    )
    return Snapshot({"overhead_budget": 0.01}, 10**9, KEYS, history=history)


def reread(snapshot: Snapshot) -> Snapshot:
    return Snapshot.from_dict(json.loads(json.dumps(snapshot.to_dict())))


def test_joining_is_associative() -> None:
    random.seed(5)
    a, b, c = (segment(i, random.randrange(10**6, 10**8)) for i in range(3))
    left, right = joined(joined(a, b), c), joined(a, joined(b, c))
    for one in (left, right):
        assert len(one.plain.sampled) <= SAMPLED

    def without(one: Segment) -> Segment:
        full, plain = (
            replace(part, sampled=Sampled(), sum_sq=round(part.sum_sq, 9))
            for part in (one.full, one.plain)
        )
        return replace(one, full=full, plain=plain)

    assert without(left) == without(right)
    assert left.steps == 3 * _STEPS
    assert left.rss_bytes == c.rss_bytes


def test_the_newest_segments_are_fine_and_the_oldest_coarse() -> None:
    kept: list[Segment] = []
    for i in range(2000):
        add(kept, segment(i))
    sizes = [one.joined for one in kept]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert max(map(sizes.count, set(sizes))) <= PER_SIZE
    assert sum(sizes) == 2000
    assert sum(one.plain.count for one in kept) == 2000 * (_STEPS - 10)
    for one, other in pairwise(kept):
        assert one.first + one.steps == other.first


def test_a_week_at_50_steps_per_second_needs_little_memory_and_a_small_file() -> None:
    """120,960 segments of 5 s; every second of 600 contexts has time in each segment."""
    drawn = random.Random(3)
    contexts = 600
    tracemalloc.start()
    kept: list[Segment] = []
    size, first = 1, 0
    while sum(one.joined for one in kept) < 7 * 24 * 3600 // 5:
        same: list[Segment] = []
        for _ in range(PER_SIZE):
            ns = {
                at: (drawn.randrange(10**3), drawn.randrange(10**4, 10**9))
                for at in range(contexts)
                if drawn.random() < (0.5 if size == 1 else 1)
            }
            one = replace(segment(0), spent=spent_of(ns))
            same.append(replace(one, joined=size))
        kept, size = [*same, *kept], 2 * size
    moved: list[Segment] = []
    for one in kept:
        steps = _STEPS * one.joined
        start_ns = first * 20_000_000
        end_ns = start_ns + steps * 20_000_000
        moved.append(replace(one, first=first, steps=steps, start_ns=start_ns, end_ns=end_ns))
        first += steps
    kept = moved
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 16 * 2**20
    snapshot = run_of(kept)
    history = snapshot.history
    assert history is not None
    wide = Contexts((-1,) * contexts, (3,) * contexts, (0,) * contexts)
    file = io.BytesIO()
    write_snapshot(replace(snapshot, history=replace(history, contexts=wide)), file)
    assert 10**5 < len(file.getvalue()) < 8 * 2**20


def test_a_history_is_read_back_and_files_without_one_are_read() -> None:
    snapshot = run_of([segment(i) for i in range(3)])
    assert reread(snapshot).history == snapshot.history
    data = snapshot.to_dict()
    del data["history"]
    assert Snapshot.from_dict(data).history is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["segments"][1].update(first=0), "segments one after the other"),
        (lambda h: h["segments"][1].update(end_ns=0), "an end after the start"),
        (lambda h: h["segments"][0]["spent"].update(context=[9, 9, 9, 9]), "from 0 to 3"),
        (lambda h: h["segments"][0]["spent"].update(calls=[1]), "4 rows"),
        (lambda h: h["contexts"].update(parent=[0, -1, 0, 1]), "an earlier row"),
        (lambda h: h["segments"][0]["plain"].update(rows=[[7, 1, 1]]), "from 0 to 1"),
        (lambda h: h["segments"][0]["plain"].update(hist=[[1, 1]]), "an integer"),
        (lambda h: h.update(segments=[h["segments"][0]] * 2000), "at most"),
        (lambda h: h.update(sections=[99]), "from 0 to 4"),
    ],
)
def test_a_damaged_history_is_refused(change, message) -> None:
    data = json.loads(json.dumps(run_of([segment(i) for i in range(3)]).to_dict()))
    change(data["history"])
    with pytest.raises(SnapshotError, match=message):
        Snapshot.from_dict(data)


def test_too_many_contexts_are_refused() -> None:
    snapshot = run_of([segment(0)])
    data = json.loads(json.dumps(snapshot.to_dict()))
    n = MAX_CONTEXTS + 1
    data["history"]["contexts"] = {"parent": [-1] * n, "key": [3] * n, "phase": [0] * n}
    with pytest.raises(SnapshotError, match="at most"):
        Snapshot.from_dict(data)


def test_buckets_contain_their_times() -> None:
    for ns in (0, 1, 900, 1024, 12345, 10**6, 987654321, 10**12):
        low, high = bounds(bucket(ns))
        assert low <= ns <= high
    assert bounds(bucket(10**6))[1] / bounds(bucket(10**6))[0] < 1.023


def slower() -> Snapshot:
    """Return a run whose data takes 5 ms longer from segment 6 of 12 on."""
    early = [segment(i) for i in range(6)]
    return run_of(early + [segment(i, 25_000_000, 7_000_000) for i in range(6, 12)])


def test_a_part_has_the_times_of_its_steps_only() -> None:
    part = reread(part_of_run(slower(), range(6 * _STEPS, 8 * _STEPS)))
    report = build_report(part)
    assert report.shown_steps.mean_ms == pytest.approx(25.0)
    assert report.measured_steps == 2 * _STEPS
    rows = {row.name: row.mean_ms for row in report.shown_steps.rows}
    assert rows["data"] == pytest.approx(7.0)
    (decode,) = (row for row in report.functions if row.name == "decode")
    assert decode.self_ms == pytest.approx(140.0)
    assert any("Only steps 1501 to 2000 of 3000" in note for note in report.notes)
    assert {s.count for s in part.sections} == {20}


def test_a_part_is_rounded_to_segments() -> None:
    part = part_of_run(slower(), range(260, 261))
    assert part.steps.count == _STEPS
    assert "Only steps 251 to 500 of 3000" in part.notes[0]


def test_a_part_that_the_run_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="no step from 5001 to 6000: the run has 1 to 3000"):
        part_of_run(slower(), range(5000, 6000))
    with pytest.raises(ValueError, match="not kept over time"):
        part_of_run(Snapshot({}, 1, KEYS), range(1))


def test_times_of_day_find_their_segment(monkeypatch) -> None:
    import time

    began = time.localtime(_FIRST_UNIX_MS / 1000 + 31)
    assert steps_at(slower(), time.strftime("%H:%M:%S", began)) == 6 * _STEPS
    with pytest.raises(ValueError, match="is no time"):
        steps_at(slower(), "yesterday")


@pytest.fixture
def saved(tmp_path) -> str:
    path = tmp_path / "run.fprof"
    with path.open("wb") as stream:
        write_snapshot(slower(), stream)
    return str(path)


def test_the_report_of_a_part(saved, capsys) -> None:
    assert main(["report", saved, "--steps", "1501:"]) == 0
    assert "1500 steps of 25.0 ms" in capsys.readouterr().out
    assert main(["report", saved, "--last", "10s"]) == 0
    assert "Only steps 2501 to 3000 of 3000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "5:2"], "the first step is after the last"),
        (["--steps", "x"], "expected two steps"),
        (["--last", "10"], "expected a span"),
        (["--last", "10m", "--steps", "1:2"], "give one of them"),
        (["--from", "25:99"], "is no time"),
    ],
)
def test_a_bad_part_is_refused(saved, capsys, options, message) -> None:
    assert main(["report", saved, *options]) == 2
    assert message in capsys.readouterr().err


def test_two_parts_of_one_run_are_compared(saved, capsys) -> None:
    assert main(["compare", saved, "--at", "1501"]) == 0
    out = capsys.readouterr().out
    assert "before step 1501" in out
    assert "Settings that differ" not in out
    assert "data" in out
    assert main(["compare", saved, "--at", "0"]) == 2
    assert "expected a step" in capsys.readouterr().err
