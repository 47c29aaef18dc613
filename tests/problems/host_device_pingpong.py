"""Activations go to the host and back between the layers: a training loop on the fake GPU.

This was written without a GPU.  ``fakegpu`` (tests/gpu/fake) makes torch's CUDA calls, and a fake
driver and libcupti answer them.

    fastprof run --gpu on tests/problems/host_device_pingpong.py [--healthy]

Rule: host-device-transfers.
"""

from __future__ import annotations

import sys

import fakegpu
import fastprof
from fastprof import profile_section

HEALTHY = "--healthy" in sys.argv
LAYERS, MIB = 4, 1 << 20
GRID, BLOCK = (1056, 1, 1), (256, 1, 1)


def layer(i: int) -> None:
    fakegpu.launch(f"ampere_sgemm_128x64_{i}", duration_ns=3_000_000, grid=GRID, block=BLOCK)


def normalize_on_host() -> None:
    """Do the same as ``x = normalize(x.cpu()).cuda()``."""
    fakegpu.memcpy("DtoH", 16 * MIB, duration_ns=1_500_000, wait=True)
    fakegpu.memcpy("HtoD", 16 * MIB, duration_ns=1_500_000, wait=True)


def train_step() -> None:
    with profile_section("forward"):
        for i in range(LAYERS):
            layer(i)
            if not HEALTHY:
                normalize_on_host()
    with profile_section("backward"):
        for i in range(2 * LAYERS):
            layer(i)
    with profile_section("optimizer"):
        fakegpu.launch("fused_adamw", duration_ns=2_000_000, grid=GRID, block=BLOCK)


if __name__ == "__main__":
    fakegpu.Engine()
    for _ in range(30):
        train_step()
        # A host that runs ahead must wait at some point: the queue of launches is full.
        fakegpu.synchronize("stream")
        fastprof.step()
