"""The program's own functions as a tree, and the owners of time."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import product
from types import FrameType

import pytest
from fastprof.findings.measurements import Facts
from fastprof.report.origin import shown_name
from fastprof.report.user_tree import UserRow, UserTree, user_tree
from fastprof.report.waits import without_waits
from fastprof.results.report import build_report
from fastprof.snapshot import Key, NodeTable, Snapshot, ThreadTree
from fastprof.snapshot.run_phases import PhaseTime
from fastprof.tables.user_tree import per_steps, phase_of, user_lines
from unit.findings_runs import STEPS, calls, run, tensor
from unit.snapshots import MS, Builder, Node, c, py, section, tree

SITE = "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py"
STANDARD = "/usr/lib/python3.12/queue.py"


def torch(name: str, qualname: str | None = None) -> Key:
    return py(name, 1, SITE, qualname)


def rows(made: Snapshot, limit: int = 20) -> dict[str, UserRow]:
    return {row.name: row for row in user_tree(build_report(made), limit, 0).rows}


def test_the_time_of_a_library_is_its_callers_and_it_is_named() -> None:
    made = tree(
        Node(
            py("train"), 1, 2 * MS,
            [
                Node(torch("_call_impl"), 10, 1 * MS,
                     [Node(torch("inner", "Module._call_impl.<locals>.inner"), 10, 0, [
                      Node(torch("forward", "Linear.forward"), 10, 3 * MS,
                           [Node(c("linear"), 10, 4 * MS)])])]),
                Node(torch("backward", "Tensor.backward"), 10, 5 * MS),
            ],
        )
    )  # fmt: skip
    (train,) = rows(made).values()
    assert (train.own_ms, train.total_ms, train.share) == (2, 15, 1)
    # A private function is not named if a public one follows.
    assert dict(train.below) == {"Linear.forward": 7, "Tensor.backward": 5, "_call_impl": 1}


def test_a_function_of_the_program_below_a_library_stands_below_its_caller() -> None:
    item = Node(py("__getitem__", 10, "train.py", "Images.__getitem__"), 40, 6 * MS)
    made = tree(Node(py("train"), 1, MS, [Node(section("data"), 1, 0, [
        Node(torch("fetch"), 10, 2 * MS, [item]), Node(torch("other"), 1, 0, [item]),
    ])]))  # fmt: skip
    found = rows(made)
    assert [(r.name, r.depth, r.total_ms) for r in found.values()] == [
        ("train", 0, 15),
        ("Images.__getitem__", 1, 12),
    ]
    assert dict(found["train"].below) == {"fetch": 2}


def trainer(name: str, *children: Node, ms: int = 0) -> Node:
    """Return a method of a library's trainer, with ``ms`` in its own code."""
    site = SITE.replace("torch/nn/modules/module", "transformers/trainer")
    return Node(py(name, 1, site, f"Trainer.{name}"), 1, ms * MS, list(children))


def parts(made: Snapshot) -> dict[str, float]:
    (row,) = rows(made).values()
    return dict(row.below)


def test_of_a_library_that_runs_the_program_those_parts_are_named_where_its_time_branches() -> None:
    backward = Node(torch("backward", "Tensor.backward"), 1, 0, [Node(c("run"), 1, 20 * MS)])
    epoch = trainer(
        "_run_epoch", trainer("compute_loss", ms=30), backward, trainer("log", ms=6), ms=2
    )
    made = tree(Node(py("main"), 1, MS, [trainer("train", trainer("_inner", epoch), ms=1)]))
    assert parts(made) == {
        "Trainer.compute_loss": 30, "Tensor.backward": 20, "Trainer.log": 6, "Trainer.train": 3,
    }  # fmt: skip


def test_a_part_that_leads_to_one_place_has_the_name_by_which_its_library_was_entered() -> None:
    run_backward = Node(c("torch._C._EngineBase.run_backward"), 1, 40 * MS)
    backward = Node(torch("backward"), 1, MS, [run_backward])
    entered = Node(torch("backward", "Tensor.backward"), 1, 0, [backward])
    alone = tree(Node(py("main"), 1, MS, [entered]))
    assert parts(alone) == {"Tensor.backward": 41}
    below = tree(Node(py("main"), 1, MS, [trainer("train", trainer("step", entered))]))
    assert parts(below) == {"Tensor.backward": 41}


def test_functions_in_c_are_no_parts_of_what_is_taken_apart() -> None:
    """Readers know Lightning's run_backward as Tensor.backward."""
    run_backward = Node(c("torch._C._EngineBase.run_backward"), 1, 20 * MS)
    backward = Node(torch("backward", "Tensor.backward"), 1, 9 * MS, [run_backward])
    step = trainer("step", backward, Node(torch("step", "Adam.step"), 1, 10 * MS))
    made = tree(Node(py("main"), 1, MS, [trainer("fit", step, ms=1)]))
    assert parts(made) == {"Tensor.backward": 29, "Adam.step": 10, "Trainer.fit": 1}


def test_a_part_of_less_than_half_of_its_caller_is_not_taken_apart() -> None:
    train = trainer("train", trainer("log", ms=20), trainer("save", ms=20))
    assert parts(tree(Node(py("main"), 1, 50 * MS, [train]))) == {"Trainer.train": 40}


def test_functions_of_the_program_below_a_library_are_not_parts_of_it() -> None:
    mine = Node(py("forward", 9, "train.py", "Net.forward"), 1, 30 * MS)
    train = trainer("train", trainer("compute_loss", mine, ms=10), trainer("log", ms=8))
    found = rows(tree(Node(py("main"), 1, MS, [train])))
    assert dict(found["main"].below) == {"Trainer.compute_loss": 10, "Trainer.log": 8}
    assert found["Net.forward"].depth == 1


def test_recursion_and_comprehensions_are_folded() -> None:
    inner = Node(py("<listcomp>"), 1, MS, [Node(py("walk"), 1, 2 * MS)])
    made = tree(Node(py("walk"), 1, 4 * MS, [inner]))
    (walk,) = rows(made).values()
    assert (walk.total_ms, walk.own_ms) == (7, 7)


def test_a_module_is_called_by_its_file() -> None:
    made = tree(Node(py("<module>", 1, "/home/me/train.py"), 1, MS))
    assert list(rows(made)) == ["train.py"]


def test_what_is_shown_is_what_took_most_with_all_that_led_to_it() -> None:
    children = [Node(py(f"f{i}", i), 1, (i + 1) * MS) for i in range(10)]
    made = user_tree(build_report(tree(Node(py("main"), 1, 45 * MS, children))), 4, 0)
    assert [row.name for row in made.rows] == ["main", "f9", "f8", "f7"]
    assert made.left_out == 7
    assert made.total_ms == 100


def test_without_room_the_rows_of_functions_that_only_call_another_go_first() -> None:
    item = Node(py("getitem", 30), 9, 60 * MS)
    main = Node(py("main", 20), 1, 1 * MS, [Node(py("load", 25), 9, 1 * MS, [item]),
                                            Node(py("forward", 40), 9, 38 * MS)])  # fmt: skip
    report = build_report(tree(Node(py("<module>"), 1, 0, [Node(py("run", 10), 1, 0, [main])])))

    def shown(limit: int) -> list[tuple[str, int]]:
        return [(row.name, row.depth) for row in user_tree(report, limit, 0).rows]

    assert shown(3) == [("main", 0), ("getitem", 1), ("forward", 1)]
    assert shown(4) == [("prog.py", 0), ("main", 1), ("getitem", 2), ("forward", 2)]
    assert [name for name, _ in shown(9)] == [
        "prog.py", "run", "main", "load", "getitem", "forward",
    ]  # fmt: skip


def test_without_room_a_function_that_computes_is_shown_before_its_callers() -> None:
    """score_files.py: the screen had a finding about parse, and rows of its callers only."""
    parse = Node(py("parse", 40), 9, 45 * MS)
    item = Node(py("getitem", 30), 9, 28 * MS, [parse])
    report = build_report(tree(Node(py("main", 20), 1, 17 * MS, [item])))
    assert [row.name for row in user_tree(report, 2, 0).rows] == ["getitem", "parse"]
    assert [row.name for row in user_tree(report, 3, 0).rows] == ["main", "getitem", "parse"]


def test_two_rows_of_one_function_have_the_names_of_what_led_to_them() -> None:
    """An epoch trained and tested: one row said train, the other GCNConv.forward, and none test."""

    def net(ms: int) -> Node:
        conv = Node(py("conv", 14, "gnn.py"), 40, ms * MS)
        return Node(py("forward", 30, "gnn.py"), 20, MS // 9, [conv])

    made = tree(
        Node(py("<module>", 1, "gnn.py"), 0, MS, [
            Node(py("train", 39, "gnn.py"), 20, 60 * MS, [net(50)]),
            Node(py("test", 50, "gnn.py"), 20, MS // 9, [net(45)]),
        ])
    )  # fmt: skip
    found = user_tree(build_report(made), 3, 0).rows
    assert [(r.name, r.depth) for r in found] == [("train", 0), ("forward", 1), ("test", 0)]


def test_hidden_functions_are_counted_by_their_package() -> None:
    calls = [Node(torch("a"), 1, MS), Node(torch("b"), 1, MS), Node(py("get", 1, STANDARD), 1, MS)]
    made = user_tree(
        build_report(tree(Node(py("main"), 1, MS, [*calls, Node(c("len"), 1, MS)]))), 9, 0
    )
    assert dict(made.hidden) == {"torch": 2, "Python's standard library": 1, "": 1}


def test_a_deep_tree_is_no_recursion_of_ours() -> None:
    node = Node(py("f0"), 1, MS)
    for i in range(1, 3000):
        node = Node(py(f"f{i}", i), 1, MS, [node])
    assert len(user_tree(build_report(tree(node)), 5, 0).rows) == 5


def test_waits_of_threads_without_work_are_left_out_and_said() -> None:
    lock = Key("c", "~", 0, "<method 'acquire' of '_thread.lock' objects>", "_thread.lock.acquire")
    made = (
        Builder()
        .thread(Node(py("train"), 4, 9 * MS, [Node(lock, 2, MS)]))
        .thread(Node(py("_worker", 1, STANDARD), 1, MS, [Node(lock, 1, 50 * MS)]), ident=2)
    )
    report = build_report(made.snapshot())
    found = without_waits(report)
    assert found.hidden_ms == 50
    shown = {row.qualname: row for row in found.rows}
    assert (shown["_thread.lock.acquire"].self_ms, shown["_thread.lock.acquire"].calls) == (1, 2)
    assert sum(row.share or 0 for row in found.rows) == pytest.approx(1)
    assert "50.0 ms of waiting in other threads are left out" in report.to_text(full=True)


def test_the_sleep_of_another_thread_is_a_wait() -> None:
    """The thread of a progress bar was at the top of the table."""
    sleep = Key("c", "~", 0, "<built-in function sleep>", "time.sleep")
    made = (
        Builder()
        .thread(Node(py("train"), 4, 9 * MS, [Node(sleep, 2, MS)]))
        .thread(Node(py("_refresh", 1, STANDARD), 1, MS, [Node(sleep, 1, 50 * MS)]), ident=2)
    )
    found = without_waits(build_report(made.snapshot()))
    assert found.hidden_ms == 50
    assert {r.qualname: r.self_ms for r in found.rows}["time.sleep"] == 1


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (c("torch._C._VariableFunctionsClass._fused_adamw_"), "torch._fused_adamw_"),
        (c("torch._C._EngineBase.run_backward"), "torch.run_backward"),
        (c("_thread.lock.acquire"), "lock.acquire"),
        (c("torch._ops.profiler."), "profiler operator"),
        (c("len"), "len"),
        (py("inner", 1, "a.py", "make.<locals>.Net.inner"), "Net.inner"),
        (py("_Private.inner", 1, "a.py", "_Private.inner"), "_Private.inner"),
        (
            py("poll", 1, "/lib/python3.11/multiprocessing/connection.py", "_ConnectionBase.poll"),
            "connection.poll",
        ),
        (py("<lambda>", 1, "a.py", "make.<locals>.<lambda>"), "lambda"),
        (py("<module>", 1, "pkg/a.py"), "a.py"),
    ],
)
def test_names_are_those_that_a_reader_knows(key: Key, name: str) -> None:
    assert shown_name(key) == name


def after_the_loop(ms: float) -> Snapshot:
    """Return forty steps of 100 ms, and ``ms`` after the last one without a mark."""
    functions = [
        Node(py("get_batch", 9, "/x/train.py"), 1, 30 * MS),
        Node(py("write_results", 50, "/x/train.py"), 1, round(ms / STEPS * MS)),
    ]
    made = run(
        {"forward": 60}, inside={"": functions}, step_ms=100 + ms / STEPS, durations=[100] * STEPS
    )
    return replace(made, phases=(PhaseTime("steps", made.duration_ns, 1),))


def test_what_follows_the_loop_is_not_divided_by_its_steps() -> None:
    report = build_report(after_the_loop(12_000))
    assert report.phase == "steps"
    made = user_tree(report, 5, 0)
    assert {row.name: round(row.share, 3) for row in made.rows} == {
        "train": 1, "write_results": 0.75, "get_batch": 0.075,
    }  # fmt: skip
    lines = user_lines(made, 100, per_steps(report))
    assert lines[0].startswith("your functions ")
    assert "12.0 s of them belong to no completed step" in "\n".join(lines)
    assert report.notes[0].startswith("12.0 s belong to no completed step")
    # It may have run outside of all sections of steps, or not: no function is blamed.
    hot = Facts(report).hot_outside
    assert hot is None


def half_as_long(made: Snapshot) -> Snapshot:
    """Return a run with as many plain steps, which took half as long as those with functions."""
    steps = made.steps
    plain = replace(
        steps, sum_ns=steps.sum_ns // 2, recent_ns=tuple(ns // 2 for ns in steps.recent_ns),
        rows=tuple(replace(row, sum_ns=row.sum_ns // 2) for row in steps.rows),
    )  # fmt: skip
    phases = (PhaseTime("steps", made.duration_ns, 1),)
    return replace(
        made, plain_steps=plain, phases=phases, meta={**made.meta, "overhead_budget": 0.01}
    )


def test_functions_in_a_step_are_those_of_the_plain_step_that_is_shown() -> None:
    """Steps with the hook took twice as long, more than what its calls are known to cost."""
    net = calls(py("net", 9, "/x/train.py"), 30, 3, calls(tensor("item"), 10, 5))
    report = build_report(half_as_long(run({"forward": 60}, inside={"forward": [net]})))
    assert report.shown_steps.mean_ms == 50
    found = {row.name: row for row in user_tree(report, 5, 0).rows}
    assert {name: row.total_ms / STEPS for name, row in found.items()} == {"train": 50, "net": 20}
    assert {name: row.share for name, row in found.items()} == {"train": 1, "net": 0.4}
    facts = Facts(report)
    assert facts.free_ms == 20
    sync = facts.use("item")
    assert (sync.ms, sync.places, sync.calls, sync.total_ms) == (5, {"forward": 5}, 5, 400)
    (caller,) = sync.callers
    assert (caller.ms, caller.calls) == (5, 5)
    # Counts, and the times of the tables of functions, are those that were recorded.
    rows = {row.name: row for row in report.functions}
    assert (rows["net"].calls, rows["net"].self_ms) == (3 * STEPS, 30 * STEPS)


def test_functions_of_another_phase_have_it_in_their_title() -> None:
    made = user_tree(build_report(after_the_loop(10)), 5, 0)
    assert user_lines(made, 100, phase="validation")[0].startswith("your functions in validation ")
    assert user_lines(made, 100, phase="all")[0].startswith("your functions  ")


def test_imports_are_a_part_by_that_name() -> None:
    """Also below a library's function that imports at its first call."""

    def imports(*inside: Node) -> Node:
        return Node(py("_find_and_load", 1, "<frozen importlib._bootstrap>"), 1, MS, [*inside])

    heavy = imports(Node(torch("<module>"), 1, 40 * MS, [Node(torch("register"), 9, 9 * MS)]))
    lazy = Node(torch("__init__", "AdamW.__init__"), 1, 2 * MS, [heavy])
    own = imports(Node(py("<module>", 1, "/home/a/kit.py"), 1, 3 * MS, [imports()]))
    made = tree(Node(py("main"), 1, MS, [lazy, own, imports()]))
    found = rows(made)
    assert dict(found["main"].below) == {"imports": 52, "AdamW.__init__": 2}
    assert (found["kit.py"].own_ms, dict(found["kit.py"].below)) == (3, {"imports": 1})
    titled = user_lines(user_tree(build_report(made), 5, 0), 100, phase="setup")
    assert titled[0].startswith("your functions in imports and set-up ")
    assert "_find_and_load" not in "".join(titled)


def test_a_run_without_steps_has_no_set_up_in_a_title() -> None:
    made = tree(Node(py("main"), 1, 9 * MS))
    made = replace(made, phases=(PhaseTime("setup", made.duration_ns, 1),))
    report = build_report(made, phase="setup")
    assert (report.phase, phase_of(report)) == ("setup", "all")


def test_a_step_that_has_hardly_begun_makes_no_words() -> None:
    report = build_report(after_the_loop(10))
    made = user_tree(report, 5, 0)
    assert not made.beyond_ms
    assert user_lines(made, 100, per_steps(report))[0].startswith("your functions in a step")
    assert not [note for note in report.notes if "in no step" in note]
    assert Facts(report).hot_outside.key.name == "get_batch"


def test_writing_after_the_loop_is_no_finding() -> None:
    write = c("<method 'write' of '_io.TextIOWrapper' objects>")
    functions = [Node(py("get_batch", 9, "/x/train.py"), 1, 30 * MS), Node(write, 30, 200 * MS)]
    made = run({"forward": 60}, inside={"": functions}, step_ms=300, durations=[100] * STEPS)
    assert "logging-share" in {f.rule for f in build_report(made).findings}
    made = replace(made, phases=(PhaseTime("steps", made.duration_ns, 1),))
    assert "logging-share" not in {f.rule for f in build_report(made).findings}


def test_deep_names_are_whole_where_the_file_is_in_the_row_above() -> None:
    """A GPT at 80 columns had the rows ``Tra...orward`` and ``Mul...orward``."""
    names = ("train.py", "main", "train_model_simple", "GPTModel.forward", "Transformer.forward",
             "Attention.forward")  # fmt: skip
    files = ("/x/train.py",) * 3 + ("/x/previous_chapters.py",) * 3
    below = (("Dropout.forward", 11.3), ("Linear.forward", 7.4))
    made = UserTree(
        tuple(
            UserRow(depth, name, file, 100 + depth, 90.0, 0.9, 1.0, below)
            for depth, (name, file) in enumerate(zip(names, files, strict=True))
        ),
        0, 90.0, (),
    )  # fmt: skip
    lines = user_lines(made, 80)
    assert max(map(len, lines)) <= 80
    for name in names:
        assert any(name in line for line in lines), lines
    assert any("Attention.forward  :105" in line for line in lines), lines
    assert any("GPTModel.forward  prev" in line for line in lines), lines
    back = UserRow(3, "evaluate_the_whole_model", "/x/train.py", 35, 9.0, 0.1, 1.0, below)
    lines = user_lines(replace(made, rows=(*made.rows, back)), 80)
    (last,) = [line for line in lines if ":35" in line]
    assert "  :35" not in last, lines  # the row above is in another file
    long = (("torch.scaled_dot_product_attention", 60.0),)
    rows = tuple(replace(row, below=long) for row in made.rows)
    named = [line for line in user_lines(replace(made, rows=rows), 80) if "torch" in line]
    assert len(named) == len(rows)
    assert all(line.endswith(" 60.0") for line in named), named
    wide = user_lines(made, 160)
    assert any("Attention.forward  previous_chapters.py:105" in line for line in wide), wide


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_function_and_its_place_are_on_one_line(width: int) -> None:
    own = (("Random.choice", 2.0),)
    row = UserRow(3, "Shapes.__getitem__", "/w/ddpm.py", 7, 4.9, 0.3, 4.7, own)
    below = (("Conv2d.forward", 1.74), ("silu", 0.3))
    other = UserRow(3, "Net.forward", "/w/ddpm.py", 29, 2.4, 0.15, 0.3, below)
    lines = user_lines(UserTree((row, other), 0, 16.0, ()), width)
    assert any("ddpm.py:7" in line and "S" in line for line in lines), lines
    assert not any(line.startswith("ddpm") for line in lines)
    assert max(map(len, lines)) <= width


def bushy(n: int, seed: int, functions: int) -> Snapshot:
    """Return a deep tree of ``n`` contexts; of few functions: with much recursion."""
    dice = random.Random(seed)
    keys = [Key("root", "", 0, "(thread)", "(thread)"), *(py(f"f{i}", i) for i in range(functions))]
    nodes = NodeTable(
        (-1, *(dice.randrange(max(0, i - 4 - functions // 10), i) for i in range(1, n))),
        (0, *(dice.randrange(1, len(keys)) for _ in range(1, n))),
        (0, *(1,) * (n - 1)), (0,) * n, (0, *(dice.randrange(99) * MS for _ in range(1, n))),
    )  # fmt: skip
    return Snapshot({}, 10**12, keys=tuple(keys), threads=(ThreadTree(1, "t", False, nodes),))


def test_recursion_is_folded_into_the_nearest_entry_above_whatever_the_tree() -> None:
    for seed, functions in product(range(40), (15, 250)):  # many have too little for a row
        made = bushy(300, seed, functions)
        nodes = made.threads[0].nodes
        # The same by a search of the chain for each activation.
        total, own, above, of_key = [0], [0], [0], [0]
        entry, known = [0] * len(nodes), {}
        for i in range(1, len(nodes)):
            at = outer = entry[nodes.parent[i]]
            while outer and of_key[outer] != nodes.key[i]:
                outer = above[outer]
            outer = outer or known.setdefault((at, nodes.key[i]), len(total))
            if outer == len(total):
                total, above, of_key = [*total, 0], [*above, at], [*of_key, nodes.key[i]]
                own.append(0)
            entry[i] = outer
            own[outer] += nodes.self_ns[i]
            while True:
                total[outer] += nodes.self_ns[i]
                if not outer:
                    break
                outer = above[outer]
        found = user_tree(build_report(made, correct_times=False), len(total), 0)
        least = 0.01 * total[0]
        assert sorted((row.total_ms, row.own_ms) for row in found.rows) == sorted(
            (ns / 1e6, own_ns / 1e6)
            for ns, own_ns in zip(total[1:], own[1:], strict=True)
            if ns >= least
        )


def deep_and_wide(n: int) -> Snapshot:
    """Return a chain of ``n`` functions, the last of which calls ``n`` others."""
    keys = [Key("root", "", 0, "(thread)", "(thread)"), *(py(f"f{i}", i) for i in range(2 * n))]
    parent = (*range(-1, n), *(n,) * n)
    ones = (0, *(1,) * (2 * n))
    nodes = NodeTable(parent, tuple(range(2 * n + 1)), ones, (0,) * len(ones), ones)
    return Snapshot({}, 10**12, keys=tuple(keys), threads=(ThreadTree(1, "t", False, nodes),))


def test_i45_the_work_of_the_tree_grows_as_the_tree() -> None:
    def work(n: int) -> int:
        report, lines = build_report(deep_and_wide(n), correct_times=False), 0

        def count(frame: FrameType, event: str, arg: object) -> object:
            nonlocal lines
            if not frame.f_code.co_filename.endswith("user_tree.py"):
                return None
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            user_tree(report, 10, 0)
        finally:
            sys.settrace(before)
        return lines

    assert work(1000) < 3 * work(500)
