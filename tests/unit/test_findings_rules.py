"""Rules about data, phases and the training thread; named after the rows they show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.findings.thresholds import LIMITS
from fastprof.report.from_stats import report_from_stats
from fastprof.results.report import Report, build_report
from fastprof.results.result import as_result
from unit.findings_runs import (
    HEALTHY,
    c_function,
    calls,
    found,
    gpu_layer,
    loader,
    loads,
    noted,
    operators,
    reason,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import MS, Node, gpu, py
from wording import same_text

SHUTDOWN = torch_py(
    "torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._shutdown_workers"
)  # fmt: skip


def stats(**cumulative_s):
    """Return a report of a .stats file: functions called by ``main``, with cumulative seconds."""
    table = {("/x/train.py", 3, "main"): (1, 1, 100.0, 200.0, {})}
    for name, seconds in cumulative_s.items():
        label = ("~", 0, "<method 'poll' of 'select.poll' objects>") if name == "poll" else (
            "/site-packages/torch/utils/data/dataloader.py", 9, name
        )  # fmt: skip
        edge = {("/x/train.py", 3, "main"): (5, 5, seconds, seconds)}
        table[label] = (5, 5, seconds, seconds, edge)
    return as_result(Report, report_from_stats(table))


# ---- data ----


@pytest.mark.parametrize(
    ("share", "severity"),
    [(5, None), (10, None), (11, "note"), (16, "warning"), (30, "warning"), (31, "critical"),
     (60, "critical")],
)  # fmt: skip
def test_s2_11_data_share_has_its_bands(share, severity):
    made = run({"data": share, "forward": (100 - share) / 2, "backward": (100 - share) / 2})
    rows = found(made) if severity != "note" else noted(made)
    rule = rows.get("data-loading")
    assert (rule and rule.severity) == severity
    if rule:
        assert rule.value == pytest.approx(share)
        assert rule.saving_ms == pytest.approx(share)
        assert rule.saving_share == pytest.approx(share / 100)


def test_s1_05_the_report_says_verbatim_data_loading_is_a_bottleneck():
    made = run({"data": 40, "forward": 30, "backward": 30})
    assert "Data loading is a bottleneck" in build_report(made).to_text(full=True)


@pytest.mark.parametrize("framework", ["torch", "lightning", "transformers", "accelerate"])
def test_s1_24_s2_07_data_loading_names_the_four_knobs(framework):
    made = run(
        {"data": 40, "forward": 30, "backward": 30}, meta={"framework": framework},
        layer=gpu_layer(0.45, {"data": 40}), loaders=(loader(40),),
    )  # fmt: skip
    fix = " ".join(found(made)["data-loading"].fix)
    for knob in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory"):
        assert knob in fix
    assert ("TrainingArguments(" in fix) == (framework == "transformers")


def test_s1_08_data_loading_says_how_many_workers_would_do():
    slow = loader(
        60, workers=4, blocked=35, blocked_ns=40 * 60 * MS, ready=5, loads=loads(240)
    )  # fmt: skip
    made = run({"data": 60, "forward": 20, "backward": 20}, loaders=(slow,))
    assert "you need 6" in " ".join(found(made)["data-loading"].evidence)


def test_s1_30_the_first_worked_example_ranks_data_loading_first():
    phases = {"data": 1000, "forward": 800, "backward": 700}
    layer = gpu_layer(0.45, {"data": 1000}, step_ms=2500)
    rules = list(found(run(phases, step_ms=2500, layer=layer)).values())
    assert rules[0].rule == "data-loading"
    assert rules[0].value == pytest.approx(40)
    assert rules[0].saving_ms == pytest.approx(1000)
    fixed = {"data": 300, "forward": 800, "backward": 700}
    layer = gpu_layer(0.83, {"data": 150}, step_ms=1800)
    after = run(fixed, step_ms=1800, layer=layer)
    assert "data-loading" not in found(after)


def test_data_that_the_gpu_does_not_wait_for_costs_nothing():
    made = run({"data": 60, "forward": 20, "backward": 20}, layer=gpu_layer(0.97))
    assert "data-loading" not in found(made)


def test_e16_data_loading_tells_waiting_from_computing():
    sleep = calls(c_function("<built-in method time.sleep>", "time.sleep"), 35)
    phases = {"data": 40, "forward": 30, "backward": 30}
    evidence = " ".join(found(run(phases, inside={"data": [sleep]}))["data-loading"].evidence)
    assert "is waiting for files, the network or sleep" in evidence
    work = calls(py("decode", 12, "/x/data.py", "Images.decode"), 35)
    evidence = " ".join(found(run(phases, inside={"data": [work]}))["data-loading"].evidence)
    assert "preprocessing is the limit" in evidence
    assert "Images.decode (data.py:12)" in evidence


def test_s0_21_worker_shutdown_is_found_with_cause_and_fix():
    short = run(steps=200, inside={"": [Node(SHUTDOWN, 1, 3 * MS)]})
    assert "worker-shutdown" not in found(short)
    made = run(steps=200, inside={"": [Node(SHUTDOWN, 1, 6 * MS)]}, step_ms=106)
    rule = found(made)["worker-shutdown"]
    assert "5 s" in " ".join(rule.evidence)
    assert "persistent_workers=True" in " ".join(rule.fix)
    assert "train (train.py:20)" in " ".join(rule.evidence)
    made = run(steps=200, inside={"": [Node(SHUTDOWN, 1, 70 * MS)]}, step_ms=170)
    assert found(made)["worker-shutdown"].saving_ms == pytest.approx(70)


@pytest.mark.parametrize("name", ["_shutdown_workers", "poll"])
def test_s0_21_worker_shutdown_is_found_in_a_stats_file(name):
    rule = found(stats(_try_put_index=1e-6, **{name: 12.0}))["worker-shutdown"]
    assert rule.severity == "warning"
    assert "12.0 s" in rule.title
    assert rule.saving_ms is None
    assert rule.saving_share == pytest.approx(12 / 112)
    assert "main (train.py:3)" in " ".join(rule.evidence)
    assert "worker-shutdown" not in found(stats(_try_put_index=1e-6, **{name: 1.0}))


def test_a_program_without_loaders_that_polls_shuts_no_workers_down():
    """Such as the parent of mp.spawn, which waits for the ranks."""
    assert "worker-shutdown" not in found(stats(poll=12.0))


def test_s0_22_token_counting_is_found_with_cause_and_fix():
    rule = found(stats(num_tokens=12.0))["token-counting"]
    assert "iterates over the whole loader" in rule.evidence[0]
    assert "include_performance_metrics: false" in " ".join(rule.fix)
    assert "token-counting" not in found(stats(num_tokens=1.0))


def workers(**changes):
    made = {
        "workers": 2, "starts": (10, 10 * 60 * MS), "firsts": (10, 10 * 30 * MS),
        "shutdowns": (10, 10 * 20 * MS), "loads": loads(5), "ready": 30, "blocked": 0,
    }  # fmt: skip
    return loader(4, **{**made, **changes})


def test_a_loader_whose_workers_start_each_epoch_is_found():
    rule = found(run(loaders=(workers(),)))["loader-recreated"]
    # Nine of ten times 60 + 25 + 20 ms, over 40 steps.
    assert rule.saving_ms == pytest.approx(9 * (60 + 25 + 20) / 40)
    same_text(rule)
    kept = workers(starts=(1, 60 * MS), shutdowns=(1, 20 * MS), persistent=True)
    assert "loader-recreated" not in found(run(loaders=(kept,)))


def test_slow_shutdowns_are_distinguished_from_restarts():
    slow = workers(shutdowns=(10, 10 * 500 * MS))
    rules = found(run(loaders=(slow,)))
    assert list(rules)[:1] == ["worker-shutdown"]
    assert rules["loader-recreated"].saving_ms == pytest.approx(9 * (60 + 25) / 40)


def test_s1_20_a_samplers_time_is_found_below_data():
    sampler = calls(py("__iter__", 7, "/x/data.py", "DynamicBatchSampler.__iter__"), 12)
    phases = {**HEALTHY, "data": 16}
    rules = found(run(phases, step_ms=110, inside={"data": [sampler]}))
    # The rest of the data section is fine.
    assert list(rules) == ["sampler-time"]
    fix = " ".join(rules["sampler-time"].fix)
    assert "Make DynamicBatchSampler.__iter__ (data.py:7) cheaper" in fix
    assert "DynamicBatchSampler.__iter__ (data.py:7)" in " ".join(rules["sampler-time"].evidence)


def test_a_training_that_awaits_its_data_is_found():
    poll = calls(c_function("<method 'poll' of 'select.epoll' objects>", "epoll.poll"), 60)
    select = calls(py("select", 1, "/usr/lib/selectors.py", "EpollSelector.select"), 0, 1, poll)
    loop = calls(
        py("_run_once", 2, "/usr/lib/asyncio/base_events.py", "BaseEventLoop._run_once"),
        1, 1, select,
    )  # fmt: skip
    phases = {"forward": 14, "backward": 18, "optimizer": 2}
    rules = found(run(phases, step_ms=100, inside={"": [loop]}))
    assert list(rules) == ["data-loading"]
    made = rules["data-loading"]
    assert (made.severity, made.saving_ms) == ("critical", None)
    same_text(made)
    assert "asyncio.create_task" in " ".join(made.fix)
    # A program without an event loop polls for other reasons.
    assert "data-loading" not in found(run(phases, step_ms=100, inside={"": [select]}))


# ---- phases ----


@pytest.mark.parametrize(("share", "severity"), [(14, "note"), (16, "warning"), (10, None)])
def test_s1_10_s1_27_the_optimizers_share_fires_above_15_percent(share, severity):
    made = run({"data": 5, "forward": 36, "backward": 43, "optimizer": share})
    rule = {**found(made), **noted(made)}.get("optimizer-share")
    assert (rule and rule.severity) == severity
    if rule:
        assert "fused" in " ".join(rule.fix)
        assert "less often" in " ".join(rule.fix)


def loop_over_parameters(ms: float, count: int):
    return {"optimizer": [calls(torch_py("torch/optim/adam.py", "_single_tensor_adam"), 1, 1,
                                calls(tensor("addcdiv_"), ms - 1, count))]}  # fmt: skip


def test_an_optimizer_that_goes_parameter_by_parameter_ranks_before_its_share():
    phases = {"data": 5, "forward": 30, "backward": 40, "optimizer": 25}
    rules = found(run(phases, inside=loop_over_parameters(20, 800)))
    assert list(rules) == ["optimizer-unfused"]
    rule = rules["optimizer-unfused"]
    assert "800 calls" in rule.title
    assert "fused=True" in " ".join(rule.fix)
    assert "_single_tensor_adam (adam.py:10)" in " ".join(rule.evidence)
    few = found(run(phases, inside=loop_over_parameters(20, 10)))
    assert list(few) == ["optimizer-share"]


def test_s3_14_backward_far_slower_than_forward_is_found_with_a_ratio():
    rule = found(run({"data": 9, "forward": 15, "backward": 50, "optimizer": 9}))["backward-share"]
    assert rule.value == pytest.approx(50 / 15)
    assert rule.threshold == "above 3 times"
    assert "memory bottleneck" in rule.fix[0]
    assert "gradient accumulation" in rule.fix[0]
    assert rule.saving_ms is None  # how short backward can become is not known
    assert "backward-share" not in found(run({"forward": 20, "backward": 50}))


def test_a_slow_backward_under_autocast_on_a_cpu_is_recorded_without_it() -> None:
    phases = {"data": 9, "forward": 5, "backward": 80, "optimizer": 5}
    autocast = torch_py("torch/amp/autocast_mode.py", "autocast.__enter__")
    made = run(phases, inside={"": [calls(autocast, 0.1)]})
    off = gpu(devices=(), status="off", reason="no NVIDIA device or no NVIDIA driver")
    same_text(found(replace(made, gpu=off))["backward-share"])
    assert "autocast" not in found(made)["backward-share"].fix[0]


def test_s1_23_recomputation_suppresses_the_rule_about_backward():
    phases = {"data": 9, "forward": 15, "backward": 60}
    checkpointed = {"backward": [calls(torch_py("torch/utils/checkpoint.py",
                                                "CheckpointFunction.backward"), 5)]}  # fmt: skip
    assert "backward-share" in found(run(phases))
    assert "backward-share" not in found(run(phases, inside=checkpointed))
    told = run(phases, meta={"gradient_checkpointing": True})
    assert "backward-share" not in found(told)
    assert "backward-share" not in noted(told)


@pytest.mark.parametrize("reentrant", [False, True])
def test_forwards_that_backward_computes_again_are_a_note_with_their_time(reentrant: bool) -> None:
    file = "torch/utils/checkpoint.py"
    forward = calls(py("Block.forward", 9, "/x/train.py"), 20)
    if reentrant:  # it runs the backward of its part, too
        inner = calls(torch_py("torch/autograd/__init__.py", "backward", 243), 25)
        again = Node(torch_py(file, "CheckpointFunction.backward"), 4, MS, [forward, inner])
    else:
        name = "_checkpoint_without_reentrant_generator.<locals>.recompute_fn"
        again = Node(torch_py(file, name), 4, MS, [forward])
    made = run({"forward": 25, "backward": 65}, inside={"backward": [again]})
    note = noted(made)["recomputation"]
    assert (note.severity, note.saving_ms) == ("note", pytest.approx(21.0))
    same_text(note)
    assert "recomputation" not in noted(run({"forward": 25, "backward": 65}))


def test_the_checks_of_distributions_are_a_finding_with_their_whole_time() -> None:
    file = "torch/distributions/distribution.py"
    check = torch_py("torch/distributions/constraints.py", "_Simplex.check")
    made = Node(torch_py(file, "Distribution.__init__"), 5, 2 * MS, [calls(check, 6)])
    sample = calls(torch_py(file, "Distribution._validate_sample"), 4)
    act = Node(py("Agent.act", 9, "/x/train.py"), 1, 30 * MS, [made, sample])
    finding = found(run({"forward": 40, "backward": 18}, inside={"": [act]}))["argument-checks"]
    assert finding.saving_ms == pytest.approx(12.0)
    same_text(finding)
    assert "Agent.act" in finding.evidence[1]
    assert "set_default_validate_args(False)" in finding.fix[0]


def test_a_loss_of_gradients_is_no_finding_about_backward():
    """A physics-informed network or a gradient penalty: backward computes what forward defines."""
    phases = {"data": 9, "forward": 15, "backward": 60}
    grad = {"backward": [calls(torch_py("torch/autograd/__init__.py", "grad", 320), 1)]}
    assert "backward-share" not in found(run(phases, inside=grad))
    assert "backward-share" not in noted(run(phases, inside=grad))


@pytest.mark.parametrize(
    ("forward", "backward", "rules"),
    [(35, 45, set()), (30, 50, set()), (45, 45, {"forward-share"}), (35, 38, set()),
     (35, 55, {"backward-share"})],
)  # fmt: skip
def test_s1_17_shares_outside_of_the_usual_are_a_note(forward, backward, rules):
    made = run({"data": 5, "forward": forward, "backward": backward})
    assert found(made) == {}
    assert set(noted(made)) == rules


def test_the_usual_shares_are_those_of_training() -> None:
    """A program that only predicted was shown that forward usually takes 30 to 40 %."""
    made = run({"data": 5, "forward": 90}, meta={"steps_ended_by": "batches"})
    assert "forward-share" not in noted(made)
    assert "forward-share" in noted(replace(made, meta={"steps_ended_by": "optimizers"}))


def test_s3_15_the_texts_of_advice_are_there():
    made = run({"data": 1, "forward": 60, "backward": 30})
    off = gpu(devices=(), status="off", reason="no NVIDIA device or no NVIDIA driver")
    assert "AMP" not in noted(replace(made, gpu=off))["forward-share"].fix[0]
    fix = noted(made)["forward-share"].fix[0]
    for word in ("Distillation", "quantization", "architecture", "AMP", "checkpointing"):
        assert word in fix


@pytest.mark.parametrize(
    ("cv", "severity"), [(0.0, None), (0.05, None), (0.15, "warning"), (0.25, "warning"),
                         (0.35, "critical")],
)  # fmt: skip
def test_s1_03_variation_of_the_step_time_has_its_bands(cv, severity):
    lengths = [100 * (1 - cv), 100 * (1 + cv)] * 20
    made = run(durations=lengths, layer=gpu_layer(0.9))
    assert build_report(made).steps.cv == pytest.approx(cv, abs=1e-3)
    rule = found(made).get("step-time-variation")
    assert (rule and rule.severity) == severity
    if rule:
        evidence = " ".join(rule.evidence)
        for cause in ("data loading", "dynamic batch sizes", "memory fragmentation"):
            assert cause in evidence


# ---- the training thread ----

READ = calls(tensor("item"), 4, 400)


def test_s0_23_reading_values_is_found_with_its_callers():
    metric = calls(py("accuracy", 40, "/x/metrics.py"), 8, 1, READ)
    made = run(step_ms=115, inside={"": [metric]})
    rule = found(made)["sync-item"]
    # 4 ms of reads and 4 ms of the loop around them: 10 us per read.
    assert rule.saving_ms == pytest.approx(8)
    assert "accuracy (metrics.py:40)" in " ".join(rule.evidence)
    assert "every 50 or 100 steps" in rule.fix[0]
    assert next(iter(found(made))) == "sync-item"


def test_s0_23_the_elements_that_a_loop_of_reads_makes_belong_to_it():
    """LossPerLevel.add of ddpm_items.py: 7 % promised, 20 to 30 % saved."""
    elements = torch_py("torch/_tensor.py", "Tensor.__iter__")
    per_level = calls(py("add", 34, "/x/ddpm.py"), 3, 1, READ, calls(elements, 9, 2))
    rows = calls(py("rows", 50, "/x/ddpm.py"), 1, 1, calls(elements, 20, 2))
    rule = found(run(step_ms=140, inside={"": [per_level, rows]}))["sync-item"]
    assert rule.saving_ms == pytest.approx(4 + 3 + 9)
    assert "the loops around them 12.0 ms" in rule.evidence[0]


@pytest.mark.parametrize("name", ["<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"])
def test_s0_23_the_elements_that_a_comprehension_reads_belong_to_it(name: str):
    """sum(x.item() for x in losses): 24 % promised, 56 % saved; update() makes the elements."""
    elements = torch_py("torch/_tensor.py", "Tensor.__iter__")
    reads = calls(py(name, 26, "/x/meter.py", f"Meter.update.<locals>.{name}"), 3, 1, READ)
    update = py("update", 25, "/x/meter.py", "Meter.update")
    other = calls(py("update", 25, "/x/other.py", "Meter.update"), 1, 1, calls(elements, 9, 7))
    update_calls = calls(update, 1, 1, reads, calls(elements, 9, 2))
    made = run(step_ms=140, inside={"": [update_calls, other]})
    assert found(made)["sync-item"].saving_ms == pytest.approx(4 + 3 + 9)


def test_s0_23_the_operator_of_item_is_found_as_well():
    made = run(operators=operators({"aten::_local_scalar_dense": 12, "aten::mm": 40}))
    rule = found(made)["sync-item"]
    assert rule.value == pytest.approx(12)
    assert "_local_scalar_dense" in rule.evidence[0]


def test_s0_23_waiting_for_an_idle_gpu_is_found_and_for_a_busy_one_is_not():
    phases = {"data": 5, "forward": 40, "backward": 40, "optimizer": 10}
    layer = gpu_layer(0.6, {"forward": 40}, blocked_ms=30)
    rules = found(run(phases, layer=layer))
    assert next(iter(rules)) == "sync-item"
    assert rules["sync-item"].saving_ms == pytest.approx(30)
    # The rest of the idle time is fine: 60 of 70 ms.
    assert "gpu-utilization" not in rules
    assert "sync-item" not in found(run(phases, layer=gpu_layer(0.98, blocked_ms=70)))


def test_s0_23_reading_loss_once_per_step_is_no_finding():
    assert found(run(inside={"": [calls(tensor("item"), 0.02)]})) == {}


def test_s0_24_operators_are_weighed_in_steps_that_recording_them_made_longer():
    # 15 ms of 200 in the windows are 7.5 of the usual 100 of a step.
    seen = {"aten::copy_": 15, "aten::mm": 60}
    slowed = run(operators=operators({"ProfilerStep*": 200, **seen}), functions=False)
    assert "tensor-copies" not in found(slowed)
    made = run(operators=operators({"ProfilerStep*": 80, **seen}), functions=False)
    rule = found(made)["tensor-copies"]
    assert rule.saving_ms == pytest.approx(15)


@pytest.mark.parametrize("name", ["aten::copy_", "aten::to"])
def test_s0_24_s1_09_copies_are_found_with_cause_and_fix(name):
    made = run(operators=operators({name: 15, "aten::mm": 60}), functions=False)
    rule = found(made)["tensor-copies"]
    assert rule.saving_ms == pytest.approx(15)
    assert "devices or dtypes" in " ".join(rule.evidence)
    fix = " ".join(rule.fix)
    assert "bfloat16" in fix
    assert "device" in fix
    assert ".cpu()" in fix


def test_s0_24_copies_by_methods_of_tensors_are_found_with_their_callers():
    made = run(inside={"forward": [calls(py("prepare", 4, "/x/m.py"), 1, 1,
                                         calls(tensor("to"), 14, 20))]})  # fmt: skip
    assert "prepare (m.py:4)" in " ".join(found(made)["tensor-copies"].evidence)


def test_s1_28_logging_is_found_with_what_to_do():
    rule = found(run({**HEALTHY, "logging": 20}, step_ms=115))["logging-share"]
    assert rule.severity == "critical"
    fix = " ".join(rule.fix)
    assert "every 100 steps" in fix
    assert "W&B" in fix
    hf = run({**HEALTHY, "callbacks": 20}, step_ms=115, meta={"framework": "transformers"})
    assert "logging_steps=100" in " ".join(found(hf)["logging-share"].fix)


def test_s1_28_writing_files_in_the_loop_is_logging():
    write = calls(c_function("<method 'write' of '_io.TextIOWrapper' objects>", "write"), 15, 30)
    rule = found(run(step_ms=120, inside={"": [write]}))["logging-share"]
    assert "train (train.py:20)" in " ".join(rule.evidence)


def test_encoding_a_log_as_json_is_logging() -> None:
    write = calls(c_function("<method 'write' of '_io.TextIOWrapper' objects>", "write"), 4, 900)
    encode = calls(py("_iterencode", 413, "/usr/lib/python3.11/json/encoder.py"), 9, 1, write)
    dump = calls(py("dump", 120, "/usr/lib/python3.11/json/__init__.py"), 2, 1, encode)
    log = calls(py("JsonLogger.log", 11, "/x/train.py"), 0, 1, dump)
    rule = found(run(step_ms=120, inside={"": [log]}))["logging-share"]
    assert rule.saving_ms == pytest.approx(15.0)
    assert "JsonLogger.log (train.py:11)" in " ".join(rule.evidence)


def test_a_checkpoint_at_every_step_is_found_and_not_as_logging():
    save = calls(torch_py("torch/serialization.py", "save", 900), 2, 1, calls(
        c_function("<method 'write' of '_io.BufferedWriter' objects>", "write"), 18))  # fmt: skip
    rules = found(run(step_ms=120, inside={"": [save]}))
    assert list(rules) == ["checkpoint-often"]
    assert "every step" in rules["checkpoint-often"].title
    assert "every step" not in found(run({**HEALTHY, "checkpoint": 20}, step_ms=120, inside={
        "checkpoint": [Node(py("write"), 0, MS)]}))["checkpoint-often"].fix[0]  # fmt: skip


def test_garbage_collection_is_found_where_it_was_asked_for():
    collect = calls(c_function("<built-in method gc.collect>", "gc.collect"), 12)
    rule = found(run(step_ms=115, inside={"": [collect]}))["gc-pressure"]
    assert rule.severity == "critical"
    assert "train (train.py:20)" in " ".join(rule.evidence)
    assert "gc.freeze()" in rule.fix[0]


def test_a_lock_that_another_thread_holds_is_found():
    acquire = calls(c_function("<method 'acquire' of '_thread.lock' objects>", "acquire"), 15)
    holder = Node(py("send_all", 30, "/x/stats.py", "Statistics.send_all"), 1, 900 * MS)
    rule = found(run(step_ms=115, inside={"": [acquire]}, threads=[holder]))["lock-contention"]
    evidence = " ".join(rule.evidence)
    assert "train (train.py:20)" in evidence
    assert "Statistics.send_all" in evidence


def test_locks_of_loading_are_left_to_data_loading():
    acquire = calls(c_function("<method 'acquire' of '_thread.lock' objects>", "acquire"), 15)
    phases = {"data": 20, "forward": 36, "backward": 43}
    assert list(found(run(phases, inside={"data": [acquire]}))) == ["data-loading"]


def test_s2_09_gradient_scaling_is_found_with_its_fix():
    scale = calls(torch_py("torch/amp/grad_scaler.py", "GradScaler.unscale_"), 14)
    made = run(step_ms=115, inside={"": [scale]}, meta={"framework": "accelerate"})
    fix = " ".join(found(made)["mixed-precision-scaler"].fix)
    assert "GradScalerKwargs(growth_interval=4000)" in fix
    assert "bf16" in fix


def test_small_batches_are_found_on_a_cpu_by_the_cost_of_calls():
    small = [calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 0.2, 20)]
    phases = {"data": 0.1, "forward": 0.36, "backward": 0.43, "optimizer": 0.09}
    made = run(phases, step_ms=1, inside={"forward": small}, loaders=(loader(0.1, batch_size=2),))
    rule = found(made)["small-batch"]
    assert next(iter(found(made))) == "small-batch"
    same_text(rule)
    # A batch twice as large has half of the cost per sample.
    assert rule.saving_share == pytest.approx(rule.value / 100 / 2)
    large = run(phases, step_ms=1, inside={"forward": small}, loaders=(loader(0.1, batch_size=64),))
    same_text(found(large)["small-batch"])
    # Calls that compute, and Python code without calls, are no cost of calling.
    computing = [calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 0.3, 2)]
    for inside in (computing, []):
        made = run(phases, step_ms=1, inside={"forward": inside}, loaders=(loader(0.1),))
        assert "small-batch" not in found(made)


def test_python_that_a_program_computes_with_in_forward_is_no_cost_of_calling() -> None:
    """Matching boxes, for example: a larger batch has more of them."""
    layers = calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 1.1, 100)
    larger = calls(c_function("<built-in method builtins.max>", "max"), 0.9, 3000)
    iou = calls(py("iou", 9, "/x/train.py"), 1.0, 1500, larger)
    match = calls(py("assign_targets", 20, "/x/train.py"), 0.8, 1, iou)
    phases = {"forward": 4.0, "backward": 1.2, "optimizer": 0.8}
    batches = (loader(0.1, batch_size=8),)
    made = run(phases, step_ms=6.5, inside={"forward": [layers, match]}, loaders=batches)
    assert "small-batch" not in found(made)
    modules = calls(torch_py("torch/nn/modules/module.py", "Module._call_impl"), 1.9, 150)
    made = run(phases, step_ms=6.5, inside={"forward": [layers, modules]}, loaders=batches)
    assert "small-batch" in found(made)


def test_time_of_an_import_in_the_first_step_counts_for_nothing():
    imports = Node(py("_find_and_load", 1, "<frozen importlib._bootstrap>"), 1, MS, [
        Node(c_function("<method 'write' of '_io.BufferedWriter' objects>", "write"), 1, 20 * MS),
        Node(torch_py("torch/serialization.py", "save"), 1, 20 * MS),
    ])  # fmt: skip
    assert found(run(step_ms=141, inside={"": [imports]})) == {}


# ---- samples ----


@pytest.mark.parametrize(
    ("steps", "severity"), [(40, "critical"), (20, "critical"), (19, "warning"), (5, "warning")]
)
def test_critical_needs_twenty_steps(steps, severity):
    made = run({"data": 50, "forward": 25, "backward": 25}, steps=steps)
    assert found(made)["data-loading"].severity == severity


def test_fewer_than_five_steps_say_nothing():
    made = run({"data": 50, "forward": 25, "backward": 25}, steps=4)
    assert found(made) == {}
    assert reason(made, "data-loading") == "4 steps measured, 5 are needed"


@pytest.mark.parametrize(
    ("rule", "part"),
    [("data-loading", "no section data"), ("gpu-utilization", "GPU was not recorded"),
     ("gpu-memory-low", "memory was not recorded"), ("optimizer-share", "no section optimizer"),
     ("imbalance", "fastprof merge"), ("kernel-launch-overhead", "operators on a device")],
)  # fmt: skip
def test_rules_abstain_where_their_signal_is_missing(rule, part):
    assert part in reason(run({"loss": 50}), rule)


def test_each_finding_states_its_threshold_and_where_it_comes_from():
    made = run({"data": 50, "forward": 25, "backward": 25})
    rule = found(made)["data-loading"]
    assert rule.threshold == "above 30 %"
    assert rule.source == LIMITS["data-share"].origin
    assert "table of limits" in rule.source
