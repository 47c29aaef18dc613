"""A frozen teacher beside the student.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 64, 256)
    teacher, student = mlp(256, 2048, 2048, 10).eval(), mlp(256, 512, 512, 10)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    for step in range(80):
        with torch.no_grad():
            told = teacher(x[step % 8]).softmax(1)
        update(torch.nn.functional.cross_entropy(student(x[step % 8]), told), optimizer)


if __name__ == "__main__":
    main()
