"""A healthy run has no findings, for any values within the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.findings.examine import examine
from fastprof.findings.measurements import Facts
from fastprof.findings.rules.steps import step_time_variation
from fastprof.results.report import build_report
from fastprof.snapshot import Snapshot
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.findings_runs import (
    c_function,
    calls,
    filled,
    found,
    gpu_layer,
    loader,
    loads,
    noted,
    operators,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import MS, Key, kernel, py
from wording import same_text

FRAMEWORKS = st.sampled_from(["torch", "lightning", "transformers", "accelerate", None])


@st.composite
def healthy_phases(draw):
    """Draw shares of a step within the limits, in ms of 100."""
    phases = {
        "data": draw(st.floats(0.1, 9)),
        "forward": draw(st.floats(34, 36)),
        "backward": draw(st.floats(42, 44)),
        "optimizer": draw(st.floats(1, 9)),
    }
    if draw(st.booleans()):
        phases["logging"] = draw(st.floats(0.1, 1.9))
    return phases


@st.composite
def healthy_functions(draw):
    """Draw functions that any training loop calls, each below its limit."""
    return {
        "data": [calls(torch_py("torch/utils/data/dataloader.py", "_next_index"), 0.05)],
        "forward": [calls(py("forward", 5, "/x/model.py", "Model.forward"), 0.5, 1,
                          calls(c_function("<built-in method torch._C._nn.linear>", "linear"),
                                20, 40))],
        "backward": [calls(tensor("run_backward"), 20)],
        "optimizer": [calls(torch_py("torch/optim/adam.py", "Adam.step"), 0.2, 1,
                            calls(tensor("addcdiv_"), 0.5, draw(st.integers(1, 30))))],
        "": [
            calls(tensor("item"), draw(st.floats(0.001, 0.5)), draw(st.integers(1, 10))),
            calls(c_function("<built-in method builtins.print>", "print"),
                  draw(st.floats(0.001, 0.9))),
            calls(c_function("<built-in method gc.collect>", "gc.collect"), 0.1),
            calls(torch_py("torch/serialization.py", "save"), draw(st.floats(0.01, 1))),
            calls(tensor("to"), 0.2, 4),
        ],
    }  # fmt: skip


@st.composite
def healthy_lengths(draw):
    """Draw steps of about 100 ms that vary by less than 9 %."""
    return draw(st.lists(st.floats(92, 108), min_size=40, max_size=40))


@given(healthy_phases(), healthy_functions(), healthy_lengths(), FRAMEWORKS, st.integers(0, 3))
@settings(max_examples=examples(60), deadline=None)
def test_a_healthy_run_on_a_cpu_has_no_finding(phases, functions, lengths, framework, skipped):
    share = sum(lengths) / 40 / 100
    made = run(
        {name: ms * share for name, ms in phases.items()}, step_ms=100 * share, skipped=skipped,
        inside=functions, durations=lengths, cpu_ms=lengths, loaders=(loader(phases["data"]),),
        meta={"framework": framework} if framework else {},
    )  # fmt: skip
    assert found(made) == {}
    assert set(noted(made)) <= {"forward-share", "backward-share"}


@given(
    healthy_phases(), healthy_functions(), FRAMEWORKS, st.floats(0.81, 0.99),
    st.floats(0.86, 0.949), st.floats(0.1, 4), st.booleans(), st.floats(0, 60),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_a_healthy_run_on_a_gpu_has_no_finding(
    phases, functions, framework, busy, memory, copies, attention, blocked
):
    # A host that waits for a busy GPU runs ahead of it, which is healthy.
    total = round(busy * 100 * 40 * MS)
    kernels = [
        kernel("sm90_xmma_gemm_bf16bf16_bf16f32", total // 2, 4000, blocks_ns=132.0 * total / 2),
        kernel("flash_fwd_kernel" if attention else "triton_poi_fused_add_1", total - total // 2,
               4000, blocks_ns=1056.0 * total / 2),
    ]  # fmt: skip
    made = run(
        phases, inside=functions, memory=filled(memory),
        layer=gpu_layer(busy, {"data": (1 - busy) * 50}, kernels=kernels, h2d_ms=copies,
                        blocked_ms=min(blocked, 3 if busy < 0.95 else blocked)),
        loaders=(loader(phases["data"], workers=4, ready=39, blocked=1, persistent=True,
                        loads=loads(20)),),
        operators=operators({"aten::mm": 20, "aten::copy_": 1, "cudaLaunchKernel": 2}, "cuda"),
        meta={"framework": framework} if framework else {},
    )  # fmt: skip
    assert found(made) == {}


def test_a_healthy_run_says_so():
    made = run()
    assert found(made) == {}
    assert noted(made) == {}
    text = build_report(made).to_text(full=True)
    assert "No finding: " in text
    assert "No ->" not in text


def test_one_outlier_is_no_variation():
    made = run(durations=[100] * 39 + [400], step_ms=107.5, layer=gpu_layer(0.9, step_ms=107.5))
    assert "step-time-variation" not in found(made)
    assert "step-time-variation" in noted(made)


def test_steps_that_other_programs_disturb_are_no_finding():
    lengths = [60, 140] * 20
    steady = run(durations=lengths, cpu_ms=[50] * 40)
    assert "step-time-variation" not in found(steady)
    same_text(noted(steady)["step-time-variation"])
    assert noted(steady)["step-time-variation"].saving_ms is None
    assert "step-time-variation" not in found(
        run({"forward": 0.4, "backward": 0.5}, step_ms=1, durations=[0.5, 1.5] * 20,
            cpu_ms=[0.1, 1.5] * 20)
    )  # fmt: skip
    # The steps do different work, as in a curriculum or with more calls of a closure.
    work = run(durations=lengths, cpu_ms=[58, 139] * 20)
    assert "step-time-variation" not in found(work)
    said = " ".join(noted(work)["step-time-variation"].evidence)
    same_text(noted(work)["step-time-variation"])
    assert "Usual causes" not in said
    own = run(durations=lengths, cpu_ms=[20, 140] * 20)
    assert "step-time-variation" in found(own)


def varying(place: str, *, switches: int = 0) -> Snapshot:
    """Return a run in which every fifth step works 200 ms more in a section, or in none."""
    lengths = [100 + 200 * (i % 5 == 4) for i in range(40)]
    mean = {"forward": 36 + 40 * (place == "forward"), "backward": 60}
    beside = {} if place else {"": [calls(py("on_step_end", 3, "/x/history.py"), 40)]}
    made = run(mean, step_ms=140, durations=lengths, cpu_ms=[0.98 * ms for ms in lengths],
               inside=beside)  # fmt: skip
    rows = made.steps.rows
    columns = tuple(
        (row.key, tuple(
            round((base + (ms - 100) * (made.keys[row.key].name == place)) * MS) for ms in lengths
        ))
        for row, base in zip(rows, (36, 60), strict=True)
    )  # fmt: skip
    series = replace(made.steps.series, sections=columns, switches=(switches,) * 40)
    return replace(made, steps=replace(made.steps, series=series))


@pytest.mark.parametrize("switches", [0, 50])
def test_steps_that_differ_in_no_section_say_so_and_do_not_blame_others(switches: int) -> None:
    """A callback that writes its history in every fifth step, on a busy machine as well."""
    made = varying("", switches=switches)
    rules = examine(build_report(made))
    assert "unaccounted" in {finding.rule for finding in rules.findings}
    assert ("step-time-variation", ("unaccounted",)) in rules.explained
    draft = step_time_variation(Facts(build_report(made)))
    said = " ".join((*draft.evidence, *draft.fix))
    assert "200 ms more in no section" in said
    assert "some steps do more work than others" in said
    assert "similar length" not in said
    assert "other programs" not in said


def test_the_time_of_fastprof_in_no_section_is_none_of_the_program() -> None:
    """score_files.py: 12.3 of 12.5 ms; beside other programs waits hit fastprof's code as well."""
    phases = {"forward": 20, "backward": 40}
    score = calls(py("score", 3, "/x/score.py"), 12)
    ours = calls(Key("python", "", 0, "(fastprof)", "(fastprof)"), 26, 20)
    assert "unaccounted" in found(run(phases, inside={"": [score]}))
    for more, there in ((0, False), (15, True)):
        made = run(phases, step_ms=100 + more, inside={"": [score, ours]})
        rule = found(made).get("unaccounted")
        assert (rule is not None) == there
        if rule is not None:
            assert rule.value == pytest.approx(100 * 29 / 115)
            said = "Another 26.0 ms per step there is fastprof's own work and its waits."
            assert said in rule.evidence
            same_text(rule)


def test_steps_that_differ_in_forward_are_of_different_length() -> None:
    rule = noted(varying("forward"))["step-time-variation"]
    same_text(rule)
    assert "similar length" in rule.fix[0]
    assert rule.saving_ms is None
