"""Limits how long a handler of SIGTERM may wait for the main thread."""

from fastprof._core import limit_sigterm, sigterm_taken

__all__ = ["limit_sigterm", "sigterm_taken"]
