"""What a finding promises: never time that the GPU hides, that remains, or that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from fastprof.results.report import build_report
from fastprof.session.environment.run_metadata import surroundings
from fastprof.snapshot import Snapshot
from unit.findings_runs import (
    MS,
    Node,
    c_function,
    calls,
    found,
    gpu_layer,
    loader,
    loads,
    operators,
    run,
    tensor,
    torch_py,
)
from unit.snapshots import py
from wording import same_text

SHUTDOWN = torch_py(
    "torch/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._shutdown_workers"
)

#: Host work of 20 ms per step: rule -> the functions in no section.
HOST_WORK = {
    "logging-share": calls(c_function("<built-in method builtins.print>", "print"), 20),
    "gc-pressure": calls(c_function("<built-in method gc.collect>", "gc.collect"), 20),
    "lock-contention": calls(
        c_function("<method 'acquire' of '_thread.lock' objects>", "lock.acquire"), 20
    ),
    "sampler-time": calls(py("__iter__", 7, "/x/data.py", "LengthSampler.__iter__"), 20),
    "mixed-precision-scaler": calls(
        torch_py("torch/amp/grad_scaler.py", "GradScaler.unscale_"), 20
    ),
    "checkpoint-often": calls(torch_py("torch/serialization.py", "save"), 20),
}  # fmt: skip
PHASES = {"data": 6, "forward": 30, "backward": 35, "optimizer": 9}


@pytest.mark.parametrize("rule", HOST_WORK)
def test_host_work_beside_a_busy_gpu_costs_nothing(rule: str) -> None:
    inside = {"": [HOST_WORK[rule]]}
    alone = found(run(PHASES, inside=inside))[rule]
    assert alone.saving_ms == pytest.approx(20)
    assert rule not in found(run(PHASES, inside=inside, layer=gpu_layer(0.99)))
    partly = found(run(PHASES, inside=inside, layer=gpu_layer(0.84)))[rule]
    assert partly.saving_ms == pytest.approx(16)
    assert "20.0 %" in partly.title or "20.0 ms" in " ".join(partly.evidence)
    same_text(partly)


def test_launches_count_in_steps_that_torch_profiler_does_not_slow() -> None:
    names = {"ProfilerStep#5": 200.0, "cudaLaunchKernel": 60.0, "aten::mm": 60.0}
    made = run(operators=operators(names, "cuda"), layer=gpu_layer(0.6))
    # A step takes 200 ms in the window of torch.profiler, and 100 outside of it.
    assert found(made)["kernel-launch-overhead"].value == pytest.approx(30)
    hidden = run(operators=operators(names, "cuda"), layer=gpu_layer(0.95))
    assert "kernel-launch-overhead" not in found(hidden)


def test_receiving_counts_while_the_gpu_waits_for_data() -> None:
    batches = loader(20, workers=2, ready=40, ready_ns=40 * 20 * MS, loads=loads(1))
    phases = {"data": 20, "forward": 30, "backward": 30, "optimizer": 9}
    rule = found(run(phases, loaders=(batches,)))["batch-receiving"]
    assert rule.saving_ms == pytest.approx(19)
    made = run(phases, loaders=(batches,), layer=gpu_layer(0.84, {"data": 16}))
    assert found(made)["batch-receiving"].saving_ms == pytest.approx(16)
    busy = run(phases, loaders=(batches,), layer=gpu_layer(0.99))
    assert "batch-receiving" not in found(busy)


def test_only_receiving_that_takes_long_is_not_judged_on_a_busy_machine() -> None:
    for ms, uncertain in ((20, ("batch-receiving",)), (0.2, ())):
        batches = loader(ms, workers=2, ready=40, ready_ns=round(40 * ms * MS), loads=loads(1))
        made = run({"data": ms, "forward": 30, "backward": 30, "optimizer": 9}, loaders=(batches,))
        split = (
            ("compute", made.steps.sum_ns * 7 // 10),
            ("cpu_wait", made.steps.sum_ns * 3 // 10),
        )
        busy = replace(made, steps=replace(made.steps, split=split))
        assert build_report(busy).examination.uncertain == uncertain


def test_a_function_that_counts_tokens_without_a_loader_is_no_finding() -> None:
    count = py("count_tokens", 9, "/x/corpus.py")
    fetch = torch_py("torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__")
    own = run(inside={"": [Node(count, 1, 300 * MS)]}, after_ms=12_000)
    assert "token-counting" not in found(own)
    over = run(inside={"": [Node(count, 1, 10 * MS, [Node(fetch, 1, 290 * MS)])]}, after_ms=12_000)
    rule = found(over)["token-counting"]
    assert rule.saving == "12.0 s in total"
    same_text(rule)


def shut(count: int, ms: float, **fields: object) -> Snapshot:
    watched = loader(4, workers=2, starts=(count, count * MS), shutdowns=(count, count * ms * MS),
                     firsts=(count, count * MS), loads=loads(1), ready=40, **fields)  # fmt: skip
    return run(loaders=(watched,))


def test_the_last_shutdown_of_workers_remains() -> None:
    rule = found(shut(4, 300))["worker-shutdown"]
    assert "1.20 s" in rule.title
    assert rule.saving == "900 ms in total"
    assert "persistent_workers=True" in " ".join(rule.fix)
    # torch waits 5 s for a worker that hangs, and the fix for those saves each wait.
    assert found(shut(2, 5100))["worker-shutdown"].saving == "10.2 s in total"


def test_workers_that_persist_end_because_each_pass_has_a_new_loader() -> None:
    rules = found(shut(4, 300, persistent=True))
    [fix] = rules["worker-shutdown"].fix
    assert fix.startswith("Build the DataLoader once")


def test_restarts_are_counted_and_not_per_epoch() -> None:
    same = {"workers": 2, "firsts": (5, 5 * 30 * MS), "loads": loads(1), "ready": 40}
    watched = loader(4, starts=(5, 5 * 100 * MS), shutdowns=(5, 5 * MS), **same)
    rule = found(run(loaders=(watched,)))["loader-recreated"]
    same_text(rule)
    # The loader whose starts take longest is the first reason, and all loaders count.
    slower = loader(4, starts=(2, 2 * 600 * MS), shutdowns=(2, 2 * 5 * MS), **same)
    rule = found(run(loaders=(watched, replace(slower, split="val"))))["loader-recreated"]
    assert "again 5 times" in rule.title
    assert "(val)" in rule.evidence[0]
    assert rule.saving.endswith(" in total")


def test_the_method_that_reads_values_is_named() -> None:
    inside = {"": [calls(tensor("tolist"), 15, 10), calls(tensor("item"), 2, 1)]}
    assert ".tolist()" in found(run(PHASES, inside=inside))["sync-item"].title
    inside = {"": [calls(tensor("tolist"), 2, 1), calls(tensor("item"), 15, 10)]}
    assert ".item()" in found(run(PHASES, inside=inside))["sync-item"].title


def with_capability(made: Snapshot, major: int) -> Snapshot:
    assert made.gpu is not None
    devices = tuple(replace(d, capability=(major, 5)) for d in made.gpu.devices)
    return replace(made, gpu=replace(made.gpu, devices=devices))


def test_a_gpu_without_bfloat16_gets_no_advice_on_it() -> None:
    scale = {"": [HOST_WORK["mixed-precision-scaler"]]}
    made = run(PHASES, inside=scale, layer=gpu_layer(0.7))
    assert "bfloat16" in " ".join(found(made)["mixed-precision-scaler"].fix)
    old = found(with_capability(made, 7))["mixed-precision-scaler"]
    assert "bfloat16" not in " ".join(old.fix)
    assert "fused=True" in " ".join(old.fix)
    moves = {"forward": [calls(tensor("to"), 24, 20)]}
    made = run(inside=moves, layer=gpu_layer(0.7), meta={"framework": "lightning"})
    assert "bf16-mixed" in " ".join(found(made)["tensor-copies"].fix)
    assert 'precision="16-mixed"' in " ".join(found(with_capability(made, 7))["tensor-copies"].fix)


def test_a_gpu_of_another_vendor_is_not_a_missing_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(
        version=SimpleNamespace(hip="6.2"), backends=SimpleNamespace(), get_num_threads=lambda: 2
    )
    monkeypatch.setitem(__import__("sys").modules, "torch", fake)
    assert surroundings()["torch_gpus"] == "ROCm"
    fake.version = SimpleNamespace(hip=None)
    fake.backends = SimpleNamespace(mps=SimpleNamespace(is_built=lambda: False))
    assert "torch_gpus" not in surroundings()
    fake.backends = SimpleNamespace(mps=SimpleNamespace(is_built=lambda: True))
    assert surroundings()["torch_gpus"] == "MPS"

    made = run(layer=gpu_layer(0.9))
    assert made.gpu is not None
    none = replace(made.gpu, status="unavailable", reason="no NVIDIA device in this machine")
    for other, missing in (({}, True), ({"torch_gpus": "ROCm"}, False)):
        gpu = build_report(replace(made, gpu=none, meta={**made.meta, **other})).gpu
        assert gpu is not None
        assert gpu.lacks_device is missing
        assert ("ROCm" in gpu.reason) is not missing


def stepping(mode: str, classes: bool = True) -> Snapshot:
    """Return a run whose optimizer takes a quarter of the step, in many calls."""
    update = calls(tensor("addcdiv_"), 19, 800)
    name = f"_{mode}_tensor_adam" if classes else "step"
    file = "torch/optim/adam.py" if classes else "own.py"
    inner = calls(torch_py(file, name), 1, 1, update)
    if classes:
        inner = calls(torch_py(file, "Adam.step"), 1, 1, inner)
    phases = {"data": 5, "forward": 30, "backward": 40, "optimizer": 25}
    return run(phases, inside={"optimizer": [inner]})


def test_only_a_measured_saving_of_a_fused_optimizer_is_promised() -> None:
    assert found(stepping("single"))["optimizer-unfused"].saving_ms == pytest.approx(0.6 * 25)
    for made in (stepping("multi"), stepping("single", classes=False)):
        rule = found(made)["optimizer-unfused"]
        assert rule.saving == ""
        assert "fused=True" in " ".join(rule.fix)


def test_communication_is_compared_with_what_backward_takes_on_the_gpu() -> None:
    # The host launches backward in 20 ms; its kernels take 90.
    phases = {"backward": 20, "data": 5, "forward": 30}
    made = run(phases, functions=False, layer=gpu_layer(0.9, communication_ns=12))
    assert "all-reduce-share" not in found(made)


def test_the_fix_for_uneven_steps_does_not_repeat_the_reason() -> None:
    rule = found(run(durations=[80, 120] * 20, layer=gpu_layer(0.9)))["step-time-variation"]
    said = " ".join((*rule.evidence, *rule.fix))
    assert said.count("memory fragmentation") <= 1
