"""Message passing on a graph: a loop over the nodes adds up the messages of each one's neighbours.

The collector visits the tensors of the loop, too.

Right: tensor-loop, gc-pressure.
Fix: tensor-loop --scatter.
"""

from __future__ import annotations

import torch
from kit import flag, start
from torch import nn

NODES, EDGES, WIDTH = 120, 600, 48


class GraphConv(nn.Module):
    """Sum of the neighbours' messages, then an update of each node."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(width, width), nn.Linear(2 * width, width)

    def forward(self, h: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        messages = self.message(h)[source]
        if flag("--scatter"):
            total = torch.zeros_like(h).index_add(0, target, messages)
        else:
            total = aggregate(messages, target, len(h))
        return self.update(torch.cat((h, total), dim=1)).relu()


def aggregate(messages: torch.Tensor, target: torch.Tensor, n: int) -> torch.Tensor:  # the cause
    rows = []
    for node in range(n):
        chosen = torch.eq(target, node).nonzero().squeeze(1)  # the cause
        rows.append(messages.index_select(0, chosen).sum(0))  # the cause
    return torch.stack(rows)


class GNN(nn.Module):
    """Three layers and a label per node."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GraphConv(WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, h: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            h = conv(h, source, target)
        return self.head(h)


def main() -> None:
    start()
    x, labels = torch.randn(NODES, WIDTH), torch.randint(0, 4, (NODES,))
    source, target = torch.randint(0, NODES, (2, EDGES))
    model = GNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, source, target), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
