"""Calls in the main thread after some time, as signal handlers are called."""

from fastprof._core import ring_after as ring_after
from fastprof._core import ring_never as ring_never
