"""Which modules record gradients although no optimizer has their parameters."""

from __future__ import annotations

import pytest
from helpers import run_child

torch = pytest.importorskip("torch")

PROGRAM = """
import torch
from torch import nn
import fastprof
from fastprof.integrations import torch_loop

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 64)
        self.head = nn.Linear(64, 2)
    def forward(self, x):
        return self.head(self.backbone(x))

def train(model, parameters, steps=6, late=False, teacher=None):
    made = torch.optim.SGD(parameters, lr=0.1) if late else None
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        with torch_loop.attach(prof):
            optimizer = made or torch.optim.SGD(parameters, lr=0.1)
            for _ in range(steps):
                x = torch.randn(4, 8)
                loss = model(x).square().mean()
                if teacher is not None:
                    loss = loss + (teacher(x) - model(x)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    meta = prof.snapshot().meta
    print(meta.get("torch_untrained"), "|", meta.get("torch_untrained_share"))
    return meta

class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.adapter = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return self.base(x) + self.adapter(x)
"""


EACH_IN_A_FORK = """
import os, sys
import torch._dynamo  # which a first step of an optimizer imports
torch.set_num_threads(1)
for call in {calls!r}:
    pid = os.fork()
    if not pid:
        exec(call)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
CASES = (
    ("m = Both(); train(m, m.parameters())", "None"),
    ("m = Both(); train(m, m.head.parameters())", "backbone (Linear)"),
    ("m = Both(); m.backbone.requires_grad_(False); train(m, m.head.parameters())", "None"),
    ("m = nn.Linear(8, 2); train(m, m.parameters(), teacher=Both())", "Both"),
    ("m, t = Both(), Both(); t.requires_grad_(False); train(m, m.parameters(), teacher=t)", "None"),
    # The optimizer keeps copies of all parameters, as DeepSpeed's does.
    ("m = Both(); train(m, [torch.zeros(3, requires_grad=True)])", "None"),
    ("m = Both(); train(m, m.head.parameters(), steps=2)", "None"),
    # An optimizer from before the hooks is known once it steps.
    ("m = Both(); train(m, m.head.parameters(), late=True)", "None"),
    ("m = Both(); train(m, m.head.parameters(), late=True, steps=72)", "backbone (Linear)"),
    ("m = Both(); train(m, m.parameters(), late=True, steps=72)", "None"),
    (
        "m = Both(); train(m, m.parameters()); train(m, m.head.parameters(), steps=72)",
        "None|backbone (Linear)",
    ),
    # One that has copies remains unknown.
    ("m = Both(); train(m, [torch.zeros(3, requires_grad=True)], late=True, steps=72)", "None"),
)


def test_modules_that_record_gradients_for_no_optimizer() -> None:
    # Each case is the first training of its process, because an earlier optimizer is not known.
    calls = [call for call, _ in CASES]
    made = run_child(f"{PROGRAM}\n{EACH_IN_A_FORK.format(calls=calls)}").check()
    found = [line.split(" | ") for line in made.stdout.splitlines()]
    expected = [name for _, names in CASES for name in names.split("|")]
    assert [name for name, _ in found] == expected
    # Of 576 + 130 parameters.
    assert float(found[1][1]) == pytest.approx(576 / 706)
    assert [share == "None" for _, share in found] == [name == "None" for name in expected]


def test_all_parameters_without_an_optimizer_count_not_only_the_largest_module() -> None:
    """Adapters beside frozen layers (LoRA): each layer is small, but all are most of a model."""
    code = """
torch.set_num_threads(1)
layers = nn.Sequential(*(Adapted() for _ in range(20)))
meta = train(layers, [p for layer in layers for p in layer.adapter.parameters()])
print(meta["torch_untrained_size"], meta["torch_untrained_all"])
"""
    made = run_child(PROGRAM + code).check().stdout.splitlines()
    assert made[0].startswith("0.base (Linear) | 0.5")
    assert made[1] == "72 1440"
