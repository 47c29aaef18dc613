"""Child processes for tests of the collector, with a fake GPU and gpu_programs.py."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from fake_handles import FakeGpu
from helpers import ChildResult, run_child

HERE = Path(__file__).resolve().parent
PRELUDE = """\
import sys, os, time, threading, signal
from collections import Counter
from gpu_programs import *
from fastprof._core import Recorder, profile_section
"""


def run(
    gpu: FakeGpu,
    code: str,
    *arguments: str,
    timeout: float = 120.0,
    cupti: Path | None = None,
    ready: bool = True,
    **env: str,
) -> ChildResult:
    """Run ``code`` after ``from gpu_programs import *``; ``env``: FAKE_CUPTI_* and others."""
    every = gpu.env(ready=ready, cupti=cupti, **env)
    every["PYTHONPATH"] = os.pathsep.join((str(HERE), every["PYTHONPATH"]))
    return run_child(PRELUDE + textwrap.dedent(code), *arguments, timeout=timeout, env=every)


def ok(gpu: FakeGpu, code: str, *arguments: str, **options: object) -> ChildResult:
    """Run it like ``run``; the child must succeed."""
    return run(gpu, code, *arguments, **options).check()  # type: ignore[arg-type]
