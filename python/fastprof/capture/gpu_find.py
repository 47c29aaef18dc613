"""Finds the CUDA driver, libcupti and NVML, and other tools that use the GPU's records.

This module imports, loads and starts nothing.  It never searches the working directory:
a program started there must not load a library that happens to be there.
"""

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastprof import _core
from fastprof.own_imports import Protected

CUPTI_VARIABLE = "FASTPROF_CUPTI"
DRIVER_VARIABLE = "FASTPROF_CUDA_DRIVER"
NVML_VARIABLE = "FASTPROF_NVML"
SLOT_VARIABLE = "FASTPROF_CUPTI_EVICT"

#: It comes with the driver, so the loader finds it in the same place.
NVML_SONAME = "libnvidia-ml.so.1"

#: For the loader's own search.  The newest first: :func:`usable` drops those that are too new.
SONAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8")

_MAPS = "/proc/self/maps"
_TOOLKITS = "/usr/local/cuda*"
# A toolkit also has libcupti.so.2025.3.1, to which libcupti.so.13 points.
_VERSIONED = re.compile(r"libcupti\.so\.(\d{1,2})(\.\d+)*")

#: Prefix of a variable that a tool sets for the programs it starts -> the tool.  Container
#: images set others, such as NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT.
_TOOLS = (
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"),
    ("NV_NSIGHT_INJECTION_", "Nsight Compute"),
    ("NV_SANITIZER_INJECTION_", "Compute Sanitizer"),
    ("CUDA_INJECTION64_PATH", "a CUDA tool"),
)

_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A libcupti that may exist.

    Attributes:
        path: absolute, or a bare file name for the loader's own search.
        origin: how it was found, for messages.
    """

    path: str
    origin: str


def takes_slot() -> bool:
    """Return whether fastprof may take CUPTI's subscriber slot from torch.profiler."""
    return os.environ.get(SLOT_VARIABLE) != "0"


def cupti_candidates() -> list[Candidate]:
    """Return every libcupti worth a try, the best first, none twice.

    A copy that the program has loaded comes right after the one that the user named, because
    a second copy in one process would see nothing.
    """
    found: list[Candidate] = []
    seen = set()
    for candidate in _search():
        real = os.path.realpath(candidate.path) if os.path.isabs(candidate.path) else None
        if real not in seen:
            found.append(candidate)
        if real is not None:
            seen.add(real)
    return found


def usable(
    candidates: Iterable[Candidate], driver_version: int | None
) -> tuple[list[Candidate], list[tuple[Candidate, str]]]:
    """Split ``candidates`` into those that this driver supports and the others, with reasons.

    Args:
        driver_version: as the driver reports it, 12080 for CUDA 12.8; None: reject nothing.
    """
    kept: list[Candidate] = []
    rejected = []
    for candidate in candidates:
        major = soname_major(candidate.path)
        if major is None or driver_version is None or major <= driver_version // 1000:
            kept.append(candidate)
        else:
            cuda = f"{driver_version // 1000}.{driver_version % 1000 // 10}"
            rejected.append((candidate, f"made for CUDA {major}; the driver is of CUDA {cuda}"))
    return kept, rejected


def cupti_paths(driver: str | None, *, initialise: bool) -> list[str]:
    """Return the paths to try with the driver of this process, the best first.

    The list is empty without a driver, or if the program has not initialised the driver and
    fastprof will not do so.

    Args:
        driver: the result of :func:`driver_path`.
        initialise: whether fastprof will initialise the driver.
    """
    state = _core.gpu_probe(driver, (), False)["driver"]
    if state["state"] == "none" or (state["state"] == "waiting" and not initialise):
        return []
    kept, _ = usable(cupti_candidates(), state["version"])
    return [candidate.path for candidate in kept]


def driver_path() -> str | None:
    """Return the driver named by ``FASTPROF_CUDA_DRIVER``; None for the loader's own search."""
    return _file_from(DRIVER_VARIABLE)


def nvml_path() -> str:
    """Return the NVML named by ``FASTPROF_NVML``, or its name for the loader's own search."""
    return _file_from(NVML_VARIABLE) or NVML_SONAME


def attached_tool() -> str | None:
    """Return the tool attached to this process from outside, and how it was recognised.

    Such a tool uses CUPTI exclusively.  None: no known tool; cuda-gdb leaves no trace.
    """
    for beginning, tool in _TOOLS:
        for name in sorted(os.environ):
            # CUDA_INJECTION64_PATH=none means that nothing is loaded.
            if name.startswith(beginning) and os.environ[name] not in ("", "none"):
                return f"{tool} ({name} is set)"
    return None


def soname_major(path: str) -> int | None:
    """Return the CUDA major release that a libcupti is made for, from its file name.

    If the file's own name lacks the release, the names of links to it are used.
    """
    match = _VERSIONED.fullmatch(os.path.basename(path))
    if match is None and os.path.isabs(path):
        real = os.path.realpath(path)
        for other in _libraries(os.path.dirname(real)):
            if os.path.realpath(other) == real:
                match = _VERSIONED.fullmatch(os.path.basename(other)) or match
    return int(match[1]) if match is not None else None


# -- the places, in their order ------------------------------------------------


def _search() -> Iterator[Candidate]:
    named = _file_from(CUPTI_VARIABLE)
    if named is not None:
        yield Candidate(named, CUPTI_VARIABLE)
    yield from _mapped()
    for folder in _wheel_folders():
        yield from _in_folder(folder, "installed with pip")
    home = _environment("CUDA_HOME")
    if os.path.isabs(home):
        yield from _in_toolkit(home, "CUDA_HOME")
    for toolkit in sorted(glob.glob(_TOOLKITS), key=_toolkit_order):
        yield from _in_toolkit(toolkit, "CUDA toolkit")
    for soname in SONAMES:
        yield Candidate(soname, "the loader's search")


def _mapped() -> list[Candidate]:
    """Return the libraries that this process has loaded, torch's own (it sees kernels) first."""
    paths: dict[str, None] = {}
    try:
        with open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if os.path.basename(path).startswith("libcupti.so"):
                    paths[f"/{path}"] = None
    except OSError:
        return []
    present = [path for path in paths if os.path.isfile(path)]
    present.sort(key=lambda path: not _belongs_to_torch(path))
    if len(present) < 2:
        return [Candidate(path, "loaded by the program") for path in present]
    copies = f"one of {len(present)} copies loaded by the program"
    return [
        Candidate(path, f"{copies}, torch's" if _belongs_to_torch(path) else copies)
        for path in present
    ]


def _belongs_to_torch(path: str) -> bool:
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if not isinstance(torch, str):
        return False
    package = os.path.dirname(os.path.realpath(torch))
    beside = os.path.join(os.path.dirname(package), "nvidia")
    return path.startswith((package + os.sep, beside + os.sep))


def _wheel_folders() -> Iterator[str]:
    """Yield the folders of NVIDIA's wheels, without importing ``nvidia``."""
    here = _working_directory()
    for entry in sys.path:
        if os.path.isabs(entry) and os.path.realpath(entry) != here:
            nvidia = os.path.join(glob.escape(entry), "nvidia")
            yield from sorted(glob.glob(os.path.join(nvidia, "cu[0-9]*", "lib")), reverse=True)
            yield from glob.glob(os.path.join(nvidia, "cuda_cupti", "lib"))


def _in_toolkit(toolkit: str, origin: str) -> Iterator[Candidate]:
    for below in (os.path.join("extras", "CUPTI", "lib64"), "lib64", "lib"):
        yield from _in_folder(os.path.join(toolkit, below), origin)


def _in_folder(folder: str, origin: str) -> list[Candidate]:
    return [Candidate(path, origin) for path in _libraries(folder)]


def _libraries(folder: str) -> list[str]:
    """Return every libcupti of a folder whose name has a major release; newest first."""
    if os.path.realpath(folder) == _working_directory():
        return []
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), "libcupti.so.*")):
        match = _VERSIONED.fullmatch(os.path.basename(path))
        if match is not None and os.path.isfile(path):
            found.append((-int(match[1]), path))
    return [path for _, path in sorted(found)]


def _toolkit_order(path: str) -> list[int]:
    """Sort key: ``/usr/local/cuda`` first, then the newest."""
    numbers = [-int(number) for number in re.findall(r"\d+", os.path.basename(path))]
    return [1, *numbers] if numbers else [0]


# -- the environment -----------------------------------------------------------


def _working_directory() -> str | None:
    try:
        return os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        return None


def _environment(name: str) -> str:
    """Return the value of a variable; empty under ``python -I`` and ``-E``, as in Python."""
    return "" if sys.flags.ignore_environment else os.environ.get(name, "")


def _file_from(variable: str) -> str | None:
    value = _environment(variable)
    if not value:
        return None
    if os.path.isabs(value) and os.path.isfile(value):
        return value
    if variable not in _warned:
        _warned.add(variable)
        with Protected():
            import logging

        logging.getLogger("fastprof").warning(
            "%s=%s is ignored: it must be the absolute path of a file", variable, ascii(value)[:100]
        )
    return None
