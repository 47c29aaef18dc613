"""Findings that said what was not so: each test is a program that showed it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastprof.results.report import build_report
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.run_phases import PhaseTime
from unit.findings_runs import (
    STEPS,
    c_function,
    calls,
    filled,
    found,
    gpu_layer,
    loader,
    noted,
    operators,
    reason,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import MS, gpu, kernel, py
from wording import same_text

PRINT = c_function("<built-in method builtins.print>", "print")
COLLECT = c_function("<built-in method gc.collect>", "gc.collect")
#: A machine with a GPU that was not observed.
HIDDEN = gpu(devices=(), status="unavailable", reason="libcupti was not found")


def with_phase(made: Snapshot, name: str, seconds: float, times: int) -> Snapshot:
    steps = PhaseTime("steps", made.steps.sum_ns, 1)
    return replace(made, phases=(steps, PhaseTime(name, round(seconds * 1e9), times)))


# ---- the GPU ----


@pytest.mark.parametrize("beside", ["validation", "checkpoint"])
def test_time_between_steps_explains_no_idle_time_in_them(beside: str) -> None:
    idle = gpu_layer(0.45, {"forward": 40})
    rules = found(with_phase(run(layer=idle), beside, 3, 4))
    assert rules["gpu-utilization"].severity == "critical"
    assert rules["gpu-utilization"].saving_ms == pytest.approx(55)


def test_time_of_kernels_explains_no_idle_time() -> None:
    total = round(65 * STEPS * MS)
    short = kernel("k", total, 65 * 20 * STEPS, small_count=65 * 20 * STEPS, small_ns=total,
                   blocks_ns=0.4 * 132 * total)  # fmt: skip
    rules = found(run(layer=gpu_layer(0.65, {"forward": 30}, kernels=[short])))
    assert rules["gpu-utilization"].saving_ms == pytest.approx(35)
    # The same time of the same kernels is promised once.
    assert "small-kernels" in rules
    assert "blocks-per-sm" not in rules


def test_a_long_kernel_with_few_blocks_is_told_beside_short_ones() -> None:
    short = round(40 * STEPS * MS)
    made = [
        kernel("short", short, 40 * 20 * STEPS, small_count=40 * 20 * STEPS, small_ns=short,
               blocks_ns=2 * 132 * short),
        kernel("long_scan", round(35 * STEPS * MS), STEPS, blocks_ns=0.02 * 132 * 35 * STEPS * MS),
    ]  # fmt: skip
    rules = found(run(layer=gpu_layer(0.75, kernels=made)))
    assert "small-kernels" in rules
    assert rules["blocks-per-sm"].saving_ms == pytest.approx(0.98 * 35, rel=0.01)


def test_waits_elsewhere_are_not_where_values_are_read() -> None:
    inside = {"logging": [calls(tensor("item"), 17, 1), calls(PRINT, 9, 3)]}
    made = run({"data": 5, "forward": 30, "backward": 15, "logging": 26}, inside=inside,
               layer=gpu_layer(0.6, blocked_ms=31))  # fmt: skip
    rules = found(made)
    assert rules["sync-item"].saving_ms == pytest.approx(31)
    assert "logging-share" in rules


def test_what_the_host_does_saves_at_most_the_idle_time_in_all() -> None:
    inside = {"": [calls(PRINT, 20, 5)], "forward": [calls(COLLECT, 20, 1)]}
    made = run({"data": 5, "forward": 40, "backward": 25, "optimizer": 5}, inside=inside,
               layer=gpu_layer(0.84))  # fmt: skip
    rules = found(made)
    host = [rules["gc-pressure"], rules["logging-share"]]
    assert sum(rule.saving_ms or 0.0 for rule in host) == pytest.approx(16)
    assert any("it saves at most 16.0 ms per step" in text
               for rule in host for text in rule.evidence)  # fmt: skip


def test_a_wait_for_the_gpu_and_slow_loading_save_no_more_than_the_idle_time() -> None:
    """The GPU needs half of the step, whichever of them is mended."""
    made = run(
        {"data": 50, "forward": 4, "backward": 2}, inside={"": [calls(tensor("item"), 44, 1)]},
        layer=gpu_layer(0.5, {"data": 50}, blocked_ms=44),
        loaders=(loader(50),), meta={"cpus": 16},
    )  # fmt: skip
    rules = found(made)
    assert "unaccounted" not in rules  # the wait again
    assert sum(rule.saving_ms or 0.0 for rule in rules.values()) <= 50 * (1 + 1e-9)
    assert rules["sync-item"].saving_ms == pytest.approx(44)
    assert rules["data-loading"].severity == "critical"


def short_kernels(busy: float, ms: float, idle: dict[str, float], **fields: float) -> object:
    """Return a GPU whose kernels take 50 us each, ``ms`` per step."""
    total = round(ms * STEPS * MS)
    count = round(20 * ms) * STEPS
    ran = kernel("k", total, count, small_count=count, small_ns=total, blocks_ns=264.0 * total)
    return gpu_layer(busy, idle, kernels=[ran], **fields)


def test_a_larger_batch_saves_no_loading_no_copies_and_nothing_of_fastprof_s() -> None:
    """Loading takes as long per sample, whatever the batch."""
    phases = {"data": 50, "h2d": 6, "forward": 12, "backward": 12}
    idle = {"data": 50.0, "h2d": 6.0, "forward": 10.0, "backward": 8.0}
    made = run(phases, layer=short_kernels(0.08, 8, idle, h2d_ms=0), memory=filled(0.02),
               loaders=(loader(50),), meta={"cpus": 16, "own_ns": 5 * MS * STEPS})  # fmt: skip
    made = replace(made, phases=(PhaseTime("steps", made.steps.sum_ns, 1),))
    rules = found(made)
    assert next(iter(rules)) == "data-loading"
    # 18 ms in forward and backward, and 18 in no section, of which 5 are fastprof's.
    assert rules["small-batch"].saving_ms == pytest.approx(31)
    # Between steps, a GPU that is idle waits for no batch.
    beside = run(phases, layer=short_kernels(0.08, 8, {**idle, "eval": 18.0}, h2d_ms=0),
                 memory=filled(0.02))  # fmt: skip
    assert found(beside)["small-batch"].saving_ms == pytest.approx(18)


def test_loading_is_the_cause_of_all_idle_time_in_it() -> None:
    """Workers do not save all of it, and the rest is no finding about an idle GPU."""
    made = run({"data": 70, "forward": 15, "backward": 15}, layer=gpu_layer(0.26, {"data": 70}),
               loaders=(loader(70),), meta={"cpus": 16})  # fmt: skip
    rules = found(replace(made, loaders=(loader(70, cpus=3),), meta={"cpus": 3}))
    assert rules["data-loading"].saving_ms
    assert rules["data-loading"].saving_ms < 60
    assert "gpu-utilization" not in rules


@pytest.mark.parametrize(("busy", "fires"), [(0.79, True), (0.81, False)])
def test_a_busy_gpu_gains_little_by_a_larger_batch(busy: float, fires: bool) -> None:
    made = run(layer=short_kernels(busy, 100 * busy, {}), memory=filled(0.02))
    assert ("small-batch" in found(made)) == fires
    if not fires:
        # How much of short kernels fusing saves is unknown.
        assert found(made)["small-kernels"].saving_ms is None
        same_text(found(made)["gpu-memory-low"])


def test_launches_are_told_with_the_batch_or_alone() -> None:
    launches = operators({"cudaLaunchKernel": 15, "aten::mm": 60}, "cuda")
    layer = short_kernels(0.5, 50, {})
    rules = found(run(operators=launches, layer=layer, memory=filled(0.02)))
    assert "small-batch" in rules
    assert "kernel-launch-overhead" not in rules
    full = found(run(operators=launches, layer=layer, memory=filled(0.9)))
    assert "kernel-launch-overhead" in full


def moving(section_ms: float, **fields: object) -> Snapshot:
    """Return a run that moves a batch to the GPU in each step, which takes the GPU 10 ms."""
    move = calls(tensor("to"), section_ms)
    phases = {"h2d": section_ms, "forward": 40, "backward": 40}
    return run(phases, inside={"h2d": [move]}, layer=gpu_layer(0.85, h2d_ms=10), **fields)


def test_copies_to_the_gpu_are_counted_once() -> None:
    """The host waits in .to() for its copy, and for the kernels before it."""
    rules = found(moving(14))
    assert "host-device-transfers" in rules
    assert "tensor-copies" not in rules
    # Conversions beside them remain.
    convert = calls(py("prepare", 4, "/x/m.py"), 0, 1, calls(tensor("to"), 24, 20))
    made = run({"forward": 35, "backward": 35}, inside={"": [convert]},
               layer=gpu_layer(0.7, h2d_ms=10))  # fmt: skip
    rule = found(made)["tensor-copies"]
    assert rule.saving_ms == pytest.approx(14)
    same_text(rule)
    assert ".cpu()" not in " ".join(rule.fix)
    waits = operators({"cudaMemcpyAsync": 20}, "cuda")
    assert "tensor-copies" not in found(replace(made, operators=waits))


def test_the_fix_of_copies_is_for_what_the_run_copies() -> None:
    def fix(made: Snapshot) -> str:
        return " ".join(found(made)["host-device-transfers"].fix)

    imported = Key("python", "/site-packages/torch/utils/data/dataloader.py", 1, "<module>",
                   "<module>")  # fmt: skip
    made = moving(14)
    alone = fix(replace(made, keys=(*made.keys, imported)))
    assert "tensor.pin_memory() once, before the loop" in alone
    assert "DataLoader" not in alone
    assert ".cpu()" not in alone
    assert "Keep tensors" not in alone
    assert "DataLoader(pin_memory=True)" in fix(replace(made, loaders=(loader(1, workers=2),)))
    back = run(layer=gpu_layer(0.85, h2d_ms=0, d2h_ms=10))
    assert fix(back) == "Fewer .cpu() and .numpy() in the loop: compute metrics on the device."
    # torch.profiler tells the memory of a copy.
    named = {"Memcpy HtoD ({} -> Device)": "device"}
    for memory, pins in (("Pageable", True), ("Pinned", False)):
        name = next(iter(named)).format(memory)
        seen = replace(made, operators=operators({name: 10}, "cuda", **{name: "device"}))
        assert ("pin_memory" in fix(seen)) == pins
        said = " ".join(found(seen)["host-device-transfers"].evidence)
        assert ("from pageable memory" in said) == pins


def test_kernels_have_no_time_of_copies() -> None:
    """A third of the busy time is copies: 0.6 blocks per SM are missing in the rest."""
    total = round(60 * STEPS * MS)
    few = kernel("k", total, 60 * STEPS, blocks_ns=0.4 * 132 * total)
    layer = gpu_layer(0.9, kernels=[few], h2d_ms=30, copy_ns=30, kernel_ns=60)
    assert found(run(layer=layer))["blocks-per-sm"].saving_ms == pytest.approx(36)


def test_workers_are_promised_what_they_save_beside_the_program_s_step() -> None:
    """20 of the 100 ms are fastprof's: 45 ms of loading need two workers beside 35."""
    made = run({"data": 45, "forward": 20, "backward": 15}, loaders=(loader(45),),
               meta={"cpus": 16, "own_ns": 20 * MS * STEPS})  # fmt: skip
    made = replace(made, phases=(PhaseTime("steps", made.steps.sum_ns, 1),), loaders=())
    rule = found(made)["data-loading"]
    assert "num_workers=2" in rule.fix[0]


def test_copies_that_kernels_hide_cost_nothing() -> None:
    hidden = gpu_layer(0.95, h2d_ms=20, copy_ns=20, copy_alone_ns=0)
    assert "host-device-transfers" not in found(run(layer=hidden))
    rule = found(run(layer=gpu_layer(0.95, h2d_ms=20, copy_ns=20, copy_alone_ns=12)))
    assert rule["host-device-transfers"].saving_ms == pytest.approx(12)
    same_text(rule["host-device-transfers"])
    # These 12 ms are memsets.
    others = gpu_layer(0.95, h2d_ms=20, copy_ns=32, copy_alone_ns=12)
    assert "host-device-transfers" not in found(run(layer=others))


def test_sharded_parameters_are_not_exchanged_by_all_reduce() -> None:
    named = [kernel(f"ncclDevKernel_{what}_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                    round(ms * STEPS * MS), STEPS)
             for what, ms in (("AllGather", 15), ("ReduceScatter", 10))]  # fmt: skip
    made = run(layer=gpu_layer(0.9, kernels=named, communication_ns=25))
    rule = found(made)["all-reduce-share"]
    same_text(rule)
    assert "HYBRID_SHARD" in rule.fix[0]
    assert "DistributedDataParallel" not in " ".join(rule.fix)


def test_nothing_is_promised_of_a_wait_for_a_gpu_that_was_not_observed() -> None:
    log = calls(py("log_loss", 9, "/x/train.py"), 0.1, 1, calls(tensor("item"), 59, 1))
    made = run({"data": 2, "forward": 20, "backward": 15, "optimizer": 3}, inside={"": [log]})
    assert found(made)["sync-item"].saving_ms
    rules = found(replace(made, gpu=HIDDEN))
    assert rules["unaccounted"].saving_ms is None
    linear = calls(c_function("<built-in method torch._C._nn.linear>", "linear"), 2, 400)
    linear = calls(torch_py("torch/nn/modules/module.py", "Module._call_impl"), 0, 400, linear)
    made = run({"data": 0.5, "forward": 4, "backward": 4, "optimizer": 1}, step_ms=10,
               inside={"forward": [linear]}, loaders=(loader(0.5, batch_size=64),))  # fmt: skip
    assert "small-batch" in found(made)
    assert "GPU was not observed" in reason(replace(made, gpu=HIDDEN), "small-batch")


# ---- loading ----


def streaming(*, framework: str = "torch", functions: bool = True, workers: int = 0) -> Snapshot:
    """Return a run that loads an IterableDataset, which the training process samples."""
    sampler = torch_py("torch/utils/data/dataloader.py", "_InfiniteConstantSampler.__iter__")
    state = {"workers": workers, "blocked": 39, "blocked_ns": 39 * 60 * MS} if workers else {}
    return run({"data": 60, "forward": 20, "backward": 15, "optimizer": 5}, functions=functions,
               inside={"data": [calls(sampler, 0.1, 1)]} if functions else {},
               loaders=(loader(60, cpus=16, **state),),
               meta={"framework": framework, "cpus": 16})  # fmt: skip


@pytest.mark.parametrize("framework", ["torch", "lightning", "transformers", "accelerate"])
@pytest.mark.parametrize("workers", [0, 1])
def test_several_workers_of_a_stream_must_split_it(framework: str, workers: int) -> None:
    fix = found(streaming(framework=framework, workers=workers))["data-loading"].fix[0]
    assert "num_workers=" in fix
    assert "get_worker_info()" in fix


def test_without_functions_it_is_unknown_whether_the_dataset_is_a_stream() -> None:
    same_text(found(streaming(functions=False))["data-loading"])


def test_workers_are_advised_on_the_cpus_of_a_rank_and_not_of_all_ranks() -> None:
    made = run({"data": 60, "forward": 20, "backward": 15, "optimizer": 5},
               loaders=(loader(60, cpus=8),),
               meta={"cpus": 8, "process_cpu_ns": 4 * 10**9, "world_size": 8})  # fmt: skip
    assert "num_workers=" in found(made)["data-loading"].fix[0]
    shared = replace(made, meta={**made.meta, "ranks_on_cpus": 8})
    rule = found(shared)["data-loading"]
    assert "num_workers=" not in " ".join(rule.fix)
    same_text(rule)
    # What the program may use is what it was.
    waits = (("compute", made.steps.sum_ns // 2), ("cpu_wait", made.steps.sum_ns // 2))
    busy = replace(shared, steps=replace(shared.steps, split=waits))
    said = {**found(busy), **noted(busy)}["cpu-contention"]
    assert "of 8 CPUs" in " ".join(said.evidence)


# ---- the optimizer ----


def adam(mode: str = "single", *, init: bool = False) -> Snapshot:
    update = calls(torch_py("torch/optim/adam.py", f"_{mode}_tensor_adam"), 1, 1,
                   calls(tensor("addcdiv_"), 19, 800))  # fmt: skip
    step = calls(torch_py("torch/optim/adam.py", "Adam.step"), 1, 1, update)
    phases = {"data": 5, "forward": 30, "backward": 40, "optimizer": 25}
    made = run(phases, inside={"optimizer": [step]})
    key = Key("python", "/site-packages/torch/optim/adam.py", 5, "__init__", "Adam.__init__")
    return replace(made, keys=(*made.keys, key)) if init else made


def test_an_adam_from_before_the_recording_may_be_an_adamw() -> None:
    fix = found(adam())["optimizer-unfused"].fix[0]
    same_text(found(adam())["optimizer-unfused"])
    fix = found(adam(init=True))["optimizer-unfused"].fix[0]
    assert fix.startswith("torch.optim.Adam(..., fused=True)")


def test_an_optimizer_that_groups_its_parameters_updates_more_than_one_at_a_time() -> None:
    same_text(found(adam())["optimizer-unfused"])
    assert "one parameter at a time" not in found(adam("multi"))["optimizer-unfused"].title


def test_nothing_is_promised_of_an_optimizer_whose_class_is_unknown() -> None:
    phases = {"data": 5, "forward": 30, "backward": 40, "optimizer": 25}
    assert found(run(phases, functions=False))["optimizer-share"].saving_ms is None


def test_accumulating_gradients_with_accelerate_needs_its_context() -> None:
    made = run({"data": 5, "forward": 30, "backward": 40, "optimizer": 25}, functions=False,
               meta={"framework": "accelerate"})  # fmt: skip
    assert "`with accelerator.accumulate(model):`" in found(made)["optimizer-share"].fix[-1]


# ---- callbacks, logging, saving ----


def test_work_of_callbacks_that_is_no_logging_is_named() -> None:
    update = calls(py("on_train_batch_end", 30, "/x/ema.py", "Ema.on_train_batch_end"), 0.5, 1,
                   calls(tensor("lerp_"), 24, 200))  # fmt: skip
    made = run({"data": 5, "forward": 30, "backward": 35, "optimizer": 5, "callbacks": 25},
               inside={"callbacks": [update]}, meta={"framework": "transformers"})  # fmt: skip
    rule = found(made)["logging-share"]
    same_text(rule)
    assert "Ema.on_train_batch_end (ema.py:30)" in rule.title
    assert "logging_steps" not in " ".join(rule.fix)
    assert rule.saving_ms is None


def test_logging_beside_callbacks_keeps_its_advice() -> None:
    update = calls(py("on_train_batch_end", 30, "/x/ema.py", "Ema.on_train_batch_end"), 0.5, 1,
                   calls(tensor("lerp_"), 13, 200))  # fmt: skip
    made = run({"data": 5, "forward": 30, "backward": 30, "optimizer": 5, "callbacks": 14},
               inside={"callbacks": [update], "": [calls(PRINT, 12, 5)]})  # fmt: skip
    rule = found(made)["logging-share"]
    same_text(rule)


def test_callbacks_whose_functions_are_unknown_may_do_something_else_than_log() -> None:
    phases = {"data": 5, "forward": 30, "backward": 35, "optimizer": 5, "callbacks": 25}
    rule = found(run(phases, functions=False))["logging-share"]
    same_text(rule)


def test_rare_checkpoints_are_not_to_be_saved_every_few_hundred_steps() -> None:
    made = with_phase(run(steps=2000, step_ms=100), "checkpoint", 80, 4)
    rule = found(made)["checkpoint-often"]
    assert "every 500 steps" in rule.title
    assert "few hundred" not in rule.fix[0]
    assert rule.saving_ms is None
    often = with_phase(run(steps=2000, step_ms=100), "checkpoint", 80, 40)
    assert "few hundred" in found(often)["checkpoint-often"].fix[0]


def test_a_program_that_logs_every_100_steps_is_not_told_to() -> None:
    rare = calls(PRINT, 30, 1)
    made = run({"data": 5, "forward": 30, "backward": 30, "optimizer": 5}, steps=1000,
               inside={"": [rare]})  # fmt: skip
    nodes = made.threads[0].nodes
    at = next(i for i, key in enumerate(nodes.key) if made.keys[key].name == PRINT.name)
    calls_ = tuple(10 if i == at else n for i, n in enumerate(nodes.calls))
    thread = replace(made.threads[0], nodes=replace(nodes, calls=calls_))
    rule = found(replace(made, threads=(thread,)))["logging-share"]
    assert "every 100 steps" not in rule.fix[0]
    assert rule.saving_ms is None


def test_the_savings_of_all_findings_beside_a_gpu_fit_into_a_step() -> None:
    made = run(
        {"data": 30, "forward": 20, "backward": 20, "optimizer": 10},
        inside={"data": [calls(tensor("item"), 12, 50)], "": [calls(PRINT, 11, 9)]},
        layer=gpu_layer(0.6, {"data": 30}, blocked_ms=20),
    )
    report = build_report(made)
    assert sum(f.saving_ms or 0.0 for f in report.findings if f.rule != "gpu-utilization") <= 40
