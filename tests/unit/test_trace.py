"""Traces: the part of a saved run, and Chrome's format of it."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import fastprof
import pytest
import trace_kit
from fastprof.errors import ExportError, MergeError, SnapshotError
from fastprof.export.trace import merge as trace_merge
from fastprof.export.trace import write as trace
from fastprof.export.trace.events import Process
from fastprof.export.trace.files import file_name, save_windows
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.results.report import build_report
from fastprof.results.saved import load
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.codec import read
from fastprof.snapshot.kinds import Known
from fastprof.snapshot.memory import MemorySample
from fastprof.snapshot.trace import (
    MAX_WINDOWS,
    CallTable,
    EventTable,
    GpuTable,
    StepTable,
    TraceSnapshot,
    TraceThread,
    TraceWindow,
)
from unit.hostile import NAMES
from unit.snapshots import MS, Builder, gpu, h200, kernel, memory

US = 1000
WALL = 1_700_000_000_000_000_000

KEYS = (
    Key("root", "", 0, "(thread)", "(thread)"),
    Key("section", "", 0, "forward", "forward"),
    Key("python", "train.py", 12, "step", "Model.step"),
    Key("c", "~", 0, "<built-in method torch._C._nn.linear>", "linear"),
)

#: Two windows; in the first a step with a section, a function and a C function, which
#: launches a kernel that runs after the window; a copy; a wait.
TRACE = TraceSnapshot(
    min_ns=50 * US,
    max_events=1000,
    windows=(
        TraceWindow(1 * MS, 5 * MS, 8, WALL + 1 * MS),
        TraceWindow(9 * MS, 12 * MS, 14, WALL + 9 * MS),
    ),
    threads=(TraceThread(77, 4711, "MainThread"), TraceThread(78, 0, "")),
    events=EventTable(
        key=(3, 2, 1, 2, 1),
        thread=(0, 0, 0, 1, 0),
        start_ns=(1_200_000, 1_100_000, 1_000_000, 1_000_000, 9_000_000),
        ns=(300_000, 500_000, 900_000, 4_000_000, 3_000_000),
    ),
    steps=StepTable((8, 14), (0, 0), (1 * MS, 9 * MS), (2 * MS, 3 * MS)),
    gpu=GpuTable(
        what=(0, -1, -7, -8),
        device=(0, 0, 0, 1),
        stream=(7, 7, 8, 9),
        start_ns=(5_500_000, 2 * MS, 3 * MS, 10 * MS),
        ns=(700_000, 100_000, 10_000, 5_000),
        bytes=(0, 4096, 64, 0),
        x=(2, 0, 0, 1),
        y=(3, 0, 0, 1),
        z=(1, 0, 0, 1),
        launch=(0, 1, -1, -1),
    ),
    calls=CallTable(
        kind=(0, 0, 2),
        thread=(0, 1, -1),
        start_ns=(1_300_000, 1_900_000, 4 * MS),
        ns=(5_000, 0, 500_000),
        correlation=(21, 22, 23),
    ),
    kept=12,
    brief=5,
)


def snapshot(**changes: Any) -> Snapshot:
    made = Builder().thread(root_ns=MS).snapshot()
    return replace(
        made,
        keys=KEYS,
        meta={**made.meta, "pid": 4700, "rank": 3, "world_size": 8},
        trace=replace(TRACE, **changes),
        gpu=gpu(devices=(h200(),), kernels=(kernel("gemm<float>", MS),)),
        memory=memory(samples=(MemorySample(9, 100, 200, 150, 250),), steps=1),
    )


def written(made: Snapshot, number: int | None = None) -> dict[str, Any]:
    stream = io.StringIO()
    trace.Writer(build_report(made)).write(stream, number)
    data = dict(json.loads(stream.getvalue()))
    trace_kit.check(data)
    return data


def test_a_trace_goes_through_json_and_back_unchanged() -> None:
    assert Snapshot.from_dict(json.loads(json.dumps(snapshot().to_dict()))) == snapshot()


def test_a_saved_run_keeps_the_trace(tmp_path: Path) -> None:
    build_report(snapshot()).save(tmp_path / "run.fprof")
    again = fastprof.load(tmp_path / "run.fprof")
    assert again.snapshot.trace == TRACE
    again.save(tmp_path / "x.trace.json.gz")
    assert trace_kit.load(tmp_path / "x.trace.json.gz") == written(snapshot())


def test_every_field_of_a_saved_trace_and_run_is_in_its_document() -> None:
    document = (Path(__file__).parents[2] / "docs/fprof-format.md").read_text(encoding="utf-8")
    whole = snapshot().to_dict()
    made = whole["trace"]
    names = {*whole, *made, *whole["memory"], *whole["gpu"], *whole["steps"]}
    for table in ("events", "steps", "gpu", "calls"):
        names.update(made[table])
    assert sorted(name for name in names if f"`{name}`" not in document) == []


def test_a_run_without_a_trace_loads() -> None:
    data = snapshot().to_dict()
    del data["trace"]
    assert Snapshot.from_dict(data).trace is None


def read_trace(data: object, n_keys: int = len(KEYS), n_kernels: int = 1) -> TraceSnapshot:
    return read(TraceSnapshot, data, "trace", Known({"keys": n_keys, "kernels": n_kernels}))


def _damages() -> list[tuple[str, str, Any]]:
    out: list[tuple[str, str, Any]] = []
    for table in ("events", "steps", "gpu", "calls"):
        for field in fields(getattr(TRACE, table)):
            out += [
                (table, field.name, "x"),
                (table, field.name, [0]),
                (table, field.name, [2**70] * len(getattr(TRACE, table))),
                (table, field.name, [-99] * len(getattr(TRACE, table))),
                (table, field.name, [0.5] * len(getattr(TRACE, table))),
            ]
    return out


@pytest.mark.parametrize(("table", "column", "value"), _damages())
def test_f46_a_damaged_column_is_refused(table: str, column: str, value: Any) -> None:
    data = json.loads(json.dumps(TRACE.to_dict()))
    data[table][column] = value
    with pytest.raises(SnapshotError, match=table):
        read_trace(data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("windows", [[0, 5, 0, 0], [4, 6, 0, 0]]),
        ("windows", [[5, 4, 0, 0]]),
        ("windows", [[1, 2]]),
        ("windows", None),
        ("threads", [[1, 2]]),
        ("threads", [[1, 2, 3]]),
        ("threads", []),
        ("min_ns", -1),
        ("kept", "many"),
        ("events", [1]),
    ],
)
def test_f46_a_damaged_field_is_refused(name: str, value: Any) -> None:
    data = {**json.loads(json.dumps(TRACE.to_dict())), name: value}
    with pytest.raises(SnapshotError, match="trace"):
        read_trace(data)


def test_a_trace_without_keys_or_kernels_is_refused() -> None:
    data = json.loads(json.dumps(TRACE.to_dict()))
    for n_keys, n_kernels in ((0, 1), (len(KEYS), 0)):
        with pytest.raises(SnapshotError):
            read_trace(data, n_keys, n_kernels)


# -- Chrome's format -----------------------------------------------------------------------


def test_s0_18_every_event_has_what_perfetto_needs() -> None:
    data = written(snapshot())
    assert data["displayTimeUnit"] == "ms"
    assert data["distributedInfo"] == {"rank": 3, "world_size": 8}
    assert data["baseTimeNanoseconds"] == WALL
    for event in data["traceEvents"]:
        if event["ph"] == "X":
            assert {"name", "ts", "dur", "pid", "tid", "cat"} <= event.keys()


def test_events_are_named_as_their_readers_expect() -> None:
    data = written(snapshot(), 0)
    (section,) = trace_kit.spans(data, "forward")
    assert section["cat"] == "user_annotation"
    assert (section["ts"], section["dur"], section["pid"], section["tid"]) == (
        1000,
        900,
        4700,
        4711,
    )
    first, second = trace_kit.spans(data, "Model.step")
    assert first["cat"] == "python_function"
    assert first["args"] == {"source": "train.py:12"}
    assert {first["tid"], second["tid"]} == {4711, 1001}
    assert trace_kit.spans(data, "linear")[0]["cat"] == "cpu_op"
    (step,) = trace_kit.spans(data, "ProfilerStep#8")
    assert (step["ts"], step["dur"], step["cat"]) == (1000, 2000, "user_annotation")
    names = [e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"]
    assert names[:3] == ["steps", "MainThread", "thread 1001"]


def test_s0_19_the_gpu_is_shown_with_what_started_it() -> None:
    data = written(snapshot(), 0)
    (run,) = trace_kit.spans(data, cat="kernel")
    assert run["name"] == "gemm<float>"
    assert (run["ts"], run["dur"], run["pid"], run["tid"]) == (5500, 700, 0, 7)
    assert run["args"]["correlation"] == 21
    assert run["args"]["grid"] == [2, 3, 1]
    assert run["args"]["device"] == 0
    assert run["args"]["stream"] == 7
    (copy,) = trace_kit.spans(data, cat="gpu_memcpy")
    assert copy["name"] == "Memcpy HtoD"
    assert copy["args"]["bytes"] == 4096
    assert trace_kit.spans(data, cat="gpu_memset")[0]["args"]["bytes"] == 64
    launch, copying, wait = trace_kit.spans(data, cat="cuda_runtime")
    assert (launch["name"], launch["tid"]) == ("cudaLaunchKernel", 4711)
    assert launch["args"]["correlation"] == 21
    assert copying["name"] == "cudaMemcpyAsync"
    assert (wait["name"], wait["dur"]) == ("cudaSynchronize", 500)
    arrows = [(e["ph"], e["id"], e["ts"]) for e in data["traceEvents"] if e["ph"] in "sf"]
    assert ("s", 21, 1300) in arrows
    assert ("f", 21, 5500) in arrows
    counters = [e for e in data["traceEvents"] if e["ph"] == "C"]
    assert {"allocated": 100, "reserved": 200} in [e["args"] for e in counters]
    busy = [e for e in counters if e["name"] == "GPU 0 busy (%)"]
    assert busy[0]["args"] == {"busy": 100.0}
    assert busy[-1]["args"] == {"busy": 0.0}


def test_e6_every_window_is_a_separate_file(tmp_path: Path) -> None:
    names = save_windows(build_report(snapshot()), tmp_path / "new", 3)
    assert names == ["rank3_trace.json.gz", "rank3_trace_2.json.gz"]
    first, second = (trace_kit.load(tmp_path / "new" / name) for name in names)
    trace_kit.check(first)
    trace_kit.check(second)
    assert trace_kit.spans(first, "ProfilerStep#8")
    assert not trace_kit.spans(first, "ProfilerStep#14")
    assert trace_kit.spans(second, "ProfilerStep#14")
    assert not trace_kit.spans(second, "gemm<float>")
    assert trace_kit.spans(second, "(other kernels)")
    # Each window of a file appears only once.
    assert len(trace_kit.spans(first)) + len(trace_kit.spans(second)) == len(
        trace_kit.spans(written(snapshot()))
    )


def test_a_thousand_windows_are_written_in_one_look_at_the_events() -> None:
    windows = tuple(
        TraceWindow(i * MS, i * MS + 900_000, i, WALL + i * MS) for i in range(MAX_WINDOWS)
    )
    each = 100
    rows = range(each * len(windows))
    starts = tuple(i // each * MS + i % each * US for i in rows)
    events = EventTable((2,) * len(rows), (0,) * len(rows), starts, (500,) * len(rows))
    made = snapshot(windows=windows, events=events, steps=StepTable())
    looks = 0

    class Counted(tuple):
        def __getitem__(self, i: Any) -> Any:
            nonlocal looks
            looks += 1
            return super().__getitem__(i)

    assert made.trace is not None
    counted = replace(made.trace.events, start_ns=Counted(starts))
    made = replace(made, trace=replace(made.trace, events=counted))
    found = trace_kit.spans(written(made), "Model.step")
    assert [trace_kit.ns(e["ts"]) for e in found] == list(starts)
    assert looks < 10 * len(rows)
    assert any("last 1024 windows" in note for note in made.trace.notes())  # type: ignore[union-attr]


def test_f46_more_windows_than_there_can_be_are_refused() -> None:
    data = snapshot().to_dict()
    data["trace"]["windows"] = [[0, 0, 0, 0]] * (MAX_WINDOWS + 1)
    with pytest.raises(SnapshotError, match="at most 1024 windows"):
        Snapshot.from_dict(data)


def test_threads_that_share_a_number_get_separate_numbers() -> None:
    threads = tuple(TraceThread(i, 5, "") for i in range(20_000))
    tids = Process.of(snapshot(), replace(TRACE, threads=threads)).tids
    assert len(set(tids)) == len(threads)
    assert max(tids) < 2**31


def test_s2_15_files_are_named_by_rank() -> None:
    assert file_name(0, 0) == "rank0_trace.json.gz"
    assert file_name(12, 2) == "rank12_trace_3.json.gz"


def test_f32_the_trace_says_what_it_lacks() -> None:
    made = snapshot(lost=7, lost_until_ns=2 * MS, gpu_lost=3, gpu_lost_until_ns=MS, no_memory=1)
    notes = build_report(made).notes
    assert any(
        note.startswith("Calls that took less than 50 us") and note.endswith(": 5.")
        for note in notes
    )
    assert any("from 0.002 s" in note and "7 earlier events" in note for note in notes)
    assert any("3 earlier records of the GPU" in note for note in notes)
    assert any(note == "Events missing from the trace (out of memory): 1." for note in notes)
    marks = [e["name"] for e in written(made)["traceEvents"] if e["ph"] == "i"]
    assert "events before this are incomplete" in marks


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_f43_names_cannot_break_a_trace(name: str) -> None:
    made = snapshot(threads=(TraceThread(77, 4711, name), TraceThread(78, 0, name)))
    keys = tuple(replace(key, name=name, qualname=name) for key in KEYS[1:])
    made = replace(
        made,
        keys=(KEYS[0], *keys),
        gpu=gpu(devices=(h200(name=name),), kernels=(kernel(name, MS),)),
    )
    data = written(made)
    assert "</script" not in json.dumps(data).lower() or name == NAMES["markup"]
    assert len(trace_kit.spans(data)) == len(trace_kit.spans(written(snapshot())))


def test_numbers_of_threads_never_meet() -> None:
    threads = (TraceThread(1, 5, "a"), TraceThread(2, 5, "b"), TraceThread(3, 2**60, "c"))
    made = snapshot(threads=threads)
    made = replace(made, meta={**made.meta, "pid": 1})
    data = written(made)
    tids = [e["tid"] for e in data["traceEvents"] if e["name"] == "thread_name"]
    assert len(set(tids[:4])) == 4
    # A container's process 1 is not device 1.
    assert trace_kit.spans(data, "forward")[0]["pid"] == 1_000_001


def test_a_run_without_a_trace_says_how_to_get_one(tmp_path: Path) -> None:
    made = replace(snapshot(), trace=None)
    with pytest.raises(ExportError, match="trace=True"):
        build_report(made).save(tmp_path / "x.trace.json.gz")
    assert not list(tmp_path.iterdir())


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.trace.json.gz", "b.trace.json.gz", "c_trace.json.gz"):
        build_report(snapshot()).save(tmp_path / name)
    first, *others = (path.read_bytes() for path in tmp_path.iterdir())
    assert all(other == first for other in others)
    build_report(snapshot()).save(tmp_path / "d.trace.json")
    assert gzip.decompress(first) == (tmp_path / "d.trace.json").read_bytes()


def test_a_large_trace_is_saved_within_the_readers_limits() -> None:
    n = 200_000
    events = EventTable((2,) * n, (0,) * n, tuple(range(n)), (1,) * n)
    made = snapshot(events=events, windows=(TraceWindow(0, 2 * n, 0, WALL),))
    stream = io.BytesIO()
    fprof.write(build_report(made), stream)
    assert fprof.parse(stream.getvalue(), Limits()).trace == made.trace


@pytest.mark.parametrize("limits", [Limits(max_entries=1500), Limits(max_unpacked_bytes=9000)])
def test_a_trace_too_large_for_the_readers_limits_does_not_make_the_run_unreadable(
    limits: Limits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fprof, "_LIMITS", limits)
    monkeypatch.setattr(fprof, "_SURELY_READ", 0)
    for n in (100, 2000):
        events = EventTable((2,) * n, (0,) * n, tuple(range(n)), (1,) * n)
        made = snapshot(events=events, windows=(TraceWindow(0, 2 * n, 0, WALL),))
        build_report(made).save(tmp_path / "run.fprof")
        report = load(tmp_path / "run.fprof", limits=limits)
        assert report.functions == build_report(made).functions
        assert (report.snapshot.trace is None) == (n == 2000)
        said = [note for note in report.notes if "is not in the saved run" in note]
        assert len(said) == (n == 2000)
    assert "The trace, of 2007 events" in said[0]


# -- merging -------------------------------------------------------------------------------

BASE = WALL - 10 * MS


def torch_trace(path: Path, **changes: Any) -> Path:
    def at(ns: int) -> float:
        return (WALL + ns - BASE) / 1000

    data = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": BASE,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 4700, "tid": 0, "args": {"name": "python"}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4700, "tid": 4711,
             "ts": at(2 * MS), "dur": 12.5, "args": {"External id": 1}},
            {"ph": "X", "cat": "cpu_op", "name": "outside", "pid": 4700, "tid": 4711,
             "ts": at(6 * MS), "dur": 12.5},
            {"ph": "s", "id": 5, "pid": 4700, "tid": 4711, "ts": at(2 * MS), "cat": "ac2g",
             "name": "ac2g"},
            {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": at(3 * MS), "cat": "ac2g",
             "name": "ac2g", "bp": "e"},
            {"ph": "i", "name": "Iteration Start", "pid": "Traces", "tid": "x", "ts": at(2 * MS)},
            "junk",
            {"ph": "X", "name": "no time", "pid": 1, "ts": float("nan")},
            {"ph": "X", "name": "nowhere", "ts": 1.0},
        ],
        **changes,
    }  # fmt: skip
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_trace_of_torch_is_put_at_its_time(tmp_path: Path) -> None:
    source = torch_trace(tmp_path / "torch.json")
    out = tmp_path / "both.trace.json.gz"
    trace_merge.merge(build_report(snapshot()), source, out)
    data = trace_kit.load(out)
    (mm,) = trace_kit.spans(data, "aten::mm")
    assert mm["ts"] == 2000.0
    assert mm["dur"] == 12.5
    assert mm["pid"] not in (0, 4700)
    assert not trace_kit.spans(data, "outside")
    assert not trace_kit.spans(data, "no time")
    labels = [e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"]
    assert "torch.profiler: python" in labels
    # All our own events remain, and arrows of both files stay separate.
    assert len(trace_kit.spans(data)) == len(trace_kit.spans(written(snapshot()))) + 1
    assert len({e["id"] for e in data["traceEvents"] if e["ph"] == "s"}) == 3


def test_a_trace_of_an_old_torch_has_absolute_times(tmp_path: Path) -> None:
    source = torch_trace(
        tmp_path / "torch.json",
        baseTimeNanoseconds=0,
        traceEvents=[
            {"ph": "X", "name": "old", "pid": 1, "tid": 1, "ts": (WALL + 2 * MS) / 1000, "dur": 1}
        ],
    )
    out = tmp_path / "both.trace.json"
    trace_merge.merge(build_report(snapshot()), source, out)
    assert trace_kit.spans(trace_kit.load(out), "old")[0]["ts"] == 2000.0


def test_each_window_has_what_torch_recorded_in_it(tmp_path: Path) -> None:
    # torch recorded only the first window.
    source = torch_trace(tmp_path / "torch.json")
    names = save_windows(build_report(snapshot()), tmp_path, 0, merge=source)
    first, second = (trace_kit.load(tmp_path / name) for name in names)
    assert trace_kit.spans(first, "aten::mm")
    assert not trace_kit.spans(second, "aten::mm")
    assert trace_kit.spans(second, "ProfilerStep#14")


@pytest.mark.parametrize("content", [None, b"junk", b'{"traceEvents": []}'])
def test_files_of_windows_do_not_need_torch_s(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "torch.json").write_bytes(content)
    with pytest.raises((MergeError, FileNotFoundError)):
        save_windows(build_report(snapshot()), tmp_path, 0, merge=tmp_path / "torch.json")
    for number in (0, 1):
        assert trace_kit.spans(trace_kit.load(tmp_path / file_name(0, number)))


def test_a_merged_trace_has_the_suffix_of_one(tmp_path: Path) -> None:
    source = torch_trace(tmp_path / "torch.json")
    trace_merge.merge(build_report(snapshot()), source, tmp_path / "BOTH.TRACE.JSON.GZ")
    assert (tmp_path / "BOTH.TRACE.JSON.GZ").read_bytes().startswith(b"\x1f\x8b")
    for name in ("x.json", "x.html", "x.json.gz"):
        with pytest.raises(ExportError):
            trace_merge.merge(build_report(snapshot()), source, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_no_process_of_ours_has_a_number_of_torch_s(tmp_path: Path) -> None:
    source = torch_trace(tmp_path / "torch.json")
    # Linux counts processes up to 2**22.
    made = replace(snapshot(), meta={**snapshot().meta, "pid": 3_000_000})
    trace_merge.merge(build_report(made), source, tmp_path / "both.trace.json")
    data = trace_kit.load(tmp_path / "both.trace.json")
    (mm,) = trace_kit.spans(data, "aten::mm")
    assert mm["pid"] > 2**22
    assert trace_kit.spans(data, "forward")[0]["pid"] == 3_000_000


@pytest.mark.parametrize("name", ["ph", "pid", "ts", "name", "id", "args", "dur", "cat"])
@pytest.mark.parametrize("value", [[], {}, None, True, 10**400, -1, 1e308, "x", "\ud800"])
def test_f46_an_event_of_torch_with_any_value_is_left_out_or_valid(
    tmp_path: Path, name: str, value: Any
) -> None:
    source = torch_trace(tmp_path / "torch.json")
    data = json.loads(source.read_text())
    events = [event for event in data["traceEvents"] if isinstance(event, dict)]
    data["traceEvents"] += [{**event, name: value} for event in events]
    source.write_text(json.dumps(data))
    trace_merge.merge(build_report(snapshot()), source, tmp_path / "out.trace.json")
    json.loads((tmp_path / "out.trace.json").read_text())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "not a trace"),
        (b"{}", "not a trace"),
        (b'{"traceEvents": 5}', "not a trace"),
        (b'{"traceEvents": [], "baseTimeNanoseconds": 1}', "another run"),
        (b'{"traceEvents": [{"ph": "X", "pid": 1, "ts": 5}]}', "began at"),
        (b"\x1f\x8b\x08damaged", "damaged"),
        (b"[" * 100_000, "JSON|deep"),
        (b'{"traceEvents": [' + b"[]," * 30_000_000 + b"[]]}", "memory"),
        (gzip.compress(bytes(600_000_000), 1), "unpacks"),
        (gzip.compress(b"") * 1000, "parts"),
    ],
)
def test_f46_what_is_no_trace_of_torch_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    source = tmp_path / "torch.json"
    source.write_bytes(content)
    with pytest.raises(MergeError, match=why):
        trace_merge.merge(build_report(snapshot()), source, tmp_path / "out.trace.json")
    assert not (tmp_path / "out.trace.json").exists()
