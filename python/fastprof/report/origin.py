"""Tells whose code a function is: the program's, a library's, or fastprof's."""

import re
from collections.abc import Sequence
from functools import lru_cache

from fastprof.names import file_name
from fastprof.snapshot import Key

#: Parts of the paths of library code.
LIBRARY = (
    "/lib/python3", "/site-packages/", "/dist-packages/", "<frozen", "\\lib\\", "\\Lib\\",
    "/torchinductor_",  # torch.compile writes its code there
)  # fmt: skip
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\.]+)")
#: Not only "/fastprof/": a program may be in a folder of that name.
_OWN = re.compile(
    r"/fastprof/(?:capture|cli|comparison|export|findings|integrations|loggers|ranks|read"
    r"|render|report|results|session|snapshot|tables|trial)/[\w/]+\.py$"
)
#: The demo's network counts as a program, wherever fastprof is installed.
_DEMO = re.compile(r"/fastprof/cli/demo\w*\.py$")
#: Notebook cells and the prompt have such names; generated code has others.
_TYPED = ("<stdin>", "<ipython-input", "<python-input")

STANDARD = "Python's standard library"

#: The name of the function for all of fastprof's.
_FOLDED = "(fastprof)"

#: Files of which the origin is remembered.
_FILES = 4096


# Many functions are in one file, and each is asked about several times.
@lru_cache(_FILES)
def is_own_file(file: str) -> bool:
    """Return whether a source file is fastprof's."""
    file = file.replace("\\", "/")
    return bool(_OWN.search(file)) and not _DEMO.search(file)


def is_own(key: Key) -> bool:
    """Return whether a function is fastprof's."""
    return key.name == _FOLDED or is_own_file(key.file)


def own_keys(keys: Sequence[Key]) -> frozenset[int]:
    """Return the numbers of fastprof's functions."""
    files = frozenset(filter(is_own_file, {key.file for key in keys}))
    return frozenset([i for i, k in enumerate(keys) if k.file in files or k.name == _FOLDED])


@lru_cache(_FILES)
def _is_library_file(file: str) -> bool:
    if _DEMO.search(file.replace("\\", "/")):
        return False
    return any(part in file for part in LIBRARY) or is_own_file(file)


@lru_cache(_FILES)
def is_users_file(file: str) -> bool:
    """Return whether a source file is the program's."""
    return not _is_library_file(file) and (not file.startswith("<") or file.startswith(_TYPED))


def is_library(key: Key) -> bool:
    """Return whether a function is Python's, an installed package's or fastprof's."""
    return _is_library_file(key.file) or key.name == _FOLDED


def is_users(key: Key) -> bool:
    """Return whether a function is in the program's own files."""
    return key.kind == "python" and is_users_file(key.file) and key.name != _FOLDED


_IMPORTERS = frozenset(("_find_and_load", "__import__"))


def begins_import(file: str, name: str) -> bool:
    """Return whether this is the code with which the import system begins to import a module."""
    return name in _IMPORTERS and "importlib" in file


def begin_imports(keys: Sequence[Key]) -> list[bool]:
    """Return per key whether an import begins with it."""
    return [key.name in _IMPORTERS and "importlib" in key.file for key in keys]


def import_class(file: str, name: str) -> int:
    """Return the class of code for ``Recorder.export(fold_imports=)``.

    It depends on the name only if that begins with "_" or "<".
    """
    if begins_import(file, name):
        return 3
    if is_users_file(file):
        return 0
    return 2 if name == "<module>" else 1


def package_of(key: Key) -> str:
    """Return the package of a library function; empty: not known."""
    found = _PACKAGE.search(key.file)
    if found is not None:
        return found[1]
    if any(part in key.file for part in LIBRARY):
        return STANDARD
    return ""


def shown_name(key: Key) -> str:
    """Return a function's name for readers: no path of namespaces, no private parts."""
    if key.name == "<module>":
        return file_name(key.file)
    name = key.qualname or key.name
    if key.kind == "python" and not is_users(key):
        # A library decorator's inner function is called "wrapper"; use the decorator's name.
        name = name.partition(".<locals>")[0]
    parts = name.rpartition("<locals>.")[2].split(".")
    if key.kind == "python":
        if parts[-2:-1] and parts[-2].startswith("_") and not is_users(key):
            # Users of a library do not name its private base classes; they know the module.
            parts[-2] = file_name(key.file).removesuffix(".py")
        return ".".join(parts[-2:]).replace("<lambda>", "lambda")
    public = [part for part in parts[:-1] if part and not part.startswith("_")]
    if public and not parts[-1]:  # torch.ops.profiler._record_function_enter_new has no name
        return f"{public[-1]} operator"
    return ".".join([*public[-1:], parts[-1] or key.name])


def is_private(key: Key) -> bool:
    """Return whether a name says nothing to a user: ``_call_impl``, a decorator's wrapper."""
    name = key.qualname or key.name
    last = name.rsplit(".", 1)[-1]
    if "<locals>" in name:
        return True
    return last.startswith(("_", "<")) and not (last.startswith("__") and last.endswith("__"))
