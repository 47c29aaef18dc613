"""NVTX, both ways: ranges of other libraries become sections, and sections become ranges.

A library that emits NVTX ranges looks for a listener once, at its first range, in the
environment variable ``NVTX_INJECTION64_PATH``.  While a run listens, the variable names
fastprof's extension, so a library must emit its first range after :func:`begin`.  These
functions never change a value that other code has set, because a process has one listener.

Nothing here raises: the callers are in the middle of the training.
"""

import os

from fastprof import _core
from fastprof.guards import own_errors

_VARIABLE = "NVTX_INJECTION64_PATH"

#: Variables that tools set in the processes they watch.
_TOOLS = {"NSYS_PROFILING_SESSION_ID": "Nsight Systems", "CUDA_INJECTION64_PATH": "another tool"}

#: The value that :func:`begin` gave the variable; None: it set none.
_set: str | None = None


def begin() -> str | None:
    """Let NVTX ranges become sections.

    Returns:
        None, or why they do not.
    """
    global _set
    try:
        own = os.path.abspath(_core.__file__)
        current = _core.nvtx_tool()
        if current is None:
            reason = _attached()
            if reason is not None:
                return reason
            os.environ[_VARIABLE] = own
            _set = own
        elif not _is_same_file(current, own):
            return f"NVTX ranges go to {current}, which {_VARIABLE} names"
        _core.nvtx_in(True)
    except own_errors() as error:
        return f"listening to NVTX failed: {error}"
    return None


def end() -> None:
    """Stop turning NVTX ranges into sections, and unset the variable if :func:`begin` set it."""
    global _set
    try:
        _core.nvtx_in(False)
        if _set is not None and _core.nvtx_tool() == _set:
            del os.environ[_VARIABLE]
    except own_errors():
        # Without the variable nothing needs to be undone.
        pass
    _set = None


def begin_out() -> str | None:
    """Let sections become NVTX ranges, if a tool listens.

    Returns:
        None, or why they do not.
    """
    try:
        return _core.nvtx_out(True)
    except own_errors() as error:
        return f"NVTX: {error}"


def end_out() -> None:
    """Stop turning sections into NVTX ranges; the open ranges of this thread end."""
    _core.nvtx_out(False)


def _attached() -> str | None:
    for variable, name in _TOOLS.items():
        if os.environ.get(variable):
            return f"{name} is attached ({variable} is set)"
    return None


def _is_same_file(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False
