"""Runs a program whose simulated device is behind the shim of a recording.

python behind_shim.py SCRIPT ARGUMENTS...
"""

from __future__ import annotations

import os
import runpy
import sys

shim = os.environ["FASTPROF_CUPTI"]
os.environ["FASTPROF_CUPTI"] = os.environ["FASTPROF_SHIM_REAL"]
import fakegpu  # noqa: F401, E402  (finds the device while it is imported)

os.environ["FASTPROF_CUPTI"] = shim
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
