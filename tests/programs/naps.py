"""Named sleeps: a program plants them to check later where their time was counted."""

from __future__ import annotations

import time
from types import FunctionType
from typing import Any

import torch


def _template(seconds: float) -> None:
    time.sleep(seconds)


class Naps:
    """``nap("loss")`` sleeps for ``ms_each`` or longer, in a function called ``nap_loss``."""

    def __init__(self, ms_each: float = 1.0) -> None:
        self.ms_each = ms_each
        self._functions: dict[str, Any] = {}

    def __call__(self, name: str) -> None:
        function = self._functions.get(name)
        if function is None:
            code = _template.__code__.replace(co_name=f"nap_{name}")
            function = self._functions[name] = FunctionType(code, globals(), f"nap_{name}")
        function(self.ms_each / 1e3)


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, nap: Naps) -> torch.Tensor:
        ctx.nap = nap
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ctx.nap("backward")
        return grad, None


class Net(torch.nn.Module):
    """Naps in forward, and in backward."""

    def __init__(self, nap: Naps, inputs: int = 4, outputs: int = 2, name: str = "model") -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(inputs, 4), torch.nn.Linear(4, outputs)
        self.nap, self.name = nap, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.nap(self.name)
        return SlowBackward.apply(self.second(self.first(x).relu()), self.nap)


class SGD(torch.optim.SGD):
    def __init__(self, parameters: Any, nap: Naps) -> None:
        super().__init__(parameters, lr=1e-3)
        self.nap = nap

    def step(self, closure: Any = None) -> Any:
        self.nap("optimizer")
        return super().step(closure)


class Items(torch.utils.data.Dataset):
    def __init__(self, nap: Naps, items: int, transform: Any = None) -> None:
        self.nap, self.items, self.transform = nap, items, transform

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        self.nap("load")
        x = torch.full((4,), float(i))
        return (x if self.transform is None else self.transform(x)), i % 2


def loader(data: Any, **options: Any) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(data, **{"batch_size": 1, **options})
