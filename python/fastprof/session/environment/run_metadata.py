"""Run metadata for comparisons: versions, CPUs, command, environment.

It contains the versions of the libraries that the program has imported, the model of the CPUs and
how many it may use, a hash that distinguishes machines, its command line and the environment
variables that affect its speed.  Nothing is imported for it.  Values that may be secrets are left
out.
"""

import math
import os
import platform
import re
import sys
from _io import open as open_file  # the program may replace the builtin
from collections.abc import Mapping
from functools import cache

from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.names import short_hash
from fastprof.session.environment.command_line import (
    MOST_CHARACTERS,
    command_line,
    is_secret,
    without_logins,
)
from fastprof.session.environment.rank import find_local_size

#: Library -> name of the fact.  Only those in ``sys.modules`` count.
_LIBRARIES = ("torch", "lightning", "pytorch_lightning", "transformers", "accelerate")

#: Prefixes of names of variables that affect a program's speed.
_VARIABLES = (
    "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "PYTORCH_",
    "TORCH_", "TORCHINDUCTOR_", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED", "PYTHONMALLOC",
    "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHON_GIL", "PYTHON_JIT", "MALLOC_", "LD_PRELOAD",
)  # fmt: skip
_MOST_VARIABLES = 50

Facts = dict[str, str | int | float | bool | None]


def surroundings() -> Facts:
    """Return the facts, without unknown ones."""
    facts: Facts = {}
    try:
        for name in _LIBRARIES:
            version = getattr(sys.modules.get(name), "__version__", None)
            if version is not None:
                facts[name] = str(version)[:100]
        if hasattr(os, "sched_getaffinity"):
            facts["cpus"] = cpus = len(os.sched_getaffinity(0))
            # A launcher may bind each rank, or several, to a part of the machine.
            ranks = math.ceil(find_local_size() * cpus / (os.cpu_count() or cpus))
            if ranks > 1:
                facts["ranks_on_cpus"] = ranks
        facts.update(_this_machine())
        limit = cpu_limit()
        if limit is not None:
            facts["cpu_limit"] = limit
        facts["recorded_until_ns"] = time.time_ns()
        facts["command"] = command_line(sys.argv)
        facts.update(variables(os.environ))
        threads = getattr(sys.modules.get("torch"), "get_num_threads", None)
        if threads is not None:
            facts["torch_threads"] = int(threads())
        other_gpus = _other_gpus(sys.modules.get("torch"))
        if other_gpus:
            facts["torch_gpus"] = other_gpus
        anomalies = getattr(sys.modules.get("torch"), "is_anomaly_enabled", None)
        if anomalies is not None and anomalies():
            facts["torch_anomaly_mode"] = True
    except own_errors():  # the program replaced a module or argv by something unusual
        pass
    return facts


def _other_gpus(torch: object) -> str:
    """Return the kind of GPU, if not NVIDIA's, for which this PyTorch was built; else empty.

    It looks only at facts of the build, because a question to a driver may start it.
    """
    version, backends = getattr(torch, "version", None), getattr(torch, "backends", None)
    if getattr(version, "hip", None):
        return "ROCm"
    if getattr(version, "xpu", None):
        return "XPU"
    built = getattr(getattr(backends, "mps", None), "is_built", None)
    return "MPS" if built is not None and built() else ""


def machine(proc: str = "/proc") -> dict[str, str]:
    """Return the CPU's model, if known, and a value that another machine does not have.

    That is a hash of the random number that Linux draws when it starts, because the host's name
    is another one in each container; of the name elsewhere.
    """
    facts = {}
    try:
        with open_file(f"{proc}/sys/kernel/random/boot_id") as file:
            host = file.read()
        with open_file(f"{proc}/cpuinfo") as file:
            known = re.search(r"^model name\s*: *(.+)", file.read(4096), re.MULTILINE)
        if known is not None:
            facts["cpu"] = known[1][:100]
    except own_errors(OSError):
        host = platform.node()
    return {**facts, "host_id": short_hash(host)}


@cache
def _this_machine() -> dict[str, str]:
    """Return :func:`machine`; to read cpuinfo for each report may interrupt all CPUs."""
    return machine()


def cpu_limit(root: str = "/sys/fs/cgroup") -> float | None:
    """Return the CPU time limit of the container in CPUs; None without a limit.

    It comes from the control group of the whole container, of either version
    (Documentation/admin-guide/cgroup-v2 and scheduler/sched-bwc of Linux).
    """
    try:
        with open_file(f"{root}/cpu.max") as file:
            quota, period = file.read().split()
    except FileNotFoundError:
        try:
            with open_file(f"{root}/cpu/cpu.cfs_quota_us") as file:
                quota = file.read()
            with open_file(f"{root}/cpu/cpu.cfs_period_us") as file:
                period = file.read()
        except own_errors(OSError):
            return None
    except own_errors(OSError, ValueError):
        return None
    try:
        limit = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return None
    return round(limit, 3) if limit > 0 else None


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that affect a program's speed, as ``env NAME`` -> value."""
    names = sorted(n for n in environment if n.startswith(_VARIABLES) and not is_secret(n))
    return {
        f"env {n}": without_logins(environment[n][:MOST_CHARACTERS])
        for n in names[:_MOST_VARIABLES]
    }
