"""A Wasserstein GAN with a gradient penalty; the critic steps three times per generator step.

Right: none.
"""

from __future__ import annotations

import torch
from kit import mlp, start

LATENT, WIDTH = 64, 256


def penalty(critic: torch.nn.Module, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (grad.norm(2, dim=1) - 1).square().mean()


def main() -> None:
    start()
    generator, critic = mlp(LATENT, 512, 512, WIDTH), mlp(WIDTH, 512, 512, 1)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.5, 0.9), fused=True)
    opt_d = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.5, 0.9), fused=True)
    data = torch.randn(2048, WIDTH)
    for _ in range(50):
        for _ in range(3):
            real = data[torch.randint(len(data), (128,))]
            with torch.no_grad():
                fake = generator(torch.randn(128, LATENT))
            opt_d.zero_grad(set_to_none=True)
            loss_d = critic(fake).mean() - critic(real).mean()
            (loss_d + 10 * penalty(critic, real, fake)).backward()
            opt_d.step()
        opt_g.zero_grad(set_to_none=True)
        (-critic(generator(torch.randn(128, LATENT))).mean()).backward()
        opt_g.step()


if __name__ == "__main__":
    main()
