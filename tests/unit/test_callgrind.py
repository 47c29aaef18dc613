"""A callgrind file contains the call graph, and real readers can read it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from fastprof.errors import ExportError
from fastprof.render import formats
from fastprof.report.correct import correct
from fastprof.results.report import build_report
from fastprof.results.saved import load
from hypothesis import given
from hypothesis import strategies as st
from unit.cprofile_model import replay
from unit.gpu_runs import gpu_training_run
from unit.hostile import NAMES, snapshot_with
from unit.snapshots import MS, Builder, Node, c, cost, py, replaced, section, tree

events = st.lists(
    st.tuples(
        st.sampled_from(["call", "resume", "section", "type", "leave"]),
        st.integers(0, 5),
        st.integers(0, 10**6),
    ),
    max_size=40,
)


def parsed(text):
    """Read a file: {name: own costs}, {(caller, callee): (calls, costs)}."""
    files, names = {}, {}

    def name(known, value):
        number, text = re.fullmatch(r"\((\d+)\)(?: (.+))?", value).groups()
        if text is not None:
            assert number not in known
            known[number] = text
        return known[number]

    own, edges, at, callee, calls, totals = {}, {}, None, None, None, {}
    for line in text.splitlines():
        if match := re.fullmatch(r"(fl|cfi)=(.+)", line):
            name(files, match[2])
        elif match := re.fullmatch(r"fn=(.+)", line):
            at = name(names, match[1])
        elif match := re.fullmatch(r"cfn=(.+)", line):
            callee = name(names, match[1])
        elif match := re.fullmatch(r"calls=(\d+) \d+", line):
            calls = int(match[1])
        elif re.fullmatch(r"\d+( \d+)+", line):
            costs = tuple(map(int, line.split()[1:]))
            if calls is None:
                old = own.get(at, (0,) * len(costs))
                own[at] = tuple(a + b for a, b in zip(old, costs))
            else:
                edges[at, callee] = (calls, costs)
                calls = None
        elif match := re.fullmatch(r"(summary|totals): (.+)", line):
            totals[match[1]] = tuple(map(int, match[2].split()))
    assert totals["summary"] == totals["totals"]
    assert tuple(map(sum, zip(*own.values()))) == totals["totals"]
    return own, edges


def graph(snapshot):
    return parsed(formats.render(build_report(snapshot), "callgrind"))


def test_functions_sections_and_calls_of_a_known_tree():
    run = tree(
        Node(py("train", 3), 1, 5 * MS, [
            Node(section("data"), 4, 2 * MS, [Node(c("next"), 4, 10 * MS)]),
            Node(py("model", 9), 4, 20 * MS, [Node(c("next"), 8, 1 * MS)]),
        ]),
        root_ns=MS,
    )  # fmt: skip
    own, edges = graph(run)
    assert own == {
        "(MainThread)": (1 * MS,),
        "train": (5 * MS,),
        "[data]": (2 * MS,),
        "next": (11 * MS,),
        "model": (20 * MS,),
    }
    assert edges == {
        ("(MainThread)", "train"): (1, (38 * MS,)),
        ("train", "[data]"): (4, (12 * MS,)),
        ("train", "model"): (4, (21 * MS,)),
        ("[data]", "next"): (4, (10 * MS,)),
        ("model", "next"): (8, (1 * MS,)),
    }


@given(st.lists(events, min_size=1, max_size=2), st.integers(0, 100))
def test_the_costs_of_a_file_add_up_to_the_recorded_time(threads, ns):
    _, snapshot = replay(threads)
    snapshot = replaced(snapshot, calibration=cost((ns, ns), (ns, ns), (ns, ns), (ns, ns)))
    own, _ = graph(snapshot)
    assert sum(costs[0] for costs in own.values()) == sum(map(sum, correct(snapshot).self_ns))


def test_gpu_time_is_a_second_cost_and_adds_up():
    run = gpu_training_run()
    own, edges = graph(run)
    assert sum(costs[1] for costs in own.values()) == run.gpu.sum_ns
    assert own["Model.forward"] == (100 * MS, 440 * MS)
    assert own["(other threads)"] == (0, 4 * MS)
    assert own["(unattributed)"] == (0, 5 * MS)
    assert edges["train", "[forward]"] == (10, (560 * MS, 441 * MS))


def test_functions_that_share_a_name_stay_apart():
    own, _ = graph(tree(Node(py("f", 1, "a.py"), 1, 3), Node(py("f", 7, "b.py"), 1, 4)))
    assert own == {"(MainThread)": (0,), "f (a.py:1)": (3,), "f (b.py:7)": (4,)}


def test_f42_recursion_is_counted_once_per_outermost_call():
    inner = Node(py("f"), 1, 2)
    _, edges = graph(tree(Node(py("f"), 1, 1, [Node(py("f"), 1, 1, [inner])])))
    assert edges["(MainThread)", "f"] == (1, (4,))
    assert edges["f", "f"] == (2, (3,))


def test_a_report_without_contexts_cannot_be_written(tmp_path):
    path = tmp_path / "run.stats"
    build_report(tree(Node(py("f"), 1, 3))).save(path)
    with pytest.raises(ExportError, match="a callgrind file needs"):
        load(path).save(tmp_path / "run.callgrind")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_f43_hostile_names_in_a_callgrind_file(name):
    run = snapshot_with(name)
    text = formats.render(build_report(run), "callgrind")
    assert text.encode().decode() == text
    assert len(text) < 20_000
    own, _ = parsed(text)
    assert sum(costs[0] for costs in own.values()) == sum(map(sum, correct(run).self_ns))


# ---- programs that read it


def annotated(path):
    """Return {file:function: inclusive costs} as callgrind_annotate prints them."""
    tool = shutil.which("callgrind_annotate")
    if tool is None:
        pytest.skip("callgrind_annotate (of valgrind) is not installed")
    command = [tool, "--threshold=100", "--inclusive=yes", "--auto=no", "--show-percs=no"]
    result = subprocess.run(
        [*command, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    found = {}
    for line in result.stdout.splitlines():
        if match := re.fullmatch(r"\s*([\d,]+)\s+(?:([\d,]+|\.)\s+)?(\S.*)", line):
            found[match[3]] = int(match[1].replace(",", ""))
    return found


def test_callgrind_annotate_reads_it(tmp_path):
    path = tmp_path / "run.callgrind"
    build_report(gpu_training_run()).save(path)
    found = annotated(path)
    assert found["PROGRAM TOTALS"] == 1006 * MS
    assert found["/x/train.py:train"] == 1000 * MS
    assert found["???:[forward]"] == 560 * MS
    assert found["/x/model.py:Model.forward"] == 100 * MS


def test_f43_callgrind_annotate_reads_hostile_names(tmp_path):
    builder = Builder()
    nodes = [
        Node(py(name, i, file=name), 1, 1000, [Node(section(name), 1, 10)])
        for i, name in enumerate(NAMES.values(), 1)
    ]
    builder.thread(*nodes)
    path = tmp_path / "run.callgrind"
    build_report(builder.snapshot()).save(path)
    assert annotated(path)["PROGRAM TOTALS"] == 1010 * len(NAMES)


def test_gprof2dot_reads_it(tmp_path):
    pytest.importorskip("gprof2dot")
    path = tmp_path / "run.callgrind"
    build_report(gpu_training_run()).save(path)
    result = subprocess.run(
        [sys.executable, "-m", "gprof2dot", "-f", "callgrind", "-n", "0", "-e", "0", str(path)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert re.search(r'"\[forward\]" \[.*label="\[forward\]\\n55\.67%\\n\(4\.97%\)', result.stdout)
    assert re.search(r'"\[forward\]" -> "Model\.forward" \[.*label="9\.94%\\n10', result.stdout)
