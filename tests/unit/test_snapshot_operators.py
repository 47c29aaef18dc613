"""The operators' part of a saved run: exact in both directions, and checked."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from fastprof.errors import SnapshotError
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from fastprof.snapshot.codec import read
from fastprof.snapshot.operators import Operator, OperatorSnapshot
from unit.snapshots import MS, Builder

MM = Operator(
    name="aten::mm",
    kind="op",
    shapes="[[64, 64], [64, 64]]",
    calls=4,
    self_cpu_ns=3 * MS,
    cpu_ns=4 * MS,
    self_device_ns=0,
    device_ns=7 * MS,
    flops=2**60,
    self_cpu_bytes=-512,
    cpu_bytes=1024,
    self_device_bytes=0,
    device_bytes=2**40,
)
KERNEL = replace(MM, name="gemm", kind="device", shapes="", self_device_ns=7 * MS)
OPERATORS = OperatorSnapshot(
    device="cuda",
    windows=((8, 10), (14, 16)),
    lost=1,
    shapes=True,
    memory=True,
    flops=True,
    row_limit=-1,
    rows=(MM, KERNEL),
    files=("prof_000_local_00_cycle0_pt_trace.json.gz",),
)


def snapshot() -> Snapshot:
    return replace(Builder().thread(root_ns=MS).snapshot(), operators=OPERATORS)


def test_a_snapshot_goes_through_json_and_back_unchanged() -> None:
    assert Snapshot.from_dict(json.loads(json.dumps(snapshot().to_dict()))) == snapshot()


def test_a_saved_run_keeps_the_operators() -> None:
    stream = io.BytesIO()
    fprof.write(build_report(snapshot()), stream)
    assert fprof.parse(stream.getvalue(), Limits()).operators == OPERATORS


def test_a_run_saved_without_operators_is_read() -> None:
    data = snapshot().to_dict()
    del data["operators"]
    assert Snapshot.from_dict(data).operators is None


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("device", 1, "operators.device"),
        ("lost", -1, "operators.lost"),
        ("shapes", 1, "operators.shapes"),
        ("row_limit", -2, "operators.row_limit"),
        ("windows", [[8, 7]], "operators.windows"),
        ("windows", [[8, 10], [10, 12]], "operators.windows"),
        ("windows", [[8]], "operators.windows"),
        ("rows", [["aten::mm"]], "operators.rows"),
        ("files", [None], "operators.files"),
        ("rows", None, "operators.rows"),
    ],
)
def test_f46_a_value_that_cannot_be_is_refused_by_name(field: str, value: Any, named: str) -> None:
    data = {**OPERATORS.to_dict(), field: value}
    with pytest.raises(SnapshotError, match=named.replace(".", r"\.")):
        read(OperatorSnapshot, data, "operators")


@pytest.mark.parametrize(("place", "value"), [(0, 1), (1, "kernel"), (3, -1), (9, 2**60), (4, "x")])
def test_f46_a_row_that_cannot_be_is_refused(place: int, value: Any) -> None:
    data = OPERATORS.to_dict()
    data["rows"][1][place] = value
    with pytest.raises(SnapshotError, match=r"operators\.rows\[1\]"):
        read(OperatorSnapshot, data, "operators")
