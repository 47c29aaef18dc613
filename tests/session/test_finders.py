"""Waiting for torch on ``sys.meta_path``, during other imports."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import Any

import pytest
from fastprof.session.gpu.cuda_init import CudaInit
from fastprof.session.patching.importing import TorchImport


class Empty:
    """Finds one empty module."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "only_one_finds_this" else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        return None


@pytest.mark.parametrize("make", [TorchImport, CudaInit])
def test_an_import_during_which_the_waiting_ends_finds_its_module(make, monkeypatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    before = list(sys.meta_path)
    waiting = make(lambda: None)

    class Ends:
        """Ends the wait, as another thread may do during an import."""

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            waiting.forget()

    ends, only = Ends(), Empty()
    waiting.watch()
    sys.meta_path[1:1] = [ends, only]
    try:
        importlib.import_module("only_one_finds_this")
    finally:
        sys.modules.pop("only_one_finds_this", None)
    assert sys.meta_path == [ends, only, *before]


@pytest.mark.parametrize("make", [TorchImport, CudaInit])
def test_the_list_of_finders_stays_the_programs_own(make, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    path, before = sys.meta_path, list(sys.meta_path)
    waiting = make(lambda: None)
    waiting.watch()
    assert sys.meta_path is path
    assert path == [waiting, *before]
    later = Empty()
    path.append(later)  # as the program does
    waiting.forget()
    assert sys.meta_path is path
    assert path == [*before, later]
    path.remove(later)


class AsksAllOthers:
    """Asks every finder but itself, as the finders of some libraries do."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "only_one_finds_this":
            return None
        found = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
        return next(filter(None, found), None)


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "a library's"])
def test_finders_that_ask_each_other_find_the_module(monkeypatch, foreign: bool) -> None:
    """Each asked the other one without end."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Empty()])
    seen: list[str] = []
    waiting = [
        TorchImport(lambda: seen.append("first"), "only_one_finds_this"),
        TorchImport(lambda: seen.append("second"), "only_one_finds_this"),
    ]
    if foreign:
        sys.meta_path.insert(0, AsksAllOthers())
    for one in waiting[: 1 if foreign else 2]:
        one.watch()
    try:
        importlib.import_module("only_one_finds_this")
    finally:
        sys.modules.pop("only_one_finds_this", None)
    assert sorted(seen) == (["first"] if foreign else ["first", "second"])
    assert not any(one in sys.meta_path for one in waiting)
