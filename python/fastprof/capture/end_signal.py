"""Handles SIGTERM and its like without the program's knowledge."""

from fastprof._core import (
    end_signal_taken,
    handle_end_signals,
    leave_end_signals,
    set_python_handler,
)

__all__ = ["end_signal_taken", "handle_end_signals", "leave_end_signals", "set_python_handler"]
