"""A teacher and a student; the teacher's parameters require gradients, and the loss reaches them.

Right: untrained-gradients.
"""

from __future__ import annotations

import torch
from kit import flag, mlp, start, update


def main() -> None:
    start()
    x = torch.randn(8, 64, 256)
    teacher, student = mlp(256, 2048, 2048, 10).eval(), mlp(256, 512, 512, 10)
    if flag("--frozen"):
        teacher.requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    for step in range(80):
        loss = (teacher(x[step % 8]) - student(x[step % 8])).square().mean()
        update(loss, optimizer)


if __name__ == "__main__":
    main()
