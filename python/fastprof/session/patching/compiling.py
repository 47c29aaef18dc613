"""Tells whether ``torch.compile`` traces the running code; fastprof's hooks do nothing then."""

from collections.abc import Callable
from typing import Any


def compiling_test(torch: Any) -> Callable[[], bool]:
    """Return ``torch.compiler.is_compiling``, or a function that returns False without it."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)
