"""Where the CUDA driver, libcupti and NVML are, and who else wants the GPU's records.

Nothing is imported, loaded or started here.  The working directory is never looked into:
a library lying there must not be loaded because a user started a program there.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastprof import _core

CUPTI_VARIABLE = "FASTPROF_CUPTI"
DRIVER_VARIABLE = "FASTPROF_CUDA_DRIVER"
NVML_VARIABLE = "FASTPROF_NVML"

#: Comes with the driver, so the loader finds it where it finds the driver.
NVML_SONAME = "libnvidia-ml.so.1"

#: For the loader's own search.  The newest first: :func:`usable` leaves out what is too new.
SONAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8")

_MAPS = "/proc/self/maps"
_TOOLKITS = "/usr/local/cuda*"
# A toolkit also has libcupti.so.2025.3.1, which is what libcupti.so.13 points to.
_VERSIONED = re.compile(r"libcupti\.so\.(\d{1,2})(\.\d+)*")

#: Beginning of a variable that a tool sets for the programs it starts -> the tool.  Others,
#: such as NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT, are set by container images.
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
    """A libcupti that may be there.

    Attributes:
        path: absolute, or a bare file name for the loader's own search.
        origin: how it was found, for people.
    """

    path: str
    origin: str


def cupti_candidates() -> list[Candidate]:
    """Return every libcupti worth a try, the best first, none twice.

    What the program has loaded itself comes right after what the user named, since a second
    copy in one process would see nothing.
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
    """Part ``candidates`` into those that this driver serves and the others, with the reason.

    Args:
        driver_version: as the driver tells it, 12080 for CUDA 12.8; None leaves out nothing.
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

    Empty while there is nothing to try them for: no driver, or one that the program has
    not initialised and that is not to be initialised for it.

    Args:
        driver: as :func:`driver_path` gives it.
        initialise: whether the driver is going to be initialised.
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
    """Return the tool that was attached to this process from outside, and how it is known.

    Such a tool has CUPTI for itself.  None if none is known; cuda-gdb leaves no trace.
    """
    for beginning, tool in _TOOLS:
        for name in sorted(os.environ):
            # CUDA_INJECTION64_PATH=none is how to say that nothing is to be loaded.
            if name.startswith(beginning) and os.environ[name] not in ("", "none"):
                return f"{tool} ({name} is set)"
    return None


def soname_major(path: str) -> int | None:
    """Return the CUDA major release that a libcupti is made for, as its file name tells.

    A file without it in its own name is asked for by the names that point to it.
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
    """The libraries that this process has loaded; torch's own first: it sees torch's kernels."""
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
    """Folders of NVIDIA's wheels, without importing ``nvidia``."""
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
    """Every libcupti of a folder that tells its major release; newest first."""
    if os.path.realpath(folder) == _working_directory():
        return []
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), "libcupti.so.*")):
        match = _VERSIONED.fullmatch(os.path.basename(path))
        if match is not None and os.path.isfile(path):
            found.append((-int(match[1]), path))
    return [path for _, path in sorted(found)]


def _toolkit_order(path: str) -> list[int]:
    """The one that ``/usr/local/cuda`` points to, then the newest."""
    numbers = [-int(number) for number in re.findall(r"\d+", os.path.basename(path))]
    return [1, *numbers] if numbers else [0]


# -- the environment -----------------------------------------------------------


def _working_directory() -> str | None:
    try:
        return os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        return None


def _environment(name: str) -> str:
    """Its value; empty under ``python -I`` and ``-E``, as Python itself does."""
    return "" if sys.flags.ignore_environment else os.environ.get(name, "")


def _file_from(variable: str) -> str | None:
    value = _environment(variable)
    if not value:
        return None
    if os.path.isabs(value) and os.path.isfile(value):
        return value
    if variable not in _warned:
        _warned.add(variable)
        import logging

        logging.getLogger("fastprof").warning(
            "%s=%s is ignored: it must be the absolute path of a file",
            variable,
            ascii(value)[:100],
        )
    return None
