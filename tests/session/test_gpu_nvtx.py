"""NVTX ranges during a run; a list records both directions."""

from __future__ import annotations

import os
import types

import fastprof
import pytest
from fake_gpu import found
from fastprof import _core, capture


@pytest.fixture
def nvtx(monkeypatch):
    """Replace ``fastprof.capture.nvtx``; ``out`` and ``into`` are reasons for failures."""
    module = types.SimpleNamespace(calls=[], out=None, into=None)

    def begin_out():
        module.calls.append("begin_out")
        return module.out

    def begin():
        module.calls.append("begin")
        return module.into

    module.begin_out, module.begin = begin_out, begin
    module.end_out = lambda: module.calls.append("end_out")
    module.end = lambda: module.calls.append("end")
    monkeypatch.setattr(capture, "nvtx", module, raising=False)
    return module


def run(**options) -> fastprof.Profiler:
    with fastprof.Profiler(functions=False, gpu=False, **options) as prof:
        prof.step()
    return prof


@pytest.mark.parametrize("wanted", ["auto", True])
def test_sections_go_out_where_a_tool_listens(nvtx, wanted) -> None:
    prof = run(nvtx=wanted)
    assert nvtx.calls == ["begin_out", "end_out"]
    assert prof.snapshot().notes == ()


def test_auto_without_a_tool_is_nothing(nvtx) -> None:
    nvtx.out = "no tool listens"
    prof = run()
    assert nvtx.calls == ["begin_out"]
    assert prof.snapshot().notes == ()


def test_true_without_a_tool_lets_ranges_of_libraries_in(nvtx) -> None:
    nvtx.out = "no tool listens"
    prof = run(nvtx=True)
    assert nvtx.calls == ["begin_out", "begin", "end"]
    assert prof.snapshot().notes == ()


def test_true_and_neither_is_a_note(nvtx) -> None:
    nvtx.out, nvtx.into = "no tool listens", "listening to NVTX failed: no memory"
    prof = run(nvtx=True)
    assert prof.snapshot().notes == (
        "There are no NVTX ranges of this run: listening to NVTX failed: no memory.",
    )


def test_with_nvtx_off_nothing_is_called(nvtx) -> None:
    run(nvtx=False)
    assert nvtx.calls == []


def test_an_attached_tool_that_cannot_be_reached_is_a_note(nvtx, monkeypatch) -> None:
    monkeypatch.setattr(capture, "gpu_find", found("Nsight Systems"), raising=False)
    nvtx.out = "the tool has no entry"
    with fastprof.Profiler(functions=False) as prof:
        pass
    assert prof.snapshot().notes == (
        "There are no NVTX ranges of this run: the tool has no entry.",
    )


@pytest.mark.parametrize("name", ["begin_out", "end_out"])
def test_p9_nvtx_that_raises_is_reported_once(nvtx, name) -> None:
    def fails():
        raise OSError("the tool is gone")

    setattr(nvtx, name, fails)
    prof = run()
    assert prof.snapshot().notes == ("fastprof: nvtx failed: OSError: the tool is gone",)
    assert prof.steps == 1


def test_the_real_one_takes_back_what_it_set(monkeypatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    with fastprof.Profiler(functions=False, gpu=False, nvtx=True) as prof:
        assert os.path.samefile(os.environ["NVTX_INJECTION64_PATH"], _core.__file__)
    assert "NVTX_INJECTION64_PATH" not in os.environ
    assert prof.snapshot().notes == ()
    with fastprof.Profiler(functions=False, gpu=False):
        assert "NVTX_INJECTION64_PATH" not in os.environ
