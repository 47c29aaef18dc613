"""Each rule has one golden file of its texts, and each text there belongs to a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastprof.findings.examine import RULES
from fastprof.snapshot import Snapshot
from helpers import ROOT
from unit.findings_runs import (
    MS,
    STEPS,
    calls,
    filled,
    found,
    gpu_layer,
    growing,
    noted,
    operators,
    run,
    tensor,
)
from unit.snapshots import kernel, py
from wording import FOLDER, same_text, texts

GOLDEN = sorted(FOLDER.glob("*.txt"))


def kernels(mean_us: float, blocks: float = 264.0, name: str = "gemm_kernel") -> object:
    """Return 90 ms of kernels per step on a GPU with much of its memory in use."""
    total = round(90 * STEPS * MS)
    count = round(90_000 * STEPS / mean_us)
    small = (count, total) if mean_us < 100 else (0, 0)
    made = kernel(name, total, count, blocks_ns=blocks * total, small_count=small[0],
                  small_ns=small[1])  # fmt: skip
    return gpu_layer(0.9, kernels=[made])


FEW = 1.1 * 132
ELEMENTS = "void at::native::vectorized_elementwise_kernel<4>(int)"
READING = calls(py("accuracy", 40, "/x/metrics.py"), 8, 1, calls(tensor("item"), 4, 400))

#: One small run for each rule whose text no other test shows.
RUNS = {
    "sync-item": run(step_ms=115, inside={"": [READING]}),
    "memory-leak": run(memory=growing(50)),
    "memory-fragmentation": run(memory=filled(0.9, device_allocs=400, device_frees=200)),
    "gpu-memory-high": run(memory=filled(0.9, ooms=2)),
    "attention-unfused": run(
        operators=operators({"aten::bmm": 30, "aten::_softmax": 10, "aten::mm": 40})
    ),
    "anomaly-mode": run(meta={"torch_anomaly_mode": True}),
    "kernel-launch-overhead": run(
        operators=operators({"cudaLaunchKernel": 15, "aten::mm": 60}, "cuda"),
        layer=gpu_layer(0.8),
    ),
    "small-kernels": run(layer=kernels(50), memory=filled(0.9)),
    "blocks-per-sm": run(layer=kernels(500, 0.4 * 132), memory=filled(0.9)),
    "occupancy": run(layer=kernels(500, FEW, ELEMENTS), memory=filled(0.9)),
    "forward-share": run({"data": 1, "forward": 60, "backward": 30}),
    "gpu-utilization": run(layer=gpu_layer(0.6)),
}


@pytest.mark.parametrize("rule", RUNS)
def test_the_text_of_a_finding_is_the_golden_one(rule: str) -> None:
    made: Snapshot = RUNS[rule]
    same_text({**noted(made), **found(made)}[rule])


def test_each_rule_has_a_golden_file() -> None:
    assert {rule.id for rule in RULES} <= {path.stem for path in GOLDEN}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_each_golden_text_belongs_to_a_test(path: Path) -> None:
    tests = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"^ *def (test_\w+)\(", tests, flags=re.MULTILINE))
    assert {re.split(r"\W", case)[0] for case in texts(path)} <= known
