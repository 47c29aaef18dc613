"""Operators in a report: rows, sort keys, tables."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from fastprof.report.figures import torch_size
from fastprof.report.operators import OperatorReport
from fastprof.results.report import Report, build_report
from fastprof.snapshot.operators import Operator, OperatorSnapshot
from fastprof.tables.layout import table_lines
from fastprof.tables.operators import memory_table, operator_table
from unit.snapshots import MIB, MS, Builder


def op(name: str, calls: int, self_ms: int, device_ms: int = 0, **fields: object) -> Operator:
    made = {
        "kind": "op",
        "shapes": "",
        "self_cpu_ns": self_ms * MS,
        "cpu_ns": 2 * self_ms * MS,
        "self_device_ns": device_ms * MS,
        "device_ns": device_ms * MS,
        "flops": 0,
        "self_cpu_bytes": 0,
        "cpu_bytes": 0,
        "self_device_bytes": 0,
        "device_bytes": 0,
        **fields,
    }
    return Operator(name, calls=calls, **made)  # type: ignore[arg-type]


ROWS = (
    op("aten::mm", 4, 10, 50, shapes="[[64, 64]]", flops=3_000_000, device_bytes=512 * MIB),
    op("aten::mm", 2, 5, 10, shapes="[[8, 8]]", self_device_bytes=16 * MIB),
    op("aten::add", 90, 1, 20, self_device_bytes=-3, cpu_bytes=5 << 30),
    op("aten::item", 1, 24, 0, self_device_bytes=1024),
    op("gemm", 6, 0, 60, kind="device"),
    op("add_kernel", 90, 0, 20, kind="device"),
)
RECORDED = OperatorSnapshot(
    "cuda", ((8, 10), (14, 16)), shapes=True, memory=True, flops=True, rows=ROWS
)


def report(recorded: OperatorSnapshot = RECORDED) -> Report:
    return build_report(replace(Builder().thread(root_ns=MS).snapshot(), operators=recorded))


def part(recorded: OperatorSnapshot = RECORDED) -> OperatorReport:
    operators = report(recorded).operators
    assert operators is not None
    return operators


def names(operators: OperatorReport, key: str) -> list[str]:
    return [row.name for row in operators.sorted_by(key) if not row.on_device]


def test_s1_06_operators_are_sorted_by_each_of_three_keys() -> None:
    operators = part()
    assert names(operators, "self_device") == ["aten::mm", "aten::add", "aten::item"]
    assert names(operators, "self_cpu") == ["aten::item", "aten::mm", "aten::add"]
    assert names(operators, "calls") == ["aten::add", "aten::mm", "aten::item"]


def test_an_unknown_sort_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'time'.*self_device.*calls"):
        part().sorted_by("time")


def test_rows_of_one_name_are_added_up_and_kept_apart_by_shape() -> None:
    operators = part()
    mm = next(row for row in operators.rows if row.name == "aten::mm")
    assert (mm.calls, mm.self_cpu_ms, mm.cpu_ms, mm.self_device_ms) == (6, 15, 30, 60)
    assert (mm.flops, mm.device_bytes) == (3_000_000, 512 * MIB)
    shapes = {row.shapes: row.calls for row in operators.by_shape if row.name == "aten::mm"}
    assert shapes == {"[[64, 64]]": 4, "[[8, 8]]": 2}


def test_s1_07_shares_are_of_all_self_time_and_of_all_time_on_the_device() -> None:
    rows = {row.name: row for row in part().rows}
    assert rows["aten::mm"].share == 15 / 40
    assert rows["aten::mm"].device_share == 60 / 80
    assert sum(row.share or 0 for row in rows.values()) == pytest.approx(1)


def test_the_steps_covered_are_those_of_all_windows() -> None:
    assert part().steps == 6
    assert "in 6 steps (8-10, 14-16)" in report().to_text(full=True)


def test_what_was_not_recorded_is_not_a_number() -> None:
    operators = part(replace(RECORDED, device="", shapes=False, memory=False, flops=False))
    row = operators.rows[0]
    assert (row.self_device_ms, row.device_ms, row.flops, row.cpu_bytes) == (None,) * 4
    assert operators.by_shape == ()
    assert report(replace(RECORDED, rows=())).to_text(full=True).count("Operators") == 0


def test_the_text_lists_operators_and_not_again_what_they_launched() -> None:
    text = report().to_text(full=True)
    table = text[text.index("Operators, most self cuda time first (3 of 3)") :]
    assert [line.split()[0] for line in table.splitlines()[3:6]] == [
        "aten::mm",
        "aten::add",
        "aten::item",
    ]
    assert "gemm" not in text


@pytest.mark.parametrize(("limit", "rows"), [(10, 10), (-1, 30), (50, 30)])
def test_s0_12_row_limit_limits_the_rows(limit: int, rows: int) -> None:
    many = replace(RECORDED, rows=tuple(op(f"aten::op{i}", 1, i) for i in range(30)))
    assert len(operator_table(part(many), "self_cpu", limit).rows) == rows


def test_s0_12_a_report_shows_no_more_rows_than_row_limit() -> None:
    text = report(replace(RECORDED, row_limit=2)).to_text(full=True)
    assert "(2 of 3)" in text


def test_s2_12_the_memory_table() -> None:
    table = memory_table(part(), 10)
    assert table.headers == ("Name", "CPU Mem", "CUDA Mem", "Self CUDA Mem")
    assert table.rows == (
        ("aten::mm", "0 b", "512.00 Mb", "16.00 Mb"),
        ("aten::item", "0 b", "0 b", "1.00 Kb"),
        ("aten::add", "5.00 Gb", "0 b", "-3 b"),
    )
    many = replace(
        RECORDED, rows=tuple(op(f"aten::op{i}", 1, 0, self_device_bytes=i) for i in range(30))
    )
    text = report(many).to_text(full=True)
    shown = text[text.index("Memory of operators, most self CUDA memory first") :].splitlines()
    assert [line.split()[0] for line in shown[3:13]] == [f"aten::op{i}" for i in range(29, 19, -1)]
    assert not any(line.startswith("aten::") for line in shown[13:])


def test_s2_12_units_of_memory() -> None:
    sizes = (None, 0, 1023, 512 * MIB, -2048, 3 << 29)
    shown = ["n/a", "0 b", "1023 b", "512.00 Mb", "-2.00 Kb", "1.50 Gb"]
    assert [torch_size(size) for size in sizes] == shown


def test_p4_a_hostile_operator_name_does_no_harm_in_a_table() -> None:
    evil = replace(RECORDED, rows=(op("\x1b[2J\n" + "x" * 10_000, 1, 1),))
    for line in table_lines(operator_table(part(evil), "self_cpu", -1)):
        assert line.isprintable()
        assert len(line) < 300


def test_the_json_report_has_the_operators() -> None:
    value = json.loads(report().to_json())["operators"]
    assert value["steps"] == 6
    assert value["windows"] == [[8, 10], [14, 16]]
    assert value["rows"][0]["name"] == "aten::mm"
    assert len(value["by_shape"]) == len(ROWS)


def test_a_terminal_shows_them_too() -> None:
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    report().show(stream, full=True)
    assert "Operators, most self cuda time first" in stream.getvalue()
