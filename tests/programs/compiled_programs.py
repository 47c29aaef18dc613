"""Three compiled programs, with one planted cause of compiling again, or of not compiling, each.

A cause's line ends with ``# <- NAME``; the test reads the line's number from this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

SCALE = 1.0


def line_of(marker: str) -> int:
    """Return the number of the line that ends with ``# <- marker``."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# <- {marker}"))


class Network(nn.Module):
    """The first program: a network of fixed sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.scale = 1.0
        self.what = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # <- network
        x = self.layers(x)
        if self.what == "print":
            print(end="")  # <- print
        if self.what == "call":
            os.getpid()  # <- call
        return (x * self.scale).mean()


class Language(nn.Module):
    """The second one: a sequence of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
        self.what = ""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # <- language
        x = self.head(self.embed(tokens))
        if self.what == "item":
            x = x * x.max().item()  # <- item
        return x.square().mean()


def function(x: torch.Tensor, n: Any = 1) -> torch.Tensor:  # <- function
    """The third one: a function of tensors."""
    return (x * (n if isinstance(n, int) else len(n))).mean()


def of_global(x: torch.Tensor) -> torch.Tensor:  # <- of_global
    return (x * SCALE).mean()


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # <- branch
        x = x + 1
    return x.mean()


def _set_scale(value: float) -> None:
    global SCALE
    SCALE = value


Steps = list[Callable[[], Any]]


def _network(backend: str, what: str = "") -> tuple[Network, Any]:
    model = Network()
    model.what = what
    return model, torch.compile(model, backend=backend)


def _tokens(length: int) -> torch.Tensor:
    return torch.randint(0, 50, (4, length))


def batch_end(backend: str) -> Steps:
    _, call = _network(backend)
    return [lambda n=n: call(torch.randn(n, 8)) for n in (8, 8, 8, 5)]


def attribute(backend: str) -> Steps:
    model, call = _network(backend)

    def step(value: float) -> Any:
        model.scale = value
        return call(torch.randn(8, 8))

    return [lambda v=v: step(v) for v in (1.0, 1.0, 2.0, 3.0)]


def prints(backend: str) -> Steps:
    _, call = _network(backend, "print")
    return [lambda: call(torch.randn(8, 8))] * 3


def library(backend: str) -> Steps:
    _, call = _network(backend, "call")
    return [lambda: call(torch.randn(8, 8))] * 3


def sequence(backend: str) -> Steps:
    call = torch.compile(Language(), backend=backend, dynamic=False)
    return [lambda n=n: call(_tokens(n)) for n in (4, 5, 6, 7)]


def grad_mode(backend: str) -> Steps:
    call = torch.compile(Language(), backend=backend)

    def without() -> Any:
        with torch.no_grad():
            return call(_tokens(4))

    return [lambda: call(_tokens(4)), without, lambda: call(_tokens(4))]


def item(backend: str) -> Steps:
    model = Language()
    model.what = "item"
    call = torch.compile(model, backend=backend)
    return [lambda: call(_tokens(4))] * 3


def scalar(backend: str) -> Steps:
    call = torch.compile(function, backend=backend, dynamic=False)
    return [lambda n=n: call(torch.randn(8), n) for n in (2, 3, 4)]


def mutated_global(backend: str) -> Steps:
    call = torch.compile(of_global, backend=backend)

    def step(value: float) -> Any:
        _set_scale(value)
        return call(torch.randn(8))

    return [lambda v=v: step(v) for v in (1.0, 2.0, 3.0)]


def control_flow(backend: str) -> Steps:
    call = torch.compile(branches, backend=backend)
    return [lambda: call(torch.randn(8))] * 3


def limit(backend: str) -> Steps:
    call = torch.compile(function, backend=backend)
    return [lambda i=i: call(torch.randn(8), "x" * i) for i in range(1, 12)]


def cold_cache(backend: str) -> Steps:
    _, call = _network(backend)
    return [lambda: call(torch.randn(8, 8)).backward()] * 3


# -- healthy ones


def fixed(backend: str) -> Steps:
    _, call = _network(backend)
    return [lambda: call(torch.randn(8, 8)).backward()] * 6


def marked_dynamic(backend: str) -> Steps:
    call = torch.compile(Language(), backend=backend)

    def step(length: int) -> Any:
        tokens = _tokens(length)
        torch._dynamo.mark_dynamic(tokens, 1)
        return call(tokens)

    return [lambda n=n: step(n) for n in (4, 9, 6, 11, 7, 5)]


def validated_uncompiled(backend: str) -> Steps:
    model, call = _network(backend)

    def validate() -> Any:
        with torch.no_grad():
            return model(torch.randn(5, 8))

    return [lambda: call(torch.randn(8, 8)).backward(), validate] * 3


def compiled_optimizer(backend: str) -> Steps:
    model, call = _network(backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = torch.compile(optimizer.step, backend=backend)

    def step() -> None:
        call(torch.randn(8, 8)).backward()
        update()
        optimizer.zero_grad(set_to_none=False)

    return [step] * 6
