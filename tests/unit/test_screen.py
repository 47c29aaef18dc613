"""One screen: width, readable figures, and no empty statements."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.cli import main
from fastprof.names import elided
from fastprof.render import terminal
from fastprof.render.screen import _percentiles, closed_lines, headline, screen_lines
from fastprof.report.figures import chosen_percent, counted, signed, size, size_of, span
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Steps
from fastprof.snapshot.gpu import GpuSnapshot
from fastprof.tables.cells import Table, duration, number, percent
from fastprof.tables.findings import closing_lines
from fastprof.tables.layout import table_lines, whole_sentences, width_of, wrapped
from fastprof.tables.report import steps_brief
from unit.findings_runs import HEALTHY, run
from unit.gpu_runs import gpu_training_run
from unit.snapshots import MS, Builder, Node, c, py, tree
from unit.test_outliers import SLOW_READ, kept
from unit.test_outliers import snapshot as outlier_run
from unit.test_report import training_run


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123, "0.012"),
        (0.46149, "0.461"),
        (9.9949, "9.99"),
        (9.9951, "10.0"),
        (14.81, "14.8"),
        (99.96, "100"),
        (5992.064, "5992"),
        (-1.234, "-1.23"),
        (None, "n/a"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_from_a_second_on_times_are_in_seconds() -> None:
    assert [duration(ms) for ms in (5992.064, 999.6, 999.4, 4.55)] == [
        "5.99 s", "1.00 s", "999 ms", "4.55 ms",
    ]  # fmt: skip


def test_percentages_have_three_digits_and_at_most_two_decimals() -> None:
    shares = (1.0, 0.9996, 0.5634, 0.0542, 0.00312, 0.0, None)
    assert [percent(share) for share in shares] == [
        "100", "100", "56.3", "5.42", "0.31", "0", "n/a",
    ]  # fmt: skip
    assert [chosen_percent(share) for share in (0.95, 0.995, 0.1)] == ["95 %", "99.5 %", "10 %"]


def test_large_counts_can_be_read_at_a_glance() -> None:
    counts = (1.5, 128, 9999, 12345, 999499, 999500, 7447652, -2.5e9, None)
    assert [counted(each) for each in counts] == [
        "1.50", "128", "9999", "12,345", "999,499", "1.00 million", "7.45 million",
        "-2.50 billion", "n/a",
    ]  # fmt: skip


def test_sizes_have_three_digits_and_one_unit() -> None:
    sizes = (0, 512, 1023.9 * 2**20, 1536 * 2**20, -(2**20), None)
    assert [size(each) for each in sizes] == [
        "0 B", "512 B", "1.00 GiB", "1.50 GiB", "-1.00 MiB", "n/a",
    ]  # fmt: skip
    assert size_of(24 << 30, 40 << 30) == "24.0 of 40.0 GiB"
    assert size_of(512 << 20, 40 << 30) == "0.500 of 40.0 GiB"
    assert size_of(512 << 20, None) == "512 MiB"


def test_differences_have_a_sign_and_three_digits() -> None:
    assert [signed(each) for each in (12.345, -0.0421, 0.0, None)] == [
        "+12.3",
        "-0.042",
        "0",
        "n/a",
    ]
    assert span(-0.1234, 1.5) == "-0.123 .. +1.50"


def test_figures_are_formatted_in_one_module() -> None:
    """Only report/figures.py chooses decimals; some modules imitate a foreign format."""
    own = re.compile(r":\+?\.\d[f%]\} ?(?:%|[KMG]i?B|ms\b)|:\.\d%\}|/ \(1 << [23]0\):")
    imitated = {"session/output/periodic.py", "session/gpu/memory.py", "cli/demo.py"}
    package = Path(fastprof.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if own.search(path.read_text(encoding="utf-8"))
    }
    assert found <= imitated | {"report/figures.py"}


# ---- lines


def test_prose_wraps_between_words_and_a_number_keeps_its_unit() -> None:
    text = "Fetching batches takes 11.8 ms of 21.1 ms per step, which is 55.9 % of it."
    for width in range(20, 80):
        lines = wrapped(text, width, "1. ")
        assert max(map(len, lines)) <= width
        assert " ".join(line.strip() for line in lines) == f"1. {text}"
        assert not any(line.strip().startswith(("%", "ms ")) for line in lines)


def test_sentences_are_shown_whole_or_not_at_all() -> None:
    text = "Read one value, not each of 1.5 million. Add up metrics. Then read them."
    assert whole_sentences(text, 30, 2, "- ") == [
        "- Read one value, not each of", "  1.5 million. Add up metrics.",
    ]  # fmt: skip
    assert " ".join(whole_sentences(text, 30, 9)) == text
    # The first sentence needs more lines than available.
    assert whole_sentences(text, 20, 1) == ["Read one value, not", "each of 1.5 million."]


@pytest.mark.parametrize("width", [80, 100])
def test_no_sentence_on_the_screen_is_cut(width: int) -> None:
    long = (
        "The network that this program reads its samples from was on fire for most of the run, "
        "which is why this note is longer than two lines of a terminal of eighty columns are."
    )
    made = replace(training_run(), notes=(f"{long} And so on. " * 2,))
    for report in (build_report(made), build_report(gpu_training_run())):
        lines = [*screen_lines(report, width), *closing_lines(report, width)]
        assert not [line for line in lines if line.endswith("...")]
        assert max(map(len, lines)) <= width
    assert long in " ".join(line.strip() for line in screen_lines(build_report(made), width))


def crowded() -> Report:
    """Return a report with several findings, many sections and functions with long names."""
    made = gpu_training_run()
    notes = tuple(f"The {word} part of the machine was on fire for a while." for word in "abcd")
    return build_report(replace(made, notes=notes))


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_screen_has_40_lines_and_the_verdict_is_last(width: int) -> None:
    last = ["Wrote fastprof_out/x: train_profile.fprof", "More: fastprof report fastprof_out/x"]
    for report in (crowded(), build_report(training_run())):
        lines = closed_lines(report, width, last)
        assert len(lines) <= 40
        assert max(map(len, lines)) <= width
        closing = closing_lines(report, width)
        assert closing
        assert lines[-len(closing) :] == closing
        shown = io.StringIO()
        report.show(shown)
        assert len(shown.getvalue().splitlines()) <= 40
        assert shown.getvalue().splitlines()[-1].strip() in " ".join(closing_lines(report, 100))


def test_the_screen_of_a_saved_run_has_40_lines_and_the_verdict_is_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fastprof report` had "More: ..." below the 40 lines."""
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "run.fprof"
    report = crowded()
    report.save(file)
    assert main(["report", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    closing = closing_lines(report, 80)
    assert (len(lines) <= 40, lines[-len(closing) :]) == (True, closing)
    assert any(line.startswith("More: ") for line in lines)


def test_a_screen_without_room_has_fewer_rows() -> None:
    report = crowded()
    whole, less = screen_lines(report, 80, 99), screen_lines(report, 80, 30)
    assert len(less) < len(whole)
    assert (less[0], less[2]) == (whole[0], whole[2])  # the program, and the first finding
    assert any(line.startswith("where a step goes") for line in less)
    assert any(line.startswith("your functions") for line in less)


def test_what_was_chosen_is_no_note_on_the_screen() -> None:
    report = build_report(replace(training_run(), meta={"imports_folded": True}, notes=()))
    assert "imported" not in report.to_text()
    assert any("while it was imported" in note for note in report.notes)


@pytest.mark.parametrize(
    ("waited", "meta", "said"),
    [
        (
            80,
            {"steps_ended_by": "optimizers"},
            "waited 80.0 ms for child processes (BaseProcess.join)",
        ),
        (80, {}, "use fastprof's Profiler(output=...) in the function that they run"),
        (80, {"torch": "2.13"}, "use fastprof's torch_loop.attach(output=...) in the function"),
        (
            10,
            {"steps_ended_by": "optimizers"},
            "It sees the steps of torch's and keras' optimizers;",
        ),
        (10, {}, "at the end of each step; `fastprof run` and torch_loop"),
        (
            10,
            {"steps_ended_by": "optimizers", "torch_stepped_elsewhere": True},
            "the first thread that calls backward, and the optimizers stepped in another one",
        ),
    ],
)
def test_without_steps_the_screen_says_how_to_get_them(
    waited: int, meta: dict[str, object], said: str
) -> None:
    """A plain Profiler sees no optimizer, and a process that waits for others trains nothing."""
    join = py("join", 142, "/lib/python3.11/multiprocessing/process.py", "BaseProcess.join")
    made = tree(
        Node(py("main"), 1, (100 - waited) * MS, [Node(join, 2, waited * MS)]),
        duration_ns=100 * MS, meta=meta,
    )  # fmt: skip
    assert said in " ".join(line.strip() for line in screen_lines(build_report(made), 80))


def test_a_helper_thread_that_waits_for_a_process_is_not_the_program() -> None:
    join = py("join", 142, "/lib/python3.11/multiprocessing/process.py", "BaseProcess.join")
    built = Builder()
    built.thread(Node(py("main"), 50, 100 * MS, [Node(py("work"), 50, 0)]))
    built.thread(Node(join, 1, 90 * MS), ident=2, name="helper")
    said = " ".join(screen_lines(build_report(built.snapshot(duration_ns=100 * MS)), 80))
    assert "saw no step" in said
    assert "child" not in said


def test_a_section_that_rounds_to_nothing_is_no_row_on_the_screen() -> None:
    made = run({"data": 4.0, "forward": 95.0, "data_startup": 0.3, "metrics": 0.3})
    assert "data_startup" not in build_report(made).to_text()
    assert "data_startup" in build_report(made).to_text(full=True)


WIDE = Table(
    "",
    ("function", "calls", "raw ms", "self ms", "defined at"),
    tuple(
        (f"package.module.Class_{i}.method_of_it", "1000", "12.5", "11.9", "package/file.py:10")
        for i in range(3)
    ),
    left=frozenset({0, 4}),
    spare=("raw ms",),
)


def test_a_table_loses_its_spare_columns_before_anything_else() -> None:
    assert "raw ms" in table_lines(WIDE)[0]
    narrower = table_lines(WIDE, 78)
    assert "raw ms" not in narrower[0]
    assert "package.module.Class_0.method_of_it" in narrower[2]


def test_names_give_way_evenly_and_keep_their_last_word() -> None:
    names = ("torch._C._EngineBase.run_backward", "torch._C._VariableFunctionsClass.max_pool2d")
    table = Table(
        "",
        ("function", "calls", "defined at"),
        tuple((name, "1000", "python/package/with/a_long_module.py:1000") for name in names),
        left=frozenset({0, 2}),
    )
    lines = table_lines(table, 66)
    assert max(map(len, lines)) <= 66
    text = "\n".join(lines)
    assert "run_backward" in text
    assert "max_pool2d" in text
    widths = [len(rule) for rule in lines[1].split()]
    assert abs(widths[0] - widths[2]) <= 8


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("torch._C._VariableFunctionsClass.conv2d", 20, "torch._C...conv2d"),
        ("torch._C._EngineBase.run_backward", 20, "torch...run_backward"),
        ("CausalSelfAttention.forward", 17, "CausalS...forward"),
        ("torch._ops.profiler._record_function_enter_new", 20, "torch....n_enter_new"),
        ("one_word_that_is_too_long_for_it", 20, "one_wo...long_for_it"),
    ],
)
def test_a_dotted_name_is_cut_between_words(name: str, limit: int, said: str) -> None:
    assert elided(name, limit) == said


def test_a_part_of_a_table_has_no_row_without_anything_in_it() -> None:
    words = "a long sentence about what took most of this time, in two or three parts of a table"
    rows = (("computing", "1.25", "2.25", ""), ("loading", "3.25", "4.25", words))
    table = Table("", ("time" * 5, "ms" * 5, "share" * 5, "most of it" * 3), rows,
                  left=frozenset({0, 3}))  # fmt: skip
    lines = table_lines(table, 60)
    assert sum(line.startswith("computing") for line in lines) == 1
    assert sum(line.startswith("loading") for line in lines) == 2


@pytest.mark.parametrize("width", range(73, 90, 3))
def test_names_use_the_room_of_a_table_in_two_parts(width: int) -> None:
    names = ("aten::native_layer_norm_backward", "aten::_log_softmax_backward_data")
    headers = ("operator", *(f"figure {i} ms" for i in range(6)))
    table = Table("", headers, tuple((name, *["1000.25"] * 6) for name in names))
    lines = table_lines(table, width)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("operator") for line in lines) == 2
    for name in names:
        assert sum(line.startswith(f"{name}  ") for line in lines) == 2


@pytest.mark.parametrize("width", range(40, 110, 7))
def test_a_table_is_never_wider_and_keeps_every_figure(width: int) -> None:
    figures = Table(
        "",
        ("loader", *(f"column {i} ms" for i in range(12)), "what it is"),
        (("main", *(f"{i}.25" for i in range(12)), "two words or three of them"),),
        left=frozenset({0, 13}),
    )
    lines = table_lines(figures, width)
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    assert all(f" {i}.25" in text for i in range(12))
    # Each word is whole.
    assert not {"two", "words", "three", "them"} - set(re.findall("[a-z]+", text))


def test_a_table_of_words_alone_is_no_wider_and_keeps_every_row() -> None:
    rows = (
        (
            "loader loader0 (train): workers",
            "0",
            "1",
            "functions that run in workers are in no figure",
        ),
        ("command line", "vit.py --epochs 2", "vit.py --epochs 2 --workers 1 --fused", ""),
    )
    table = Table("", ("setting", "before", "after", "effect on the comparison"), rows,
                  left=frozenset({0, 1, 2, 3}))  # fmt: skip
    lines = table_lines(table, 80)
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "command line" in text
    assert "--fused" in text


def test_a_pipe_has_100_columns_unless_the_user_wants_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for wanted, columns in (("80", 80), ("0080", 80), ("", 100), (None, 100), ("7", 40)):
        if wanted is None:
            monkeypatch.delenv("COLUMNS")
        else:
            monkeypatch.setenv("COLUMNS", wanted)
        assert width_of(io.StringIO()) == columns, wanted


def test_a_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((63, 24)))
    assert (width_of(io.StringIO()), width_of(Terminal())) == (100, 63)
    # A tee without ``isatty`` passes the lines on to the standard output.
    tee: Any = type("Tee", (), {"write": None})()
    monkeypatch.setattr(sys, "__stdout__", Terminal())
    assert width_of(tee) == 63
    monkeypatch.setattr(sys, "__stdout__", None)
    assert width_of(tee) == 100
    for stream, widest in ((io.StringIO(), 100), (Terminal(), 63)):
        terminal.show(build_report(training_run()), stream)
        assert max(map(len, stream.getvalue().splitlines())) <= widest


# ---- content


def test_a_percentile_in_another_unit_than_the_mean_has_its_own() -> None:
    """On a busy machine the p95 of steps of 554 ms was "3393"."""
    figures = (("p50", 19.4), ("p95", 3393.0))
    assert _percentiles(554.0, figures) == "p50 19.4 ms, p95 3.39 s"
    assert _percentiles(1500.0, (("p50", 1400.0), ("p95", 3393.0))) == "p50 1.40, p95 3.39"


def test_the_headline_says_what_ran_and_what_its_steps_took() -> None:
    made = training_run()
    made = replace(made, meta={"command": "train.py --lr 0.1", "world_size": 4, "rank": 0})
    first = build_report(made).to_text().splitlines()[0]
    assert first.startswith("train.py --lr 0.1: 7 steps of 27.1 ms (p50 25.0, p95 35.5), ")
    assert "300 ms recorded" in first


def test_without_a_gpu_there_is_one_line_about_it() -> None:
    why = "no NVIDIA device in this machine: neither /dev/nvidiactl nor /dev/dxg exists"
    report = build_report(tree(Node(py("f"), 1, 5 * MS), gpu=GpuSnapshot("off", why)))
    for text in (report.to_text(), report.to_text(full=True)):
        lines = [line for line in text.splitlines() if "GPU" in line]
        assert lines[0] == "GPU: none found"
        assert not any("n/a" in line for line in lines)


def test_a_healthy_run_says_how_much_was_checked() -> None:
    line = next(x for x in build_report(run()).to_text().splitlines() if "No finding" in x)
    assert re.fullmatch(r"No finding: \d+ rules checked(, \d+ skipped: .+)?\.", line)


def test_a_large_part_of_the_steps_that_is_no_finding_is_on_the_screen() -> None:
    """A program that others keep off the CPUs has no finding, but loses half of its time."""
    made = run()
    waits = made.steps.sum_ns // 2
    split = (("compute", made.steps.sum_ns - waits), ("cpu_wait", waits))
    meta = {**made.meta, "cpus": 4, "process_cpu_ns": made.duration_ns // 2}
    report = build_report(replace(made, meta=meta, steps=replace(made.steps, split=split)))
    assert not report.examination.findings
    text = " ".join(screen_lines(report, 80))
    assert "Unusual: The training thread waits for a CPU for 50.0 % of the step." in text
    assert "Fix: Stop the other programs on this machine" in text
    assert "Unusual" not in build_report(run()).to_text()


def test_the_rows_of_a_step_add_up_though_small_ones_share_one() -> None:
    phases = {**HEALTHY, "metrics": 0.4, "sampling": 0.4, "scheduler": 0.01}
    report = build_report(run(phases))
    table = steps_brief(report, 20)
    assert table.rows[-1] == ("3 others", "0.810", "0.81")
    assert sum(float(row[1]) for row in table.rows) == pytest.approx(100, abs=0.1)
    tiny = steps_brief(build_report(run({**HEALTHY, "scheduler": 0.01})), 20)
    assert not any("other" in row[0] for row in tiny.rows)
    one = steps_brief(build_report(run({**HEALTHY, "h2d": 0.4})), 20)
    # As short as "1 other", and in the order of first use.
    assert one.rows[-2:] == (
        ("h2d (to the GPU)", "0.400", "0.40"),
        ("(unaccounted)", "5.60", "5.60"),
    )


def test_the_verdict_is_repeated_only_if_it_is_a_finding() -> None:
    assert closing_lines(build_report(run()), 80) == []
    assert closing_lines(build_report(training_run()), 80)


def test_names_are_cut_in_the_middle_and_have_no_hash() -> None:
    name = "a" * 50 + "b" * 50
    text = build_report(tree(Node(py(name), 1, 5 * MS))).to_text(full=True)
    assert "aaaa...bbbb" in re.sub("a+", "aaaa", re.sub("b+", "bbbb", text))
    assert "#" not in text


def test_the_screen_names_kinds_of_time_in_words() -> None:
    text = build_report(run()).to_text()
    assert not re.search(r"cpu_wait|gpu_wait|fell_back|compute\b", text)


def test_steps_without_detail_are_counted_in_one_sentence() -> None:
    unseen = [kept(i, SLOW_READ, window_steps=0, window_ns=0, rows=()) for i in (12, 13)]
    text = build_report(outlier_run(*unseen)).to_text(full=True)
    assert text.count("function detail") == 1
    assert "no function detail for 2 of these" in text


def test_a_report_and_its_rows_have_a_short_repr() -> None:
    assert repr(build_report(training_run())).startswith("<fastprof.Report: 10 steps of 27.1 ms")
    assert len(repr(build_report(training_run()))) < 120


def test_without_a_tree_the_screen_lists_functions(tmp_path) -> None:
    path = tmp_path / "run.stats"
    build_report(tree(Node(py("work"), 3, 5 * MS, [Node(c("len"), 2, MS)]))).save(path)
    text = fastprof.load(path).to_text()
    assert re.search(r"^work +3 ", text, re.MULTILINE)


def run_with_validation() -> fastprof.Report:
    with fastprof.Profiler(functions=False, skip_first=0) as prof:
        for _ in range(3):
            with fastprof.profile_section("forward"):
                pass
            prof.step()
            prof.enter_phase("validation")
            time.sleep(0.01)
            prof.leave_phase("validation")
    return prof.report()


def test_what_the_run_did_beside_its_steps_is_one_line() -> None:
    report = run_with_validation()
    (line,) = (x for x in report.to_text().splitlines() if x.startswith("Outside the measured"))
    assert re.search(r"validation \d+\.\d ms each \(3 times\)", line)
    assert "Phases of the run" in report.to_text(full=True)


def test_a_run_without_steps_has_no_set_up_and_says_how_steps_are_made() -> None:
    """A program without torch, such as a loop over numpy's arrays, has no optimizer."""
    with fastprof.Profiler(functions=True) as prof:
        prof.enter_phase("steps")  # like ``fastprof run`` at the end
        sum(range(10))
        prof.enter_phase("validation")
        time.sleep(0.01)
        prof.leave_phase("validation")
    report = prof.report()
    said = " ".join(" ".join(screen_lines(report, 80)).split())
    assert "measured steps" not in said
    assert "set-up" not in said
    assert re.search(r"Of the run: validation \d+\.\d ms\.", said)
    assert "Call fastprof.step() at the end of each step" in said
    full = report.to_text(full=True)
    assert "warm-up" not in full
    assert "without steps" in full


def test_steps_without_a_section_say_how_sections_are_made() -> None:
    def screen(name: str) -> str:
        with fastprof.Profiler(functions=True, skip_first=0) as prof:
            for _ in range(3):
                with fastprof.profile_section(name) if name else nullcontext():
                    time.sleep(0.001)
                prof.step()
        return " ".join(screen_lines(prof.report(), 80))

    assert "No section ran in these steps." in screen("")
    assert "No section" not in screen("forward")


def test_a_phase_of_the_run_can_be_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_with_validation().save(tmp_path / "run.fprof")
    assert main(["report", str(tmp_path), "--phase", "all"]) == 0
    assert main(["report", str(tmp_path), "--phase", "validation", "--full"]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path), "--phase", "validtion"]) == 2
    assert "no phase 'validtion'; did you mean validation?" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--phase", "foo"]) == 2
    assert "no phase 'foo'. There are steps, setup, " in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--phase", "checkpoint"]) == 2
    assert "nothing was recorded in a phase 'checkpoint'" in capsys.readouterr().err


def test_of_another_thread_only_functions_count() -> None:
    # In no function a thread may wait: tqdm's monitor did, and was said to compute.
    built = Builder()
    built.thread(Node(py("main"), 1, 100 * MS))
    built.thread(root_ns=90 * MS, ident=2, name="monitor")
    built.thread(Node(py("spin"), 1, 80 * MS), root_ns=50 * MS, ident=3, name="helper")
    # A thread that ends the program saves the run: "Thread-1 2.88 ms ((fastprof))".
    built.thread(Node(py("(fastprof)"), 1, 70 * MS), ident=4, name="killer")
    text = "\n".join(screen_lines(build_report(built.snapshot()), 80))
    assert "monitor" not in text
    assert "killer" not in text
    assert "your functions (helper)" in text


def test_the_headline_says_which_error_ended_the_program() -> None:
    made = training_run()
    failed = build_report(replace(made, meta={**made.meta, "ended_by": "OutOfMemoryError"}))
    assert "ended by OutOfMemoryError" in " ".join(headline(failed, 200))
    without_steps = tree(Node(py("main"), 1, MS), duration_ns=MS, meta={"ended_by": "SIGTERM"})
    assert ", ended by SIGTERM" in " ".join(headline(build_report(without_steps), 200))
    assert "ended" not in " ".join(headline(build_report(made), 100))


def computing(in_main: int) -> Report:
    built = Builder()
    waits = Node(c("_thread.lock.acquire"), 1, 300 * MS)
    built.thread(Node(py("main"), 1, in_main, [waits]))
    built.thread(Node(py("load"), 1, 50 * MS), ident=2, name="loader")
    built.thread(Node(py("train"), 1, 200 * MS), ident=3, name="trainer")
    built.thread(Node(py("beat"), 1, 1 * MS), ident=4, name="heart")
    return build_report(built.snapshot())


def test_without_steps_the_screen_leads_with_the_threads_that_compute() -> None:
    lines = screen_lines(computing(1 * MS), 80)
    titles = [line for line in lines if line.startswith("your functions")]
    assert [title.split("  ")[0] for title in titles] == [
        "your functions (trainer)", "your functions (loader)",
    ]  # fmt: skip
    assert lines[lines.index(titles[0]) + 1].startswith("train ")
    assert lines[lines.index(titles[1]) + 1].startswith("load ")
    assert "MainThread" not in "\n".join(lines)


def test_a_main_thread_that_computes_is_one_of_them() -> None:
    text = "\n".join(screen_lines(computing(100 * MS), 80))
    names = re.findall(r"your functions \((.*?)\)", text)
    assert names == ["trainer", "MainThread", "loader"]
    full = computing(100 * MS).to_text(full=True)
    assert re.findall(r"your functions \((.*?)\)", full) == names


def test_steps_belong_to_the_training_thread_whatever_others_compute() -> None:
    steps = Steps(10, 0, 300 * MS, 1.0, 30 * MS, 30 * MS)
    made = replace(computing(1 * MS).snapshot, steps=steps)
    lines = screen_lines(build_report(made), 80)
    titles = [line.split("  ")[0] for line in lines if line.startswith("your functions")]
    assert titles == ["your functions"]
    assert "Other threads, without waits per step: trainer" in "\n".join(lines)


def test_the_screen_names_the_thread_of_the_steps_if_others_stepped() -> None:
    made = run({"data": 4.0, "forward": 95.0}, meta={"torch_stepped_elsewhere": True})
    said = " ".join(" ".join(screen_lines(build_report(made), 80)).split())
    assert "stepped in other threads; the steps are those of MainThread." in said
