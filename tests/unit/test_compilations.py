"""Compilations in a report: torch's reasons in words, rows per function, the finding."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import fastprof
import pytest
from fastprof.errors import SnapshotError
from fastprof.findings.examine import examine
from fastprof.render.html import write as write_page
from fastprof.render.markdown import summary
from fastprof.render.screen import screen_lines
from fastprof.report.build import build_report
from fastprof.report.compilations import compile_report
from fastprof.report.compile_reasons import Reason, break_of, reason_of, why_again
from fastprof.snapshot import Snapshot
from fastprof.snapshot.compilations import CompileEvent, CompileSnapshot, GraphBreak
from fastprof.snapshot.run_phases import PhaseTime
from fastprof.tables.compilations import compile_lines, compile_tables
from fastprof.tables.run_phases import phases_text
from wording import same_text

SECOND = 1_000_000_000

#: Texts of torch 2.6 to 2.13, shortened.
REASONS = {
    "0/0: tensor 'x' size mismatch at index 1. expected 30, actual 31": (
        "the size of dimension 1 of x changed (30, 31)"
    ),
    "0/0: tensor 'L['x']' size mismatch at index 0. expected 4, actual 5": (
        "the size of dimension 0 of x changed (4, 5)"
    ),
    "0/0: tensor 'kwargs['ids']' size mismatch at index 1. expected 16, actual 24": (
        "the size of dimension 1 of ids changed (16, 24)"
    ),
    "1/1: s.k == 1      # return y*s.k  # a.py:8 in f (HINT: ...)": "s.k changed (it was 1)",
    "1/1: L['self'].k == 1      # return y*s.k  # a.py:8": "self.k changed (it was 1)",
    "6/0: G['scale'] == 2       # def h(x)  # a.py:3 in h": "the global scale changed (it was 2)",
    "7/0: L['n'] == 1           # def k  # a.py:17 in k": "n changed (it was 1)",
    "7/1: ___check_type_id(n, 1401), type=<class 'int'>  # def k": "the type of n changed (int)",
    "not known with this version": ("the reason is not known with this version of the compiler"),
    "8/1: GLOBAL_STATE changed: grad_mode ": (
        "whether gradients are enabled (torch.no_grad) changed"
    ),
    "0/0: tensor 'x' dtype mismatch. expected Float, actual Double": (
        "the dtype of x changed (Float, Double)"
    ),
    "0/0: 4 <= x.size()[0]  # _dynamo/output_graph.py:1 in init": (
        "the size of dimension 0 of x changed"
    ),
    "0/0: not L['self'].training  # f": "self.training changed (it was False)",
    "0/0: ___something_new(x)  # f": "this no longer held: ___something_new(x)",
    "": "this no longer held: ",
}

BREAKS = {
    "generic_jump TensorVariable()": ("control flow", "a branch on a tensor's value"),
    "Data-dependent branching\n  Explanation: ...": (
        "control flow", "a branch on a tensor's value",
    ),
    "Failed to trace builtin operator\n  Explanation: ... builtin operator `print` with": (
        "print", "print",
    ),
    "Unsupported Tensor.item() call with capture_scalar_outputs=False\n ...": ("item", ".item()"),
    "Attempted to call function marked as skipped\n  ... trace the builtin `posix.getpid.` This": (
        "call", "posix.getpid",
    ),
    "skipped\n  context: module: torch.random, qualname: seed, skip reason": (
        "call", "torch.random.seed",
    ),
    "numpy\n  numpy function: <cyfunction default_rng at 0x7>": ("call", "numpy's default_rng"),
    "builtin: print [] True": ("print", "print"),  # 2.6
    "Graph break due to unsupported builtin posix.getpid. This function": ("call", "posix.getpid"),
    "a new kind of break\n  Explanation": ("other", "a new kind of break"),
}  # fmt: skip


@pytest.mark.parametrize("text", REASONS)
def test_torchs_reason_becomes_words_with_variable_and_values(text: str) -> None:
    assert why_again(reason_of(text)) == REASONS[text]


@pytest.mark.parametrize("text", BREAKS)
def test_a_graph_break_is_called_by_its_cause(text: str) -> None:
    assert break_of(text) == BREAKS[text]


def event(step: int = 0, reason: str = "", seconds: float = 1.0, **fields: object) -> CompileEvent:
    made = CompileEvent(
        step=step, phase="steps", kind="forward", id="0/0", name="forward", file="/w/model.py",
        line=41, total_ns=round(seconds * SECOND), backend_ns=round(0.6 * seconds * SECOND),
        kernel_ns=round(0.5 * seconds * SECOND), hits=0, misses=1, reason=reason, failed="",
        limit="",
    )  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


def size(was: int, now: int) -> str:
    return f"0/0: tensor 'x' size mismatch at index 1. expected {was}, actual {now}"


def snapshot(*events: CompileEvent, seconds: int = 100, **fields: object) -> Snapshot:
    found = CompileSnapshot(
        compiler="torch.compile", version="2.13.0", events=events, limit=8, cache="/tmp/cache"
    )
    return Snapshot(
        meta={}, duration_ns=seconds * SECOND,
        phases=(PhaseTime("steps", 60 * SECOND, 1), PhaseTime("compile", 40 * SECOND, 3)),
        compilations=replace(found, **fields),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_row_adds_up_and_lists_each_value_once() -> None:
    found = compile_report(
        snapshot(event(), event(3, size(128, 129), 2.0), event(7, size(129, 131), 3.0))
    )
    assert found is not None
    (row,) = found.rows
    assert (row.times, row.again, row.steps) == (3, 2, (0, 3, 7))
    assert row.ms == pytest.approx(6000)
    assert row.capture_ms + row.backend_ms + row.kernel_ms == pytest.approx(row.ms)
    assert row.reasons == (Reason("size", "x", 1, ("128", "129", "131")),)
    assert found.again_ms == pytest.approx(5000)
    assert [step for step, _, names in found.by_step if names] == [3, 7]


def test_a_part_after_a_graph_break_has_its_functions_name() -> None:
    rest = event(name="torch_dynamo_resume_in_forward_at_57", line=57)
    found = compile_report(snapshot(event(), rest))
    assert found is not None
    assert {row.name for row in found.rows} == {"forward", "forward after line 57"}


def test_a_backward_pass_is_no_compilation_of_its_function() -> None:
    found = compile_report(snapshot(event(), event(kind="backward")))
    assert found is not None
    assert (found.times, found.rows[0].backwards, found.ms) == (1, 1, pytest.approx(2000))


def test_the_finding_names_function_variable_values_and_fix() -> None:
    breaks = (GraphBreak("/w/model.py", 57, "forward", "generic_jump TensorVariable()", 1),)
    report = build_report(
        snapshot(event(), event(3, size(128, 129), 30), event(4, size(129, 131), 30), breaks=breaks)
    )
    (found,) = (f for f in examine(report).findings if f.rule == "compiling-again")
    assert found.value == pytest.approx(60)
    assert "(128, 129, 131, ...)" in found.evidence[0]
    same_text(found)
    assert found.fix[0].startswith("torch._dynamo.mark_dynamic(x, 1) before forward is called")
    assert "torch.where" in found.fix[1]


def test_a_value_from_a_graph_break_is_called_so_and_its_fix_is_to_have_none() -> None:
    was = ["4.236080646514893", "4.61298942565918"]
    values = [f"2/0: ___stack0 == {value}  # y = x.max().item()" for value in was]
    rest = partial(event, name="torch_dynamo_resume_in_forward_at_57", line=57)
    breaks = (GraphBreak("/w/model.py", 57, "forward", "Unsupported Tensor.item() call", 1),)
    report = build_report(
        snapshot(
            event(hits=1), rest(), rest(3, values[0], 20), rest(4, values[1], 20),
            rest(5, "2/0: tensor '___stack0' size mismatch at index 1. expected 1, actual 2"),
            rest(6, size(128, 129)), breaks=breaks,
        )
    )  # fmt: skip
    (found,) = (f for f in examine(report).findings if f.rule == "compiling-again")
    assert "the value from the graph break changed (4.23608, 4.61299)" in found.evidence[0]
    assert found.fix == (
        (
            "Remove the graph break in line 57, whose value changes, or keep its value a tensor "
            "(no .item())."
        ),
        "Keep the value a tensor in the compiled code, and read it after the step.",
    )
    # A local variable after a graph break cannot be marked.
    row = replace(report.compilations.rows[0], reasons=(reason_of(size(128, 129)),))
    report = replace(report, compilations=replace(report.compilations, rows=(row,)))
    (found,) = (f for f in examine(report).findings if f.rule == "compiling-again")
    assert found.fix[0] == (
        "torch._dynamo.mark_dynamic for the argument of forward that decides dimension 1 of x, or "
        "pad to a few lengths."
    )


@pytest.mark.parametrize("name", ["stack1", "_stack2"])
def test_a_variable_of_the_program_may_have_a_name_like_torchs_values(name: str) -> None:
    found = reason_of(f"2/0: L['{name}'] == 3  # y = x * {name}")
    assert (found.kind, found.what) == ("value", name)


def test_a_limit_is_in_the_first_sentence_which_a_screen_always_has() -> None:
    report = build_report(
        snapshot(event(), event(3, size(8, 9), 30), event(5, size(9, 10), limit="recompile_limit"))
    )
    (found,) = (f for f in examine(report).findings if f.rule == "compiling-again")
    assert (
        "compiled 2 times (30.0 s after the first) and then no more (recompile_limit)"
        in (found.evidence[0])
    )


def test_a_cache_that_had_nothing_at_first_is_cold_whatever_the_run_put_there() -> None:
    def cold(*events: CompileEvent) -> list[str]:
        found = examine(build_report(snapshot(*events)))
        return [text for f in (*found.findings, *found.notes) for text in f.evidence]

    later = event(3, seconds=1, hits=2, misses=0)
    assert cold(event(seconds=30, misses=4), later) == [
        "The compiler's cache (/tmp/cache) had none of the first 4 graphs."
    ]
    assert not cold(event(seconds=30, misses=0, hits=4), event(3, misses=1))


def test_the_markdown_has_what_was_compiled_again_and_the_breaks() -> None:
    breaks = (GraphBreak("/w/model.py", 57, "forward", "generic_jump TensorVariable()", 1),)
    report = build_report(snapshot(event(), event(3, size(1, 2)), breaks=breaks))
    text = summary(report)
    assert (
        "| `forward (model.py:41)` | 2 | 1 | 2000 | the size of dimension 1 of x changed (1, 2) |"
    ) in text
    assert "| `forward (model.py:57)` | a branch on a tensor's value |" in text
    assert "compiled" not in summary(build_report(replace(report.snapshot, compilations=None)))


def test_first_compilations_alone_are_no_finding() -> None:
    report = build_report(snapshot(event(seconds=15, hits=1), event(name="other", line=90)))
    assert not [f for f in examine(report).findings if f.rule == "compiling-again"]
    # One again, of 2 % of the run, neither.
    report = build_report(snapshot(event(hits=1), event(3, size(1, 2), 2.0)))
    assert not [f for f in examine(report).findings if f.rule == "compiling-again"]


def test_a_cold_cache_is_a_note_that_names_the_folder() -> None:
    report = build_report(snapshot(event(seconds=30)))
    (found,) = (f for f in examine(report).notes if f.rule == "compiling-again")
    same_text(found)
    assert "TORCHINDUCTOR_CACHE_DIR" in found.fix[0]


def test_a_limit_that_is_reached_is_a_warning() -> None:
    stopped = event(9, size(8, 9), 0.001, limit="recompile_limit")
    report = build_report(snapshot(event(hits=1), stopped))
    (found,) = (f for f in examine(report).findings if f.rule == "compiling-again")
    assert found.severity == "warning"
    same_text(found)


def test_the_time_is_outside_of_the_measured_steps() -> None:
    report = build_report(snapshot(event(), event(3, size(1, 2))))
    assert "compiling 40.0 s in 2 steps" in phases_text(report, 0.01)


def test_all_parts_of_the_report_have_one_time_that_of_the_runs_phase() -> None:
    """The compiler's clock starts earlier; files have its times, reports the run's."""
    saved = snapshot(
        event(seconds=20), event(3, size(1, 2), 20.3),
        event(kind="jax", seconds=2, name="other"),
        wall_ns=40 * SECOND + 1, inside=(0, 1),
    )  # fmt: skip
    saved = replace(
        saved, phases=(PhaseTime("steps", 60 * SECOND, 1), PhaseTime("compile", 40 * SECOND + 1, 2))
    )
    report = build_report(saved)
    found = report.compilations
    assert found is not None
    assert found.ms == 42_000.000001
    assert sum(row.ms for row in found.rows) == pytest.approx(found.ms, abs=1e-9)
    assert found.within_ms == pytest.approx(2_000)
    (finding,) = (f for f in examine(report).findings if f.rule == "compiling-again")
    assert "takes 42.0 s" in finding.title
    assert "compiling 40.0 s in 2 steps (and 2.00 s within" in phases_text(report, 0.01)
    assert compile_tables(report)[0].rows[-1][3] == "42000"
    compared = fastprof.compare(report, report).pairs[0].summary
    assert {row.before_text for row in compared if row.name == "Compiling"} == {"42.0 s"}


def test_the_time_of_compilations_that_were_not_kept_is_in_the_phase() -> None:
    saved = snapshot(
        event(seconds=20), lost=9, lost_ns=10 * SECOND, wall_ns=40 * SECOND, inside=(0,)
    )
    found = compile_report(saved)
    assert found is not None
    assert (found.ms, found.within_ms) == (40_000, 0)
    assert found.rows[0].ms == pytest.approx(40_000 * 20 / 30)


def test_the_tables_have_function_reason_and_sum() -> None:
    report = build_report(snapshot(event(), event(3, size(1, 2))))
    functions, breaks, steps = compile_tables(report)
    assert "cache in /tmp/cache: 0 hits, 2 misses" in functions.title
    assert functions.rows[0][0] == "forward (model.py:41)"
    assert functions.rows[0][-1] == "the size of dimension 1 of x changed (1, 2)"
    assert functions.rows[-1][:4] == ("all", "2", "1", "2000")
    assert not breaks.rows
    assert steps.rows == (("3", "1000", "forward"),)
    assert "counted from 0)" in steps.title


def page_of(report: fastprof.Report) -> str:
    out = io.StringIO()
    write_page(report, out)
    return out.getvalue()


def test_the_page_has_the_tables_and_what_is_not_known() -> None:
    breaks = (GraphBreak("/w/model.py", 57, "forward", "generic_jump TensorVariable()", 1),)
    report = build_report(
        snapshot(event(), event(3, size(1, 2)), breaks=breaks, unknown=("something",))
    )
    page = page_of(report)
    for words in (
        "Compilations", "Compiled by torch.compile", "the size of dimension 1 of x changed (1, 2)",
        "Graph breaks", "forward (model.py:57)", "Steps that compiled again",
        "Not known with this torch 2.13.0: something.",
    ):  # fmt: skip
        assert words in page
    nothing = build_report(replace(report.snapshot, compilations=None))
    assert "Compilations</h2>" not in page_of(nothing)


def test_a_compiled_optimizer_without_steps_gets_the_call_that_ends_them() -> None:
    optimizer = event(name="step", file="/v/site-packages/torch/optim/sgd.py", line=110)
    ran = replace(event(), file="/w/model.py")
    for events, said in (((ran, optimizer), True), ((ran,), False)):
        report = replace(build_report(snapshot(*events)), has_tree=True)
        screen = " ".join(" ".join(screen_lines(report, 80)).split())
        assert ("the optimizer is compiled, and its end cannot be seen" in screen) == said


def test_what_a_version_does_not_report_is_one_line() -> None:
    report = build_report(snapshot(unknown=("reasons of recompilations",)))
    assert compile_lines(report) == ["Not known with this torch 2.13.0: reasons of recompilations."]
    assert compile_tables(report)[0].rows == ()


def test_it_is_saved_and_read() -> None:
    breaks = (GraphBreak("/w/model.py", 57, "forward", "print", 2),)
    saved = snapshot(event(), event(3, size(1, 2)), breaks=breaks)
    assert Snapshot.from_dict(saved.to_dict()).compilations == saved.compilations
    assert build_report(replace(saved, compilations=None)).compilations is None


def test_a_file_of_an_older_version_is_read() -> None:
    """It does not say which compilations were in the run's phase."""
    saved = snapshot(event(), event(3, size(1, 2))).to_dict()
    del saved["compilations"]["inside"]
    assert {len(row) for row in saved["compilations"]["events"]} == {16}
    report = build_report(Snapshot.from_dict(saved))
    assert report.compilations is not None
    assert report.compilations.ms == 2_000
    saved["compilations"]["inside"] = [2]
    with pytest.raises(SnapshotError, match="below 2"):
        Snapshot.from_dict(saved)


def test_a_comparison_has_the_compilations_and_conditions_can_name_them() -> None:
    before = build_report(snapshot(event(), *(event(i, size(i, i + 1)) for i in range(1, 7))))
    after = build_report(snapshot(event()))
    found = fastprof.compare(before, after)
    rows = {row.name: (row.before_text, row.after_text) for row in found.pairs[0].summary}
    assert rows["Compilations"] == ("7", "1")
    assert rows["of them again"] == ("6", "0")
    assert rows["Compiling"] == ("7.00 s", "1.00 s")
