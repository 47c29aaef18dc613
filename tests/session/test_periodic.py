"""The text reports, byte for byte, from snapshots made by hand."""

from __future__ import annotations

import re

import pytest
from fastprof.findings.thresholds import LIMITS, USUAL
from fastprof.session.output import periodic
from fastprof.session.output.periodic import final_report, periodic_report, timings
from fastprof.snapshot import (
    Histogram,
    Key,
    NodeTable,
    SectionStats,
    Snapshot,
    ThreadTree,
)

MS = 1_000_000
ROOT = NodeTable((-1,), (0,), (0,), (0,), (0,))


def section(key: int, count: int, sum_ms: float, low_ms: float, high_ms: float, thread: int = 0):
    total = round(sum_ms * MS)
    return SectionStats(
        key, thread, count, total, total, round(low_ms * MS), round(high_ms * MS), 0, 0, Histogram()
    )


def snapshot(rows: list[tuple], threads: int = 1) -> Snapshot:
    """``rows``: (name, count, sum_ms, min_ms, max_ms) or the same with a thread index."""
    names = list(dict.fromkeys(row[0] for row in rows))
    keys = (
        Key("root", "", 0, "thread", "thread"),
        *(Key("section", "", 0, name, name) for name in names),
    )
    return Snapshot(
        meta={},
        duration_ns=1,
        keys=keys,
        threads=tuple(ThreadTree(i + 1, f"t{i}", False, ROOT) for i in range(threads)),
        sections=tuple(section(names.index(r[0]) + 1, *r[1:]) for r in rows),
    )


#: The totals of the rectified-flow guide, with the minima and maxima that its sample gives.
SAMPLE = [
    ("data_loading", 50, 2341, 42.1, 51.2),
    ("forward_pass", 50, 15234, 298.1, 312.3),
    ("backward_pass", 50, 8956, 172.3, 184.5),
    ("metrics_computation", 50, 123, 2.1, 2.8),
    ("optimizer_step", 50, 89, 1.6, 2.1),
    ("ema_update", 50, 45, 0.8, 1.1),
]

PERIODIC = """\
=== Profiling Report (Step 50) ===

Detailed Breakdown:
data_loading: count=50, total=2.341s, avg=0.0468s, min=0.0421s, max=0.0512s
forward_pass: count=50, total=15.234s, avg=0.3047s, min=0.2981s, max=0.3123s
backward_pass: count=50, total=8.956s, avg=0.1791s, min=0.1723s, max=0.1845s
metrics_computation: count=50, total=0.123s, avg=0.0025s, min=0.0021s, max=0.0028s
optimizer_step: count=50, total=0.089s, avg=0.0018s, min=0.0016s, max=0.0021s
ema_update: count=50, total=0.045s, avg=0.0009s, min=0.0008s, max=0.0011s

Time Distribution:
data_loading: 8.7%
forward_pass: 56.9%
backward_pass: 33.4%
metrics_computation: 0.5%
optimizer_step: 0.3%
ema_update: 0.2%
"""

FINAL = (
    PERIODIC.replace(
        "=== Profiling Report (Step 50) ===", "=== Final Profiling Summary (50 steps) ==="
    )
    + """
Performance Insights:
- Slowest component: forward_pass (0.3047s avg)
- Data loading appears efficient (8.7% of total time)
"""
)


def test_s3_05_periodic_report_layout() -> None:
    assert periodic_report(timings(snapshot(SAMPLE)), 50) == PERIODIC


def test_s3_10_final_report_layout() -> None:
    assert final_report(timings(snapshot(SAMPLE)), 50) == FINAL


@pytest.mark.parametrize(
    ("sum_ms", "count", "low", "high", "row"),
    [
        (0.4, 1, 0.4, 0.4, "count=1, total=0.000s, avg=0.0004s, min=0.0004s, max=0.0004s"),
        (0.6, 1, 0.6, 0.6, "count=1, total=0.001s, avg=0.0006s, min=0.0006s, max=0.0006s"),
        (0.04, 1, 0.04, 0.04, "count=1, total=0.000s, avg=0.0000s, min=0.0000s, max=0.0000s"),
        (999.96, 3, 333.32, 333.32, "count=3, total=1.000s, avg=0.3333s, min=0.3333s, max=0.3333s"),
        (
            123456789.0,
            1000000,
            0.0,
            1e6,
            "count=1000000, total=123456.789s, avg=0.1235s, min=0.0000s, max=1000.0000s",
        ),
    ],
)
def test_s3_06_rounding_of_a_row(sum_ms, count, low, high, row) -> None:
    text = periodic_report(timings(snapshot([("x", count, sum_ms, low, high)])), 1)
    assert f"\nx: {row}\n" in text


def test_s3_07_e3_distribution_sums_to_100() -> None:
    text = periodic_report(timings(snapshot(SAMPLE)), 50)
    shares = [float(v) for v in re.findall(r"^\w+: ([0-9.]+)%$", text, re.MULTILINE)]
    assert shares == [8.7, 56.9, 33.4, 0.5, 0.3, 0.2]
    assert abs(sum(shares) - 100) <= 0.1 * len(shares)


def test_s3_08_the_last_distribution_can_be_grepped() -> None:
    log = periodic_report(timings(snapshot(SAMPLE)), 50) + final_report(
        timings(snapshot(SAMPLE)), 50
    )
    blocks = log.split("\nTime Distribution:\n")
    assert len(blocks) == 3
    lines = blocks[-1].split("\n\n")[0].splitlines()
    assert len(lines) == 6
    assert all(re.match(r"^[A-Za-z_]+: [0-9.]+%$", line) for line in lines)


def test_s3_09_order_is_first_use_and_can_be_total() -> None:
    rows = [("b", 1, 1, 1, 1), ("a", 1, 3, 3, 3), ("c", 1, 2, 2, 2)]
    assert [t.name for t in timings(snapshot(rows))] == ["b", "a", "c"]
    assert [t.name for t in timings(snapshot(rows), "total")] == ["a", "c", "b"]


def test_s3_11_the_slowest_component_has_the_largest_average_not_the_largest_total() -> None:
    rows = [("forward", 100, 1000, 5, 20), ("checkpointing", 2, 500, 200, 300)]
    text = final_report(timings(snapshot(rows)), 100)
    assert "- Slowest component: checkpointing (0.2500s avg)\n" in text


@pytest.mark.parametrize("name", ["data", "data_loading"])
def test_s3_12_data_loading_insight_at_10_20_and_40_percent(name) -> None:
    def text(share: float) -> str:
        rows = [(name, 10, 10 * share, share, share), ("x", 10, 1000 - 10 * share, 1, 1)]
        return final_report(timings(snapshot(rows)), 10)

    assert "- Data loading appears efficient (10.0% of total time)\n" in text(10)
    for share, verdict in ((20, "takes 20.0%"), (40, "is a bottleneck (40.0%")):
        warning = text(share)
        assert "appears efficient" not in warning
        assert f"data loading {verdict}" in warning
        for fix in ("num_workers", "faster storage", "less preprocessing"):
            assert fix in warning


def test_s3_12_no_data_section_no_insight_on_it() -> None:
    text = final_report(timings(snapshot([("forward", 1, 1, 1, 1)])), 1)
    assert "ata loading" not in text


def test_s3_14_a_backward_far_longer_than_forward_is_remarked_on() -> None:
    def text(backward_ms: float) -> str:
        rows = [("forward", 10, 100, 10, 10), ("backward", 10, backward_ms, 1, 1)]
        return final_report(timings(snapshot(rows)), 10)

    assert "memory bottleneck or gradient accumulation" not in text(299)
    assert "Backward pass takes 4.0x the forward pass" in text(400)


def test_s3_15_advice_on_high_forward_and_high_synchronization() -> None:
    rows = [
        ("forward_pass", 10, 700, 70, 70),
        ("backward_pass", 10, 100, 10, 10),
        ("synchronization", 10, 200, 20, 20),
    ]
    text = final_report(timings(snapshot(rows)), 10)
    for word in ("distillation", "quantization", "architecture", "AMP", "checkpointing", "network"):
        assert word in text
    calm = final_report(timings(snapshot(SAMPLE)), 50)
    assert "distillation" not in calm
    assert "network" not in calm


def test_s3_12_s3_14_the_limits_are_those_of_the_findings() -> None:
    data = LIMITS["data-share"]
    assert (data.warning, data.critical) == (periodic.DATA_EFFICIENT, periodic.DATA_BOTTLENECK)
    assert periodic.BACKWARD_TO_FORWARD == LIMITS["backward-to-forward"].warning == 3
    assert periodic.FORWARD_SHARE == 2 * USUAL["forward"].share.low == 0.6
    assert LIMITS["all-reduce-share"].warning == periodic.SYNCHRONIZATION_SHARE


def test_s3_16_a_skipped_section_has_its_own_count_and_minimum() -> None:
    rows = [("forward", 100, 100, 1, 1), ("sampling", 2, 30, 10, 20)]
    text = periodic_report(timings(snapshot(rows)), 100)
    assert "sampling: count=2, total=0.030s, avg=0.0150s, min=0.0100s, max=0.0200s\n" in text


def test_threads_are_merged_and_unfinished_sections_left_out() -> None:
    rows = [("x", 2, 10, 4, 6, 0), ("x", 1, 3, 3, 3, 1), ("open", 0, 0, 0, 0, 0)]
    (row,) = timings(snapshot(rows, threads=2))
    assert (row.name, row.count) == ("x", 3)
    assert (row.total_s, row.min_s, row.max_s) == pytest.approx((0.013, 0.003, 0.006))


def test_s3_19_no_section_says_how_to_get_some() -> None:
    text = periodic_report([], 50)
    assert "profile_section(name)" in text
    assert final_report([], 50).endswith("Performance Insights:\n")


def test_f45_zero_times_give_no_nan() -> None:
    text = final_report(timings(snapshot([("data", 5, 0, 0, 0), ("forward", 5, 0, 0, 0)])), 5)
    assert "data: 0.0%\n" in text
    assert "nan" not in text
    assert "inf" not in text


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "\ud800", "\u202eevil", "x" * 10_000_000])
def test_p4_names_cannot_drive_the_terminal(name) -> None:
    text = periodic_report(timings(snapshot([(name, 1, 1, 1, 1)])), 1)
    assert text.count("\n") == 7
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text) < 1000
    text.encode("utf-8")
