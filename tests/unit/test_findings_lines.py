"""Findings name the slow line of a function if the source shows it."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from fastprof.errors import SnapshotError
from fastprof.render.plain import plain
from fastprof.render.text import write
from fastprof.report.rows import StepSection
from fastprof.report.source_files import digests
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from fastprof.snapshot.lines import LineSamples
from fastprof.tables.findings import all_findings, findings_block, verdict_lines
from unit.findings_runs import Key, Node, c_function, calls, found, loader, loads, run
from unit.snapshots import Builder, py
from wording import same_text

SOURCE = """
class Lines:
    def __getitem__(self, i):
        text = self.read(i)
        words = [float(w) for w in text.split(",")]
        if not words:
            return self.pad(text)
        other = self.pad(words)
        twice = list(map(self.scale, words))
        return tensor(
            other
        )

    @cached
    def short(self, i):
        return parse(i, base=10)
"""


LIBRARY = "/usr/lib/python3/site-packages/readers.py"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "data.py"
    path.write_text(SOURCE, encoding="utf-8")
    os.utime(path, (1e9, 1e9))
    return str(path)


def loaded(function: Key, *below: Node, own_ms: float = 4) -> Snapshot:
    made = run(
        {"data": 60, "forward": 20, "backward": 20},
        inside={"data": [calls(function, own_ms, 64, *below)]},
        loaders=(loader(60, cpus=2),),
    )
    return replace(made, meta={**made.meta, "cpus": 2}, sources=digests(made))


def evidence(made: Snapshot) -> str:
    return " ".join(found(made)["data-loading"].evidence)


def getitem(file: str, line: int = 3) -> Key:
    return py("__getitem__", line, file, "Lines.__getitem__")


def read(ms: float) -> Node:
    """Return a waiting function of a library; the program's functions are charged themselves."""
    below = calls(c_function("<built-in method time.sleep>", "time.sleep"), ms)
    return calls(py("read", 40, LIBRARY, "Reader.read"), 0, 64, below)


def test_the_line_whose_calls_take_the_time_is_named_with_its_ms(file: str) -> None:
    said = evidence(loaded(getitem(file), read(30), calls(c_function("x", "tensor"), 9)))
    assert "Lines.__getitem__ (data.py:3) takes 43.0 ms per step" in said
    assert "The calls in line 4, text = self.read(i), take 30.0 ms of it." in said
    fix = found(loaded(getitem(file), calls(c_function("x", "tensor"), 40, 64)))["data-loading"].fix
    assert "Make Lines.__getitem__ (data.py:3) cheaper, line 10 first: store" in " ".join(fix)


def test_calls_in_a_comprehension_are_those_of_its_line(file: str) -> None:
    inside = calls(py("<listcomp>", 5, file, "Lines.__getitem__.<locals>.<listcomp>"), 20, 64)
    split = calls(c_function("split", "str.split"), 15, 64)
    said = evidence(loaded(getitem(file), inside, split, read(9)))
    assert 'The calls in line 5, words = [float(w) for w in text.split(",")], take 35.0 ms' in said


def test_a_function_of_one_statement_is_that_line(file: str) -> None:
    # Its first line is the decorator's line.
    said = evidence(loaded(py("short", 14, file, "Lines.short"), own_ms=40))
    assert "All of it is line 16, return parse(i, base=10)." in said


def test_a_module_that_is_called_runs_a_forward_that_the_source_does_not_call(
    tmp_path: Path,
) -> None:
    """`self.proj(x)` takes the time, not `super().forward(h)` of the same class of torch's."""
    path = tmp_path / "tail.py"
    path.write_text("class Tail(Linear):\n    def forward(self, x):\n        h = self.proj(x)\n"
                    "        return super().forward(h)\n")  # fmt: skip
    os.utime(path, (1e9, 1e9))
    torch = "/usr/lib/python3/site-packages/torch/nn/modules/"
    linear = py("forward", 130, f"{torch}linear.py", "Linear.forward")
    call = py("_call_impl", 1780, f"{torch}module.py", "Module._call_impl")
    below = (calls(call, 0, 64, calls(linear, 50, 64)), calls(linear, 5, 64))
    assert "line" not in evidence(loaded(py("forward", 2, str(path), "Tail.forward"), *below))


@pytest.mark.parametrize(
    "name",
    ["pad", "scale", "unknown"],
    ids=["called in two lines", "called by another function", "not in the source"],
)
def test_a_line_is_named_only_where_there_is_no_doubt(file: str, name: str) -> None:
    below = calls(py(name, 60, LIBRARY, f"Reader.{name}"), 30, 64)
    assert "line" not in evidence(loaded(getitem(file), below))


def test_a_line_whose_call_only_looks_alike_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "build.py"
    path.write_text("class A(B):\n    def __init__(self):\n        super().__init__()\n"
                    "        self.layer = Linear(8)\n")  # fmt: skip
    os.utime(path, (1e9, 1e9))
    # Linear's method is also called __init__.
    linear = calls(py("__init__", 90, LIBRARY, "Linear.__init__"), 40, 64)
    init = py("__init__", 2, str(path), "A.__init__")
    assert "line" not in evidence(loaded(init, linear))


def test_no_line_is_named_where_more_time_is_unexplained(file: str) -> None:
    elsewhere = calls(py("unknown", 60, LIBRARY, "Reader.unknown"), 30, 64)
    assert "line" not in evidence(loaded(getitem(file), read(20), elsewhere))
    assert "line 4" in evidence(loaded(getitem(file), read(31), elsewhere))
    assert "line" not in evidence(loaded(getitem(file), read(20), own_ms=30))


def test_a_function_of_many_small_parts_has_no_empty_list_of_them() -> None:
    parts = [calls(py(f"part{i}", 60 + i, LIBRARY), 2, 64) for i in range(25)]
    said = evidence(loaded(getitem("/nowhere/data.py"), *parts, own_ms=1))
    assert "Lines.__getitem__ (data.py:3) takes 51.0 ms per step." in said


def test_a_source_that_may_be_another_one_is_not_read(file: str) -> None:
    assert "line 4" in evidence(loaded(getitem(file), read(30)))
    other = replace(loaded(getitem(file), read(30)), sources={file: "0" * 64})
    assert "line 4" not in evidence(other)
    assert "line 4" not in evidence(loaded(getitem(file, 4), read(30)))
    assert "line 4" not in evidence(loaded(getitem("/nowhere/data.py"), read(30)))


def test_a_file_that_was_edited_during_the_run_is_not_the_one_that_ran(file: str) -> None:
    made = replace(loaded(getitem(file), read(30)), duration_ns=10 * 10**9)
    until = round(1e9 + 10) * 10**9
    made = replace(made, meta={**made.meta, "recorded_until_ns": until})
    for changed_s, known in ((-100, True), (0, True), (5, False)):
        os.utime(file, (1e9 + changed_s,) * 2)
        assert ("line 4" in evidence(replace(made, sources=digests(made)))) == known


def test_a_script_is_named_relative_to_where_it_was_started(file: str, monkeypatch) -> None:
    monkeypatch.chdir(Path(file).parent)
    assert "line 4" in evidence(loaded(getitem("data.py"), read(30)))


LOOP = """
import torch
def step(x):
    return policy.log_prob(x)
for batch in loader:
    logits = policy(batch)
    kept.append(dist.log_prob(batch))
    optimizer.step()
"""


def test_a_line_of_the_loop_of_a_script_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rl.py"
    path.write_text(LOOP, encoding="utf-8")
    os.utime(path, (1e9, 1e9))
    log_prob = Key(
        "python", "/site-packages/torch/distributions/categorical.py", 3, "log_prob",
        "Categorical.log_prob",
    )  # fmt: skip
    made = run({"forward": 20, "backward": 20}, inside={"": [calls(log_prob, 50, 64)]})
    keys = tuple(
        replace(key, file=str(path), line=1, name="<module>", qualname="<module>")
        if key.name == "train" else key
        for key in made.keys
    )  # fmt: skip
    made = replace(made, keys=keys)
    made = replace(made, sources=digests(made))
    same_text(found(made)["unaccounted"])


@pytest.mark.parametrize("own", [0.1, 0.5])
def test_savings_say_what_they_are_a_part_of_if_much_of_the_step_is_fastprof_s(own: float) -> None:
    report = build_report(run({"data": 60, "forward": 40}, loaders=(loader(60),)))
    assert report.examination.findings
    rows = [replace(row, share=(row.share or 0.0) * (1.0 - own)) for row in report.steps.rows]
    rows.append(StepSection("(fastprof)", None, 0, 100.0 * own, own))
    report = replace(report, steps=replace(report.steps, rows=tuple(rows)))
    said = "fastprof takes 50.0 % of a step. Of a step without it, each saving is a larger "
    for lines in (
        verdict_lines(report, 200),
        plain(findings_block(report)),
        plain(all_findings(report)),
    ):
        told = said + "part: the stated percentage times 2.0." in " ".join(lines)
        assert told == (own == 0.5)


def sampled(made: Snapshot, **lines: int) -> Snapshot:
    """Return it with samples of the first function's lines, as ``line4=30``."""
    key = next(i for i, key in enumerate(made.keys) if key.name == "__getitem__")
    rows = tuple(LineSamples(key, int(name[4:]), n) for name, n in lines.items())
    return replace(made, lines=rows)


def test_samples_name_the_lines_with_most_of_the_time(file: str) -> None:
    made = sampled(loaded(getitem(file), own_ms=40), line5=310, line4=100, line8=70, line9=20)
    said = evidence(made)
    assert (
        'Of 500 samples of it, 62 % are on line 5 (words = [float(w) for w in text.split(",")]), '
        "20 % on line 4 (text = self.read(i)), 14 % on line 8 (other = self.pad(words))." in said
    )
    same_text(found(made)["data-loading"])


def test_few_samples_name_no_line(file: str) -> None:
    assert "line" not in evidence(sampled(loaded(getitem(file), own_ms=40), line5=39))


def test_samples_do_not_say_where_a_small_part_of_a_function_is(file: str) -> None:
    """Of the loop's function the finding concerns the loading only."""
    below = calls(getitem(file), 30, 64)
    made = run(
        {"data": 60, "forward": 20, "backward": 20},
        inside={"data": [below], "forward": [calls(getitem(file), 19, 64)]},
        loaders=(loader(60, cpus=2),),
    )
    made = replace(made, meta={**made.meta, "cpus": 2}, sources=digests(made))
    assert "samples" not in evidence(sampled(made, line5=400))


def test_the_line_of_a_slow_worker_is_named(file: str) -> None:
    waited = loader(60, workers=1, cpus=4, ready=1, blocked=39, blocked_ns=39 * 60_000_000,
                    loads=loads(100))  # fmt: skip
    made = run({"data": 60, "forward": 20, "backward": 20}, loaders=(waited,))
    tree = Builder()
    tree.keys = list(made.keys)
    tree.thread(calls(getitem(file), 2000, 64))
    (workers,) = tree.snapshot().threads
    made = replace(made, keys=tree.snapshot().keys, worker_threads=(replace(workers, ident=9),))
    made = replace(made, sources=digests(made))
    said = evidence(sampled(made, line5=310, line4=190))
    assert "The workers spend most of their time in Lines.__getitem__ (data.py:3)." in said
    assert "Of 500 samples of it, 62 % are on line 5 (words" in said


def test_a_saved_run_has_its_samples(file: str) -> None:
    made = sampled(loaded(getitem(file), own_ms=40), line5=310, line4=100)
    assert Snapshot.from_dict(json.loads(json.dumps(made.to_dict()))).lines == made.lines
    older = made.to_dict()
    del older["lines"]
    assert Snapshot.from_dict(older).lines is None
    for wrong in ([[99, 5, 1]], [[0, -1, 1]], [[0, 5]], [[0, 5, 1]] * 10_001):
        with pytest.raises(SnapshotError, match="lines"):
            Snapshot.from_dict({**made.to_dict(), "lines": wrong})


def test_the_programs_files_are_known_before_those_of_libraries(file: str) -> None:
    """Its time is in a C function that it calls; imports took longer in each of 300 files."""
    tree = Builder()
    sleep = calls(c_function("<built-in method time.sleep>", "time.sleep"), 5000)
    modules = [py("<module>", 1, f"/usr/lib/python3/site-packages/m{i}.py") for i in range(300)]
    tree.thread(calls(getitem(file), 0, 64, sleep), *(calls(key, 1) for key in modules))
    assert file in digests(tree.snapshot())


def test_the_full_report_has_a_table_of_lines(file: str) -> None:
    made = sampled(loaded(getitem(file), own_ms=40), line5=310, line4=160, line8=20, line9=10)
    text = full_text(made)
    (title,) = (line for line in text.splitlines() if line.startswith("Lines of your functions"))
    below = text[text.index(title) :].splitlines()[3:6]
    assert [line.split() for line in below] == [
        ["Lines.__getitem__", "500", "62", "5", *SOURCE.splitlines()[4].split()],
        ["32", "4", *SOURCE.splitlines()[3].split()],
        [],
    ]
    assert "Lines of your functions" not in full_text(replace(made, lines=None))


def full_text(made: Snapshot) -> str:
    stream = io.StringIO()
    write(build_report(made), stream)
    return stream.getvalue()
