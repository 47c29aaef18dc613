"""Whether torch's fused optimizers would refuse what a program trains."""

from __future__ import annotations

import pytest
from fastprof.integrations._torch.models import Models
from helpers import run_child

torch = pytest.importorskip("torch")

PROGRAM = """
import torch
from torch import nn
import fastprof
from fastprof.integrations import torch_loop

class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, dtype=torch.complex64))
    def forward(self, x):
        return (x.float() * self.weight).abs()

def train(model, cls, **options):
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        with torch_loop.attach(prof):
            optimizer = cls(model.parameters(), lr=0.1, **options)
            for _ in range(4):
                model(torch.arange(8)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    print(prof.snapshot().meta.get("torch_refuses_fused"))

torch.set_num_threads(1)
train(nn.Embedding(8, 2), torch.optim.SGD)
train(nn.Embedding(8, 2, sparse=True), torch.optim.SGD)
train(nn.Embedding(8, 2, sparse=True), torch.optim.Adagrad)
train(Complex(), torch.optim.AdamW)
train(nn.Embedding(8, 2), torch.optim.Adam, differentiable=False, foreach=True)
"""


def test_what_torch_refuses_to_fuse_is_noted_in_the_run() -> None:
    said = run_child(PROGRAM).check().stdout.splitlines()
    assert said == [
        "None",
        "sparse gradients",
        "sparse gradients",
        "complex parameters",
        "None",
    ]


class Differentiable:
    param_groups = ({"params": [], "differentiable": True},)


class Unusual:
    param_groups = None


def test_an_optimizer_is_looked_at_once() -> None:
    models, one = Models(), Differentiable()
    assert models.refuses_fused(one) == "differentiable=True"
    assert models.refuses_fused(one) == ""
    assert models.refuses_fused(Unusual()) == ""
