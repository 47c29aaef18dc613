"""Results are the data of lower layers, with methods."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, fields

import fastprof
import pytest
from fastprof.comparison import model as comparison
from fastprof.ranks import model as ranks
from fastprof.report import build, model
from fastprof.results.report import build_report
from unit.gpu_runs import gpu_training_run

DATA = {
    fastprof.Report: model.Report,
    fastprof.RankReport: ranks.RankReport,
    fastprof.Comparison: comparison.Comparison,
}


def test_a_report_has_the_fields_of_its_data_and_is_frozen():
    data, made = (of(gpu_training_run()) for of in (build.build_report, build_report))
    for field in fields(data):
        assert getattr(made, field.name) == getattr(data, field.name)
    with pytest.raises(FrozenInstanceError):
        made.steps = None
    assert pickle.loads(pickle.dumps(made)) == made
    assert type(made.in_phase("all")) is fastprof.Report


@pytest.mark.parametrize("kind", DATA)
def test_data_have_no_methods_that_render(kind):
    assert issubclass(kind, DATA[kind])
    for name in ("to_text", "to_json", "to_markdown", "save", "findings", "finding", "show"):
        assert not hasattr(DATA[kind], name)
    assert callable(kind.to_text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("load", "Report"), ("merge", "RankReport"), ("compare", "Comparison")],
)
def test_a_function_says_what_it_returns_and_can_be_sent_to_a_process(name, kind):
    function = getattr(fastprof, name)
    assert inspect.signature(function).return_annotation is getattr(fastprof, kind)
    assert function.__doc__
    assert pickle.loads(pickle.dumps(function)) is function
