"""A module's attribute changes, and torch compiles the module again each time.

    fastprof run examples/problems/recompiled_attribute.py [--healthy]

Rule: compiling-again.
``--healthy`` keeps the attribute in a tensor.  The backend "aot_eager" needs no C++ compiler;
"inductor" compiles for longer.
"""

import sys

import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(128, 128) for _ in range(8)))
        self.temperature = torch.tensor(1.0) if HEALTHY else 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layers(x) / self.temperature).square().mean()


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        warmer = 1 + step // 10
        model.temperature = torch.tensor(float(warmer)) if HEALTHY else warmer
        loss = compiled(torch.randn(32, 128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
