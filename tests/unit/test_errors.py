"""Exceptions: one base, public names."""

from __future__ import annotations

import ast
import importlib
import inspect
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


def test_the_names_for_every_program_are_few() -> None:
    """The others are in their modules: ``fastprof.errors.LoadError``."""
    assert len(set(fastprof.__all__) - {"__version__"}) <= 30
    assert len(inspect.signature(fastprof.Profiler).parameters) <= 16


def test_the_extension_raises_the_exception_that_is_public() -> None:
    options = pytest.importorskip("fastprof.capture.options")
    first, second = options.Recorder(backend="setprofile"), options.Recorder(backend="setprofile")
    first.enable()
    try:
        with pytest.raises(fastprof.errors.BusyError):
            second.enable()
    finally:
        first.disable()
