"""The .stats file: cProfile's rules, and its readers' needs."""

from __future__ import annotations

import cProfile
import io
import marshal
import pstats
import sys
from pstats import SortKey

import pytest
from fastprof import fast
from fastprof.export import pstats_
from fastprof.export.pstats_ import stats_data, stats_dict
from fastprof.read import pstats as stats_reader
from fastprof.read.limits import Limits
from fastprof.results.report import build_report
from helpers import run_command
from hypothesis import given
from hypothesis import strategies as st
from unit.cprofile_model import replay
from unit.snapshots import MS, Builder, Node, c, cost, py, replaced, section, tree, type_

events = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "resume", "section", "type", "leave", "leave"]),
        st.integers(0, 5),
        st.integers(0, 1000),
    ),
    max_size=60,
)


def in_ns(stats):
    def ns(row):
        return (*row[:2], round(row[2] * 1e9), round(row[3] * 1e9))

    return {
        function: (*ns(row), {caller: ns(edge) for caller, edge in row[4].items()})
        for function, row in stats.items()
    }


@given(st.lists(events, max_size=3))
def test_s0_08_counts_and_times_are_those_of_a_model_of_cprofile(threads):
    expected, snapshot = replay(threads)
    assert in_ns(stats_dict(snapshot)) == expected


def test_s0_08_the_model_agrees_with_cprofile_itself():
    # Check the model itself: make the same calls under the real cProfile.
    def f0(depth):
        if depth:
            f2(depth - 1)
            f0(depth - 1)

    def f2(depth):
        f0(depth)
        f0(0)

    profile = cProfile.Profile(builtins=False)
    profile.enable()
    f0(4)
    f2(2)
    profile.disable()
    profile.create_stats()
    names = {"f0": ("prog.py", 1, "f0"), "f2": ("prog.py", 3, "f2")}
    real = {
        names[function[2]]: (
            row[0],
            row[1],
            {names[k[2]]: v[:2] for k, v in row[4].items() if k[2] in names},
        )
        for function, row in profile.stats.items()
        if function[2] in names
    }

    made = []

    def e0(depth):
        made.append(("call", 0, 1))
        if depth:
            e2(depth - 1)
            e0(depth - 1)
        made.append(("leave", 0, 1))

    def e2(depth):
        made.append(("call", 2, 1))
        e0(depth)
        e0(0)
        made.append(("leave", 0, 1))

    e0(4)
    e2(2)
    model, snapshot = replay([made])
    counts = {
        function: (row[0], row[1], {k: v[:2] for k, v in row[4].items()})
        for function, row in model.items()
    }
    assert counts == real
    assert in_ns(stats_dict(snapshot)) == model


def program():
    """Return main -> work x10 -> len x100; main -> recursive fib; all in ms."""
    fib = Node(py("fib", 20), 4, 4 * MS, [Node(c("len"), 4, 1 * MS)])
    fib = Node(py("fib", 20), 1, 1 * MS, [fib])
    work = Node(py("work", 10), 10, 30 * MS, [Node(c("len"), 100, 10 * MS)])
    return tree(Node(py("main", 1), 1, 2 * MS, [work, fib]))


@pytest.fixture
def stats_file(tmp_path):
    path = tmp_path / "out.stats"
    build_report(program()).save(path)
    return str(path)


def printed(path, command):
    stream = io.StringIO()
    command(pstats.Stats(path, stream=stream))
    return stream.getvalue()


def test_s0_05_pstats_loads_the_file_and_its_browser_commands_work(stats_file):
    assert pstats.Stats(stats_file).total_calls == 1 + 10 + 104 + 5
    child = run_command(
        [sys.executable, "-m", "pstats", stats_file],
        stdin="sort cumtime\nstats 30\ncallers len\nquit\n",
    ).check()
    assert "5/1" in child.stdout
    assert "prog.py:10(work)" in child.stdout
    assert "was called by..." in child.stdout


def test_s0_06_top_functions_by_cumulative_and_by_own_time(stats_file):
    def rows(key, n):
        text = printed(stats_file, lambda s: s.strip_dirs().sort_stats(key).print_stats(n))
        lines = text[text.index("filename:lineno") :].splitlines()[1:]
        return [line.split(maxsplit=5)[5] for line in lines if line]

    length = "{built-in method builtins.len}"
    work, main, fib = "prog.py:10(work)", "prog.py:1(main)", "prog.py:20(fib)"
    assert rows(SortKey.CUMULATIVE, 30) == [main, work, length, fib]
    assert rows(SortKey.TIME, 30) == [work, length, fib, main]
    assert rows(SortKey.TIME, 2) == [work, length]


def test_s0_07_callers_and_callees_have_counts_and_times(stats_file):
    callers = printed(stats_file, lambda s: s.print_callers("len"))
    assert "100    0.010    0.010  prog.py:10(work)" in callers
    assert "4    0.001    0.001  prog.py:20(fib)" in callers
    callees = printed(stats_file, lambda s: s.print_callees("fib"))
    assert "4    0.001    0.001  {built-in method builtins.len}" in callees


def test_s0_08_recursion_is_shown_and_own_times_add_up(stats_file):
    stats = pstats.Stats(stats_file)
    assert stats.total_tt == pytest.approx(0.048)
    assert stats.stats[("prog.py", 20, "fib")][:4] == (1, 5, 0.005, 0.006)
    # The inner calls of fib form a separate edge, outermost in that pair.
    assert stats.stats[("prog.py", 20, "fib")][4] == {
        ("prog.py", 1, "main"): (1, 1, 0.001, 0.006),
        ("prog.py", 20, "fib"): (4, 4, 0.004, 0.005),
    }


def test_functions_of_one_label_are_added_up_and_never_overwritten():
    first = py("__init__", 2, "<string>", "A.__init__")
    second = py("__init__", 2, "<string>", "B.__init__")
    snapshot = tree(Node(first, 1000, 3 * MS), Node(second, 10, 2 * MS))
    assert stats_dict(snapshot) == {("<string>", 2, "__init__"): (1010, 1010, 0.005, 0.005, {})}
    assert {r.qualname: r.calls for r in build_report(snapshot).functions} == {
        "A.__init__": 1000,
        "B.__init__": 10,
    }


def test_one_label_inside_itself_counts_its_time_once():
    first = py("__init__", 2, "<string>", "A.__init__")
    second = py("__init__", 2, "<string>", "B.__init__")
    stats = stats_dict(tree(Node(first, 1, 3 * MS, [Node(second, 1, 2 * MS)])))
    assert stats[("<string>", 2, "__init__")][:4] == (1, 2, 0.005, 0.005)


def test_constructors_and_sections_are_folded_into_their_caller():
    made = Node(type_("Thing"), 3, 2 * MS, [Node(py("__init__", 5), 3, 1 * MS)])
    snapshot = tree(Node(py("main"), 1, 1 * MS, [Node(section("forward"), 1, 4 * MS, [made])]))
    main, init = ("prog.py", 1, "main"), ("prog.py", 5, "__init__")
    assert stats_dict(snapshot) == {
        main: (1, 1, 0.007, 0.008, {}),
        init: (3, 3, 0.001, 0.001, {main: (3, 3, 0.001, 0.001)}),
    }
    rows = {r.qualname: r for r in build_report(snapshot).functions}
    assert rows["Thing"].kind == "type"
    assert rows["Thing"].callers[0].qualname == "main"
    assert rows["__init__"].callers[0].qualname == "Thing"


def test_threads_are_added_up():
    worker = Node(py("worker"), 1, 100 * MS)
    builder = Builder()
    for ident in range(1, 9):
        builder.thread(worker, ident=ident)
    assert stats_dict(builder.snapshot()) == {("prog.py", 1, "worker"): (8, 8, 0.8, 0.8, {})}


def test_a_function_whose_entry_was_not_seen_has_no_row():
    snapshot = tree(Node(py("outer"), 0, 5 * MS, [Node(py("inner", 2), 1, 1 * MS)]))
    assert stats_dict(snapshot) == {("prog.py", 2, "inner"): (1, 1, 0.001, 0.001, {})}


def test_resumes_count_as_calls_here_and_apart_in_the_report():
    snapshot = tree(Node(py("gen"), 2, 1 * MS, resumes=10))
    assert stats_dict(snapshot)[("prog.py", 1, "gen")][:2] == (12, 12)
    (row,) = build_report(snapshot).functions
    assert (row.calls, row.primitive_calls, row.resumes) == (2, 2, 10)


def test_times_are_corrected_unless_asked_otherwise():
    snapshot = tree(Node(py("f"), 1000, 1 * MS), calibration=cost(python=(100, 0)))
    function = ("prog.py", 1, "f")
    assert stats_dict(snapshot)[function][2] == pytest.approx(0.0009)
    assert stats_dict(snapshot, correct_times=False)[function][2] == pytest.approx(0.001)


@given(st.lists(events, max_size=2), st.integers(0, 200), st.integers(0, 200))
def test_the_contract_with_readers_holds(threads, inside, outside):
    _, snapshot = replay(threads)
    costs = (inside, outside)
    snapshot = replaced(snapshot, calibration=cost(costs, costs, costs))
    stats = stats_dict(snapshot)
    for function, (cc, nc, tt, ct, callers) in stats.items():
        assert [type(part) for part in function] == [str, int, str]
        assert 0 < cc <= nc
        assert 0 <= tt <= ct + 1e-12
        assert set(callers) <= set(stats)
        assert all(len(edge) == 4 for edge in callers.values())
        assert sum(edge[0] for edge in callers.values()) <= nc
        assert sum(edge[2] for edge in callers.values()) <= tt + 1e-9
    # Both kinds of reader read the same data, in the same order.
    data = stats_data(snapshot)
    assert stats_reader.parse(data, Limits()) == marshal.loads(data) == stats
    assert repr(marshal.loads(data)) == repr(stats)


@pytest.fixture
def stats_file_of():
    """Return the extension's writer."""
    return fast.stats_file or pytest.skip("there is no extension")


MANY = (0, 7, 2**31 - 1, 2**31, 2**45, 2**53, 2**61)


def test_the_extension_writes_any_name_and_number(stats_file_of):
    names = ["f", "é", "前向", "😀", "a" * 255, "a" * 256, "", "x\0y"]
    labels = [(f"{name}.py", line, name) for name in names for line in MANY]
    n = len(labels) + 1
    groups = (-1, *range(len(labels)))
    calls = (0, *[MANY[i % 6] + 1 for i in range(len(labels))])
    times = (0, *[MANY[(i + i // 7) % 6] for i in range(len(labels))])
    parent = (-1, 0, *[1 + i // 2 for i in range(n - 2)])
    data, functions, edges = stats_file_of(labels, parent, groups, calls, (0,) * n, times, times)
    found = marshal.loads(data)
    assert (functions, edges) == (len(labels), len(labels) - 1)
    assert list(found) == labels
    for i, entry in enumerate(found.values(), 1):
        assert entry[:3] == (calls[i], calls[i], times[i] / 1e9)
        above = {} if i == 1 else {labels[parent[i] - 1]: (calls[i], *entry[1:4])}
        assert entry[4] == above
    # Most of a file are labels, and each is written once.
    assert data.count(labels[-1][0].encode()) == 1


def test_the_extension_leaves_odd_numbers_to_python_and_refuses_other_labels(stats_file_of):
    tree_ = ((-1, 0), (-1, 0), (0, 1), (0, 0), (0, 5), (0, 5))
    for label in (("f.py", -1, "f"), ("f.py", 2**63, "f")):
        assert stats_file_of([label], *tree_) is None
    half = (*tree_[:4], (0, 0.5), (0, 5))
    assert stats_file_of([("f.py", 1, "f")], *half) is None
    for labels in ([("f.py", "f")], [["f.py", 1, "f"]], [(1, 1, "f")], (("f.py", 1, "f"),)):
        with pytest.raises(TypeError):
            stats_file_of(labels, *tree_)
    with pytest.raises(ValueError, match="a label per group"):
        stats_file_of([], *tree_)
    with pytest.raises(UnicodeEncodeError):
        stats_file_of([("f.py", 1, "\udc80")], *tree_)
    with pytest.raises(ValueError, match="six equal columns"):
        stats_file_of()


def test_i38_a_stats_file_of_too_many_functions_is_written_so_that_fastprof_reads_it(monkeypatch):
    limits = Limits(max_entries=3000)
    monkeypatch.setattr(pstats_, "_LIMITS", limits, raising=False)
    functions = [Node(py(f"f{i}", i), 2, i * MS, [Node(c("len"), 3, MS)]) for i in range(1000)]
    snapshot = tree(*functions)
    stats, data = stats_dict(snapshot), stats_data(snapshot)
    found = stats_reader.parse(data, limits)
    assert len(stats) == 1001
    assert 100 < len(found) < 300
    for i in (0, 1):  # calls
        assert sum(e[i] for e in found.values()) == sum(e[i] for e in stats.values())
    assert sum(e[2] for e in found.values()) == pytest.approx(sum(e[2] for e in stats.values()))
    most = max(stats, key=lambda function: stats[function][2])
    assert found[most][:4] == stats[most][:4]
    (length,) = (entry for (_, _, name), entry in found.items() if "len" in name)
    assert sum(caller[0] for caller in length[4].values()) == 3000
