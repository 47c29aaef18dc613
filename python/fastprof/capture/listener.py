"""Notices requests from outside of the process: a change of a folder, and a signal."""

from fastprof._core import call_in_main as call_in_main
from fastprof._core import handle_signal as handle_signal
from fastprof._core import listen as listen
from fastprof._core import listen_never as listen_never
