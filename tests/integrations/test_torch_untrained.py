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

def train(model, parameters, steps=6, late=False, teacher=None, by_hand=False):
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
"""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("m = Both(); train(m, m.parameters())", "None"),
        ("m = Both(); train(m, m.head.parameters())", "backbone (Linear)"),
        ("m = Both(); m.backbone.requires_grad_(False); train(m, m.head.parameters())", "None"),
        ("m = nn.Linear(8, 2); train(m, m.parameters(), teacher=nn.Linear(8, 2))", "Linear"),
        (
            "m, t = Both(), Both(); t.requires_grad_(False); train(m, m.parameters(), teacher=t)",
            "None",
        ),
        # The optimizer keeps copies of all parameters, as DeepSpeed's does.
        ("m = Both(); train(m, [torch.zeros(3, requires_grad=True)])", "None"),
        # An optimizer from before the hooks is not known.
        ("m = Both(); train(m, m.head.parameters(), late=True)", "None"),
        ("m = Both(); train(m, m.head.parameters(), steps=2)", "None"),
    ],
)
def test_modules_that_record_gradients_for_no_optimizer(call: str, name: str) -> None:
    made = run_child(PROGRAM + call).check()
    found, share = made.stdout.strip().split(" | ")
    assert found == name
    assert (share == "None") == (name == "None")


def test_the_share_is_of_the_parameters_that_require_gradients() -> None:
    made = run_child(PROGRAM + "m = Both(); train(m, m.head.parameters())").check()
    assert float(made.stdout.split(" | ")[1]) == pytest.approx(576 / (576 + 130))
