"""Loops over the elements of tensors in forward, and whose batch makes the calls many."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fastprof.findings.serial_loops import is_serial
from fastprof.report.findings import Finding
from fastprof.report.source_files import digests
from fastprof.snapshot import Snapshot
from unit.findings_runs import (
    Key,
    Node,
    c_function,
    calls,
    found,
    operators,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import MS, py, section
from wording import same_text

SUM = tensor("sum")
LINEAR = c_function("<built-in method torch._C._nn.linear>", "torch._C._nn.linear")
ZEROS = c_function("<built-in method torch.zeros>", "torch.zeros")
CALL = torch_py("torch/nn/modules/module.py", "Module._call_impl")
PHASES = {"forward": 7, "backward": 0.7, "optimizer": 0.6}


def text(finding: Finding) -> str:
    return " ".join((finding.title, *finding.evidence, *finding.fix))


def degree(path: str) -> Key:
    return py("degree", 2, path)


def graph(path: str, *inside: Node, own_ms: float = 3.8, count: int = 690) -> Snapshot:
    """Return a run with a loop over nodes: three calls per step, ``count`` sums in them."""
    looped = calls(SUM, 2.2, count)
    function = calls(degree(path), own_ms, 3, calls(ZEROS, 0.01, 3), *(inside or (looped,)))
    layers = calls(CALL, 0.4, 12, calls(LINEAR, 0.3, 9))
    made = run(PHASES, step_ms=9.7, inside={"forward": [function, layers]})
    return replace(made, sources=digests(made))


def source(tmp_path: Path, body: str) -> str:
    """Return the path of a file with the function ``degree`` in line 2."""
    path = tmp_path / "gnn.py"
    path.write_text(f"import torch\ndef degree(dst, n):\n{body}", encoding="utf-8")
    os.utime(path, (1e9, 1e9))
    return str(path)


OVER_NODES = "    for i in range(n): d[i] = (dst == i).sum()\n    return d\n"
OVER_TIME = "    for x in dst: h = (h * x).sum()\n    return h\n"


def test_a_loop_over_elements_is_named_and_no_larger_batch_promised(tmp_path: Path) -> None:
    """A graph network was told to raise its batch for 81.5 % of the step: that saved 10 %."""
    rules = found(graph(source(tmp_path, OVER_NODES)))
    assert next(iter(rules)) == "tensor-loop"
    rule = rules["tensor-loop"]
    same_text(rule)
    assert "Raise the batch" not in text(rule)
    assert rule.saving_ms == pytest.approx(6.01)
    if "small-batch" in rules:  # the rest of forward, backward and the optimizer
        assert (rules["small-batch"].saving_ms or 0.0) <= 8.3 - 6.01


def test_without_its_source_a_loop_promises_nothing() -> None:
    rule = found(graph("/x/gnn.py"))["tensor-loop"]
    assert rule.saving_ms is None


def test_a_loop_that_needs_its_last_pass_is_left_to_the_batch(tmp_path: Path) -> None:
    rules = found(graph(source(tmp_path, OVER_TIME), own_ms=0.1))
    assert "tensor-loop" not in rules
    assert "small-batch" in rules


def test_a_loop_over_time_calls_modules_and_needs_a_larger_batch() -> None:
    cell = calls(CALL, 2.5, 600, calls(LINEAR, 2.2, 600))
    rules = found(graph("/x/gnn.py", cell))
    assert "tensor-loop" not in rules
    assert "small-batch" in rules


def test_a_few_calls_in_each_call_of_a_function_are_no_loop() -> None:
    assert "tensor-loop" not in found(graph("/x/gnn.py", count=30))


def test_a_loop_of_long_operations_computes() -> None:
    assert "tensor-loop" not in found(graph("/x/gnn.py", calls(SUM, 6, 100), own_ms=0.1))


@pytest.mark.parametrize(
    ("body", "serial"),
    [
        (OVER_NODES, False),
        (OVER_TIME, True),
        ("    return [dst[i].sum() for i in range(n)]\n", False),
        ("    for x in dst:\n        y = x.sum()\n        out.append(y)\n", False),
        ("    for x in dst:\n        total += x.sum()\n", False),
        ("    for x in dst:\n        s += k * x.sum()\n        k *= 0.9\n", True),
        ("    for t in range(n):\n        out[t] = out[t - 1].sum()\n", True),
        ("    for t in range(n):\n        out.append(out[-1].sum())\n", True),
        ("    for t in range(n):\n        self.h = self.h.sum()\n", True),
        ("    for t in range(n):\n        if t:\n            h = h.sum()\n", True),
        ("    for e in n:\n        s = f(s)\n        for x in dst:\n            x.sum()\n", False),
        ("    while n:\n        n = n - 1\n        d[n].sum()\n", True),
        ("    return dst.sum()\n", None),
        ("    return dst +\n", None),
    ],
)  # fmt: skip
def test_the_source_shows_whether_a_loop_needs_its_last_pass(
    tmp_path: Path, body: str, serial: bool | None
) -> None:
    path = source(tmp_path, body)
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    assert is_serial(lines, degree(path), SUM) is serial


OFF = torch_py("torch/autograd/grad_mode.py", "no_grad.__enter__")
DECORATOR = torch_py("torch/utils/_contextlib.py", "context_decorator.<locals>.decorate_context")


def forward(ms: float, count: int) -> Node:
    """Return the forward sections of a step, with 150 calls of an operation per ms."""
    return Node(section("forward"), count, 0, [Node(LINEAR, round(150 * ms), round(ms * MS))])


def collecting(*, off: bool = True, decorated: bool = False, times: int = 30) -> Snapshot:
    """Return a run that mostly calls its network with single samples, in `rollout`."""
    switch = [calls(OFF, 0.01, 1)] if off else []
    rollout = calls(py("rollout", 19, "/x/ppo.py"), 0.1, 1, forward(2, times),
                    *([] if decorated else switch))  # fmt: skip
    if decorated:
        rollout = calls(DECORATOR, 0.01, 1, *switch, rollout)
    back = Node(section("backward"), 1, round(0.5 * MS))
    update = calls(py("update", 43, "/x/ppo.py"), 0.1, 1, forward(0.3, 1), back)
    made = run({}, step_ms=3.2, inside={"": [rollout, update]})
    forms = run({"forward": 2.3, "backward": 0.5}, step_ms=3.2)
    names = {forms.keys[row.key].name: row for row in forms.steps.rows}
    rows = tuple(
        replace(names[key.name], key=i)
        for i, key in enumerate(made.keys)
        if key.kind == "section" and key.name in names
    )
    stats = tuple(
        replace(of, key=i) if hasattr(of, "key") else of
        for i, key in enumerate(made.keys)
        for of in forms.sections
        if key.kind == "section" and key.name == forms.keys[of.key].name
    )
    return replace(made, sections=stats, steps=replace(made.steps, rows=rows))


@pytest.mark.parametrize("decorated", [False, True])
def test_the_batch_that_matters_is_named(decorated: bool) -> None:
    """PPO: the minibatch was raised without effect, since the rollout makes most of the calls."""
    rule = found(collecting(decorated=decorated))["small-batch"]
    same_text(rule)
    assert (rule.saving_ms or 0.0) <= 2.0 * (1 + 1e-9)


def test_a_teacher_gets_the_batches_of_the_training() -> None:
    rule = found(collecting(times=2))["small-batch"]
    same_text(rule)
    assert "without gradients" not in text(rule)


def test_a_function_with_gradients_is_named_and_all_counts() -> None:
    rule = found(collecting(off=False))["small-batch"]
    same_text(rule)


def test_the_promise_is_within_the_parts_that_are_told() -> None:
    update = calls(tensor("add_"), 0.6, 300)
    layers = calls(CALL, 0.2, 400, calls(LINEAR, 1, 400))
    made = run({"forward": 2, "backward": 1, "optimizer": 0.6}, step_ms=4,
               inside={"forward": [layers], "optimizer": [update]})  # fmt: skip
    rule = found(made)["small-batch"]
    same_text(rule)
    assert (rule.saving_ms or 0.0) <= 3.6


def test_calls_that_the_hook_cannot_see_are_not_denied() -> None:
    """a == b and x[i] = y are calls of operators, which no function makes."""
    layers = calls(CALL, 0.2, 400, calls(LINEAR, 1, 400))
    made = run({"forward": 2, "backward": 1}, step_ms=4, inside={"forward": [layers]})
    same_text(found(made)["small-batch"])


def test_a_loop_over_time_that_calls_a_cell_has_its_module_in_c():
    cell = torch_py("torch/nn/modules/rnn.py", "GRUCell.forward")
    gate = c_function("<built-in method torch.gru_cell>", "torch.gru_cell")
    net = calls(
        py("forward", 7, "/x/net.py", "Net.forward"), 1, 1,
        calls(CALL, 1, 100, calls(cell, 2, 100, calls(gate, 22, 100))),
    )  # fmt: skip
    phases = {"forward": 26, "backward": 50, "optimizer": 4}
    rule = found(run(phases, step_ms=84, inside={"forward": [net]}))["tensor-loop"]
    same_text(rule)
    assert (rule.severity, rule.saving_ms) == ("warning", None)
    few = calls(cell, 25, 10)
    assert "tensor-loop" not in found(run(phases, step_ms=84, inside={"forward": [few]}))


def test_a_mask_that_is_filled_row_by_row_is_found_by_its_operators(tmp_path):
    source = tmp_path / "mask.py"
    source.write_text(
        "class Block:\n"
        "    def forward(self, x):\n"
        "        m = x.new_zeros(64, 64)\n"
        "        for i in range(64):\n"
        "            m[i, i + 1 :] = float('-inf')\n"
        "        return x @ m\n"
    )
    block = calls(py("forward", 2, str(source), "Block.forward"), 20, 4, calls(LINEAR, 16, 12))
    phases = {"forward": 36, "backward": 40, "optimizer": 4}
    few = operators({"aten::slice": 3, "aten::mm": 9})  # 10 calls of each per step
    some, many = (
        replace(few, rows=tuple(replace(row, calls=count) for row in few.rows))
        for count in (768, 9216)
    )
    made = run(phases, step_ms=84, inside={"forward": [block]}, operators=many)
    made = replace(made, sources=digests(made))
    rule = found(made)["tensor-loop"]
    same_text(rule)
    assert rule.saving_ms == pytest.approx(20)
    assert "tensor-loop" not in found(replace(made, operators=few))
    # 256 pieces in 20 ms: most of it is in operators such as x @ m.
    assert "tensor-loop" not in found(replace(made, operators=some))
    filling = source.read_text()
    for made_of, item in (("{}", "i"), ("[None] * 64", "i"), ("x.new_zeros(64, 64)", "f'{i}'")):
        changed = filling.replace("x.new_zeros(64, 64)", made_of).replace("i, i + 1 :", item)
        source.write_text(changed)
        assert "tensor-loop" not in found(replace(made, sources=digests(made)))
    source.write_text(filling.replace("float('-inf')", "m[i - 1, 0]"))
    assert "tensor-loop" not in found(made)  # not the file of the run
    assert "tensor-loop" not in found(replace(made, sources=digests(made)))
