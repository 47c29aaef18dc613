"""Fetches and ends of plain steps, in C."""

from fastprof._core import PlainFetch as PlainFetch
from fastprof._core import PlainSteps as PlainSteps
