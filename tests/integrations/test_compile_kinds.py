"""What else torch compiles: backward passes, optimizers, torch.export, kernels at run time."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
from compile_kit import WARNINGS, record, torch
from fastprof.integrations import torch_loop
from programs import compiled_programs as programs

pytestmark = WARNINGS


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def kinds(report: Any) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in report.snapshot.compilations.events]


def test_a_backward_pass_is_in_its_functions_row() -> None:
    report = record(programs.fixed("aot_eager"))
    assert kinds(report) == [("forward", "forward"), ("backward", "forward")]
    (row,) = report.compilations.rows
    assert (row.times, row.backwards, row.line) == (1, 1, programs.line_of("network"))
    assert row.ms == pytest.approx(report.compilations.ms)


def test_a_compiled_optimizer_has_its_rows() -> None:
    found = record(programs.compiled_optimizer("eager")).compilations
    assert any(row.file.endswith("sgd.py") and row.name.endswith("step") for row in found.rows)
    assert not found.again


def test_the_compilation_of_torch_export_has_a_row() -> None:
    """torch 2.6 records the function, later ones a row without a name."""
    model = programs.Network()
    export = lambda: torch.export.export(model, (torch.randn(8, 8),), strict=True)
    found = kinds(record([export]))
    assert found in ([("forward", "forward")], [("export", "torch.export")])


def test_kernels_that_are_tuned_when_they_first_run_count_for_their_function() -> None:
    """Triton needs a GPU; this is what torch notes of its autotuning."""
    context = getattr(torch._dynamo.utils, "get_runtime_metrics_context", None)
    if context is None:
        pytest.skip("this torch does not record what is compiled at run time")

    def tuned() -> None:
        (last,) = torch._dynamo.utils.get_compilation_metrics()[-1:]
        frame, times = map(int, str(last.compile_id).split("/"))
        number = torch._guards.CompileId(frame_id=frame, frame_compile_id=times)
        about = {"compile_id": number, "is_runtime": True, "is_forward": True}
        context().increment("runtime_triton_autotune_time_us", 5_000)
        context().increment("duration_us", 5_000, about)
        context().finish()

    report = record([programs.fixed("eager")[0], tuned])
    assert kinds(report) == [("forward", "forward"), ("runtime", "forward")]
    event = report.snapshot.compilations.events[1]
    assert (event.total_ns, event.kernel_ns) == (5_000_000, 5_000_000)
    (row,) = report.compilations.rows
    assert row.times == 1
    assert report.snapshot.compilations.inside == (0,)


def test_this_torch_has_all_interfaces() -> None:
    """A torch that has changed one fails here; runs say what is not known."""
    assert record(programs.batch_end("eager")).compilations.unknown == ()


@pytest.mark.parametrize("name", ["export", "draft_export"])
def test_torch_export_works_while_all_modules_have_a_hook(name: str) -> None:
    """A hook on all modules, by anyone, makes a strict export fail in torch 2.13."""
    if not hasattr(torch.export, name):
        pytest.skip("this torch has none")
    model, x = programs.Network(), torch.randn(8, 8)
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    with torch_loop.attach(functions=False) as loop:
        before = dict(hooks)
        assert before
        exported = getattr(torch.export, name)(model, (x,), strict=True)
        assert dict(hooks) == before
        assert torch.equal(exported.module()(x), model(x))
    assert loop.profiler.snapshot().counters == {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # torch does not close draft_export's log
        exported = None
        gc.collect()
