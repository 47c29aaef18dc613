"""Two networks with an optimizer each, in turns.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start, update


def main() -> None:
    start()
    real = torch.randn(8, 128, 128)
    generator, critic = mlp(64, 512, 512, 128), mlp(128, 512, 512, 1)
    made = torch.optim.SGD(generator.parameters(), lr=0.01)
    judged = torch.optim.SGD(critic.parameters(), lr=0.01)
    ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    for step in range(150):
        fake = generator(torch.randn(128, 64))
        judged.zero_grad()
        (loss(critic(real[step % 8]), ones) + loss(critic(fake.detach()), zeros)).backward()
        judged.step()
        update(loss(critic(fake), ones), made)


if __name__ == "__main__":
    main()
