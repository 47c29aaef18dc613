"""Explains in one sentence why the extension does not load; imported only then."""

import platform
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_READING = "saved runs can still be read (fastprof report FILE)"
_BUILDS = {"Py_DEBUG": "debug build", "Py_GIL_DISABLED": "free-threaded build"}


def why_missing(error: ImportError) -> str:
    """Return why ``import fastprof._core`` failed, the remedy, and what works without it."""
    if not isinstance(error, ModuleNotFoundError) or error.name != "fastprof._core":
        # The file exists, but it refuses to load or the interpreter refuses it.
        return f"fastprof cannot record here: {error}; {_READING}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.implementation.name != "cpython":
        return f"fastprof records CPython only, and this is {python}; {_READING}"
    builds = [text for name, text in _BUILDS.items() if sysconfig.get_config_var(name)]
    here = f"{', '.join([python, *builds])} (_core{EXTENSION_SUFFIXES[0]})"
    folder = Path(__file__).parent.parent
    found = sorted(p.name for p in folder.glob("_core.*") if p.suffix in (".so", ".pyd"))
    return (
        f"fastprof cannot record here: its extension is not built for {here}; "
        f"{folder} has {', '.join(found) or 'none'}; "
        f"install fastprof with {sys.executable or 'this interpreter'} -m pip; {_READING}"
    )
