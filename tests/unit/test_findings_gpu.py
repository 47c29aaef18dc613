"""Rules about the GPU, its kernels and its memory, and about ranks; named after their rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.findings.rules.ranks import rank_finding
from fastprof.ranks.model import RankReport, RankRow, Straggler
from fastprof.ranks.row import rank_row
from fastprof.results.report import build_report
from fastprof.snapshot.gpu import GpuLine
from fastprof.snapshot.run_phases import PhaseTime
from unit.findings_runs import (
    HEALTHY,
    calls,
    filled,
    found,
    gpu_layer,
    growing,
    noted,
    operators,
    reason,
    run,
    tensor,
)
from unit.snapshots import MS, health, kernel, py, replaced
from wording import same_text

GEMM = "ampere_sgemm_128x64_tn"


def kernels(us: float, ms: float = 90, name: str = GEMM, **fields):
    """Return kernels of ``us`` each that take ``ms`` per step, in forty steps."""
    total = round(ms * 40 * MS)
    small = {"small_count": round(ms * 1e3 / us) * 40, "small_ns": total} if us < 100 else {}
    made = {"blocks_ns": 264.0 * total, **small, **fields}
    return kernel(name, total, round(ms * 1e3 / us) * 40, **made)


@pytest.mark.parametrize(
    ("percent", "severity", "words"),
    [(85, None, ""), (75, "note", "below the target"), (65, "warning", "CPU bottleneck"),
     (45, "critical", "serious bottleneck")],
)  # fmt: skip
def test_s1_02_s2_11_gpu_utilization_has_its_bands(percent, severity, words):
    made = run(layer=gpu_layer(percent / 100, {"forward": 5}))
    rule = {**found(made), **noted(made)}.get("gpu-utilization")
    assert (rule and rule.severity) == severity
    if rule:
        assert rule.value == pytest.approx(percent)
        assert words in rule.title
        assert rule.saving_ms == pytest.approx(100 - percent)
        assert "forward 5.00 ms per step" in rule.evidence[0]


def test_s3_15_low_utilization_points_to_batch_and_pipeline():
    fix = found(run(layer=gpu_layer(0.6)))["gpu-utilization"].fix[0]
    assert "larger batches" in fix
    assert "input pipeline" in fix


def test_what_others_find_is_taken_off_the_idle_time():
    phases = {"data": 40, "forward": 30, "backward": 30}
    rules = found(run(phases, layer=gpu_layer(0.30, {"data": 40})))
    assert list(rules) == ["data-loading", "gpu-utilization"]
    assert rules["gpu-utilization"].saving_ms == pytest.approx(30)
    assert "data loading" in rules["gpu-utilization"].evidence[-1]


@pytest.mark.parametrize(
    ("percent", "rule"),
    [(30, "gpu-memory-low"), (49, "gpu-memory-low"), (60, None), (90, None), (97, "note"),
     (99, "gpu-memory-high")],
)  # fmt: skip
def test_s1_04_gpu_memory_has_its_bands(percent, rule):
    made = run(layer=gpu_layer(0.9), memory=filled(percent / 100))
    if rule == "note":
        assert "OOM" in noted(made)["gpu-memory-high"].title
        return
    assert list(found(made)) == ([rule] if rule else [])
    if rule == "gpu-memory-low":
        assert "batch" in found(made)[rule].fix[0]
    if rule == "gpu-memory-high":
        assert found(made)[rule].severity == "critical"
        assert "OOM" in found(made)[rule].title


def test_s1_18_out_of_memory_names_batch_checkpointing_and_amp():
    rule = found(run(memory=filled(0.9, ooms=2)))["gpu-memory-high"]
    assert rule.severity == "critical"
    for word in ("batch", "checkpointing", "AMP"):
        assert word in rule.fix[0]


def test_s1_18_memory_that_grows_is_a_leak():
    rule = found(run(memory=growing(50)))["memory-leak"]
    assert rule.value == pytest.approx(50)
    assert rule.unit == "MiB per step"
    assert "detach()" in rule.fix[0]
    assert "lists that grow" in rule.fix[0]
    assert "memory-leak" not in found(run(memory=growing(0)))
    assert "samples" in reason(run(memory=growing(50, 5)), "memory-leak")


def test_s1_15_s1_18_frequent_cuda_malloc_and_free_are_fragmentation():
    made = run(memory=filled(0.9, device_allocs=400, device_frees=200))
    rule = found(made)["memory-fragmentation"]
    assert rule.value == pytest.approx(5)
    assert "empty_cache() sparingly" in rule.fix[0]
    assert "memory-fragmentation" not in found(run(memory=filled(0.9, device_allocs=400)))


def test_s1_13_s2_10_kernel_rules_and_their_limits():
    few = [kernels(500, blocks_ns=0.4 * 132 * 90 * 40 * MS)]
    rule = found(run(layer=gpu_layer(0.9, kernels=few), memory=filled(0.9)))["blocks-per-sm"]
    assert rule.severity == "critical"
    assert rule.value == pytest.approx(0.4)
    assert rule.saving_ms == pytest.approx(0.6 * 90)
    some = [kernels(500, blocks_ns=0.8 * 132 * 90 * 40 * MS)]
    made = run(layer=gpu_layer(0.9, kernels=some), memory=filled(0.9))
    assert found(made)["blocks-per-sm"].severity == "warning"


def test_s2_10_low_occupancy_of_plain_kernels_is_found():
    plain = "void at::native::vectorized_elementwise_kernel<4>(int)"
    low = [kernels(500, name=plain, blocks_ns=1.1 * 132 * 90 * 40 * MS)]
    rule = found(run(layer=gpu_layer(0.9, kernels=low), memory=filled(0.9)))["occupancy"]
    assert rule.value < 50
    fix = " ".join(rule.fix)
    assert "larger batch" in fix
    assert "accumulation" in fix
    assert "micro-batch" in fix
    by_design = [kernels(500, blocks_ns=1.1 * 132 * 90 * 40 * MS)]
    made = run(layer=gpu_layer(0.9, kernels=by_design), memory=filled(0.9))
    assert found(made) == {}
    assert "20 %" in reason(made, "occupancy")


def test_s1_05_the_report_says_verbatim_kernel_efficiency_is_low():
    made = run(layer=gpu_layer(0.9, kernels=[kernels(50)]), memory=filled(0.9))
    assert "Kernel efficiency is low" in build_report(made).to_text(full=True)
    assert list(found(made)) == ["small-kernels"]


def test_s1_25_s1_31_the_second_worked_example_is_a_small_batch():
    before = run(layer=gpu_layer(0.75, kernels=[kernels(50, 75)]), memory=filled(0.30))
    rules = found(before)
    assert list(rules) == ["small-batch"]
    evidence = " ".join(rules["small-batch"].evidence)
    assert "the mean is 50.0 us" in evidence
    assert "busy 75.0 % of the time, and 30.0 % of its memory is used" in evidence
    assert "waits for the host for 25.0 % of the step: batches are small" in (
        rules["small-batch"].title
    )
    assert rules["small-batch"].saving_ms == pytest.approx(25)
    assert "batch size" in rules["small-batch"].fix[0]
    after = run(layer=gpu_layer(0.92, kernels=[kernels(150, 92)]), memory=filled(0.87))
    assert found(after) == {}
    hf = run(layer=gpu_layer(0.75, kernels=[kernels(50, 75)]), memory=filled(0.30),
             meta={"framework": "transformers"})  # fmt: skip
    fix = " ".join(found(hf)["small-batch"].fix)
    assert "per_device_train_batch_size" in fix
    assert "tokens per batch" in fix


def test_s1_11_time_of_cuda_launch_kernel_is_found():
    made = run(operators=operators({"cudaLaunchKernel": 15, "aten::mm": 60}, "cuda"),
               layer=gpu_layer(0.8))  # fmt: skip
    rule = found(made)["kernel-launch-overhead"]
    assert rule.value == pytest.approx(15)
    assert "fusion" in rule.fix[0].lower()
    assert "gradient checkpointing" in rule.fix[0]


def test_s1_26_attention_by_bmm_is_found():
    of_step = {"aten::bmm": 30, "aten::_softmax": 10, "aten::mm": 40}
    made = run(operators=operators(of_step))
    rule = found(made)["attention-unfused"]
    assert rule.value == pytest.approx(37.5)
    fix = rule.fix[0]
    assert "flash attention" in fix
    assert "kernels' names" in fix
    assert "bucketing" in fix
    fused = {**of_step, "aten::scaled_dot_product_attention": 1}
    assert "attention-unfused" not in found(run(operators=operators(fused)))


def test_s1_07_operators_within_their_usual_shares_are_no_finding():
    usual = {"aten::mm": 40, "aten::bmm": 10, "aten::native_layer_norm": 8, "aten::_softmax": 8}
    assert found(run(operators=operators(usual))) == {}


@pytest.mark.parametrize(
    ("percent", "severity"), [(3, None), (5, None), (6, "warning"), (15, "warning"),
                              (16, "critical")],
)  # fmt: skip
def test_s1_15_s2_11_transfers_have_their_bands(percent, severity):
    made = run(layer=gpu_layer(0.9, h2d_ms=percent / 2, d2h_ms=percent / 2))
    rule = found(made).get("host-device-transfers")
    assert (rule and rule.severity) == severity
    if rule:
        assert rule.value == pytest.approx(percent)
        fix = " ".join(rule.fix)
        assert "Keep tensors on the GPU" in fix
        assert "pin_memory" in fix


def test_transfers_are_found_by_functions_where_there_is_no_gpu_layer():
    move = calls(py("features", 9, "/x/m.py"), 1, 1, calls(tensor("cpu"), 12, 8))
    rule = found(run(step_ms=115, inside={"": [move]}))["host-device-transfers"]
    assert "features (m.py:9)" in " ".join(rule.evidence)


def test_s1_15_gradient_accumulation_makes_a_long_optimizer_step_normal():
    # 32 forward and backward passes, and an optimizer step of 9 % of the whole.
    assert found(run({"data": 5, "forward": 38, "backward": 45, "optimizer": 9})) == {}


def test_s1_15_a_gap_between_backward_and_forward_points_to_data():
    phases = {"data": 20, "forward": 36, "backward": 43}
    rules = found(run(phases, layer=gpu_layer(0.78, {"data": 20})))
    assert list(rules) == ["data-loading"]
    assert "num_workers" in rules["data-loading"].fix[0]


@pytest.mark.parametrize(
    ("percent", "severity"), [(14, None), (16, "warning"), (30, "warning"), (31, "critical"),
                              (60, "critical")],
)  # fmt: skip
def test_s2_08_s2_11_all_reduce_has_its_bands(percent, severity):
    spent = HEALTHY["backward"] * percent / 100
    made = run(layer=gpu_layer(0.9, communication_ns=spent))
    rule = found(made).get("all-reduce-share")
    assert (rule and rule.severity) == severity
    if rule:
        assert rule.value == pytest.approx(percent)
        fix = rule.fix[0]
        for words in (
            "gradient_as_bucket_view=True",
            "bucket_cap_mb=100 (default 25)",
            "interconnect",
        ):
            assert words in fix


def test_s1_22_communication_that_computation_hides_is_a_note():
    made = run(layer=gpu_layer(0.9, communication_ns=20, overlap_ns=19))
    assert "all-reduce-share" not in found(made)
    assert "hides 95.0 %" in noted(made)["all-reduce-share"].evidence[0]


def test_s2_08_waiting_for_other_ranks_is_found_without_a_gpu():
    phases = {"data": 5, "forward": 30, "backward": 40, "synchronization": 20}
    assert found(run(phases))["all-reduce-share"].saving_ms == pytest.approx(20)


def test_a_rank_that_waits_for_a_late_one_gets_no_advice_on_exchanging_gradients():
    phases = {"data": 5, "forward": 20, "backward": 20, "synchronization": 39}
    made = run(phases)
    job = replace(made, meta={**made.meta, "world_size": 2})
    assert "all-reduce-share" in found(made)
    assert not {"all-reduce-share", "backward-share"} & {*found(job), *noted(job)}
    # On a GPU, NCCL kernels that take longer than backward wait for another rank.
    waits = run(layer=gpu_layer(0.9, communication_ns=1.5 * HEALTHY["backward"]))
    job = replace(waits, meta={**waits.meta, "world_size": 2})
    assert "all-reduce-share" in found(waits)
    assert "all-reduce-share" not in {*found(job), *noted(job)}


# ---- health ----


def throttled(samples=100, *, steps=40, temperature=(84,) * 99 + (91,), **reasons):
    """Return a healthy run of two devices; the second one was throttled."""
    made = run(layer=gpu_layer(0.95), steps=steps)
    device = made.gpu.devices[0]
    sick = health(temperature, judged=samples, **reasons)
    other = replace(device, index=1, health=sick)
    well = replace(device, health=health((60,), judged=samples))
    return replaced(made, gpu=replace(made.gpu, devices=(well, other)))


@pytest.mark.parametrize("reason_", ["hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"])
@pytest.mark.parametrize(
    ("percent", "steps", "severity"),
    [(0, 40, None), (5, 40, None), (6, 40, "warning"), (25, 40, "warning"), (26, 40, "critical"),
     (26, 10, "warning")],
)  # fmt: skip
def test_s1_22_a_throttled_gpu_is_found(reason_, percent, steps, severity):
    made = throttled(steps=steps, **{reason_: percent})
    rule = found(made).get("gpu-throttled")
    assert (rule and rule.severity) == severity
    assert "gpu-throttled" not in noted(made)
    if rule:
        assert rule.value == percent
        assert rule.source.startswith("chosen by fastprof: ")
        assert (
            rule.title == f"GPU 1 is throttled by heat or hardware in {percent:#.3g} % of the time"
        )
        [text] = rule.evidence
        assert text.startswith("NVIDIA H200, 100 samples: ")
        assert f" {percent:#.3g} %; 84 C on average, 91 C at most; SM clock " in text
        assert "1410 to 1980 MHz; 470 W on average" in text
        assert any("nvidia-smi -q -d" in fix for fix in rule.fix)
        assert rule.saving_ms is None


@pytest.mark.parametrize(("percent", "noticed"), [(50, False), (51, True), (100, True)])
def test_s1_22_a_gpu_at_its_power_limit_is_a_note(percent, noticed):
    made = throttled(sw_power_cap=percent)
    assert "gpu-throttled" not in found(made)
    assert ("gpu-throttled" in noted(made)) == noticed
    if noticed:
        share = "100" if percent == 100 else f"{percent}.0"
        title = f"GPU 1 runs at its power limit in {share} % of the time"
        assert noted(made)["gpu-throttled"].title == title


def test_heat_is_named_before_the_power_limit():
    rule = found(throttled(sw_power_cap=70, hw_thermal=30))["gpu-throttled"]
    assert (rule.severity, rule.value) == ("critical", 30)
    same_text(rule)


def test_what_is_not_known_is_left_out_of_the_evidence():
    made = throttled(hw_thermal=30)
    only = health(None, None, None, judged=100, hw_thermal=30)
    device = replace(made.gpu.devices[0], health=only)
    rule = found(replaced(made, gpu=replace(made.gpu, devices=(device,))))["gpu-throttled"]
    assert rule.evidence == ("NVIDIA H200, 100 samples: thermal (hardware) 30.0 %.",)


def test_without_enough_samples_the_rule_about_throttling_abstains():
    assert reason(run(), "gpu-throttled") == "the GPU was not recorded"
    told = "the driver did not tell whether clocks are throttled"
    assert reason(run(layer=gpu_layer()), "gpu-throttled") == told
    assert reason(throttled(0), "gpu-throttled") == told
    few = "9 samples of the clocks taken, 10 are needed"
    assert reason(throttled(9, hw_thermal=9), "gpu-throttled") == few
    assert "gpu-throttled" in found(throttled(10, hw_thermal=9))


def ranks(imbalance: float, steps: int = 40):
    row = RankRow(0, 8, None, "a.fprof", steps, 0, 100.0, 100.0, 0.0, (), (), None, None, None,
                  None, None, None, ())  # fmt: skip
    late = Straggler(3, "node1", 130, 100, 30, 0.3, "data", 40, 10, ((0, 30.0),), ())
    return RankReport((row,), 8, (), (), "gpu", (), imbalance, late, (), ())


@pytest.mark.parametrize(
    ("imbalance", "steps", "severity"),
    [(0.05, 40, None), (0.15, 40, "warning"), (0.3, 40, "critical"), (0.3, 10, "warning"),
     (0.3, 3, None)],
)  # fmt: skip
def test_s1_22_ranks_that_work_unequally_are_found(imbalance, steps, severity):
    rule = rank_finding(ranks(imbalance, steps))
    assert (rule and rule.severity) == severity
    if rule:
        assert rule.rule == "imbalance"
        assert rule.saving_ms == 30
        assert "Rank 3 (node1) is late" in rule.evidence[0]


def test_findings_on_a_gpu_stand_in_every_output():
    made = build_report(run(layer=gpu_layer(0.45, {"forward": 40})))
    assert "serious bottleneck" in made.to_text(full=True)
    assert "serious bottleneck" in made.to_json()


def half_warm_up(made):
    """Return the same run after as many steps of warm-up, which its series does not have."""
    steps = replace(made.steps, count=2 * made.steps.count, skipped=made.steps.count)
    device = made.gpu.devices[0]
    whole = replace(device.whole, wall_ns=2 * device.whole.wall_ns)
    gpu = replace(made.gpu, devices=(replace(device, whole=whole),))
    phases = tuple(PhaseTime(name, made.duration_ns, 1) for name in ("warmup", "steps"))
    return replace(
        made, steps=steps, gpu=gpu, phases=phases, duration_ns=2 * made.duration_ns,
        meta={**made.meta, "rank": 0},
    )  # fmt: skip


def test_gpu_work_of_measured_steps_is_divided_by_these():
    phases = {"data": 5, "forward": 40, "backward": 40, "optimizer": 10}
    layer = gpu_layer(0.6, {"forward": 40}, blocked_ms=30, h2d_ms=20)
    made = half_warm_up(run(phases, layer=layer))
    report = build_report(made)
    assert report.phase == "steps"
    rules = found(made)
    assert rules["sync-item"].value == pytest.approx(30)
    assert rules["host-device-transfers"].value == pytest.approx(20)
    assert rank_row(report, "").gpu_waits == pytest.approx(1)
    line = GpuLine(0, 1, "train.py", 88, "train", 40, 40 * 30 * MS)
    made = replace(made, gpu=replace(made.gpu, lines=(line,)))
    assert build_report(made).gpu.lines[0].per_step_ms == pytest.approx(30)
