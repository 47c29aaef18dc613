"""A tiny training job with sleeps of known length in each phase, for real trainers.

Every planted sleep measures its real length, so that tests can compare a section with the truth on
a machine of any load: a section is never shorter than its planted sleeps, and its shortest entry,
which the machine has not delayed, is longer by at most the framework's own work.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import torch
from torch.utils.data import Dataset

#: Milliseconds that a trainer itself may spend inside a section, and a share of 5 %.
OWN_MS, OWN_SHARE = 4.0, 0.05
#: With fewer entries, the machine may have delayed all of them.
FEW = 4


class Planted:
    """Sleeps and their real lengths."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = defaultdict(list)

    def sleep(self, what: str, ms: float) -> None:
        start = time.perf_counter()
        time.sleep(ms / 1e3)
        self.ms[what].append((time.perf_counter() - start) * 1e3)

    def total(self, *whats: str) -> float:
        return sum(sum(self.ms[what]) for what in whats)

    def check(self, row: Any, *whats: str, count: int | None = None) -> None:
        """Compare a report's section with the sleeps of these names."""
        assert row.total_ms >= self.total(*whats) * 0.999
        if count is not None:
            assert row.count == count
        if row.count < FEW:
            return
        planted = [self.ms[what] for what in whats]
        if all(len(ms) == row.count for ms in planted):
            most = min(map(sum, zip(*planted, strict=True)))
        else:
            most = self.total(*whats) / row.count
        assert row.min_ms <= most * (1 + OWN_SHARE) + OWN_MS


class Items(Dataset):
    """``length`` samples; reading one takes ``ms``."""

    def __init__(self, planted: Planted, length: int, ms: float, what: str = "data") -> None:
        self.planted, self.length, self.ms, self.what = planted, length, ms, what

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        self.planted.sleep(self.what, self.ms)
        return torch.full((4,), float(i % 3))


class DictItems(Items):
    def __getitem__(self, i: int) -> Any:
        x = super().__getitem__(i)
        return {"x": x, "labels": x[:1]}


class Net(torch.nn.Module):
    """A linear layer that sleeps in forward and backward."""

    def __init__(self, planted: Planted, forward_ms: float = 10, backward_ms: float = 12) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.planted, self.forward_ms, self.backward_ms = planted, forward_ms, backward_ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        what = "forward" if self.training else "val_forward"
        self.planted.sleep(what, self.forward_ms)
        return slow_backward(self.layer(x), self.planted, self.backward_ms)


class _SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, planted: Planted, ms: float) -> torch.Tensor:
        ctx.planted, ctx.ms = planted, ms
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ctx.planted.sleep("backward", ctx.ms)
        return grad, None, None


def slow_backward(x: torch.Tensor, planted: Planted, ms: float) -> torch.Tensor:
    return _SlowBackward.apply(x, planted, ms)


class SlowSGD(torch.optim.SGD):
    """SGD whose step sleeps after the closure."""

    def __init__(self, params: Any, planted: Planted, ms: float = 11) -> None:
        self.planted, self.ms = planted, ms
        super().__init__(params, lr=0.01)

    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.planted.sleep("optimizer", self.ms)
        super().step()
        return loss


def mean_loss(out: torch.Tensor, planted: Planted, ms: float = 6, what: str = "loss") -> Any:
    planted.sleep(what, ms)
    return out.pow(2).mean()


def rows_add_up(report: Any) -> None:
    """Check that the rows of a step sum to its wall time, and that none is negative."""
    steps = report.steps
    assert sum(row.total_ns for row in steps.rows) == steps.wall_ns
    assert all(row.total_ns >= 0 for row in steps.rows), steps.rows
