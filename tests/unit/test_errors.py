"""Exceptions: one base, public names."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import fastprof
import pytest
from fastprof import errors

SOURCES = Path(fastprof.__file__).parent


def _defined() -> list[tuple[str, str]]:
    """Return (module, name) of each class in the package whose name ends in Error."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        module = ".".join(("fastprof", *path.relative_to(SOURCES).with_suffix("").parts))
        found += [
            (module.removesuffix(".__init__"), node.name)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
        ]
    return found


@pytest.mark.parametrize(("module", "name"), _defined())
def test_every_exception_is_a_fastprof_error(module: str, name: str) -> None:
    assert issubclass(getattr(importlib.import_module(module), name), errors.FastprofError)


def test_public_exceptions_are_those_of_errors() -> None:
    defined = {name for module, name in _defined() if module == "fastprof.errors"}
    assert defined == {name for name in fastprof.__all__ if name.endswith("Error")}


def test_the_extension_raises_the_exception_that_is_public() -> None:
    options = pytest.importorskip("fastprof.capture.options")
    first, second = options.Recorder(backend="setprofile"), options.Recorder(backend="setprofile")
    first.enable()
    try:
        with pytest.raises(fastprof.BusyError):
            second.enable()
    finally:
        first.disable()
