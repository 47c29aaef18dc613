"""Handles SIGTERM without the program's knowledge."""

from fastprof._core import handle_sigterm, leave_sigterm, sigterm_taken

__all__ = ["handle_sigterm", "leave_sigterm", "sigterm_taken"]
