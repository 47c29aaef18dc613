"""Comparisons of saved runs: joining of rows, verdicts, output."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import fastprof
import pytest
from fastprof.comparison import join
from fastprof.comparison.expressions import Name
from fastprof.comparison.figures import figure
from fastprof.comparison.output import to_text
from fastprof.comparison.runs import Run, open_run
from fastprof.errors import ExportError, LoadError
from fastprof.export.pstats_ import stats_dict
from fastprof.report.figures import change as relative_change
from fastprof.report.from_stats import report_from_stats
from fastprof.results.report import Report, build_report
from fastprof.snapshot import Key, LoaderStats, Steps
from fastprof.snapshot.loaders import WorkerStats
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from unit.comparisons import SKIPPED, function, normal, run, training
from unit.findings_runs import loader
from unit.hostile import NAMES
from unit.snapshots import MS, Builder, Node, c, cost, gpu, kernel, py

N = 200


def row(comparison, name, table="functions"):
    return next(r for r in getattr(comparison.pairs[0], table) if r.name == name)


def pair_of(before, after, **options):
    return fastprof.compare(before, after, **options).pairs[0]


@pytest.fixture(scope="module")
def slower():
    """forward takes 20 % longer; data and everything else is unchanged."""
    data, before = normal(2.0, N, 1), normal(10.0, N, 2)
    data2, after = normal(2.0, N, 3), normal(12.0, N, 4)
    return fastprof.compare(
        run([a + b + 1 for a, b in zip(data, before)], {"data": data, "forward": before}),
        run([a + b + 1 for a, b in zip(data2, after)], {"data": data2, "forward": after}),
    )


# ---- what is said ----


def test_s0_20_both_blocks_and_a_joined_difference():
    names = [f"f{i:02}" for i in range(14)]
    before = run([10.0] * N, functions=[function(n, 100 - i, file="/home/a/train.py")
                                        for i, n in enumerate(names)])  # fmt: skip
    after = run([8.0] * N, functions=[function(n, 50 - i, file="/srv/b/train.py")
                                      for i, n in enumerate(names)])  # fmt: skip
    text = fastprof.compare(before, after).to_text(full=True)
    first, second = text.index("=== BASELINE ==="), text.index("=== OPTIMIZED ===")
    joined = text.index("Functions, largest difference of self time first")
    assert first < second < joined
    for block in (text[first:second], text[second:joined]):
        assert "Ordered by: cumulative time" in block
        assert block.count("train.py:1(f") == 10
        assert "/home" not in block
        assert "/srv" not in block
    assert text[joined:].count("\nf0") + text[joined:].count("\nf1") == 14


def test_a_comparison_of_steps_is_one_screen() -> None:
    names = [f"f{i:02}" for i in range(40)]
    before = run([10.0] * N, {"data": [4.0] * N, "forward": [5.0] * N},
                 functions=[function(n, 100 - i) for i, n in enumerate(names)])  # fmt: skip
    moved = [function(n, 100 - i if i % 2 else 50) for i, n in enumerate(names)]
    after = run([8.0] * N, {"data": [2.0] * N, "forward": [5.0] * N}, functions=moved)
    comparison = fastprof.compare(before, after)
    text = comparison.to_text()
    assert len(text.splitlines()) <= 35
    assert "=== BASELINE ===" not in text
    assert "--full has all tables" in text
    changed = {row.name for row in comparison.functions if row.figures["self_ms"].difference}
    shown = {name for name in names if f"\n{name} " in text}
    assert shown
    assert shown <= changed  # no row for anything unchanged
    assert f"({len(shown)} of {len(names)})" in text
    assert "=== BASELINE ===" in comparison.to_text(full=True)


def test_functions_of_a_renamed_script_are_the_same_functions() -> None:
    """For example after ``cp train.py faster.py`` and an edit."""

    def made(script: str, line: int) -> Report:
        rows = [function("augment", 50, file=f"/home/a/{script}", line=line),
                function("step", 20, file="/home/a/kit.py")]  # fmt: skip
        made = run([10.0] * N, functions=rows)
        return build_report(replace(made.snapshot, meta={"command": f"/home/a/{script} --lr 1"}))

    comparison = fastprof.compare(made("train.py", 1), made("faster.py", 7))
    assert {row.status for row in comparison.functions} == {"both"}
    places = {row.name: row.place for row in comparison.functions}
    assert places["augment"] == "faster.py:7 (was train.py:1)"
    # A file that is not the script of a run keeps its name.
    other = fastprof.compare(made("train.py", 1), run([10.0] * N, functions=[
        function("augment", 50, file="/home/a/faster.py")]))  # fmt: skip
    assert {r.status for r in other.functions if r.name == "augment"} == {"new", "gone"}


def test_waits_of_other_threads_are_no_rows_of_a_comparison() -> None:
    """A thread that sleeps until the end of the run was the largest difference of two runs."""
    sleep = Key("c", "~", 0, "<built-in function sleep>", "time.sleep")

    def made(idle_ms: int) -> Report:
        beat = Node(py("beat"), 1, MS, [Node(sleep, 1, idle_ms * MS)])
        train = Node(py("train"), 4, 9 * MS, [Node(sleep, 2, 3 * MS)])
        return build_report(Builder().thread(train).thread(beat, ident=2).snapshot())

    comparison = fastprof.compare(made(500), made(900))
    figures = {r.name: r.figures["self_ms"] for r in comparison.functions}
    assert (figures["time.sleep"].before, figures["time.sleep"].after) == (3, 3)
    said = "Waits of threads other than the training thread are left out of the functions."
    assert said in comparison.pairs[0].notes
    # A .stats file does not name the thread: nothing is removed from either side.
    stats = report_from_stats(stats_dict(made(900).snapshot))
    figures = {r.name: r.figures["self_ms"] for r in fastprof.compare(made(500), stats).functions}
    slept = next(f for name, f in figures.items() if "sleep" in name)
    assert (slept.before, slept.after) == (503, pytest.approx(903))


def test_the_notes_say_which_part_of_the_run_functions_are_of() -> None:
    whole = [run([10.0] * N) for _ in range(2)]
    (pair,) = fastprof.compare(*whole).pairs
    assert any("whole recording, warm-up included" in note for note in pair.notes)
    phases = (PhaseTime("setup", 10**9, 1), PhaseTime("steps", 10**9, 1))
    measured = [build_report(replace(r.snapshot, phases=phases)) for r in whole]
    (pair,) = fastprof.compare(*measured).pairs
    assert any("kernels are of measured steps" in note for note in pair.notes)


def test_s1_34_relative_changes_of_the_four_figures():
    # 252 samples in 2.1 s are 120 a second, 259 in 1.4 s are 185.
    comparison = fastprof.compare(
        training(2100.0, 252, 0.65, 30.0), training(1400.0, 259, 0.88, 36.0)
    )
    rows = {r.name: r for r in comparison.pairs[0].summary}
    text = comparison.to_text()
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["Throughput"] == ["Throughput", "120", "samples/s", "185", "samples/s", "+54%"]
    assert lines["GPU util"] == ["GPU", "util", "65.0", "%", "88.0", "%", "+35%"]
    assert lines["Step time"] == ["Step", "time", "2.10", "s", "1.40", "s", "-33%"]
    assert " ".join(lines["Memory"]) == "Memory 30.0 of 80.0 GiB 36.0 of 80.0 GiB +20%"
    assert rows["GPU util"].change.relative == pytest.approx(0.23 / 0.65)


def test_e14_the_change_of_utilization_is_relative_and_not_in_points():
    pair = pair_of(training(100.0, 8, 0.65, 1.0), training(100.0, 8, 0.88, 1.0))
    change = next(r for r in pair.summary if r.name == "GPU util").change
    assert f"{change.relative:+.0%}" == "+35%"


def test_s1_20_uniformity_of_steps_is_compared():
    even = run(normal(10.0, 400, 1, spread=0.02))
    uneven = run(normal(10.0, 400, 2, spread=0.4))
    moved = {r.name: r.change for r in pair_of(even, uneven).uniformity}
    assert moved["step time, std/mean"].before == pytest.approx(0.02, rel=0.2)
    assert moved["step time, std/mean"].after == pytest.approx(0.4, rel=0.2)
    assert "step time, std/mean" in fastprof.compare(even, uneven).to_text(full=True)


def test_what_changed_is_named_and_what_did_not_is_not(slower):
    pair = slower.pairs[0]
    assert {e.name: e.verdict for e in pair.effects} == {
        "step": "slower", "data": "no significant change", "forward": "slower",
    }  # fmt: skip
    step = pair.step
    assert step.low_ms < 2.0 < step.high_ms
    assert step.p_adjusted >= step.p
    assert step.median.difference_ms == pytest.approx(2.0, abs=0.3)
    assert slower.changed
    text = slower.to_text()
    assert "Step time: slower, " in text
    assert "forward: slower, " in text
    assert "data: " not in text.split("Before and after")[0]


def test_no_significant_change_is_an_answer_and_says_what_would_not_be_seen():
    comparison = fastprof.compare(run(normal(10.0, N, 1)), run(normal(10.0, N, 2)))
    assert not comparison.changed
    first = comparison.to_text().splitlines()[1]
    assert "no significant change" in first
    assert " would be seen in 4 of 5 comparisons" in first


def test_a_phase_is_the_same_section_by_either_name():
    values = normal(5.0, N, 1)
    pair = pair_of(run(values, {"forward": values}), run(values, {"forward_pass": values}))
    assert [e.name for e in pair.effects] == ["step", "forward"]
    assert [(r.name, r.status) for r in pair.sections] == [("forward", "both")]


def test_both_names_of_a_phase_in_one_run_are_two_sections():
    sides = [
        run(normal(10, 200, 1), {"data": [1.0] * 200, "data_loading": [ms] * 200}) for ms in (1, 3)
    ]
    found = fastprof.compare(*sides)
    assert found.pairs[0].effect("data_loading").difference_ms == pytest.approx(2)
    assert found.pairs[0].effect("data").difference_ms == 0
    assert [row.name for row in found.pairs[0].sections] == ["data", "data_loading"]
    after = open_run(sides[1])
    assert figure(after, Name("", "data"))[0] == pytest.approx(1)
    assert figure(after, Name("", "data_loading"))[0] == pytest.approx(3)


def test_time_per_call_is_a_mean_over_the_runs_that_have_the_function():
    def made(seed, *functions):
        return run(normal(10, 100, seed), functions=functions)

    work = Node(py("work"), 100, 200 * MS)
    found = fastprof.compare([made(1, work), made(2)], [made(3, work), made(4, work)])
    figures = found.functions[0].figures["per_call_ms"]
    assert (figures.before, figures.after) == (2, 2)


def test_runs_saved_without_a_series_still_have_their_steps():
    before = run(normal(10.0, N, 1), {"data": [1.0] * N}, with_series=False)
    pair = pair_of(before, run(normal(15.0, N, 2), {"data": [1.0] * N}))
    assert [(e.name, e.verdict) for e in pair.effects] == [("step", "slower")]


def test_what_recording_costs_is_no_change_of_the_program(monkeypatch):
    """The program takes 10 ms on both sides; recording it takes 5 ms, then 0.5 ms."""
    before, after = run(normal(15.0, N, 1)), run(normal(10.5, N, 2))
    costs = {id(before.snapshot): 5.0, id(after.snapshot): 0.5}
    told = property(lambda of: {"step": costs[id(of.report.snapshot)]})
    monkeypatch.setattr(Run, "recording_ms", told, raising=False)
    pair = pair_of(before, after)
    assert pair.step.verdict == "no significant change"
    assert "(recording takes 5.00 ms before, 0.500 ms after)" in pair.step.reason
    cost = next(row for row in pair.summary if row.name == "of it recording")
    assert (cost.before_text, cost.after_text) == ("5.00 ms", "0.500 ms")
    faster = run(normal(5.0, N, 3))
    costs[id(faster.snapshot)] = 0.5
    assert pair_of(before, faster).step.verdict == "faster"
    # A busy machine gives a limit of the cost, and both places say that it is one.
    monkeypatch.setattr(Run, "recording_at_most", property(lambda of: of.report is before))
    pair = pair_of(before, after)
    assert "recording takes at most 5.00 ms before, 0.500 ms after" in pair.step.reason
    cost = next(row for row in pair.summary if row.name == "of it recording")
    assert (cost.before_text, cost.after_text) == ("at most 5.00 ms", "0.500 ms")
    # Several runs per side have the same allowance.
    sides = [[run(normal(ms, N, seed)) for seed in range(3)] for ms in (15.0, 10.5, 5.0)]
    costs |= {id(r.snapshot): cost for side, cost in zip(sides, (5.0, 0.5, 0.5)) for r in side}
    step = pair_of(*sides[:2]).step
    assert (step.verdict, step.margin_ms) == ("no significant change", 4.5)
    assert "recording takes 5.00 ms before, 0.500 ms after" in step.reason
    assert pair_of(sides[0], sides[2]).step.verdict == "faster"


def test_ranks_of_a_job_are_one_run_and_a_run_is_named_once(tmp_path):
    def rank(number, job, seed):
        facts = {
            "rank": number,
            "world_size": 4,
            "job": job,
            "pid": number,
            "started_unix_ns": seed,
        }
        made = run(normal(10.0 + (job == "b"), N, seed))
        return replace(made, meta={**made.meta, **facts})

    sides = [[rank(i, job, 10 * (job == "b") + i + 1) for i in range(4)] for job in "ab"]
    pair = fastprof.compare(*sides).pairs[0]
    assert pair.step.verdict == "not tested"
    assert pair.step.reason == "several files are ranks of one job, which is one run"
    with pytest.raises(ValueError, match="are the same run: name each run of a side once"):
        fastprof.compare([sides[0][0], sides[0][0]], sides[1][0])


def test_a_run_without_measured_steps_has_totals_and_says_so():
    whole = run(normal(10.0, N, 1), functions=[Node(py("load"), 1, 8000 * MS)])
    crashed = build_report(replace(whole.snapshot, steps=Steps(count=3, skipped=3)))
    assert crashed.steps.count == 3
    found = fastprof.compare(whole, crashed)
    assert found.basis == "run"
    assert row(found, "load").figures["self_ms"].relative == pytest.approx(0.0)
    said = "Step time: not compared, because not every run has measured steps."
    assert said in found.to_text()


def test_a_level_of_99_9_percent_finds_a_step_of_twice_the_length():
    sections = {"data": [1.0] * N, "forward": [2.0] * N}
    found = pair_of(
        run(normal(10.0, N, 1), sections), run(normal(20.0, N, 2), sections), level=0.999
    )
    assert found.step.verdict == "slower"


def test_a_section_of_one_side_has_a_row():
    before = run(normal(10.0, N, 1), {"data": [1.0] * N})
    after = run(normal(13.0, N, 2), {"data": [1.0] * N, "validation": normal(3.0, N, 3)})
    found = fastprof.compare(before, after)
    effect = found.pairs[0].effect("validation")
    assert (effect.before_ms, effect.reason) == (0.0, "only the run after has it")
    assert effect.after_ms == pytest.approx(3.0, rel=0.05)
    assert any(line.startswith("validation") for line in found.to_text().splitlines())


def test_few_steps_give_figures_and_no_verdict():
    pair = pair_of(run([10.0] * 12), run([20.0] * 12))
    assert pair.step.verdict == "not tested"
    assert "too few steps: 12" in pair.step.reason
    assert pair.step.difference_ms == 10.0


def test_few_steps_decide_what_is_obvious():
    found = fastprof.compare(run(normal(20.0, 40, 1, 0.3)), run(normal(2.0, 40, 2, 0.3)))
    assert found.step.verdict == "faster"
    assert (found.step.blocks, found.step.median.low_ms) == ((5, 5), None)
    assert "Step time: faster, " in to_text(found, 80, full=False)


def test_a_busy_machine_withholds_the_verdict():
    def busy(n):
        return {"cpu_ns": tuple([5 * MS] * N), "switches": tuple([n] * N)}

    quiet = run(normal(10.0, N, 1), series=busy(0))
    disturbed = run(normal(15.0, N, 2), series=busy(2))
    pair = pair_of(quiet, disturbed)
    assert pair.step.verdict == "not tested"
    assert "the machine was busy: other programs took about" in pair.step.reason
    assert any("busy during the run after" in note for note in pair.notes)
    assert "step (CPU)" not in str(fastprof.compare(quiet, disturbed)).partition("Before")[0]
    # CPU time has no waits for a CPU in it.
    cpu = {**busy(2), "cpu_ns": tuple(round(ms * MS) for ms in normal(12.0, N, 3))}
    found = fastprof.compare(quiet, run(normal(15.0, N, 2), series=cpu))
    assert "\nstep (CPU): slower, 5.00 -> " in str(found)
    # Preempted once in 20 steps, for up to 4 ms: 0.2 ms per step may be due to other programs.
    little = {
        "cpu_ns": tuple([5 * MS] * N),
        "switches": tuple([int(i % 20 == 0) for i in range(N)]),
    }
    for ms, verdict in ((10.4, "no significant change"), (10.9, "slower")):
        step = pair_of(quiet, run(normal(ms, N, 2, 0.01), series=little)).step
        assert (step.verdict, round(step.margin_ms, 1)) == (verdict, 0.4)
    # Waiting (for a GPU, a disk) is no interruption.
    assert pair_of(quiet, run(normal(15.0, N, 2), series=busy(0))).step.verdict == "slower"
    assert [e.kind for e in pair.effects] == ["step", "cpu"]


def test_unsettled_steps_are_left_out_and_a_note_says_so():
    steps = normal(10.0, 400, 1)
    warming = [v + (20 if i < 60 else 0) for i, v in enumerate(steps)]
    pair = pair_of(run(warming), run(normal(10.0, 400, 2)))
    assert pair.step.verdict == "no significant change"
    assert pair.step.left_out == (60, 0)
    assert any("were not steady yet: 60 steps" in note for note in pair.notes)


def test_several_runs_per_side_are_tested_by_their_means_and_functions_too():
    def side(ms, seeds):
        return [
            run(normal(ms + seed % 3 / 100, 50, seed),
                functions=[function("work", 100 * ms + seed), function("same", 50 + seed % 2)])
            for seed in seeds
        ]  # fmt: skip

    comparison = fastprof.compare(side(10.0, range(4)), side(11.0, range(4, 8)))
    assert comparison.runs == (4, 4)
    step = comparison.step
    assert (step.verdict, step.steps, step.blocks) == ("slower", (4, 4), None)
    assert row(comparison, "work").verdict == "slower"
    assert row(comparison, "same").verdict == "no significant change"
    assert "verdict" in comparison.to_text().split("Functions")[1].splitlines()[1]


def test_functions_of_single_runs_claim_nothing():
    comparison = fastprof.compare(
        run([10.0] * N, functions=[function("work", 100)]),
        run([10.0] * N, functions=[function("work", 900)]),
    )
    assert (row(comparison, "work").verdict, row(comparison, "work").p_adjusted) == ("", None)
    assert any("They are not tested" in note for note in comparison.pairs[0].notes)


def test_figures_are_per_step_of_however_many_steps_there_were():
    comparison = fastprof.compare(
        run([10.0] * 97, functions=[function("work", 100)]),
        run([10.0] * 197, functions=[function("work", 200)]),
    )
    change = row(comparison, "work").figures["self_ms"]
    assert (change.before, change.after) == (1.0, 1.0)
    assert comparison.basis == "step"
    # The length of a run is no setting that may explain a difference.
    assert not comparison.pairs[0].settings


def test_calls_per_step_are_whole_numbers_if_each_step_has_as_many():
    # 1 / 49 and 1 / 91 are rounded: 6 * 91 * (1 / 91) is not 6.
    comparison = fastprof.compare(
        *(
            run([10.0] * (n - SKIPPED), functions=[Node(py("work"), 6 * n, 100 * MS)])
            for n in (49, 91)
        )
    )
    change = row(comparison, "work").figures["calls"]
    assert (change.before, change.after) == (6, 6)


def in_phases(report):
    """Return the report as of a run with phases: the whole tree belongs to measured steps."""
    walls = (("warmup", MS), ("steps", report.snapshot.duration_ns))
    phases = tuple(PhaseTime(name, ns, 1) for name, ns in walls)
    return build_report(replace(report.snapshot, phases=phases))


def test_what_measured_steps_took_is_divided_by_these():
    whole = [run([10.0] * n, functions=[function("work", n)]) for n in (10, 100)]
    before, after = (in_phases(report) for report in whole)
    change = row(fastprof.compare(before, after), "work").figures["self_ms"]
    assert (change.before, change.after) == (1.0, 1.0)
    # The comparison uses all work of both runs.
    change = row(fastprof.compare(whole[0], after), "work").figures["self_ms"]
    assert change.before == pytest.approx(10 / (10 + SKIPPED))
    assert change.after == pytest.approx(100 / (100 + SKIPPED))


def test_a_run_without_steps_is_compared_with_all_of_the_other_one():
    setup = Node(py("setup", 1), 1, 50 * MS)
    report = run([10.0] * 10, functions=[setup])
    nodes = report.snapshot.threads[0].nodes
    phase = tuple(0 if key == 0 else RUN_PHASES.index("setup") for key in nodes.key)
    threads = (replace(report.snapshot.threads[0], nodes=replace(nodes, phase=phase)),)
    phases = (PhaseTime("setup", 50 * MS, 1), PhaseTime("steps", 100 * MS, 1))
    report = build_report(replace(report.snapshot, threads=threads, phases=phases))
    assert not [f for f in report.functions if f.name == "setup" and f.calls]
    never = build_report(replace(report.snapshot, steps=Steps()))
    change = row(fastprof.compare(report, never), "setup").figures["self_ms"]
    assert (change.before, change.after) == (50.0, 50.0)


def test_kernels_and_loaders_are_joined_by_name():
    before = run([10.0] * N, gpu=gpu(kernels=(kernel("gemm", 80 * MS, 4), kernel("old", 9 * MS))))
    after = run([10.0] * N, gpu=gpu(kernels=(kernel("gemm", 40 * MS, 4), kernel("gemm", 10 * MS))))
    rows = {r.name: r for r in pair_of(before, after).kernels}
    assert rows["gemm"].figures["total_ms"].relative == pytest.approx(-30 / 80)
    assert rows["old"].status == "gone"
    loaders = pair_of(training(10.0, 8, 0.5, 1.0), training(10.0, 16, 0.5, 1.0))
    assert [r.name for r in loaders.loaders] == ["main (train)"]
    assert ("loader main (train): batch size", "8", "16") in [
        (s.name, s.before, s.after) for s in loaders.settings
    ]


def test_long_settings_are_shown_where_they_differ():
    command = (
        "/home/a/train.py --config configs/experiments/{}.yaml --output /mnt/shared/outputs/2026"
    )
    before, after = (
        replace(made, meta={**made.meta, "command": command.format(name)})
        for made, name in ((run([10.0] * N), "first"), (run([10.0] * N), "second"))
    )
    line = next(
        line for line in to_text(fastprof.compare(before, after)).splitlines()
        if line.startswith("command line")
    )  # fmt: skip
    assert line.split("  ")[1:3] == [
        "...first.yaml --output /mnt/...",
        "...second.yaml --output /mnt/...",
    ]


def test_a_command_line_of_many_files_is_shortened_at_once():
    # Each of the shared parts once took a pass over all of them.
    files = " ".join(f"data/{i}.npy" for i in range(100_000))
    before, after = run([10.0] * N), run([10.0] * N)
    made = [
        build_report(replace(r.snapshot, meta={**r.meta, "command": f"train.py {files} {last}"}))
        for r, last in ((before, "a"), (after, "b"))
    ]
    began = time.perf_counter()
    text = fastprof.compare(*made).to_text()
    assert time.perf_counter() - began < 10
    assert re.search(r"command line +\.\.\.a +\.\.\.b", text)


def test_what_a_stats_file_does_not_say_is_not_set_differently():
    made = build_report(replace(run([10.0] * N).snapshot, meta={"python": "3.11.7"}))
    stats = report_from_stats(stats_dict(made.snapshot))
    (pair,) = fastprof.compare(made, stats).pairs
    assert [(s.name, s.before, s.after) for s in pair.settings] == [("file", ".fprof", ".stats")]


def test_settings_that_differ_are_listed_and_those_that_matter_come_first():
    before = run([10.0] * N, meta={"python": "3.11.9", "sync": False, "command": "a", "pid": 1})
    after = run([10.0] * N, meta={"python": "3.12.1", "sync": True, "command": "b", "pid": 2})
    found = pair_of(before, after).settings
    assert [s.name for s in found] == ["Python", "synchronized with the GPU", "command line"]
    assert (found[1].before, found[1].after) == ("no", "yes")
    assert "overlaps" in found[1].matters
    after = run([10.0] * N, functions=[function("work", 5)], calibration=cost((40, 60)))
    raw = build_report(after.snapshot, correct_times=False)
    assert "hook's cost subtracted" in [s.name for s in pair_of(after, raw).settings]


def test_another_machine_of_the_same_kind_is_named():
    meta = {"python": "3.12.1", "host_id": "1a2b3c4d", "cpu": "AMD EPYC", "cpus": 4}
    before = run([10.0] * N, meta=meta)
    other = {"host_id": "99aabbcc", "cpu": "Intel Xeon", "cpus": 8}
    rows = {s.name: s for s in pair_of(before, run([10.0] * N, meta=meta | other)).settings}
    assert list(rows) == ["boot of the machine", "CPU", "CPUs"]
    assert rows["boot of the machine"].matters == "another machine, or this one restarted"
    assert all(row.matters for row in rows.values())


def test_a_module_without_an_optimizer_is_one_setting_in_words():
    meta = {"torch_untrained": "Sequential", "torch_untrained_size": 7447652,
            "torch_untrained_share": 0.9462853768190925, "torch_untrained_of": "x"}  # fmt: skip
    (setting,) = pair_of(run([10.0] * N, meta=meta), run([10.0] * N, meta={})).settings
    assert (setting.name, setting.before, setting.after) == (
        "gradients that no optimizer uses", "Sequential", "-",
    )  # fmt: skip


@pytest.mark.parametrize("field", ["ended_by", "torch_gpus"])
def test_a_setting_has_a_name_in_words(field):
    (setting,) = pair_of(run([10.0] * N, meta={field: "X"}), run([10.0] * N, meta={})).settings
    assert "_" not in setting.name


def test_a_change_stands_in_the_cell_of_its_figure(slower):
    """A column "change" of its own may land in another table than its figure."""
    text = to_text(slower, 80)
    table = text.split("Sections\n")[1].split("Notes")[0]
    assert "change" not in table
    assert re.search(r"forward +9\.98 -> 12\.0 \(\+21%\)", table)


def test_many_values_of_a_side_are_one_and_a_number():
    def side(name, seeds):
        words = "train.py --config {}.yaml --seed {}"
        metas = [{"command": words.format(name, seed), "cpus": 2 + seed % 2} for seed in seeds]
        return [run(normal(10.0, N, seed), meta=meta) for seed, meta in zip(seeds, metas)]

    (row,) = pair_of(side("a", range(4)), side("b", range(4))).settings
    assert row.before == "train.py --config a.yaml --seed 0 and 3 more"
    assert row.after == "train.py --config b.yaml --seed 0 and 3 more"
    # Not the one that both sides have.
    rows = pair_of(side("a", (0, 2)), side("a", (0, 2, 4))).settings
    assert rows[0].after == "train.py --config a.yaml --seed 4 and 2 more"
    rows = pair_of(side("a", (0, 2)), side("a", (0, 1))).settings
    assert ("CPUs", "2", "2, 3") in [(s.name, s.before, s.after) for s in rows]


def test_settings_without_an_effect_have_no_column_for_it():
    before = run([10.0] * N, meta={"command": "a"})
    after = run([10.0] * N, meta={"command": "b"})
    assert "effect on the comparison" not in to_text(fastprof.compare(before, after))
    after = run([10.0] * N, meta={"python": "3.12.1"})
    before = run([10.0] * N, meta={"python": "3.11.7"})
    assert "effect on the comparison" in to_text(fastprof.compare(before, after))


def test_functions_that_moved_to_workers_are_in_no_figure():
    made = [
        replace(run([10.0] * N).snapshot, loaders=(loader(5, workers=workers),))
        for workers in (0, 1)
    ]
    (pair,) = fastprof.compare(*map(build_report, made)).pairs
    (found,) = (s for s in pair.settings if s.name.endswith(": workers"))
    assert "in no figure" in found.matters


# ---- joining ----


def joined(before, after):
    tables = [run([1.0], functions=nodes).functions for nodes in (before, after)]
    return {
        tuple(None if r is None else (r.file, r.line) for r in rows) for rows in join.join(tables)
    }


def test_moved_lines_and_renamed_directories_do_not_matter():
    before = [function("step", 1, 10, "/old/place/train.py")]
    after = [function("step", 1, 99, "C:\\new\\train.py")]
    assert joined(before, after) == {(("/old/place/train.py", 10), ("C:\\new\\train.py", 99))}


def test_another_file_or_class_is_another_function():
    before = [function("step", 1, 10, "train.py")]
    after = [function("step", 1, 10, "eval.py"), function("step", 1, 10, qualname="A.step")]
    assert len(joined(before, after)) == 3


def test_functions_that_read_alike_are_paired_by_directory_and_nearest_line():
    def both(*places):
        return [function("<lambda>", 1, line, file) for file, line in places]

    assert joined(
        both(("p/a/m.py", 10), ("p/a/m.py", 50), ("p/b/m.py", 10)),
        both(("q/b/m.py", 11), ("q/a/m.py", 52), ("q/a/m.py", 12), ("q/a/m.py", 90)),
    ) == {
        (("p/a/m.py", 10), ("q/a/m.py", 12)),
        (("p/a/m.py", 50), ("q/a/m.py", 52)),
        (("p/b/m.py", 10), ("q/b/m.py", 11)),
        (None, ("q/a/m.py", 90)),
    }


def test_many_functions_that_read_alike_are_paired_in_order():
    nodes = [function("<lambda>", 1, line, "m.py") for line in range(1, 302)]
    moved = [function("<lambda>", 1, line + 1000, "m.py") for line in range(1, 302)]
    assert joined(nodes, moved) == {(("m.py", i), ("m.py", i + 1000)) for i in range(1, 302)}


def test_stats_files_are_compared_with_runs(tmp_path: Path):
    report = run(
        [10.0] * N,
        functions=[
            Node(py("forward", 3, "/a/m.py", "Net.forward"), 10, 50 * MS, [Node(c("len"), 5, MS)])
        ],
    )  # fmt: skip
    report.save(tmp_path / "a.fprof")
    report.save(tmp_path / "b.stats")
    for names in (("a.fprof", "b.stats"), ("b.stats", "a.fprof"), ("b.stats", "b.stats")):
        comparison = fastprof.compare(*(tmp_path / name for name in names))
        assert comparison.basis == "run"
        assert {r.status for r in comparison.functions} == {"both"}
        assert all(
            r.figures["self_ms"].difference == pytest.approx(0) for r in comparison.functions
        )
        assert "=== BASELINE ===" in comparison.to_text()
        assert any("nothing is tested" in note for note in comparison.pairs[0].notes)


# ---- three and more ----


def test_three_runs_have_a_column_each_against_the_first():
    runs = [
        run(normal(ms, N, i), functions=[function("work", 10 * ms)])
        for i, ms in enumerate((10.0, 12.0, 9.0))
    ]
    comparison = fastprof.compare(*runs)
    assert comparison.labels == ("report (1)", "report (2)", "report (3)")
    assert [p.step.verdict for p in comparison.pairs] == ["slower", "faster"]
    line = next(x for x in comparison.to_text().splitlines() if x.startswith("step "))
    assert "(+20% slower)" in line
    assert "(-10% faster)" in line
    work = next(x for x in comparison.to_text().splitlines() if x.startswith("work "))
    assert "(+20%)" in work
    assert "(-10%)" in work
    assert comparison.to_markdown().count("report (2)") >= 3


def test_three_runs_have_a_row_per_unit_and_new_functions():
    """15.2 steps/s -> 294 samples/s (-40%): the first run's samples per second were not shown."""
    other = run(normal(5.0, N, 1), functions=[function("added", 2.0)])
    runs = [training(10.0, 32, 0.5, 1.0), other, training(20.0, 32, 0.5, 1.0)]
    text = fastprof.compare(*runs).to_text()
    rates = [line.split() for line in text.splitlines() if line.startswith("Throughput")]
    assert [(row[1], row[2]) for row in rates] == [("100", "steps/s"), ("3200", "samples/s")]
    assert rates[0][-1] == rates[1][3] == "n/a"
    assert "(-50%)" in rates[1][-1]
    added = next(line for line in text.splitlines() if line.startswith("added"))
    assert added.split()[1:] == ["-", "0.010", "(new)", "-"]


# ---- outputs ----


def test_json_has_what_the_text_has(slower, tmp_path: Path):
    data = json.loads(slower.to_json())
    assert data["schema"] == "fastprof.comparison/1"
    assert data["changed"] is True
    effects = {e["name"]: e for e in data["pairs"][0]["effects"]}
    assert effects["forward"]["verdict"] == "slower"
    assert effects["forward"]["change"] == pytest.approx(0.2, abs=0.02)
    assert effects["forward"]["median"]["low_ms"] is not None
    for suffix, text in ((".json", slower.to_json()), (".md", slower.to_markdown()),
                         (".txt", slower.to_text(full=True))):  # fmt: skip
        slower.save(tmp_path / f"c{suffix}")
        assert (tmp_path / f"c{suffix}").read_text(encoding="utf-8") == text
    assert "steps" not in data
    with pytest.raises(ExportError, match=r"did you mean \.html?\?; use one of: \.json \.txt"):
        slower.save(tmp_path / "c.htlm")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_f43_hostile_names_reach_no_output(name):
    before = run([10.0] * N, {name: [1.0] * N}, functions=[Node(py(name, 1, name), 1, 5 * MS)],
                 meta={"command": name})  # fmt: skip
    after = run([10.0] * N, {name: [1.0] * N}, functions=[Node(py(name, 2, name), 1, 9 * MS)],
                meta={"command": name + "2"})  # fmt: skip
    comparison = fastprof.compare(before, after)
    for text in (comparison.to_text(), comparison.to_markdown()):
        assert all(line.isprintable() for line in text.splitlines())
    for line in comparison.to_markdown().splitlines():
        # Code contains no markup.
        assert "<" not in re.sub("`[^`]*`", "", line) or line.startswith("    "), line
    json.loads(comparison.to_json())


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_comparison_fits_the_terminal(slower, columns):
    rough = fastprof.compare(run([10.0] * 9), run([20.0] * 9))
    for comparison in (slower, rough):
        lines = to_text(comparison, columns).splitlines()
        assert max(map(len, lines)) <= columns
    # It appears once in the verdict and once above the table, not in each row.
    words = " ".join(" ".join(lines).split())
    assert words.count("too few steps: 9") == 2
    assert "not tested (step): too few" in words


def test_several_runs_per_side_are_one_table_with_a_verdict_at_80_columns() -> None:
    def side(factor: float, seed: int) -> list[Report]:
        return [
            run(
                normal(1210.0 * factor, 80, seed + i),
                {
                    "data": normal(114.0, 80, seed + i + 10),
                    "model/encoder/layers.attention": normal(514 * factor, 80, seed + i + 20),
                },
                functions=[
                    function(f"Trainer.compute_loss_of_{n}", factor * ms + i, file=f"/x/{n}.py")
                    for n, ms in (("the_first_language_model", 9e4), ("second", 7e4))
                ],
            )
            for i in range(3)
        ]

    comparison = fastprof.compare(side(1.0, 0), side(0.8, 50))
    for full in (False, True):
        lines = to_text(comparison, 80, full=full).splitlines()
        for name in ("ms per step", "function"):
            headers = [line for line in lines if line.startswith(f"{name} ")]
            assert len(headers) == 1, name
            assert headers[0].split()[-1] == "verdict"
    for header in ("before", "after", "difference", "p"):
        assert f"  {header} " in comparison.to_text()


def test_the_verdict_tells_that_the_sides_are_of_different_machines() -> None:
    said = "the two sides ran on different machines"

    def verdict(before: dict[str, object], after: dict[str, object]) -> str:
        a, b = run(normal(10.0, N, 1), meta=before), run(normal(15.0, N, 2), meta=after)
        return fastprof.compare(a, b).to_text().split("Before and after")[0]

    here: dict[str, object] = {"hostname": "a", "host_id": "1", "cpu": "EPYC"}
    assert said in " ".join(verdict(here, {**here, "hostname": "b", "host_id": "2"}).split())
    assert said in " ".join(verdict({"cpu": "EPYC"}, {"cpu": "Xeon"}).split())
    for other in (here, {}, {**here, "host_id": "2"}, {**here, "hostname": "pod-2"}):
        assert "different machines" not in verdict(here, other)


def test_every_line_of_a_table_fits_its_header(slower):
    lines = slower.to_text().splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("ms per step"))
    assert set(lines[rule + 1]) == {"-", " "}


# ---- bad input ----


def test_bad_input_is_named(tmp_path: Path):
    report = run([10.0] * 5)
    with pytest.raises(ValueError, match="1 run to compare"):
        fastprof.compare(report)
    with pytest.raises(TypeError, match="neither a Report nor the path"):
        fastprof.compare(report, 5)
    with pytest.raises(ValueError, match="has no run"):
        fastprof.compare(report, [])
    with pytest.raises(ValueError, match="level is 2"):
        fastprof.compare(report, report, level=2)
    with pytest.raises(ValueError, match="noise is nan"):
        fastprof.compare(report, report, noise=float("nan"))
    (tmp_path / "x.fprof").write_bytes(b"\x1f\x8b nonsense")
    with pytest.raises(LoadError, match=r"x\.fprof"):
        fastprof.compare(report, tmp_path / "x.fprof")
    with pytest.raises(FileNotFoundError):
        fastprof.compare(report, tmp_path / "missing.fprof")


def test_runs_that_measured_nothing_are_compared_as_far_as_they_go():
    empty = build_report(fastprof.snapshot.Snapshot(meta={}, duration_ns=0))
    comparison = fastprof.compare(empty, run([10.0] * N))
    assert comparison.step is None
    assert comparison.basis == "run"
    assert "fastprof compare" in comparison.to_text()
    assert SKIPPED == 3


# ---- texts that help a reader ----


def test_a_change_from_nearly_zero_is_written_in_words():
    assert relative_change(0.5) == "+50%"
    assert relative_change(11.0) == "12 times"
    assert relative_change(2_626_978.0) == "from nearly nothing"
    assert relative_change(-40.0) == "-100%"
    before, after = normal(10.0, N, 1), normal(10.0, N, 2)
    nothing, much = [1e-6] * N, normal(5.0, N, 3)
    text = fastprof.compare(
        run(before, {"data": nothing}), run([a + 5 for a in after], {"data": much})
    ).to_text()
    assert "from nearly nothing" in text
    assert not re.search(r"\d{4,}%", text)


def test_an_interval_that_says_nothing_is_not_printed():
    # The section's whole time is in one step of 200: most draws miss it.
    once = [0.0] * (N - 1) + [80.0]
    sides = [run(normal(10.0, N, i), {"eval": once}) for i in (1, 2)]
    text = fastprof.compare(*sides).to_text()
    assert "inf" not in text
    # Two runs that differ by chance a thousandfold: t with one degree of freedom.
    uneven = [[run([ms] * N, {"eval": [part] * N}) for part in parts]
              for ms, parts in ((10.0, (0.001, 3.0)), (11.0, (0.002, 4.0)))]  # fmt: skip
    pair = fastprof.compare(*uneven).pairs[0]
    assert pair.effect("eval").low_ms is None or abs(pair.effect("eval").low_ms) < 50
    assert "inf" not in fastprof.compare(*uneven).to_text()


def test_runs_are_named_by_what_tells_them_apart(tmp_path):
    report = run(normal(10.0, N, 1))
    for folder in ("before", "after"):
        (tmp_path / folder).mkdir()
        report.save(tmp_path / folder / "train_profile.fprof")
    paths = [tmp_path / folder / "train_profile.fprof" for folder in ("before", "after")]
    assert fastprof.compare(*paths).labels == ("before", "after")
    starts = [
        run(normal(10.0, N, i), meta={"started_unix_ns": (1_700_000_000 + 90 * i) * 10**9})
        for i in (1, 2)
    ]
    labels = fastprof.compare(*starts).labels
    assert len(set(labels)) == 2
    assert all(label.startswith("2023-11-1") for label in labels)
    # The same file twice.
    assert fastprof.compare(paths[0], paths[0]).labels == (
        "train_profile.fprof (1)",
        "train_profile.fprof (2)",
    )


def test_long_names_are_shown_where_they_differ(tmp_path):
    paths = [tmp_path / f"resnet50-imagenet-lr0.1-batch256-{n}.fprof" for n in ("a-1", "a-2", "b")]
    for i, path in enumerate(paths):
        run(normal(10.0 + 5 * i, N, i)).save(path)
    comparison = fastprof.compare(*paths)
    text = to_text(comparison, 80)
    assert "compare: ...a-1.fprof -> ...a-2.fprof -> ...b.fprof" in text
    assert "resnet50" not in text.split("Notes")[0]
    sides = fastprof.compare(paths[:2], paths[2:])
    assert "compare: ...a-1.fprof and 1 more -> " in to_text(sides, 80)
    assert "...b.fprof: Step time: slower" in text
    assert comparison.labels == tuple(path.name for path in paths)


def test_the_notes_name_each_run_of_a_side(tmp_path):
    busy = {"cpu_ns": tuple([5 * MS] * N), "switches": tuple([2] * N)}
    paths = [[tmp_path / side / f"run{i}" / "train.fprof" for i in (1, 2)] for side in "ab"]
    for i, path in enumerate([*paths[0], *paths[1]]):
        path.parent.mkdir(parents=True)
        run(normal(10.0, N, i), series=busy).save(path)
    (pair,) = fastprof.compare(*paths).pairs
    notes = [note for note in pair.notes if "busy" in note]
    for name in ("a/run1", "a/run2", "b/run1", "b/run2"):
        assert sum(f"({name})" in note for note in notes) == 1
    # Several runs are tested without that allowance, and on busy machines as well.
    assert pair.step.p is not None
    assert not any("not called a change" in note or "tested for" in note for note in notes)


def test_a_programs_waits_for_its_disk_are_no_other_programs() -> None:
    """Each fsync switches the thread off the CPU."""
    series = {"cpu_ns": tuple([5 * MS] * N), "switches": tuple([2] * N)}
    made = run(normal(10.0, N, 2), series=series).snapshot
    waited = made.steps.sum_ns // 100
    split = (("cpu_wait", waited), ("io", made.steps.sum_ns // 2))
    after = build_report(replace(made, steps=replace(made.steps, split=split)))
    pair = fastprof.compare(run(normal(10.0, N, 1)), after).pairs[0]
    assert pair.step.verdict == "no significant change"
    (note,) = [note for note in pair.notes if "other programs took" in note]
    assert "about 1.00 % of" in note


def test_the_screen_has_the_reason_of_every_row_without_a_verdict():
    before = run(normal(10.0, N, 1), {"data": [1.0] * N})
    after = run(normal(13.0, N, 2), {"data": [1.0] * N, "validation": normal(3.0, N, 3)})
    text = to_text(fastprof.compare(before, after), 80, full=False)
    assert "not tested (validation): only the run after has it." in text
    few = fastprof.compare(run([10.0] * 9), run([20.0] * 9))
    assert to_text(few, 80, full=False).count("too few steps") == 1
    # Where nothing is tested, nothing explains how.
    assert "Holm" not in to_text(few)
    assert "seen from" not in to_text(few)


def test_a_row_that_is_not_tested_finds_nothing():
    series = {"cpu_ns": tuple([5 * MS] * N), "switches": tuple([2] * N)}
    pair = pair_of(run(normal(10.0, N, 1)), run(normal(15.0, N, 2), series=series))
    assert (pair.step.verdict, pair.step.detectable_ms) == ("not tested", None)


@pytest.mark.parametrize(("used", "told"), [(0.52, True), (1.9, False), (None, False)])
def test_workers_of_the_program_are_no_other_programs(used, told):
    series = {"cpu_ns": tuple([5 * MS] * N), "switches": tuple([2] * N)}
    made = run(normal(10.0, N, 1), series=series)
    loaders = (LoaderStats("main", "train", N, {}, workers=WorkerStats(workers=2)),)
    meta = {**made.meta, "cpus": 2}
    if used is not None:
        meta["process_cpu_ns"] = round(used * made.snapshot.duration_ns)
    after = build_report(replace(made.snapshot, loaders=loaders, meta=meta))
    notes = fastprof.compare(run(normal(10.0, N, 2)), after).pairs[0].notes
    assert any("busy during the run after" in note for note in notes) == told


def test_the_margins_of_all_rows_are_in_the_sentence_on_them():
    """2 % of the step are more than 2 % of data."""

    def made(data_ms, backward_ms, seed):
        data, backward = (
            normal(ms, 300, seed + i, 0.005) for i, ms in enumerate((data_ms, backward_ms))
        )
        whole = [a + b for a, b in zip(data, backward, strict=True)]
        return run(whole, {"data": data, "backward": backward})

    found = fastprof.compare(made(10.0, 60.0, 1), made(10.12, 60.75, 3))
    text = " ".join(to_text(found).split())
    assert (
        "(step, data, backward): these runs differ, but not by more than the 0.200 to 1.40 ms"
        in text
    )


def test_rows_that_need_other_numbers_of_steps_are_one_sentence():
    both = fastprof.compare(run(normal(10.0, N, 1)), run(normal(10.0, N, 2)))
    pair = both.pairs[0]
    said = "successive steps depend on each other, so a test needs at least {} of them"
    effects = tuple(
        replace(pair.step, name=name, verdict="not tested", reason=said.format(steps))
        for name, steps in (("step", 96), ("forward", 312), ("backward", 104))
    )
    text = to_text(replace(both, pairs=(replace(pair, effects=effects),)))
    line = f"not tested (step, forward, backward): {said.format('96 to 312')}."
    assert line in " ".join(text.split())
    assert text.count("not tested (") == 1
