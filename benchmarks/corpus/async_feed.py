"""A coroutine trains and awaits each batch from a slow service.

Right: data-loading.
Fix: data-loading --ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import torch
from kit import flag, mlp, start, update

STEPS = 100


async def fetch(i: int) -> torch.Tensor:
    """The service answers after 20 ms."""
    await asyncio.sleep(0.02)
    return torch.full((64, 128), i / STEPS)


async def feed(ahead: int) -> AsyncIterator[torch.Tensor]:
    """Batches in order, with some requests under way."""
    under_way = [asyncio.ensure_future(fetch(i)) for i in range(ahead)]
    for i in range(STEPS):
        if not under_way:
            under_way.append(asyncio.ensure_future(fetch(i)))
        batch = await under_way.pop(0)  # the cause
        if ahead and i + ahead < STEPS:
            under_way.append(asyncio.ensure_future(fetch(i + ahead)))
        yield batch


async def train() -> None:
    model = mlp(128, 512, 512, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    async for x in feed(8 if flag("--ahead") else 0):  # the cause
        update((model(x) - x).square().mean(), optimizer)


def main() -> None:
    start()
    asyncio.run(train())


if __name__ == "__main__":
    main()
