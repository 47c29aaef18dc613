"""The budget of a run: which steps have the hook, and what they cost together."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastprof
import pytest
from fastprof.export.pstats_ import stats_dict
from fastprof.findings.measurements import of_steps
from fastprof.ranks.exchange.recording import Recording
from fastprof.ranks.row import rank_run
from fastprof.report.threads import training_thread
from fastprof.report.user_tree import user_tree
from fastprof.session import changes as changes_module
from fastprof.session import function_windows, overhead_budget
from fastprof.session.changes import Changes
from fastprof.session.environment.overhead import overhead_from, overhead_or_default
from fastprof.session.function_windows import WINDOW, FunctionWindows
from fastprof.session.overhead_budget import Budget
from fastprof.session.time_windows import TimeWindows
from fastprof.snapshot.run_phases import RUN_PHASES
from fastprof.snapshot.steps import SplitPlace


class Loop:
    """A simulated loop with its recorder and clock: what a step takes, and what fastprof adds."""

    def __init__(self, plain_ns: int, hook_ns: int, settle: int = 1, own_ns: int = 0) -> None:
        self.plain_ns, self.hook_ns, self.own_step_ns = plain_ns, hook_ns, own_ns
        self.length = settle + min(settle + 1, 4)
        self.now = self.own = self.always_ns = 0
        self.hooked, self.planned = True, 0
        self.sections, self.steps = True, 0
        self.blocks: list[tuple[int, int]] = []
        self.with_hook: list[int] = []
        self.costs_ns = 0  # of the hook and of own work
        self.switch_ns = 50_000

        self.walls: list[int] = []  # of plain steps

    # the clock
    def perf_counter_ns(self) -> int:
        return self.now

    # the recorder
    def unprofiled_length(self, settles_ns: int, /) -> int:
        return self.length

    def plan_unprofiled(self, step: int, /) -> None:
        self.planned = step

    def begin_unprofiled(self) -> bool:
        self._switch(hooked=False)
        return True

    def end_unprofiled(self, valid: bool, /) -> None:
        if not self.hooked:
            self._switch(hooked=True)
        if valid:
            self.blocks.insert(0, (self.plain_ns, self.plain_ns + self.hook_ns))

    def rehook(self) -> None:
        self._switch(hooked=True)

    def resume_functions(self) -> None:
        pass

    def window(self, first: int, plain: bool = False, /) -> dict[str, bytes]:
        assert plain
        last = self.walls[-max(0, self.count - first) :]
        return {"wall_ns": array("q", last).tobytes()}

    def last_blocks(self, count: int, /) -> list[tuple[int, int]]:
        return self.blocks[:count]

    def _switch(self, *, hooked: bool) -> None:
        self.hooked = hooked
        self.now += self.switch_ns
        self.costs_ns += self.switch_ns

    def switch_sections(self, on: bool) -> None:
        self.sections = on

    def own_ns(self) -> int:
        return self.own

    def run(self, windows: FunctionWindows, steps: int, first: int = 0) -> None:
        if not first:
            windows.begin()
        self.steps = first + steps
        for count in range(first, first + steps):
            self.count = count
            windows.at_step(count)
            added = self.hook_ns if self.hooked else 0
            own = self.always_ns + (self.own_step_ns if self.sections else 0)
            if self.hooked:
                self.with_hook.append(count)
            self.own += own
            self.costs_ns += added + own
            self.now += self.plain_ns + added + own
            if self.hooked:
                self.walls.clear()
            else:
                self.walls.append(self.plain_ns + own)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    loops: list[Loop] = []

    class Time:
        @staticmethod
        def perf_counter_ns() -> int:
            return loops[-1].now

    monkeypatch.setattr(function_windows, "time", Time)
    monkeypatch.setattr(overhead_budget, "time", Time)
    monkeypatch.setattr(changes_module, "time", Time)
    monkeypatch.setattr(function_windows, "thread_cpu", dict)
    return loops


def windows_of(loop: Loop, overhead: float = 0.01) -> FunctionWindows:
    budget = Budget(overhead, loop, loop.own_ns)  # type: ignore[arg-type]
    return FunctionWindows(
        loop, budget, lambda: True, lambda first, last: False, 3, print, loop.switch_sections
    )  # type: ignore[arg-type]


def test_the_full_look_has_functions_in_200_steps(clock: list[Loop]) -> None:
    clock.append(loop := Loop(5_000_000, 1_000_000))
    loop.run(windows_of(loop), 240)
    hooked = [i for i in loop.with_hook if i >= 3]
    assert len(hooked) >= 200
    before = len(loop.with_hook)
    loop.run(windows_of(loop), 0)
    assert len(loop.with_hook) == before


@pytest.mark.parametrize(
    ("plain_ms", "hook_ms", "settle"),
    [(0.13, 0.05, 20), (0.6, 0.4, 5), (5, 1, 1), (17, 1.2, 1), (100, 4, 1), (900, 300, 1)],
)
def test_what_follows_the_full_look_costs_at_most_the_budget(
    clock: list[Loop], plain_ms: float, hook_ms: float, settle: int
) -> None:
    clock.append(loop := Loop(round(plain_ms * 1e6), round(hook_ms * 1e6), settle))
    windows = windows_of(loop)
    loop.run(windows, 600)
    spent, began, seen = loop.costs_ns, loop.now, len(loop.with_hook)
    steps = 20_000 if plain_ms < 100 else 4_000
    loop.run(windows, steps, 600)
    assert (loop.costs_ns - spent) / (loop.now - began) <= 0.01
    # It uses a good part of what it may cost.
    assert len(loop.with_hook) - seen >= 2 * WINDOW
    if plain_ms >= 5:
        assert (loop.costs_ns - spent) / (loop.now - began) >= 0.003


@pytest.mark.parametrize("what", ["slower", "faster", "stage", "nothing", "slower, many ranks"])
@pytest.mark.parametrize("at", [2_117, 3_771, 5_003])
def test_a_change_of_the_loop_opens_a_window_within_20_steps(
    clock: list[Loop], what: str, at: int
) -> None:
    clock.append(loop := Loop(5_000_000, 3_000_000))
    stage = [0]
    budget = Budget(0.01, loop, loop.own_ns, lambda: "ranks" in what)  # type: ignore[arg-type]
    windows = FunctionWindows(
        loop, budget, lambda: True, lambda first, last: False, 3, print, loop.switch_sections,
        Changes(loop, lambda: stage[0]),
    )  # type: ignore[arg-type]  # fmt: skip
    loop.run(windows, at)
    while loop.hooked or windows._due < at + 30:  # one is near
        loop.run(windows, 1, at)
        at += 1
    before = len(loop.with_hook)
    stage[0] += what == "stage"
    loop.plain_ns = 7_000_000 if "slower" in what else 3_500_000 if what == "faster" else 5_000_000
    loop.run(windows, 20, at)
    assert (len(loop.with_hook) > before) == (what in ("slower", "faster", "stage"))
    spent, began = loop.costs_ns, loop.now
    loop.run(windows, 20_000, at + 20)
    assert (loop.costs_ns - spent) / (loop.now - began) <= 0.01


def test_a_noisy_machine_opens_no_more_windows_than_are_paid_for(clock: list[Loop]) -> None:
    clock.append(loop := Loop(17_000_000, 1_200_000))
    windows = windows_of(loop)
    windows._changes = changes = Changes(loop, lambda: 0)  # type: ignore[arg-type]
    loop.run(windows, 1_000)
    spent, began = loop.costs_ns, loop.now
    for at in range(1_000, 20_000, 40):
        loop.plain_ns = 34_000_000 if at // 40 % 2 else 17_000_000
        loop.run(windows, 40, at)
    assert (loop.costs_ns - spent) / (loop.now - began) <= 0.011
    assert changes.due == sys.maxsize  # after eight changes nothing more is looked at


def test_ten_seconds_of_long_steps_end_the_full_look(clock: list[Loop]) -> None:
    clock.append(loop := Loop(900_000_000, 300_000_000))
    loop.run(windows_of(loop), 60)
    assert len(loop.with_hook) < 40


def test_a_hook_that_the_budget_pays_for_stays(clock: list[Loop]) -> None:
    clock.append(loop := Loop(100_000_000, 500_000))
    loop.run(windows_of(loop), 2000)
    assert len(loop.with_hook) > 1900


def test_no_budget_records_functions_in_nearly_all_steps(clock: list[Loop]) -> None:
    clock.append(loop := Loop(1_000_000, 1_000_000))
    windows = FunctionWindows(
        loop, None, lambda: True, lambda first, last: False, 3, print, loop.switch_sections
    )  # type: ignore[arg-type]
    loop.run(windows, 5000)
    assert len(loop.with_hook) > 4500


def test_automatic_sections_that_cost_too_much_are_in_windows_only(clock: list[Loop]) -> None:
    clock.append(dear := Loop(500_000, 300_000, 5, own_ns=20_000))
    windows = windows_of(dear)
    dear.run(windows, 5000)
    spent, began = dear.costs_ns, dear.now
    dear.run(windows, 20_000, 5000)
    assert (dear.costs_ns - spent) / (dear.now - began) <= 0.01
    # The full look has shown it: no plain step after it has them.
    blocks = 1 + len(dear.blocks)
    assert dear.own <= 20_000 * (len(dear.with_hook) + blocks * dear.length)
    clock.append(cheap := Loop(17_000_000, 1_000_000, own_ns=20_000))
    cheap.run(windows_of(cheap), 5000)
    assert cheap.own == 5000 * 20_000


def test_windows_after_epochs_cost_what_plain_steps_leave_of_the_budget(clock: list[Loop]) -> None:
    """They cost all of it, in addition to the plain steps."""
    clock.append(loop := Loop(800_000, 250_000, 6, own_ns=100_000))
    loop.always_ns = 6_400
    windows = windows_of(loop)
    loop.run(windows, 2_000)
    spent, began, seen = loop.costs_ns, loop.now, len(loop.with_hook)
    for _ in range(600):
        loop.run(windows, 64, loop.steps)
        windows.phase_begins("outside")
    assert (loop.costs_ns - spent) / (loop.now - began) <= 0.0115
    assert len(loop.with_hook) - seen >= 4 * WINDOW


def test_after_the_look_plain_steps_are_interrupted_by_windows_alone(clock: list[Loop]) -> None:
    """Whether ten seconds of steps were over was asked every 60 steps."""
    clock.append(loop := Loop(130_000, 50_000, 20))
    windows = windows_of(loop)
    loop.run(windows, 400)
    while loop.hooked or windows._judged_at != sys.maxsize:
        loop.run(windows, 1, loop.steps)
    assert loop.now < 1_000_000_000
    assert windows.next_step(loop.steps) == windows._due > loop.steps + 60


def test_the_first_look_at_plain_steps_does_not_say_what_looks_cost(clock: list[Loop]) -> None:
    """It took a hundred times as long as the next one, which then came 5000 steps later."""
    clock.append(loop := Loop(250_000, 1_000_000))
    loop.count, loop.walls = 1_000, [250_000] * 9
    changes = Changes(loop, lambda: 0)  # type: ignore[arg-type]
    read, took = loop.window, [1_400_000, 12_000, 20_000]

    def window(first: int, plain: bool = False, /) -> dict[str, bytes]:
        loop.now += took.pop(0)
        return read(first, plain)

    loop.window = window  # type: ignore[method-assign]
    changes.plan(1_000)
    for rarely in (160, 208, 208):
        assert not changes.are_there(1_000)
        assert changes.due == 1_000 + rarely


def test_work_that_the_full_look_has_seen_three_times_is_not_recorded_on_credit(
    clock: list[Loop],
) -> None:
    """Three ends of epochs after the look cost a run of 250 more steps several per cent."""
    clock.append(loop := Loop(20_000_000, 10_000_000))
    windows = windows_of(loop)
    while windows._looks or loop.hooked or windows._judged_at != sys.maxsize:
        loop.run(windows, 1, loop.steps)
        if loop.steps % 20 == 0 and windows._looks:
            windows.phase_begins("outside")
    assert not windows.phase_begins("outside")
    assert windows.phase_begins("validation")


def test_one_dear_interval_takes_no_automatic_sections(clock: list[Loop]) -> None:
    clock.append(loop := Loop(17_000_000, 1_000_000, own_ns=20_000))
    windows = windows_of(loop)
    loop.run(windows, 500)
    while loop.hooked or windows._looks:
        loop.run(windows, 1, loop.steps)
    loop.own += 500_000_000  # a file was saved
    sections = loop.own
    loop.run(windows, 20_000, loop.steps)
    assert loop.own - sections == 20_000 * 20_000


def test_a_note_counts_the_validations_without_functions(clock: list[Loop]) -> None:
    clock.append(loop := Loop(5_000_000, 2_000_000))
    windows = windows_of(loop)
    loop.run(windows, 400)
    missing = 0
    for _ in range(40):
        loop.run(windows, 50, loop.steps)
        if not loop.hooked:
            missing += not windows.phase_begins("validation")
        loop.now += 2_000_000_000
    assert missing > 5
    with fastprof.Profiler(gpu=False, functions=False) as prof:
        prof.step()
    notes = windows.add_to(prof.report().snapshot).notes
    assert f"left out in {missing} interruptions" in notes[-1]


@pytest.mark.parametrize("into", range(7))
def test_a_validation_may_begin_in_any_step_of_the_block_that_ends_the_look(
    clock: list[Loop], into: int
) -> None:
    """In its last one it left the hook in all steps up to the next window."""
    clock.append(loop := Loop(5_000_000, 2_000_000, settle=3))
    windows = windows_of(loop)
    while loop.hooked or not windows._has_looked():
        loop.run(windows, 1, loop.steps)
    loop.run(windows, into, loop.steps)
    assert windows._looks
    assert windows.phase_begins("validation")
    loop.run(windows, 1, loop.steps)
    assert windows._state == function_windows._HOOKED


def test_ranks_with_another_cost_open_windows_in_the_same_steps(clock: list[Loop]) -> None:
    found = []
    for hook_ns in (1_000_000, 2_500_000):
        clock.append(loop := Loop(5_000_000, hook_ns))
        windows = windows_of(loop)
        loop.run(windows, 40_000)
        hooked = [i for i in loop.with_hook if i > 10_000]
        found.append({i for i in hooked if i - 1 not in hooked})  # first steps
    few, many = sorted(found, key=len)
    assert len(few & many) >= 0.9 * len(few)


def test_the_program_and_its_user_choose_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    assert overhead_or_default(None) == 0.01
    monkeypatch.setenv("FASTPROF_OVERHEAD", "2%")
    assert overhead_or_default(None) == 0.02
    assert overhead_or_default(0) == 0.0
    assert overhead_from("none", "x") == 0.0
    for wrong in ("x", "-1%", "100%", "nan", "%"):
        with pytest.raises(ValueError, match="--overhead is"):
            overhead_from(wrong, "--overhead")
    with pytest.raises(ValueError, match="overhead is 1"):
        fastprof.Profiler(overhead=1)
    with pytest.raises(TypeError, match="overhead is '1%'"):
        fastprof.Profiler(overhead="1%")  # type: ignore[arg-type]


def test_a_wrong_environment_variable_is_reported_once_and_harms_no_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import fastprof\n"
        "for _ in range(2):\n"
        "    with fastprof.Profiler(gpu=False, ranks=False) as prof:\n"
        "        prof.step()\n"
        "print('done')\n"
    )
    for flags in ([], ["-W", "error"]):
        done = subprocess.run(
            [sys.executable, *flags, str(program)],
            env=os.environ | {"FASTPROF_OVERHEAD": "junk", "FASTPROF": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("done")
        reports = done.stderr.count("FASTPROF_OVERHEAD is 'junk', expected a part such as 1%")
        assert reports == 1 or (flags and reports > 1)


@pytest.fixture
def dear_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that costs as much as the program, whatever the machine measures, and a full look of
    a few hundred steps, however short they are."""

    def judge(budget: Budget) -> bool:
        budget.step_ns = budget.hook_ns = 1e6
        return True

    monkeypatch.setattr(Budget, "judge", judge)
    monkeypatch.setattr(function_windows, "_SETTLES_NS", 0)
    monkeypatch.setattr(function_windows, "_MAX_COST", 1e9)


def called_often() -> int:
    """Calls for which the hook costs several times what they take."""
    return sum(i for i in range(300))


@pytest.mark.usefixtures("dear_hook")
def test_a_run_states_plain_steps_and_its_functions(tmp_path) -> None:
    prof = fastprof.Profiler(gpu=False, functions=True)
    with prof:
        for _ in range(3000):
            with fastprof.profile_section("forward"):
                called_often()
            prof.step()
    report = prof.report()
    assert report.plain is not None
    assert report.plain.measured > 1500
    assert report.plain.measured + report.steps.measured <= 3000 - 3
    assert sum(row.total_ns for row in report.plain.rows) == report.plain.wall_ns
    assert sum(row.total_ns for row in report.plain.split) == report.plain.wall_ns
    names = [row.name for row in report.plain.rows]
    assert names == ["forward", "(unaccounted)", "(fastprof)"]
    calls = next(row.calls for row in report.functions if row.name == "called_often")
    assert calls == report.steps.measured
    assert report.plain.mean_ms is not None
    tree = user_tree(of_steps(report), 20, training_thread(report.view))
    assert "called_often" in {row.name for row in tree.rows}
    whole = sum(row.total_ms for row in tree.rows if not row.depth) / report.steps.measured
    assert 0 < whole <= report.plain.mean_ms * (1 + 1e-9)
    saved = tmp_path / "run.fprof"
    report.save(saved)
    text = fastprof.load(saved).to_text()
    every = report.plain.measured + report.steps.measured
    assert f"{every} steps of" in text
    assert f"Functions were recorded in {report.steps.measured} of {every} steps" in str(
        report.notes
    )


@pytest.mark.usefixtures("dear_hook")
def test_a_loaders_times_are_those_of_plain_steps() -> None:
    prof = fastprof.Profiler(gpu=False, functions=True)
    with prof:
        for _ in prof.loader(range(3000)):
            with fastprof.profile_section("forward"):
                called_often()
            prof.step()
    report = prof.report()
    assert report.plain is not None
    forward = next(row for row in report.plain.rows if row.name == "forward")
    (loader,) = report.loaders
    assert loader.forward_ms == pytest.approx(forward.mean_ms, rel=1e-3)
    (stats,) = report.snapshot.loaders
    assert stats.plain is not None
    assert stats.plain["forward"][0] == forward.steps


@pytest.mark.usefixtures("dear_hook")
def test_ranks_are_compared_by_their_plain_steps() -> None:
    """Most of a long run's steps: a rank that is late there only must be seen."""
    prof = fastprof.Profiler(gpu=False, functions=True)
    with prof:
        for _ in range(2000):
            with fastprof.profile_section("backward"):
                called_often()
            prof.step()
    snapshot = prof.snapshot()
    plain = snapshot.plain_steps
    assert plain is not None
    found = rank_run(replace(snapshot, meta={**snapshot.meta, "rank": 0, "world_size": 2}), "x")
    assert found.steps is not None
    assert list(found.steps.numbers) == list(plain.series.number)
    assert found.row.steps == plain.measured
    assert dict(found.row.waits)["backward"] == pytest.approx(
        plain.rows[0].sum_ns / plain.measured / 1e6
    )
    raw = Recording(prof._run.recorder, "job", 0, 2, "host")._last_steps()
    assert raw is not None
    assert len(raw["number"]) == 8 * len(plain.series)
    # Calls that wait are known in steps with functions: in plain ones for the same part of it.
    hooked = snapshot.steps
    nodes = snapshot.threads[0].nodes
    (section,) = {row.key for row in hooked.rows if snapshot.keys[row.key].name == "backward"}
    assert nodes.phase
    node = list(zip(nodes.key, nodes.phase, strict=True)).index((section, 0))
    place = SplitPlace("communication", 0, node, hooked.rows[0].sum_ns // 4)
    waits = replace(snapshot, steps=replace(hooked, split_places=(place,)))
    ranked = rank_run(replace(waits, meta={**snapshot.meta, "rank": 0, "world_size": 2}), "x")
    assert ranked.waiting["backward"] == pytest.approx(
        plain.rows[0].sum_ns / plain.measured / 1e6 / 4, rel=0.01
    )


@pytest.mark.parametrize(("forward", "is_plain"), [(2000, True), (1000, False)])
def test_a_rare_section_hides_no_plain_steps_from_the_other_ranks(
    forward: int, is_plain: bool
) -> None:
    """By chance it ran in 4 of 100 steps with functions, and in 40 of 2000 others."""

    def steps(n: int, **sections: int) -> dict[str, Any]:
        columns = [
            (name, array("q", [1] * ran + [0] * (n - ran)).tobytes())
            for name, ran in sections.items()
        ]
        return {"number": bytes(8 * n), "sections": columns}

    class Two:
        def window(self, _since: int, plain: bool = False) -> dict[str, Any]:
            if plain:
                return steps(2000, forward=forward, rare=40)
            return steps(100, forward=100, rare=4)

    raw = Recording(Two(), "job", 0, 2, "host")._last_steps()  # type: ignore[arg-type]
    assert raw is not None
    assert len(raw["number"]) == 8 * (2000 if is_plain else 100)


@pytest.mark.usefixtures("dear_hook")
def test_a_stats_file_has_the_steps_with_functions_only() -> None:
    """The time of plain steps belongs to none of its functions."""
    prof = fastprof.Profiler(gpu=False, functions=True)
    with prof:
        for _ in range(3000):
            called_often()
            prof.step()
    report = prof.report()
    assert report.plain is not None
    entries = stats_dict(report.snapshot)
    calls = {name: entry[1] for (_, _, name), entry in entries.items()}
    unprofiled = RUN_PHASES.index("unprofiled")
    settled = sum(
        tree.nodes.calls[i]
        for tree in report.snapshot.threads
        for i, phase in enumerate(tree.nodes.phase)
        if phase != unprofiled and report.snapshot.keys[tree.nodes.key[i]].name == "called_often"
    )
    assert calls["called_often"] == settled < 1000
    spent_s = sum(entry[2] for entry in entries.values())
    plain_s = report.snapshot.phase_ns("unprofiled") / 1e9
    assert spent_s <= report.snapshot.duration_ns / 1e9 - plain_s


@pytest.mark.usefixtures("dear_hook")
def test_the_programs_own_sections_of_plain_steps_are_in_all_tables() -> None:
    """Also those that never run with functions, and those that run in the full look only."""
    section = fastprof.profile_section
    with fastprof.Profiler(gpu=False, functions=True, overhead=0.02) as prof:
        for step in range(3000):
            with section("forward"), section("inner"):
                sum(range(300))
                if step >= 1000:
                    with section("inside later"):
                        pass
            with section("early" if step < 150 else "late"):
                sum(range(100))
            if step % 1000 == 900:
                with section("checkpoint"):
                    sum(range(3000))
            prof.step()
    report = prof.report()
    assert report.plain is not None
    assert report.plain.measured > 2000
    rows = {row.name: row for row in report.sections}
    steps = {row.name: row for row in report.shown_steps.rows}
    assert {"forward", "inner", "inside later", "early", "late", "checkpoint"} <= set(rows)
    assert {"late", "checkpoint"} <= set(steps)
    # Few steps of the full look are plain.
    assert "early" not in steps or (steps["early"].steps or 0) < 20
    for name in ("forward", "late"):
        assert rows[name].share == pytest.approx(steps[name].share, rel=1e-9)
        assert rows[name].count == pytest.approx(steps[name].steps, rel=0.02)  # settling steps
    assert sum(row.total_ns for row in steps.values()) == report.plain.wall_ns
    assert report.section("checkpoint").count == 3


@pytest.mark.usefixtures("dear_hook")
def test_windows_of_time_have_no_work_in_plain_steps() -> None:
    """The hook is out in these, too."""
    prof = fastprof.Profiler(gpu=False, functions=True)
    with prof:
        windows = prof._run.parts.of(TimeWindows)
        due = [windows.next_step(prof.step()) for _ in range(2000)]
        assert prof.report().plain is not None
    assert set(due[1:]) == {sys.maxsize}
