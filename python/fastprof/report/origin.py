"""Whose code a function is: the program's, a library's, or fastprof's."""

from __future__ import annotations

import re

from fastprof.names import file_name
from fastprof.snapshot import Key

#: Parts of the paths of code that is not the program's.
LIBRARY = ("/lib/python3", "/site-packages/", "/dist-packages/", "<frozen", "\\lib\\", "\\Lib\\")
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\.]+)")
#: Not only "/fastprof/": a program may lie in a folder of that name.
_OWN = re.compile(
    r"/fastprof/(?:capture|cli|comparison|export|findings|integrations|loggers|read|render"
    r"|report|session|snapshot|tables)/[\w/]+\.py$"
)
#: The demo's network is a program like any other, wherever fastprof is installed.
_DEMO = re.compile(r"/fastprof/cli/demo\w*\.py$")
#: The cells of notebooks and the prompt have such names; generated code has others.
_TYPED = ("<stdin>", "<ipython-input", "<python-input")

STANDARD = "Python's standard library"


def is_own(key: Key) -> bool:
    """Whether a function is fastprof's."""
    file = key.file.replace("\\", "/")
    return key.name == "(fastprof)" or (bool(_OWN.search(file)) and not _DEMO.search(file))


def is_library(key: Key) -> bool:
    """Whether a function is Python's, an installed package's or fastprof's."""
    if _DEMO.search(key.file.replace("\\", "/")):
        return False
    return any(part in key.file for part in LIBRARY) or is_own(key)


def is_users(key: Key) -> bool:
    """Whether a function is written in the program's own files."""
    if key.kind != "python" or is_library(key):
        return False
    return not key.file.startswith("<") or key.file.startswith(_TYPED)


def begins_import(file: str, name: str) -> bool:
    """Whether code is where the import system begins to import a module."""
    return name in ("_find_and_load", "__import__") and "importlib" in file


def import_class(file: str, name: str) -> int:
    """Return what code is, as ``Recorder.export(fold_imports=)`` wants to know it."""
    if begins_import(file, name):
        return 3
    if is_users(Key("python", file, 0, name, name)):
        return 0
    return 2 if name == "<module>" else 1


def package_of(key: Key) -> str:
    """Return the package that a library's function is from; empty: not known."""
    found = _PACKAGE.search(key.file)
    if found is not None:
        return found[1]
    if any(part in key.file for part in LIBRARY):
        return STANDARD
    return ""


def shown_name(key: Key) -> str:
    """Return what a reader calls a function: no path of namespaces, no private parts."""
    if key.name == "<module>":
        return file_name(key.file)
    name = key.qualname or key.name
    if key.kind == "python" and not is_users(key):
        # What a decorator of a library made is called "wrapper"; the decorator has a name.
        name = name.partition(".<locals>")[0]
    parts = name.rpartition("<locals>.")[2].split(".")
    if key.kind == "python":
        if parts[-2:-1] and parts[-2].startswith("_") and not is_users(key):
            # A base class, which the users of the library do not name: they know its module.
            parts[-2] = file_name(key.file).removesuffix(".py")
        return ".".join(parts[-2:]).replace("<lambda>", "lambda")
    public = [part for part in parts[:-1] if part and not part.startswith("_")]
    return ".".join([*public[-1:], parts[-1] or key.name])


def is_private(key: Key) -> bool:
    """Whether a function's name says nothing to a user: ``_call_impl``, what a decorator made."""
    name = key.qualname or key.name
    last = name.rsplit(".", 1)[-1]
    if "<locals>" in name:
        return True
    return last.startswith(("_", "<")) and not (last.startswith("__") and last.endswith("__"))
