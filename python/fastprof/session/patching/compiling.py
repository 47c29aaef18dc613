"""Tells whether ``torch.compile`` traces the running code, which must not see fastprof's work."""

from collections.abc import Callable
from typing import Any


def compiling_test(torch: Any) -> Callable[[], bool]:
    """Return ``torch.compiler.is_compiling``, or a function that returns False without it."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)
