"""Ends of plain steps, in C."""

from fastprof._core import PlainSteps as PlainSteps
