"""The seven questions, their answers, and the advice after a no."""

from __future__ import annotations

import pytest
from fastprof.findings.checklist import Check, checklist, checklist_lines
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from unit.findings_runs import calls, filled, gpu_layer, operators, run, tensor
from unit.snapshots import MS, kernel

QUESTIONS = [
    "GPU utilization above 80 %", "Step time consistent", "GPU memory used 85 to 95 %",
    "Forward and backward take most of the step", "Flash attention used",
    "No gaps by transfers", "All-reduce overlaps",
]  # fmt: skip


def answers(snapshot: Snapshot) -> list[bool | None]:
    return [check.answer for check in checklist(build_report(snapshot))]


def flash(ms: float = 90):
    return [kernel("flash_fwd_kernel", round(ms * 40 * MS), 4000)]


def good(**changes):
    layer = {"kernels": flash(), "communication_ns": 10, "overlap_ns": 9, **changes}
    return run(layer=gpu_layer(layer.pop("busy", 0.9), **layer), memory=filled(0.9))


def test_s1_29_there_are_seven_questions_in_order():
    checks = checklist(build_report(good()))
    assert len(checks) == 7
    assert all(check.text.startswith(text) for check, text in zip(checks, QUESTIONS, strict=True))


def test_s1_29_a_good_run_has_seven_times_yes():
    checks = checklist(build_report(good()))
    assert [check.answer for check in checks] == [True] * 7
    assert all(check.line.startswith("[yes] ") and "No ->" not in check.line for check in checks)


def test_s1_29_what_was_not_recorded_is_na():
    checks = checklist(build_report(Snapshot(meta={}, duration_ns=0)))
    assert [check.answer for check in checks] == [None] * 7
    assert all(check.line.startswith("[n/a] ") and "No ->" not in check.line for check in checks)


@pytest.mark.parametrize(
    ("number", "snapshot"),
    [
        (0, good(busy=0.7, kernels=flash(70))),
        (1, run(durations=[80, 120] * 20)),
        (2, run(memory=filled(0.5))),
        (2, run(memory=filled(0.99))),
        (3, run({"data": 40, "forward": 25, "backward": 30})),
        (4, run(operators=operators({"aten::bmm": 5, "aten::_softmax": 2}))),
        (4, run(inside={"forward": [calls(tensor("bmm"), 5)]})),
        (5, good(h2d_ms=10)),
        (6, good(overlap_ns=2)),
    ],
)
def test_s1_29_a_no_says_what_to_do(number, snapshot):
    check = checklist(build_report(snapshot))[number]
    assert check.answer is False
    assert check.line.startswith("[no]  ")
    assert " No -> " in check.line
    assert check.line.isascii()


def test_s1_29_the_marks_are_as_wide_as_each_other():
    lines = [Check("Question", answer, "1", "act").line for answer in (True, False, None)]
    assert {line.index("Question") for line in lines} == {6}


def test_s1_29_operators_alone_tell_that_attention_is_fused():
    fused = run(operators=operators({"aten::scaled_dot_product_attention": 5}))
    assert answers(fused)[4] is True


def test_without_a_gpu_its_questions_are_one_line():
    lines = checklist_lines(build_report(run()))
    assert [line[:5] for line in lines] == ["[yes]", "[yes]", "[n/a]", "[n/a]"]
    assert lines[-1] == "[n/a] About the GPU: 4 questions left out, no GPU was recorded."
    assert len(checklist_lines(build_report(good()))) == 7
