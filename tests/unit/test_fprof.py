"""Saved runs: exact in both directions, and damaged ones do no harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import sys
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import pytest
from fastprof.capture.options import RecorderOptions
from fastprof.errors import ExportError, LoadError
from fastprof.read import fprof
from fastprof.read.limits import Limits
from fastprof.read.smaller import smaller
from fastprof.render.formats import FORMATS
from fastprof.results import saved as loading
from fastprof.results.report import build_report
from fastprof.snapshot import (
    Key,
    LoaderStats,
    NodeTable,
    Snapshot,
    StepRow,
    Steps,
    ThreadTree,
)
from fastprof.snapshot.gpu import GpuLine
from fastprof.snapshot.model import CALL_FORMS
from helpers import MIB, ROOT, run_child
from hypothesis import given
from hypothesis import strategies as st
from unit.cprofile_model import replay
from unit.hostile import snapshot_with
from unit.pages import in_phases
from unit.snapshots import MS, Builder, Node, c, cost, gpu, histogram, py, section, tree
from unit.test_in_run import simulated


def rich_snapshot():
    builder = Builder()
    builder.thread(
        Node(py("main"), 1, 5 * MS, [Node(section("forward"), 3, MS, [Node(c("len"), 9, MS)])]),
        root_ns=7,
    )
    builder.thread(Node(py("worker", 5), 1, 9 * MS, resumes=4), ident=2**63 + 5, name="w")
    builder.key(section("data"))
    return builder.snapshot(
        meta={"python": "3.11.7", "rank": 3, "x": 1.5, "sync": True, "none": None,
              "started_unix_ns": 1_790_000_000_123_456_789},
        sections=(builder.stats("forward", [1, 70, 5000]), builder.stats("data", [], thread=1)),
        steps=Steps(9, 3, 60, 0.25, 5, 20, (5, 15, 20), histogram([5, 15, 20]),
                    (StepRow(builder.key(section("forward")), 6, 50),)),
        loaders=(LoaderStats("main", "train", 9, {"data": (9, 90)}, 0.7),
                 LoaderStats("val", "val", 2, {}, None)),
        calibration=cost((1.5, 2.5), (3, 4), (5, 6), (7, 8), implicit=(9, 10), constructor=(11, 12),
                         init=(13, 14), general=(15, 16), unpacked=(17, 18), c_general=(19, 20),
                         fed=(21, 22), made=25, nested=26, text=(23, 24)),
        counters={"dropped": 4},
        notes=("a note",),
    )  # fmt: skip


def packed(snapshot) -> bytes:
    stream = io.BytesIO()
    fprof.write_snapshot(snapshot, stream)
    return stream.getvalue()


def plain(snapshot) -> dict:
    return json.loads(gzip.decompress(packed(snapshot)))


def parse_dict(data, **limits):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return fprof.parse(gzip.compress(text), Limits(**limits))


def test_a_run_is_read_back_exactly(tmp_path):
    report = build_report(rich_snapshot())
    report.save(tmp_path / "run.fprof")
    loaded = loading.load(tmp_path / "run.fprof")
    assert loaded.snapshot == rich_snapshot()
    assert loaded == report
    assert str(loaded) == str(report)


def test_the_same_run_gives_the_same_bytes():
    assert packed(rich_snapshot()) == packed(rich_snapshot())


events = st.lists(
    st.tuples(
        st.sampled_from(["call", "resume", "section", "type", "leave"]),
        st.integers(0, 5),
        st.integers(0, 2**57),  # 30 of them still fit
    ),
    max_size=30,
)


@given(st.lists(events, max_size=3))
def test_any_tree_is_read_back_exactly(threads):
    _, snapshot = replay(threads)
    assert fprof.parse(packed(snapshot), Limits()) == snapshot


@pytest.mark.parametrize("value", [2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1])
def test_f35_large_counters_and_times_stay_exact_for_every_json_reader(value):
    snapshot = tree(Node(py("f"), value, value), counters={"dropped": value})
    data = plain(snapshot)
    calls = data["threads"][0]["calls"][1]
    assert calls == (value if value <= 2**53 else str(value))
    assert int(float(calls)) == int(calls) or isinstance(calls, str)
    assert fprof.parse(packed(snapshot), Limits()) == snapshot
    report = build_report(snapshot)
    assert report.functions[0].calls == value
    out = json.loads(report.to_json())["functions"][0]["calls"]
    assert out == (value if value <= 2**53 else str(value))


@pytest.mark.parametrize("value", [2**63, -1, 1.0, True, None, "5x", "\u0665", "1" * 21, [1]])
def test_f35_what_is_no_64_bit_count_is_refused(value):
    data = plain(rich_snapshot())
    for where in (data["threads"][0]["calls"], data["threads"][0]["self_ns"]):
        kept, where[1] = where[1], value
        with pytest.raises(ValueError, match=r"threads\[0\]"):
            parse_dict(data)
        where[1] = kept
    data["duration_ns"] = value
    with pytest.raises(ValueError, match="duration_ns"):
        parse_dict(data)


def test_f45_what_is_not_finite_is_null():
    snapshot = tree(Node(py('a"b\\c')), meta={"nan": float("nan"), "inf": float("-inf")})
    for text in (gzip.decompress(packed(snapshot)).decode(), build_report(snapshot).to_json()):
        meta = json.loads(text, parse_constant=lambda _: pytest.fail("not strict"))["meta"]
        assert meta == {"nan": None, "inf": None}


def test_f45_a_step_of_no_length_and_an_empty_window_are_strict_json():
    empty = Snapshot(meta={}, duration_ns=0)
    steps = Steps(count=2, sum_ns=0, recent_ns=(0, 0))
    for snapshot in (empty, Snapshot(meta={}, duration_ns=0, steps=steps)):
        report = build_report(snapshot)
        data = json.loads(report.to_json(), parse_constant=lambda _: pytest.fail("not strict"))
        assert data["steps"]["cv"] is None
        assert fprof.parse(packed(snapshot), Limits()) == snapshot
    assert "n/a" in report.to_text(full=True)
    assert json.loads(build_report(empty).to_json())["steps"]["wall_ms"] is None


# ---- hostile files ----


def test_f46_a_file_cut_at_every_byte_is_refused():
    data = packed(rich_snapshot())
    for n in range(len(data)):
        with pytest.raises(LoadError):
            fprof.parse(data[:n], Limits())
    with pytest.raises(LoadError):
        fprof.parse(data + b"more", Limits())


def test_f46_json_cut_at_every_byte_is_refused():
    data = gzip.decompress(packed(rich_snapshot()))
    for n in range(len(data)):
        with pytest.raises(ValueError):
            parse_dict(data[:n])


def test_f46_damaged_files_are_refused_or_valid():
    data = packed(rich_snapshot())
    text = gzip.decompress(data)
    dice = random.Random(46)
    for i in range(3000):
        source = bytearray(text if i % 2 else data)
        for _ in range(dice.randint(1, 4)):
            source[dice.randrange(len(source))] = dice.choice(b'0123456789-.,:"[]{}en\xff')
        try:
            found = parse_dict(bytes(source)) if i % 2 else fprof.parse(bytes(source), Limits())
        except ValueError:
            continue
        build_report(found).to_json()
        str(build_report(found))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], "fastprof/2"),
        (["schema"], None),
        (["keys", 0], ["root", "", 0, "r"]),
        (["keys", 0, 0], "unknown"),
        (["keys", 1, 3], 7),
        (["threads", 0, "parent"], []),
        (["threads", 0, "parent", 0], -1.0),
        (["threads", 0, "parent", 1], 1),
        (["threads", 0, "parent", 1], "0"),
        (["threads", 0, "parent", 2], True),
        (["threads", 0, "key", 1], 99),
        (["threads", 0, "key", 1], 0),
        (["threads", 0, "calls"], [1]),
        (["threads", 0, "name"], None),
        (["sections", 0, "key"], 99),
        (["sections", 0, "thread"], 2),
        (["sections", 0, "hist", 0], [5, 5, 1]),
        (["sections", 0, "hist", 1], [0, 1, 1]),
        (["steps", "sum_sq"], "x"),
        (["steps", "sum_sq"], 10**400),
        (["steps", "rows", 0], [99, 1, 1]),
        (["loaders", 0, "phases"], [1]),
        (["loaders", 0, "phases", "data"], [1]),
        (["calibration", "c"], [1]),
        (["calibration", "c"], [-1, 1]),
        (["calibration", "c"], [1e300, 1]),
        (["calibration", "method"], None),
        (["calibration", "init"], None),
        (["forms"], [[99, "implicit"]]),
        (["forms"], [[1, "other"]]),
        (["forms"], 1),
        (["calibration", "constructor"], [1]),
        (["meta", "rank"], [1]),
        (["meta", "started_unix_ns"], "soon"),
        (["counters", "dropped"], -1),
        (["notes", 0], 5),
        (["notes"], {}),
    ],
)
def test_f46_every_field_is_checked(path, value):
    data = plain(rich_snapshot())
    parse_dict(data)
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(ValueError) as caught:
        parse_dict(data)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def all_warm_up():
    """No measured step, beside what only measured steps have."""
    made = simulated(1.0)
    return replace(made, steps=replace(made.steps, skipped=made.steps.count))


def without_steps():
    made = simulated(1.0)
    return replace(made, steps=replace(made.steps, count=0, skipped=0, apart=0))


def without_single_steps():
    """Measured steps, none of which was kept."""
    steps = Steps(count=9, skipped=3, sum_ns=60 * MS, min_ns=5 * MS, max_ns=20 * MS)
    return tree(Node(py("f"), 1, 70 * MS), steps=steps)


def waiting_nowhere():
    """A line in which an unknown thread waited for the GPU, and phases of the run."""
    made = in_phases()
    return replace(made, gpu=gpu(lines=(GpuLine(-1, -1, "train.py", 7, "train", 1, MS),)))


def without_threads():
    return replace(waiting_nowhere(), threads=())


@pytest.mark.parametrize(
    "make",
    [
        all_warm_up, without_steps, without_single_steps, waiting_nowhere, without_threads,
        rich_snapshot,
    ],
)  # fmt: skip
def test_f46_every_valid_file_has_a_report(make, tmp_path):
    report = build_report(fprof.parse(packed(make()), Limits()))
    for phase in (None, "all", *(p.name for p in report.snapshot.phases)):
        of_phase = report if phase is None else report.in_phase(phase)
        assert of_phase.to_text()
        assert of_phase.to_text(full=True)
        assert json.loads(of_phase.to_json())
        assert of_phase.to_markdown()
        of_phase.save(tmp_path / "run.html")


def test_a_wait_of_an_unknown_thread_is_in_measured_steps():
    (line,) = build_report(waiting_nowhere()).gpu.lines
    assert (line.file, line.section, line.blocked_ns) == ("train.py", None, MS)
    assert build_report(waiting_nowhere(), phase="validation").gpu.lines == ()


def test_how_keys_were_called_is_kept():
    snapshot = rich_snapshot()
    forms = [CALL_FORMS[i % len(CALL_FORMS)] for i in range(len(snapshot.keys))]
    keys = tuple(replace(k, form=f) for k, f in zip(snapshot.keys, forms, strict=True))
    data = plain(replace(snapshot, keys=keys))
    assert [key.form for key in parse_dict(data).keys] == forms


def test_f46_every_field_must_be_there():
    data = plain(rich_snapshot())
    # These parts are optional.
    optional = {
        "calibration",
        "compilations",
        "gpu",
        "history",
        "lines",
        "memory",
        "operators",
        "outliers",
        "plain_steps",
        "sources",
        "stages",
        "trace",
    }
    for name in data.keys() - optional:
        with pytest.raises(ValueError):
            parse_dict({k: v for k, v in data.items() if k != name})
    for value in ([], "x", 5, None, {}):
        with pytest.raises(ValueError):
            parse_dict(value)


def test_f46_a_key_that_stands_twice_is_refused():
    text = json.dumps(plain(rich_snapshot())).encode()
    with pytest.raises(LoadError, match="twice"):
        parse_dict(text.replace(b'"notes":', b'"notes": [], "notes":', 1))


def test_f46_constants_that_are_not_json_are_refused():
    text = json.dumps(plain(rich_snapshot())).encode()
    for constant in (b"NaN", b"Infinity", b"-Infinity"):
        with pytest.raises(ValueError):
            parse_dict(text.replace(b'"x": 1.5', b'"x": ' + constant, 1))
    with pytest.raises(ValueError, match="finite"):
        parse_dict(text.replace(b'"x": 1.5', b'"x": 1e999', 1))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_unpacked_bytes", 1000),
        ("max_entries", 50),
        ("max_depth", 3),
        ("max_name", 10),
        ("max_memory", 10_000),
    ],
)
def test_f46_each_limit_is_an_option_that_its_error_names(option, value):
    data = packed(rich_snapshot())
    with pytest.raises(LoadError, match=f"{option}={value}"):
        fprof.parse(data, Limits(**{option: value}))


def sums_by_function(snapshot):
    """Calls, resumes and own time of each function in each phase of the run."""
    sums = {}
    for tree_ in snapshot.threads:
        nodes = tree_.nodes
        phases = nodes.phase or (0,) * len(nodes)
        columns = zip(nodes.key, phases, nodes.calls, nodes.resumes, nodes.self_ns, strict=True)
        for key, phase, *row in columns:
            if any(row):
                at = (tree_.ident, snapshot.keys[key], phase)
                sums[at] = [a + b for a, b in zip(sums.get(at, (0, 0, 0)), row, strict=True)]
    return sums


@pytest.fixture
def small_limits(monkeypatch):
    """A reader that refuses what is large for a test."""
    limits = Limits(max_entries=1800)
    monkeypatch.setattr(fprof, "_LIMITS", limits)
    monkeypatch.setattr(fprof, "_SURELY_READ", 0)
    return limits


@given(st.lists(events, min_size=1, max_size=3))
def test_f46_what_is_written_can_be_read_and_keeps_the_time_of_each_function(threads):
    _, snapshot = replay(threads)
    for part in (1.0, 0.5, 0.0):
        made = smaller(snapshot, part)
        again = Snapshot.from_dict(json.loads(json.dumps(made.to_dict())))
        assert again == made
        assert sums_by_function(made) == sums_by_function(snapshot)
        assert build_report(made).to_text(full=True)


def test_f46_a_run_of_an_earlier_fastprof_can_be_read():
    # Recorded in November 2026; fields that were added since are absent.
    report = loading.load(ROOT / "tests/golden/earlier.fprof")
    assert report.steps.count == 12
    assert report.loaders[0].workers.workers == 1
    assert "forward" in report.to_text(full=True)


def test_f46_a_recording_beyond_the_limits_of_readers_is_saved_without_its_smallest_contexts(
    small_limits, monkeypatch
):
    calls = [Node(py(f"f{i}", i + 1), i + 1, i, [Node(c("len"), 2, 10 * i)]) for i in range(400)]
    snapshot = tree(*calls)
    with pytest.raises(LoadError, match="max_entries"):
        parse_dict(snapshot.to_dict(), max_entries=small_limits.max_entries * 3)
    # Enough room for all functions, but not for all contexts.
    limits = replace(small_limits, max_entries=6000)
    monkeypatch.setattr(fprof, "_LIMITS", limits)
    found = fprof.parse(packed(snapshot), limits)
    assert sums_by_function(found) == sums_by_function(snapshot)
    (note,) = found.notes
    kept_text = r"calling contexts with most time, [\d,]+ of 801, and 401 of 401 functions"
    assert re.search(kept_text, note)
    kept = [found.keys[key].name for key in found.threads[0].nodes.key]
    row = kept.index("f399")
    assert found.threads[0].nodes.parent[row] == 0  # the largest is where it was


def test_f46_a_recording_of_more_functions_than_readers_accept_has_one_row_for_the_others(
    small_limits, monkeypatch
):
    monkeypatch.setattr("fastprof.read.smaller._ALL_FUNCTIONS", 10)
    snapshot = tree(*[Node(py(f"f{i}", i + 1), i + 1, i) for i in range(1000)])
    found = fprof.parse(packed(snapshot), small_limits)
    rows = {row.name: row for row in build_report(found).functions}
    assert rows["(other functions)"].calls + sum(
        row.calls for name, row in rows.items() if name != "(other functions)"
    ) == sum(range(1001))
    assert "f999" in rows
    assert "f0" not in rows
    assert found.duration_ns == snapshot.duration_ns


def test_f46_places_in_a_recording_made_smaller_are_those_of_the_same_function():
    snapshot = snapshot_with("f")
    made = smaller(snapshot, 0.2)
    assert made.threads[0].nodes != snapshot.threads[0].nodes

    def names(one, nodes):
        return [one.keys[one.threads[0].nodes.key[node]].name for node in nodes]

    (before,), (after,) = snapshot.outliers.kept, made.outliers.kept
    assert names(made, [r.node for r in after.rows]) == names(
        snapshot, [r.node for r in before.rows]
    )
    for table in ("activity", "host", "lines"):
        old, new = getattr(snapshot.gpu, table), getattr(made.gpu, table)
        assert names(made, [r.node for r in new]) == names(snapshot, [r.node for r in old])
    old, new = (one.gpu.devices[0].whole.idle for one in (snapshot, made))
    assert [made.keys[key] for key, _ in new] == [snapshot.keys[key] for key, _ in old]


@pytest.mark.slow
@pytest.mark.parametrize("functions", [1000, 1_000_000])
def test_f46_two_threads_with_all_contexts_that_are_recorded_are_saved_and_read(functions):
    n = RecorderOptions().max_nodes // (2 if functions > 1000 else 1)
    keys = [Key("root", "", 0, "(root)", "(root)")]
    keys += [py(f"function_{i}", i + 1, f"/home/user/gen_{i // 1000}.py") for i in range(functions)]
    threads = tuple(
        ThreadTree(i + 1, f"t{i}", False, NodeTable(
            (-1, *[j // 2 for j in range(n - 1)]),
            (0, *[1 + (j + i * n) % functions for j in range(n - 1)]),
            (0, *range(1, n)), (0,) * n, (0, *range(n, 2 * n - 1)),
        ))
        for i in range(2)
    )  # fmt: skip
    snapshot = Snapshot({}, 10**12, tuple(keys), threads)
    found = fprof.parse(packed(snapshot), Limits())
    assert [sum(t.nodes.self_ns) for t in found.threads] == [sum(t.nodes.self_ns) for t in threads]
    assert [sum(t.nodes.calls) for t in found.threads] == [sum(t.nodes.calls) for t in threads]


def test_f46_brackets_and_quotes_inside_names_are_no_structure():
    name = '[[[[[[[[[[[[[[[[[[[[{{{{{{{{,,,,\\"\\\\"'
    snapshot = tree(Node(py(name)))
    assert fprof.parse(packed(snapshot), Limits()) == snapshot


def test_p2_equal_values_of_a_file_are_one_object():
    builder = Builder()
    builder.thread(Node(py("first"), 700, 10**6, [Node(py("second"), 700, 10**6)]))
    made = parse_dict(plain(builder.snapshot()))
    first, second = made.keys[-2:]
    assert first.file is second.file
    assert first.name is first.qualname
    nodes = made.threads[0].nodes
    assert nodes.calls[1] is nodes.calls[2]
    assert nodes.self_ns[1] is nodes.self_ns[2]


@given(st.lists(st.text('a,[]{}"\\\\', max_size=40), max_size=8), st.integers(1, 30))
def test_p2_the_shape_of_a_text_does_not_depend_on_the_size_of_its_pieces(names, size):
    text = json.dumps([names, {"x": [names]}]).encode()
    whole = fprof.shape(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fprof, "_LOOKED_AT", size)
        assert fprof.shape(text) == whole
        longest = max(map(len, map(json.dumps, names)), default=2) - 2
        if longest > 3 and not any(mark in name for name in names for mark in '"\\\\'):
            with pytest.raises(LoadError, match="a name is longer"):
                fprof.shape(text, longest - 1)


def test_p2_the_shape_of_many_names_needs_little_more_memory_than_their_text():
    text = json.dumps([f"name{i}" for i in range(300_000)]).encode()
    tracemalloc.start()
    try:
        fprof.shape(text)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < len(text) + (16 << 20)


def test_p2_a_wrong_value_far_into_a_long_column_is_named():
    data = plain(rich_snapshot())
    data["steps"]["recent_ns"] = [*range(40_000), "x"]
    with pytest.raises(ValueError, match=r"steps\.recent_ns\[40000\] is 'x'"):
        parse_dict(data)
    data = plain(rich_snapshot())
    data["keys"] += [["python", "f", 1, "g", "g"]] * 70_000 + [["python", "f", -1, "g", "g"]]
    with pytest.raises(ValueError, match=rf"keys\[{len(data['keys']) - 1}\]\.line is -1"):
        parse_dict(data)


HOSTILE = """
import gzip, sys, zlib
from fastprof.results.saved import load
def compress(text):
    return gzip.compress(text, 1)
{make}
with open(sys.argv[1], "wb") as file:
    file.write(data)
del data
try:
    load(sys.argv[1])
except ValueError as error:
    assert str(error).startswith(repr(sys.argv[1])), error
    assert "\\n" not in str(error)
    print("refused")
"""

#: 600 MiB in 600 KiB, made from one MiB.  Its checksum is wrong, but stands at its end.
GZIP_BOMB = """
packer = zlib.compressobj(9, wbits=31)
start, again = (
    packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
)
data = start + 599 * again + packer.flush()
"""


@pytest.mark.parametrize(
    "make",
    [
        GZIP_BOMB,
        "data = compress(b'[' * 1_000_000)",
        "data = compress(b'[' * 1_000_000 + b']' * 1_000_000)",
        "data = compress(b'[' + b'[],' * 20_000_000 + b'[]]')",
        pytest.param(
            "data = compress(b'[' + b'{},' * 20_000_000 + b'{}]')", marks=pytest.mark.slow
        ),
        "data = compress(b'[' + b'300,' * 20_000_000 + b'3]')",
        pytest.param(
            "data = compress(b'[' + b'\"abc\",' * 15_000_000 + b'3]')", marks=pytest.mark.slow
        ),
        "data = compress(b'\"' + b'a' * 100_000_000 + b'\"')",
        pytest.param("data = compress(b'1' * 50_000_000)", marks=pytest.mark.slow),
        "data = compress(b'{\"schema\":' + b'9' * 5000 + b'}')",
        "data = compress(b'') * 500_000",
        "data = compress(b'\"' * 50_000_001)",
        pytest.param("data = compress(b'\\\\' * 50_000_001)", marks=pytest.mark.slow),
        # marshal: a tuple header that announces 200 000 000 items.
        "data = b'(\\x00\\xc2\\xeb\\x0b'",
        "data = b'{(\\x00\\xc2\\xeb\\x0b'",
        "data = b''",
        "data = b'PK\\x03\\x04' + bytes(100)",
    ],
)
def test_f46_hostile_files_are_refused_in_bounded_memory(tmp_path, make):
    child = run_child(
        HOSTILE.format(make=make),
        str(tmp_path / "in"),
        rlimit_as=512 * MIB,
        timeout=120,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ).check()
    assert child.stdout == "refused\n"


def test_f46_parts_that_were_joined_are_read_as_one():
    text = json.dumps(plain(rich_snapshot())).encode()
    joined = gzip.compress(text[:50]) + gzip.compress(b"") + gzip.compress(text[50:]) + bytes(9)
    assert fprof.parse(joined, Limits()) == rich_snapshot()


def leaves(value, path=()):
    """The places of all numbers in a value of JSON."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    elif type(value) in (int, float):
        yield path


VALUES = [0, 1, 2, 7, 10**9, 2**31, 2**53, "9223372036854775807", 0.5, 5e-324, 1e308]


@pytest.mark.parametrize("make", [lambda: snapshot_with("f"), lambda: simulated(1.0), in_phases])
def test_f46_a_valid_run_with_other_numbers_has_every_output(make, tmp_path):
    data = plain(make())
    places = list(leaves(data))
    dice = random.Random(38)
    valid = 0
    for _ in range(60):
        changed = json.loads(json.dumps(data))
        for path in dice.sample(places, dice.randint(1, 3)):
            inner = changed
            for step in path[:-1]:
                inner = inner[step]
            value = dice.choice(VALUES)
            inner[path[-1]] = value
            if isinstance(inner, list) and dice.random() < 0.5:
                inner[:] = [value] * len(inner)
        try:
            report = build_report(parse_dict(changed))
        except ValueError:
            continue
        valid += 1
        for suffix in [one.suffixes[0] for one in FORMATS if one.suffixes]:
            with suppress(ExportError):  # the format needs a trace, for example
                report.save(tmp_path / f"run{suffix}")
        report.to_text()
        for table in ("sections", "step_sections", "steps", "kernels", "loaders"):
            report.to_csv(table)
    assert valid > 5


def test_p2_nothing_in_a_file_is_executed(tmp_path):
    # A pickle that would call os.system when loaded, alone and inside gzip.
    bomb = b"cposix\nsystem\n(S'touch " + str(tmp_path / "owned").encode() + b"'\ntR."
    for data in (bomb, gzip.compress(bomb)):
        (tmp_path / "in").write_bytes(data)
        with pytest.raises(LoadError):
            loading.load(tmp_path / "in")
    assert not (tmp_path / "owned").exists()


def test_p2_readers_use_nothing_that_can_execute():
    child = run_child(
        "import sys, builtins\n"
        "from fastprof.read import load as loading\n"
        "found = {'pickle', 'marshal', 'yaml', 'shelve'} & set(sys.modules)\n"
        "print(sorted(found - {'marshal'}))\n"
        "import fastprof.read.pstats as r, fastprof.read.fprof as f\n"
        "print([n for m in (r, f, loading) for n in ('marshal', 'pickle') if hasattr(m, n)])\n",
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ).check()
    assert child.stdout == "[]\n[]\n"


def test_p7_a_saved_run_holds_what_was_recorded_and_nothing_of_the_process(tmp_path, monkeypatch):
    secret = "hunter2" * 3  # in the source, in an argument, in the environment
    monkeypatch.setenv("SECRET", secret)
    monkeypatch.setattr(sys, "argv", ["prog", secret])
    report = build_report(snapshot_with("f"))
    for suffix in (".fprof", ".stats", ".json", ".txt", ".collapsed", ".speedscope.json"):
        path = tmp_path / f"run{suffix}"
        report.save(path)
        data = path.read_bytes()
        data = gzip.decompress(data) if suffix == ".fprof" else data
        assert secret.encode() not in data
        assert str(tmp_path).encode() not in data


def test_a_directory_is_refused_by_name_and_leaks_nothing(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(LoadError, match="no saved run"):
            loading.load(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_f46_a_recording_whose_other_parts_are_too_large_is_saved_all_the_same(small_limits):
    snapshot = replace(tree(Node(py("f", 1), 1, 1)), notes=tuple(f"n{i}" for i in range(2000)))
    with pytest.raises(LoadError, match="max_entries"):
        fprof.parse(packed(snapshot), small_limits)
    found = fprof.parse(packed(snapshot), Limits())
    assert found.notes[: len(snapshot.notes)] == snapshot.notes
