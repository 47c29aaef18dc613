"""Training loops with planted work, which they measure themselves."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastprof
import torch


class Truth:
    """Milliseconds that the planted code itself measured, by phase."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)

    @contextmanager
    def of(self, phase: str, seconds: float = 0.0) -> Iterator[None]:
        began = time.perf_counter()
        if seconds:
            time.sleep(seconds)
        try:
            yield
        finally:
            self.ms[phase] += 1e3 * (time.perf_counter() - began)
            self.counts[phase] += 1


class Items(torch.utils.data.Dataset):
    def __init__(self, truth: Truth | None, items: int, seconds: float = 0.0) -> None:
        self.truth, self.items, self.seconds = truth, items, seconds

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.truth is None:
            time.sleep(self.seconds)
            return torch.full((4,), float(i % 3))
        with self.truth.of("data", self.seconds):
            return torch.full((4,), float(i % 3))


class SlowGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, truth: Truth, seconds: float) -> torch.Tensor:
        ctx.truth, ctx.seconds = truth, seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        with ctx.truth.of("backward", ctx.seconds):
            return grad, None, None


class Model(torch.nn.Module):
    """Two layers in a list; sleeps in forward and in backward."""

    def __init__(self, truth: Truth, forward: float = 0.0, backward: float = 0.0) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.truth, self.seconds, self.back = truth, forward, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        phase = "forward" if torch.is_grad_enabled() else "eval_forward"
        with self.truth.of(phase, self.seconds):
            for layer in self.layers:
                x = layer(x).relu()
            return SlowGradient.apply(x, self.truth, self.back)


class SlowSGD(torch.optim.SGD):
    def __init__(self, parameters: Any, truth: Truth, seconds: float = 0.0) -> None:
        super().__init__(parameters, lr=1e-3)
        self.truth, self.seconds = truth, seconds

    def step(self, closure: Any = None) -> Any:
        with self.truth.of("optimizer", self.seconds):
            return super().step(closure)


def loader(dataset: Any, **options: Any) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(dataset, **{"batch_size": 2, **options})


def counted_calls() -> tuple[Counter[str], Callable[[Any, str, Any], None]]:
    """Return the calls of fastprof's functions by name, and the profile function to count them."""
    calls: Counter[str] = Counter()
    folder = str(Path(fastprof.__file__).parent)

    def count(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folder):
            calls[code.co_name] += 1

    return calls, count
