"""Each batch has another length, and torch compiles the model for each.

    fastprof run examples/problems/recompiled_lengths.py [--healthy]

Rule: compiling-again.
``--healthy`` marks the length as dynamic.  The backend "aot_eager" needs no C++ compiler;
"inductor" compiles for longer.
"""

import sys

import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
LENGTHS = (48, 33, 57, 40, 61, 37, 52)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(8)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embed(tokens)).square().mean()


def main() -> None:
    torch.manual_seed(0)
    model = Encoder()
    compiled = torch.compile(model, backend="aot_eager", dynamic=None if HEALTHY else False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(70):
        tokens = torch.randint(0, 100, (8, LENGTHS[step // 5 % len(LENGTHS)]))
        if HEALTHY:
            torch._dynamo.mark_dynamic(tokens, 1)
        loss = compiled(tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
