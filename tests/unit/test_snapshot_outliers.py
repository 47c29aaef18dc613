"""The slowest steps' part of a saved run: exact in both directions, and checked."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from fastprof.errors import SnapshotError
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot, Steps
from fastprof.snapshot.codec import read
from fastprof.snapshot.kinds import Known
from fastprof.snapshot.outliers import OutlierRow, OutlierSnapshot, OutlierStep
from unit.snapshots import MS, Builder, Node, py, section

STEP = OutlierStep(
    index=7,
    start_ns=50 * MS,
    wall_ns=20 * MS,
    usual=False,
    sections=((1, 15 * MS),),
    window_steps=2,
    window_ns=25 * MS,
    window_usual=False,
    rows=(OutlierRow(2, 14 * MS, 3, 1, 9 * MS, 12), OutlierRow(0, 10 * MS, 0, 0, 0, 0)),
    rest_ns=1 * MS,
)
UNSEEN = replace(
    STEP, index=4, sections=(), window_steps=0, window_ns=0, rows=(), rest_ns=0, usual=True
)
OUTLIERS = OutlierSnapshot(
    thread=0,
    limit=5,
    usual_steps=6,
    usual_ns=30 * MS,
    usual_sections=((1, 20 * MS),),
    usual_row_steps=5,
    kept=(STEP, UNSEEN),
)


def snapshot() -> Snapshot:
    builder = Builder().thread(Node(section("data"), 1, MS, [Node(py("read"), 1, MS)]))
    steps = Steps(10, 2, 70 * MS, 0.0, 5 * MS, 20 * MS, (5 * MS,) * 7 + (20 * MS,))
    return replace(builder.snapshot(), steps=steps, outliers=OUTLIERS)


def test_a_snapshot_goes_through_json_and_back_unchanged() -> None:
    assert Snapshot.from_dict(json.loads(json.dumps(snapshot().to_dict()))) == snapshot()


def test_a_saved_run_keeps_its_slowest_steps() -> None:
    stream = io.BytesIO()
    fprof.write(build_report(snapshot()), stream)
    assert fprof.parse(stream.getvalue(), Limits()).outliers == OUTLIERS


def test_a_run_saved_before_there_were_these_is_read() -> None:
    data = snapshot().to_dict()
    del data["outliers"]
    assert Snapshot.from_dict(data).outliers is None


def read_outliers(
    data: object, trees: Sequence[int] = (3,), steps: range = range(2, 10)
) -> OutlierSnapshot:
    known = Known({"keys": 3, "threads": len(trees)}, trees, steps=steps)
    return read(OutlierSnapshot, data, "outliers", known)


BAD: list[tuple[list[Any], Any]] = [
    (["thread"], 1),
    (["thread"], -1),
    (["limit"], 0),
    (["limit"], 1),
    (["limit"], 101),
    (["usual_steps"], 9),
    (["usual_row_steps"], 9),
    (["usual_ns"], -1),
    (["usual_sections", 0], [99, 1]),
    (["usual_sections", 0], [1]),
    (["usual_sections"], [[1, 1], [1, 1]]),
    (["usual_sections"], None),
    (["kept"], {}),
    (["kept", 0], []),
    (["kept", 0, "index"], 1),
    (["kept", 0, "index"], 10),
    (["kept", 0, "index"], 4),
    (["kept", 0, "usual"], 1),
    (["kept", 0, "window_usual"], None),
    (["kept", 0, "start_ns"], None),
    (["kept", 0, "wall_ns"], 26 * MS),
    (["kept", 0, "wall_ns"], 14 * MS),
    (["kept", 0, "sections", 0, 1], 21 * MS),
    (["kept", 0, "sections"], [[1, 0]] * 2),
    (["kept", 0, "window_steps"], 0),
    (["kept", 0, "window_steps"], 9),
    (["kept", 0, "window_ns"], 24 * MS),
    (["kept", 0, "rest_ns"], 0),
    (["kept", 0, "rest_ns"], -1),
    (["kept", 0, "rows", 0, 0], 3),
    (["kept", 0, "rows", 0, 0], 0),
    (["kept", 0, "rows", 0, 0], -1),
    (["kept", 0, "rows", 0, 1], 15 * MS),
    (["kept", 0, "rows", 0, 4], -1),
    (["kept", 0, "rows", 0], [2, 14 * MS]),
    (["kept", 0, "rows", 0], None),
    (["kept", 0, "rows"], [[2, 0, 0, 0, 0, 0]] * 513),
    (["kept", 0, "rows", 0, 1], "x" * 10_000),
]


@pytest.mark.parametrize(("path", "value"), BAD)
def test_f46_every_field_is_checked(path: list[Any], value: object) -> None:
    data = snapshot().to_dict()
    inner = data["outliers"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(SnapshotError, match="outliers") as caught:
        Snapshot.from_dict(data)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", [*OUTLIERS.to_dict()])
def test_f46_every_field_must_be_there(name: str) -> None:
    data = OUTLIERS.to_dict()
    del data[name]
    with pytest.raises(SnapshotError):
        read_outliers(data)


# An earlier fastprof kept no plain steps.
@pytest.mark.parametrize("name", [f.name for f in fields(OutlierStep) if f.name != "plain"])
def test_f46_every_field_of_a_step_must_be_there(name: str) -> None:
    data = OUTLIERS.to_dict()
    del data["kept"][0][name]
    with pytest.raises(SnapshotError):
        read_outliers(data)


@pytest.mark.parametrize("value", [[], "x", 5, {}, True])
def test_f46_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(SnapshotError):
        read_outliers(value)


def test_f46_a_snapshot_without_measured_steps_keeps_no_slow_step() -> None:
    data = OUTLIERS.to_dict()
    with pytest.raises(SnapshotError, match="measured step"):
        read_outliers(data, steps=range(2**63 - 1, 5))
    with pytest.raises(SnapshotError):
        read_outliers(data, trees=())
