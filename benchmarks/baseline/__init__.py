"""The lowest possible cost: hooks and a section that record nothing, built on demand.

``load()`` returns the extension module, or the reason why there is none.  It compiles once per
source text, interpreter and compiler, into a cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

_SOURCE = Path(__file__).with_name("_baseline.c")


def _cache_dir() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "fastprof-benchmarks"


def _config(name: str, default: str = "") -> list[str]:
    return shlex.split(str(sysconfig.get_config_var(name) or default))


def _build(target: Path) -> None:
    """Compile with CPython's own flags, like an installed extension."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *(shlex.split(os.environ.get("CC", "")) or _config("CC", "cc")),
        *_config("CFLAGS", "-O3 -DNDEBUG"),
        *_config("CCSHARED", "-fPIC"),
        "-I" + sysconfig.get_path("include"),
        "-I" + sysconfig.get_path("platinclude"),
        str(_SOURCE),
        "-shared",
        *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []),
    ]
    # Two benchmarks may build at once: each builds its own file, and the last rename wins.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        command += ["-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(target)


def load() -> ModuleType | str:
    """Return the extension, built now if needed, or a sentence that says why it is missing."""
    flags = " ".join([*_config("CC"), *_config("CFLAGS"), sys.version])
    digest = hashlib.sha256(_SOURCE.read_bytes() + flags.encode()).hexdigest()[:16]
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    target = _cache_dir() / digest / ("_baseline" + suffix)
    try:
        if not target.exists():
            _build(target)
        spec = importlib.util.spec_from_file_location("_baseline", target)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "no message").strip().splitlines()
        return "the C compiler failed: " + lines[-1]
    except (OSError, ImportError) as error:
        return f"not built: {error}"
    return module
