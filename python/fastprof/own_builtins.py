"""Keeps fastprof's code working when the program replaces or deletes builtins.

A program may set any name in ``builtins`` while it runs: sandboxes and tests delete ``open``, or
all of them.  fastprof's functions run inside the program's calls, so they take their builtins from
a copy, made before the program began.  The standard library's functions do not: for what fastprof
does after the program, :func:`put_back` makes them work.

Imports nothing that is not in the interpreter: ``own_imports`` has not begun yet.
"""

import builtins
import sys
from _frozen_importlib_external import (  # type: ignore[attr-defined]
    FileFinder,
    SourceFileLoader,
    _get_supported_file_loaders,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType
    from typing import Any

_now = vars(builtins)
COPY = dict(_now)
COPY.pop("_", None)  # a prompt's last value: the program's
#: Functions take their builtins from this name of their module, at the time they are defined.
globals()["__builtins__"] = COPY
_missing = object()
#: Those that were put back, and what the program had left.
_left: "dict[str, Any]" = {}

#: To be compared with ``<=``, which is no call: the recording goes on then.
OURS, THEIRS = COPY.items(), _now.items()


class _Loader(SourceFileLoader):
    """Gives a module of fastprof the copy of the builtins."""

    def exec_module(self, module: "ModuleType") -> None:
        vars(module)["__builtins__"] = COPY
        _adopt(getattr(module, "__path__", ()))
        super().exec_module(module)


def _adopt(folders: "Iterable[str]") -> None:
    """Let modules in ``folders``, those of a package of fastprof, have the copy of the builtins.

    Where another importer than Python's for folders finds them (an archive, a frozen program), they
    have the program's.
    """
    loaders = [
        (_Loader if kind is SourceFileLoader else kind, suffixes)
        for kind, suffixes in _get_supported_file_loaders()
    ]
    for folder in folders:
        for hook in sys.path_hooks:
            try:
                finder = hook(folder)
            except ImportError:
                continue
            if type(finder) is FileFinder:
                sys.path_importer_cache[folder] = FileFinder(folder, *loaders)
            break


_adopt(sys.modules["fastprof"].__path__)


def put_back() -> None:
    """Make every builtin usable that was when this module was imported."""
    if OURS <= THEIRS:
        return
    for name, value in OURS:
        now = _now.get(name, _missing)
        if now is _missing or (callable(value) and not callable(now)):
            _left[name], _now[name] = now, value


def take_away() -> None:
    """Leave the builtins as the program did; for its functions at exit."""
    for name, value in _left.items():
        if value is _missing:
            _now.pop(name, None)
        else:
            _now[name] = value
    _left.clear()
