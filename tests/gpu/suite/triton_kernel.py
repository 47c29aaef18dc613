"""A Triton kernel: Triton launches with the driver only.

It is in a file, because Triton reads the source of its kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_one(x, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, block)
    inside = at < size
    tl.store(x + at, tl.load(x + at, mask=inside) + 1.0, mask=inside)
