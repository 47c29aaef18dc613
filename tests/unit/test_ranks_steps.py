"""Finding late ranks by single steps: windows, turns, hangs, healthy ranks, unknown data."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fastprof.ranks.build import rank_report
from fastprof.ranks.cause import onset
from fastprof.ranks.judge import Series, groups_in_step, lateness
from fastprof.ranks.model import FunctionExcess, RankRow, Straggler, WorkBetweenSteps
from fastprof.ranks.notes import end_text
from fastprof.ranks.render.brief import brief_lines
from fastprof.ranks.row import Between, RankRun, rank_run
from fastprof.ranks.verdict import Verdict, healthy
from fastprof.read import merge as merging
from fastprof.report.threads import training_thread
from fastprof.results.ranks import RankReport, merge
from fastprof.results.report import build_report
from fastprof.results.result import as_result
from fastprof.snapshot import (
    Histogram,
    Key,
    NodeTable,
    SectionStats,
    StepRow,
    Steps,
    ThreadTree,
)
from fastprof.snapshot.run_phases import RUN_PHASES, PhaseTime
from fastprof.snapshot.steps import SplitPlace, StepSeries
from unit.snapshots import MS, Builder, Node, method, py, replaced, section
from wording import same_text

DATA, FORWARD, BACKWARD, REST = 5.0, 10.0, 4.0, 1.0
STEPS = 100
ENGINE = Key("c", "~", 0, "<built-in method run_backward>", "torch._C._EngineBase.run_backward")


def nothing(rank, step):
    return 0.0


def job(world=4, steps=STEPS, *, seed=1, data=nothing, backward=nothing, rest=nothing, **options):
    """Return ranks that wait in backward for the last one; delays are ms by rank and step."""
    noise = random.Random(seed)
    works = []  # per step and rank: data, forward, backward in Python, outside of sections
    for step in range(steps):
        shared = noise.gauss(1.0, 0.2)  # a busy machine affects all ranks
        works.append(
            [
                (
                    (DATA + data(rank, step)) * max(0.2, shared + noise.gauss(0, 0.02)),
                    FORWARD * max(0.2, shared + noise.gauss(0, 0.02)),
                    BACKWARD + backward(rank, step) + abs(noise.gauss(0, 0.05)),
                    REST + rest(rank, step),
                )
                for rank in range(world)
            ]
        )
    return [snapshot(rank, world, works, **options) for rank in range(world)]


def snapshot(rank, world, works, *, functions=True, meta=(), line=31, first=3):
    rows = []
    for ranks in works:
        length = max(sum(of) for of in ranks)
        data, forward, backward, rest = ranks[rank]
        engine = length - sum(ranks[rank])
        rows.append((length, data, forward, backward + engine, rest, engine))
    builder = Builder()
    columns = [tuple(round(row[i] * MS) for row in rows) for i in range(6)]
    wall, engine = columns[0], columns[5]
    names = ("data", "forward", "backward")
    keys = [builder.key(section(name)) for name in names]
    own = [sum(column) for column in columns]
    builder.thread(
        Node(py("train", 1), 1, own[4], [
            Node(section("data"), len(rows), 0, [
                Node(py("decode", line, "dataset.py"), len(rows), own[1]),
            ]),
            Node(section("forward"), len(rows), own[2]),
            Node(section("backward"), len(rows), 0, [
                Node(ENGINE, len(rows), own[5], [
                    Node(py("hook", 12, "hooks.py"), len(rows), own[3] - own[5]),
                ]),
            ]),
        ])
    )  # fmt: skip
    series = StepSeries(
        first=first,
        wall_ns=wall,
        start_ns=(0,) * len(rows),
        sections=tuple((key, columns[i + 1]) for i, key in enumerate(keys)),
        communication_ns=(0,) * len(rows) if functions else (),
        autograd_ns=engine if functions else (),
    )
    n = len(rows)
    return builder.snapshot(
        meta={"rank": rank, "world_size": world, "functions": functions, **dict(meta)},
        steps=Steps(
            n, 0, sum(wall), sum((w / 1e9) ** 2 for w in wall), min(wall), max(wall), wall,
            rows=tuple(StepRow(k, n, sum(columns[i + 1])) for i, k in enumerate(keys)),
            series=series,
        ),
    )  # fmt: skip


def judged(snapshots):
    runs = [rank_run(s, f"rank{s.meta['rank']}.fprof") for s in snapshots]
    return as_result(RankReport, rank_report(runs))


def on(rank, ms, first=0, last=10**9):
    return lambda r, step: ms if r == rank and first <= step <= last else 0.0


def on_every(rank, ms, steps):
    return lambda r, step: ms if r == rank and step % steps == 0 else 0.0


@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("where", ["data", "backward", "rest"])
def test_a_delay_of_5_percent_is_found_with_section_and_function(world, where):
    # Steps vary by 20 %, all ranks alike: only pairs show the difference.
    made = judged(job(world, **{where: on(1, 1.0)}))
    late = made.straggler
    assert late is not None
    assert late.rank == 1
    assert late.late_ms == pytest.approx(1.0, abs=0.3)
    assert late.section == {"rest": "(unaccounted)"}.get(where, where)
    assert late.period is None
    most = late.functions[0]
    assert (most.name, most.line) == {
        "data": ("decode", 31), "backward": ("hook", 12), "rest": ("train", 1)
    }[where]  # fmt: skip
    assert f"{most.name} ({most.file}:{most.line}) takes " in late.text


def test_the_fix_names_what_takes_the_late_rank_longer():
    made = judged(job(data=on(2, 8.0)))
    first, second = made.finding.fix
    same_text(first, "ranks-steps")
    assert first.endswith(" on the others.")
    same_text(second, "ranks-steps")
    late = made.straggler
    for changed, begin in (
        ({"functions": ()}, "Look at what rank 2 does in data: it takes 1"),
        ({"functions": (), "section": "GPU"}, "Look at the GPU of rank 2: its work takes 1"),
        ({"functions": (), "section": None}, "Give all ranks equal work"),
        ({"cpu_wait": (7.0, 0.1)}, "Find out which programs use the CPUs of "),
    ):
        other = replace(made, straggler=replace(late, **changed))
        assert other.finding.fix[0].startswith(begin)


def test_code_outside_of_functions_is_called_so():
    made = FunctionExcess("train.py", "/home/me/train.py", 1, 20.0, 1.0, "time.sleep")
    same_text(made.text, "ranks-steps")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("world", [2, 4])
def test_healthy_ranks_are_told_to_be_healthy(seed, world):
    made = judged(job(world, seed=seed))
    assert made.straggler is None
    assert made.periods == made.hangs == ()
    assert made.seen_from_ms is not None
    same_text(made.verdict, "ranks-steps")


@pytest.mark.parametrize("steps", [2, 3, 5, 12, 20, 30, 40])
@pytest.mark.parametrize("world", [2, 8])
def test_equal_ranks_are_called_late_as_seldom_as_stated(world, steps):
    """One job of 2000: by chance, 800 jobs have at most three in 99.9 % of runs."""
    source = random.Random(100 * world + steps)
    alarms = 0
    for _ in range(800):
        owns = [
            Series(range(steps), [100.0 + source.gauss(0.0, 20.0) for _ in range(steps)])
            for _ in range(world)
        ]
        found, *_ = lateness(owns, 100.0)
        alarms += any(one.late or one.windows for one in found)
    assert alarms <= 3


def test_a_window_of_steps_is_told():
    made = judged(job(steps=200, data=on(2, 5.0, 50, 80)))
    late = made.straggler
    assert (late.rank, late.section) == (2, "data")
    # Steps count from the first of the run; the first three were left out.
    assert late.period.first == pytest.approx(53, abs=2)
    assert late.period.last == pytest.approx(83, abs=2)
    assert late.period.late_ms == pytest.approx(5.0, abs=0.6)
    assert late.text.startswith(f"Rank 2 is late in steps {late.period.first} to ")


def test_a_slow_second_half_is_told_from_its_first_step_on():
    made = judged(job(rest=on(1, 3.0, 50)))
    assert (made.straggler.rank, made.straggler.section) == (1, "(unaccounted)")
    assert made.straggler.period.first == pytest.approx(53, abs=2)
    assert made.straggler.period.last == 102
    same_text(made.straggler.text, "ranks-steps")


@pytest.mark.parametrize("first", [0, 10])
def test_the_first_late_step_is_told_if_it_is_not_the_first_of_all(first):
    late = judged(job(data=on(1, 4.0, first=first))).straggler
    assert (late.rank, late.period) == (1, None)
    if first:
        begin, since = late.healthy
        assert begin == 3  # the first measured step
        assert abs(since - 3 - first) <= 2
        assert late.text.endswith(f" It was not late yet from step 3 to about step {since}.")
    else:
        assert late.healthy is None


def test_of_a_long_run_no_more_is_told_than_its_last_steps_show():
    """Only the last 4096 steps are known one by one."""
    late = judged(job(data=on(1, 4.0, first=10), first=50003)).straggler
    assert late.text.endswith(
        f" It was not late yet from step 50003 to about step {late.healthy[1]}."
    )
    assert abs(late.healthy[1] - 50013) <= 2


def verdict_of(lateness, late_ms):
    """Return the verdict on a rank that is late by ``late_ms`` of 20 ms, and so in each step."""
    late = Straggler(
        1, None, 20.0, 20.0 - late_ms, late_ms, late_ms / 20, None, None, None, ((0, late_ms),), (),
        late_steps=0.9,
    )  # fmt: skip
    series = Series(list(range(len(lateness))), lateness)
    return Verdict(straggler=late, step_ms=20.0, lateness={1: series})


def test_noise_does_not_look_like_a_later_begin():
    noise, by_noise = random.Random(5), 0
    for _ in range(200):
        lateness = [noise.gauss(1.0, 2.0) for _ in range(200)]
        by_noise += onset(dict(enumerate(lateness)), 1.0) >= 10
        assert healthy(verdict_of(lateness, 1.0)) is None
    assert by_noise > 20  # the largest change alone would be no evidence


def test_a_rank_that_was_less_late_before_has_been_late_before():
    # By 7 % of a step, then by 25 %.
    assert healthy(verdict_of([1.5] * 18 + [5.0] * 182, 4.7)) is None
    assert healthy(verdict_of([0.1] * 18 + [5.0] * 182, 4.6)) == (0, 18)
    assert healthy(verdict_of([], 4.6)) is None


def test_ranks_that_are_late_in_turns_are_all_named():
    made = judged(job(data=lambda rank, step: 6.0 if step // 25 == rank else 0.0))
    assert [p.rank for p in made.periods] == [0, 1, 2, 3]
    assert [p.first for p in made.periods] == pytest.approx([3, 28, 53, 78], abs=2)
    assert [p.late_ms for p in made.periods] == pytest.approx([6.0] * 4, abs=0.5)
    same_text(made.verdict, "ranks-steps")


@pytest.mark.parametrize("world", [2, 3, 4])
def test_ranks_that_are_late_in_turns_twice_are_all_named(world):
    made = judged(
        job(world, steps=200, data=lambda rank, step: 6.0 if step // 25 % world == rank else 0.0)
    )
    assert [p.rank for p in made.periods] == [turn % world for turn in range(8)]
    assert [p.first for p in made.periods] == pytest.approx(range(3, 203, 25), abs=2)


def test_no_function_is_named_if_ranks_take_turns():
    """In the whole run each spends as long in ``decode``, and rank 0 a little more in ``hook``."""

    def delay(rank, step):
        return (8.0 if rank == 0 else 6.0) if step // 25 == rank else 0.0

    made = judged(job(data=delay, backward=on(0, 0.5)))
    assert (made.straggler.rank, made.straggler.section) == (0, "data")
    assert len(made.periods) == 4
    assert made.straggler.functions == ()


@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_is_late_again_is_told_with_both_windows(world):
    def delay(rank, step):
        return 5.0 if rank == 1 and (50 <= step < 80 or 130 <= step < 160) else 0.0

    made = judged(job(world, steps=200, data=delay))
    assert [(p.rank, p.first, p.last) for p in made.periods] == [
        (1, pytest.approx(53, abs=2), pytest.approx(82, abs=2)),
        (1, pytest.approx(133, abs=2), pytest.approx(162, abs=2)),
    ]
    same_text(made.verdict, "ranks-steps")
    assert re.search(r" It is also late in steps \d+ to \d+ by [\d.]+ ms each\.", made.verdict)


@pytest.mark.parametrize("windows", [1, 2])
def test_another_rank_s_windows_are_told_of_that_rank(windows):
    """Rank 1 is late in every step, rank 2 by more in some."""

    def delay(rank, step):
        there = 50 <= step < 80 or 130 <= step < 130 + 30 * (windows - 1)
        return 6.0 if rank == 1 else 12.0 * (rank == 2 and there)

    made = judged(job(4, steps=200, data=delay))
    assert (made.straggler.rank, made.straggler.period) == (1, None)
    assert [p.rank for p in made.periods] == [2] * windows
    told = "; rank 2 ".join(p.text for p in made.periods)
    assert made.verdict == f"{made.straggler.text} Late in some steps: rank 2 {told}."


def test_windows_are_told_before_the_work_between_steps():
    def delay(rank, step):
        return 5.0 if rank == 1 and (50 <= step < 80 or 130 <= step < 160) else 0.0

    made = judged(job(4, steps=200, data=delay))
    work = WorkBetweenSteps(0, None, "checkpoint", 500.0, 0.0, 2.0, 0.1)
    said = replace(made, between=work).verdict
    assert said == f"{made.verdict} {work.text}"
    same_text(made.verdict, "ranks-steps")


@pytest.mark.parametrize("kind", ["gauss", "expovariate", "pauses"])
def test_equal_ranks_do_not_have_several_windows(kind):
    """By chance one job in 20 may be late here; hardly one of these has several windows."""
    rng = random.Random(5)
    made = {
        "gauss": lambda: rng.gauss(40, 6),
        "expovariate": lambda: 30 + rng.expovariate(1 / 8),
        "pauses": lambda: rng.gauss(40, 1) + 60 * (rng.random() < 0.05),
    }[kind]
    several = 0
    for _ in range(200):
        owns = [Series(range(100), [made() for _ in range(100)]) for _ in range(2)]
        several += any(len(one.windows) > 1 for one in lateness(owns, 40.0, 20.0)[0])
    assert several <= 1


def with_phase(made, name, ms, times, *, waited_ms=0.0):
    """Return the same rank with a phase in which ``save`` writes, and with longer steps."""
    number = RUN_PHASES.index(name)
    tree, keys = made.threads[0], (*made.keys, py("save", 50, "train.py"), method("write"))
    nodes, at = tree.nodes, len(tree.nodes)
    ns = round(ms * MS)
    nodes = replace(
        nodes,
        parent=(*nodes.parent, 0, at),
        key=(*nodes.key, len(keys) - 2, len(keys) - 1),
        calls=(*nodes.calls, times, times),
        resumes=(*nodes.resumes, 0, 0),
        self_ns=(*nodes.self_ns, ns // 10, ns - ns // 10),
        phase=(*((0,) * at), number, number),
    )
    steps = made.steps
    longer = round(waited_ms * MS)
    return replace(
        made,
        keys=keys,
        threads=(replace(tree, nodes=nodes),),
        phases=(PhaseTime("steps", steps.sum_ns, 1), PhaseTime(name, ns, times)),
        steps=replace(steps, sum_ns=steps.sum_ns + longer * steps.measured),
    )


@pytest.mark.parametrize("phase", ["checkpoint", "validation", "outside"])
@pytest.mark.parametrize("world", [2, 4])
def test_work_between_steps_for_which_the_others_wait_is_told(world, phase):
    others = [with_phase(made, phase, 0.0, 0, waited_ms=5.0) for made in job(world)[1:]]
    made = judged([with_phase(job(world)[0], phase, 500.0, 10), *others])
    work = made.between
    assert made.straggler is None
    assert (work.rank, work.phase, work.ms, work.others_ms) == (0, phase, 500.0, 0.0)
    assert work.wait_ms == pytest.approx(5.0, abs=0.1)
    same_text(made.verdict, "ranks-steps")
    assert made.finding.title == (
        f"Ranks wait {100 * work.share:.1f} % of a step for what rank 0 does between steps"
    )
    assert ("async_save" in made.finding.fix[0]) is (phase == "checkpoint")
    assert not any("do not take equally long" in note for note in made.notes)
    assert json.loads(made.to_json())["between"]["rank"] == 0


def test_ranks_that_write_checkpoints_alike_do_not_wait_for_each_other():
    """The first rank of each of two machines writes them, and the six others wait."""
    made = judged(
        [
            with_phase(rank, "checkpoint", 500.0, 10)
            if rank.meta["rank"] in (0, 4)
            else with_phase(rank, "checkpoint", 0.0, 0, waited_ms=5.0)
            for rank in job(8)
        ]
    )
    work = made.between
    assert (work.rank, work.also, work.others_ms) == (0, (4,), 0.0)
    assert work.wait_ms == pytest.approx(5.0, abs=0.1)
    same_text(made.verdict, "ranks-steps")
    assert not any("groups of ranks" in note or "rank 4 between" in note for note in made.notes)
    validates = replace(made, between=replace(work, phase="validation"))
    same_text(validates.finding.fix[0], "ranks-steps")


def test_two_kinds_of_work_between_steps_are_told_with_their_parts():
    """In each step the others wait 4 ms for checkpoints and 3 ms for the validation."""
    first = job(4)[0]
    saved = with_phase(first, "checkpoint", 400.0, 10)
    both = with_phase(saved, "validation", 300.0, 10)
    both = replace(both, phases=(*saved.phases, both.phases[-1]))
    others = [with_phase(rank, "checkpoint", 0.0, 0, waited_ms=7.0) for rank in job(4)[1:]]
    made = judged([both, *others])
    same_text(made.verdict, "ranks-steps")
    (note,) = (note for note in made.notes if note.startswith("Between steps"))
    same_text(note, "ranks-steps")
    assert not any("do not take equally long" in note for note in made.notes)


def test_the_fix_for_checkpoints_is_that_of_the_trainer():
    told = {"framework": "transformers"}
    waiting = [with_phase(made, "checkpoint", 0.0, 0, waited_ms=5.0) for made in job(2, meta=told)]
    made = judged([with_phase(job(2, meta=told)[0], "checkpoint", 500.0, 10), waiting[1]])
    assert "save_steps=500" in made.finding.fix[0]
    assert rank_run(waiting[1], "rank1.fprof").row.framework == "transformers"
    assert rank_run(job(2)[0], "rank0.fprof").row.framework == "torch"


def test_ranks_at_another_pace_are_not_compared():
    """A learner beside actors: no rank waits for it in each step."""
    learner = snapshot(0, 4, [[(250.0, 200.0, 20.0, 30.0)] * 4] * 30)
    made = judged([learner, *job(4, 300)[1:]])
    assert made.straggler is None
    same_text(made.verdict, "ranks-steps")
    said = "Not compared: rank 0 made 30 steps of 500 ms, unlike the others, which therefore "
    assert any(note.startswith(said) for note in made.notes)
    alone = judged([snapshot(0, 2, [[(250.0, 200.0, 20.0, 30.0)] * 2] * 30), job(2, 300)[1]])
    assert alone.straggler is None
    same_text(alone.notes[0], "ranks-steps")


def test_work_between_steps_for_which_nobody_waits_is_not_told():
    """Rank 0 saves after the others have ended, or all ranks save alike."""
    alone = judged([with_phase(job(2)[0], "checkpoint", 500.0, 10), job(2)[1]])
    alike = judged([with_phase(made, "checkpoint", 500.0, 10) for made in job(2)])
    assert alone.between is alike.between is None
    assert alone.verdict.startswith("No straggler: ")


def test_a_single_hang_is_told_with_its_step_and_is_no_straggler():
    made = judged(job(data=on(3, 5000.0, 40, 40)))
    assert made.straggler is None
    assert [(h.rank, h.step, h.section) for h in made.hangs] == [(3, 43, "data")]
    assert made.verdict.count("rank 3 by ") == 1
    assert ", in data." in made.verdict


def test_a_hang_does_not_hide_a_straggler():
    def delays(rank, step):
        return 5000.0 if (rank, step) == (3, 40) else 2.0 * (rank == 1)

    made = judged(job(data=delays))
    assert made.straggler.rank == 1
    assert made.hangs[0].rank == 3


def test_a_hang_of_the_other_rank_is_not_in_the_straggler_s_figures():
    def delays(rank, step):
        return 5000.0 if (rank, step) == (0, 40) else 2.0 * (rank == 1)

    made = judged(job(2, data=delays))
    assert made.straggler.rank == 1
    assert made.straggler.late_ms == pytest.approx(2.0, abs=0.4)
    assert made.straggler.others_ms < 100.0
    assert made.imbalance < 0.5


def test_a_pause_every_ten_steps_is_late_in_a_tenth_of_them():
    made = judged(job(steps=200, rest=lambda rank, step: 30.0 * (rank == 0 and step % 10 == 9)))
    assert made.straggler.rank == 0
    assert made.straggler.late_ms == pytest.approx(3.0, abs=0.4)
    same_text(made.straggler.text, "ranks-steps")


def test_a_rank_that_is_late_in_most_steps_is_no_straggler_if_longer_ones_of_another_outweigh_it():
    """Rank 1 is late by 2 ms in each step, rank 0 by 40 ms in every 13th: 3 ms per step."""
    made = judged(job(2, steps=200, data=on(1, 2.0), rest=on_every(0, 40.0, 13)))
    assert made.straggler is None
    same_text(made.notes[0], "ranks-steps")
    # By less than 2 ms per step it stays the straggler: its delay is what is left.
    late = judged(job(2, steps=200, data=on(1, 2.0), rest=on_every(0, 15.0, 13))).straggler
    assert late.rank == 1
    assert late.late_ms == pytest.approx(2.0 - 15.0 / 13, abs=0.15)
    assert late.wait_ms > 0.0


def test_a_rank_with_as_much_work_as_the_others_is_not_late_because_these_take_turns():
    """The median of the others is late in no step, and each of them by as much on average."""

    def delay(rank, step):
        return 2.0 if rank == 1 else 6.0 * (step % 3 == (0, None, 1, 2)[rank])

    assert judged(job(4, steps=200, data=delay)).straggler is None


def test_random_jitter_is_no_straggler_but_its_cost_is_told():
    noise = random.Random(3)
    made = judged(job(rest=lambda rank, step: noise.expovariate(1 / 3.0)))
    assert made.straggler is None
    assert any("not always the same rank" in note for note in made.notes)


@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_have_pauses_alike_are_healthy(world, seed):
    # Each rank's mean is above the median of the others: pauses are rare.
    noise = random.Random(seed)
    pauses = [[20.0 * (noise.random() < 0.05) for _ in range(world)] for _ in range(400)]
    made = judged(job(world, steps=400, seed=seed, rest=lambda rank, step: pauses[step][rank]))
    assert made.straggler is None
    assert made.periods == ()


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_are_like_their_neighbours_are_no_straggler(seed):
    noise = random.Random(seed)
    drift = [[0.0] * 4]
    for _ in range(STEPS):
        drift.append([0.5 * ms + noise.gauss(0.0, 1.0) for ms in drift[-1]])
    made = judged(job(rest=lambda rank, step: 5.0 + max(-5.0, drift[step][rank])))
    assert made.straggler is None


def test_a_seldom_collective_does_not_blind_it():
    ranks = job(2, data=on(1, 8.0))
    for made in ranks:
        steps = made.steps
        seldom = tuple(MS // 10 if n == 50 else 0 for n in range(STEPS))
        object.__setattr__(steps.series, "communication_ns", seldom)
        object.__setattr__(
            steps, "split", (("compute", steps.sum_ns - MS // 10), ("communication", MS // 10))
        )
        object.__setattr__(steps, "split_places", (SplitPlace("communication", 0, 1, MS // 10),))
    made = judged(ranks)
    assert (made.straggler.rank, made.straggler.section) == (1, "data")


def test_without_functions_backward_is_not_known_and_that_is_said():
    made = judged(job(backward=on(1, 5.0), functions=False))
    assert made.straggler is None
    same_text(made.verdict, "ranks-steps")
    assert any("a rank whose backward is slow is missed" in note for note in made.notes)
    assert judged(job(data=on(1, 5.0), functions=False)).straggler.section == "data"


def test_a_rank_without_functions_does_not_spend_no_time_in_them():
    runs = [rank_run(made, "") for made in job(3, data=on(2, 5.0))]
    (known,) = rank_report(runs).straggler.functions
    runs[0] = replace(runs[0], program={})
    (found,) = rank_report(runs).straggler.functions
    assert (found.name, found.ms) == (known.name, known.ms)
    assert found.others_ms == pytest.approx(known.others_ms, rel=0.02)
    runs[1] = replace(runs[1], program={})
    assert rank_report(runs).straggler.functions == ()


def test_noise_of_a_busy_machine_is_taken_out_where_waiting_for_a_cpu_is_known():
    noise = random.Random(4)
    stolen = [[noise.expovariate(1 / 4.0) for _ in range(2)] for _ in range(STEPS)]

    def rest(rank, step):
        return stolen[step][rank] + (0.9 if rank == 1 else 0.0)

    ranks = job(2, rest=rest)
    assert judged(ranks).straggler is None
    for made in ranks:
        column = tuple(round(of[made.meta["rank"]] * MS) for of in stolen)
        object.__setattr__(made.steps.series, "cpu_wait_ns", column)
    late = judged(ranks).straggler
    assert (late.rank, late.cpu_wait) == (1, None)
    assert late.late_ms == pytest.approx(0.9, abs=0.2)
    # Else "own work 20.3 ms" stands beside "data takes 29.7 ms".
    same_text(late.text, "ranks-steps")
    late = replace(late, section="data", section_ms=29.7, section_others_ms=21.0)
    same_text(late.text, "ranks-steps")
    left_out = "Own work leaves out waiting for a CPU"
    assert any(note.startswith(left_out) for note in judged(ranks).notes)
    assert not any(note.startswith(left_out) for note in judged(job(2, rest=rest)).notes)


def test_time_in_no_section_is_shown_of_each_rank_if_one_has_much():
    lines = brief_lines(judged(job(2, rest=on(1, 9.0))), 100)
    at = next(i for i, line in enumerate(lines) if line.startswith("rank "))
    assert "(unaccounted)" in lines[at]
    assert "n/a" not in "".join(lines[at:])
    assert "(unaccounted)" not in "".join(brief_lines(judged(job(2)), 100))


def test_many_long_steps_of_a_rank_are_added_up():
    """Rank 0 saves in every 60th step: its sum is a figure that the job loses per step."""
    made = judged(job(2, steps=600, rest=lambda r, s: 600.0 if (r, s % 60) == (0, 30) else 0.0))
    assert len(made.hangs) == 10
    said = re.search(
        r"Late in single steps: rank 0 in 10 of 600 steps by ([\d.]+) s in total \(([\d.]+) ms per "
        r"step on average\), the longest: \d+ ms in step \d+, in no section\.", made.verdict,
    )  # fmt: skip
    assert said, made.verdict
    assert float(said[1]) == pytest.approx(6.0, abs=0.2)
    assert float(said[2]) == pytest.approx(10.0, abs=0.4)
    same_text(made.notes[0], "ranks-steps")
    assert any(line.startswith("0 (late at times) ") for line in brief_lines(made, 80))
    # Not "no straggler": it is one in these steps.
    same_text(made.verdict, "ranks-steps")


@pytest.mark.parametrize("world", [2, 3])
def test_long_steps_of_a_rank_are_no_noise_of_the_others(world):
    def pauses(rank, step):
        return 600.0 if (rank, step % 60) == (0, 30) else 0.0

    assert judged(job(world, steps=600, rest=pauses)).seen_from_ms < 1.0
    late = judged(job(world, steps=600, data=on(1, 2.0), rest=pauses)).straggler
    assert (late.rank, late.section) == (1, "data")
    assert late.late_ms == pytest.approx(2.0, abs=0.4)


def test_the_sum_of_long_steps_has_all_of_them_and_is_of_the_steps_that_are_known():
    """Rank 0 saves in every 60th step of many more than are kept one by one."""
    ranks = job(2, steps=3600, rest=lambda r, s: 600.0 if (r, s % 60) == (0, 30) else 0.0)
    for made in ranks:
        steps = made.steps
        object.__setattr__(steps, "count", 100 * steps.count)
        object.__setattr__(steps, "sum_ns", 100 * steps.sum_ns)
        object.__setattr__(steps, "split", ())
    made = judged(ranks)
    assert len(made.hangs) == 50  # the longest
    said = re.search(
        r"single steps: rank 0 in 60 of 3600 steps by ([\d.]+) s in total \(([\d.]+) ms per step",
        made.verdict,
    )
    assert said, made.verdict
    assert float(said[1]) == pytest.approx(36.0, abs=0.4)
    assert float(said[2]) == pytest.approx(10.0, abs=0.4)


def test_a_rank_whose_cpu_others_use_is_told_so():
    ranks = job(2, rest=on(1, 3.0))
    for made in ranks:
        column = (3 * MS if made.meta["rank"] == 1 else 0,) * STEPS
        object.__setattr__(made.steps.series, "cpu_wait_ns", column)
    late = judged(ranks).straggler
    assert late.rank == 1
    assert late.cpu_wait == pytest.approx((3.0, 0.0))
    same_text(late.text, "ranks-steps")
    assert "waits for a CPU not counted" not in late.text


@pytest.mark.parametrize("rank", [1, 3])
def test_a_small_delay_does_not_hide_a_large_one_by_a_stolen_cpu(rank):
    """Rank 1 has 1 ms more work; others use a CPU of the same or another rank for 8 ms per step."""
    ranks = job(4, data=on(1, 1.0), rest=on(rank, 8.0))
    for made in ranks:
        column = (8 * MS if made.meta["rank"] == rank else 0,) * STEPS
        object.__setattr__(made.steps.series, "cpu_wait_ns", column)
    late = judged(ranks).straggler
    assert late.rank == rank
    assert late.late_ms == pytest.approx(9.0 if rank == 1 else 8.0, abs=0.3)
    assert late.cpu_wait == pytest.approx((8.0, 0.0))
    assert "waits for a CPU not counted" not in late.text


def test_a_rank_that_computes_more_in_backward_is_told_by_its_cpu_time():
    ranks = job(4)
    for made in ranks:
        ms = 20 if made.meta["rank"] == 2 else 16
        object.__setattr__(made.steps.series, "cpu_ns", (ms * MS,) * STEPS)
    made = judged(ranks)
    assert (made.straggler.rank, made.straggler.signal) == (2, "cpu")
    same_text(made.straggler.text, "ranks-steps")
    # A rank that computes 4 ms more, but waits 4 ms less for data, is no later than the others.
    ranks = job(4, data=on(2, -4.0))
    for made in ranks:
        ms = 20 if made.meta["rank"] == 2 else 16
        object.__setattr__(made.steps.series, "cpu_ns", (ms * MS,) * STEPS)
    assert judged(ranks).straggler is None


def test_two_groups_that_do_not_wait_for_each_other_are_judged_apart():
    slow = job(2, data=on(0, 5.0))
    fast = job(4, seed=2, data=on(3, 2.0))
    # Ranks 0 and 1 have longer steps than 2 and 3.
    made = judged([*[rename(s, 4) for s in slow], *fast[2:]])
    assert made.straggler.rank == 0
    assert any(note.startswith("2 groups of ranks have steps of") for note in made.notes)


def rename(made, world):
    return replaced(made, meta={**made.meta, "world_size": world})


def test_groups_are_ranks_whose_steps_take_equally_long():
    assert groups_in_step({0: 10.0, 1: 20.0, 2: 10.1, 3: 20.2}) == [[0, 2], [1, 3]]
    assert groups_in_step({0: 10.0, 1: 20.0, 2: 10.1}) == [[0, 1, 2]]


def test_a_rank_without_a_file_is_not_called_healthy():
    made = judged(job(4)[:3])
    same_text(made.verdict, "ranks-steps")
    assert any(note.startswith("Without a file: rank 3. Whether") for note in made.notes)
    alone = judged(job(2)[:1])
    same_text(alone.verdict, "ranks-steps")


def test_too_much_noise_is_not_called_healthy():
    noise = random.Random(5)
    made = judged(job(2, steps=12, rest=lambda rank, step: noise.expovariate(1 / 15.0)))
    assert made.straggler is None
    same_text(made.verdict, "ranks-steps")


@pytest.fixture
def saved(tmp_path):
    def save(made, name=None):
        path = tmp_path / (name or f"rank{made.meta['rank']}_run.fprof")
        build_report(made).save(path)
        return str(path)

    return save


def test_bad_files_are_left_out_and_named(saved, tmp_path):
    paths = [saved(s) for s in job(4, data=on(1, 5.0))]
    whole = (tmp_path / "rank3_run.fprof").read_bytes()
    (tmp_path / "cut.fprof").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.fprof").write_bytes(b"")
    made = merge([*paths[:3], tmp_path / "cut.fprof", tmp_path / "empty.fprof", tmp_path / "no"])
    assert made.straggler.rank == 1
    assert [path.rsplit("/", 1)[1] for path, _ in made.skipped] == [
        "cut.fprof",
        "empty.fprof",
        "no",
    ]
    notes = "\n".join(made.notes)
    same_text(notes.replace(str(tmp_path), "FOLDER"), "ranks-steps")


def test_files_of_another_job_are_left_out(saved):
    def of(job_id, until):
        return {"job": job_id, "hostname": "n1", "recorded_until_ns": str(until)}

    second = 10**9
    old = [saved(s, f"old{s.meta['rank']}.fprof")
           for s in job(2, data=on(0, 9.0), meta=of("a", 1000 * second))]  # fmt: skip
    new = [saved(s) for s in job(2, data=on(1, 5.0), meta=of("b", 2000 * second))]
    for paths in ([old[0], *new], [*new, old[1]]):
        made = merge(paths)
        assert made.straggler.rank == 1
        same_text([reason for _, reason in made.skipped], "ranks-steps")
    # Without a job's id: one job ended before the other began.
    old = [saved(s, f"old{s.meta['rank']}.fprof")
           for s in job(2, data=on(0, 9.0), meta=of(None, 1000 * second))]  # fmt: skip
    assert merge([*old, *new]).straggler.rank == 1


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        # A launcher may set a variable on one machine only.
        ("SLURM_JOB_ID=7 MASTER_PORT=1", "SLURM_JOB_ID=7 SLURM_STEP_ID=0 MASTER_PORT=1", False),
        ("MASTER_ADDR=localhost MASTER_PORT=1", "MASTER_ADDR=n0 MASTER_PORT=1", False),
        ("MASTER_ADDR=n1 MASTER_PORT=1", "MASTER_ADDR=n0 MASTER_PORT=1", True),
        ("SLURM_JOB_ID=7 MASTER_PORT=1", "SLURM_JOB_ID=8 MASTER_PORT=1", True),
        ("SLURM_JOB_ID=7", "MASTER_PORT=1", False),
    ],
)
def test_ranks_are_of_one_job_unless_something_that_both_know_differs(saved, one, other, apart):
    facts = ({"job": one}, {"job": other})
    made = job(2)
    paths = [
        saved(replaced(of, meta={**of.meta, **fact})) for of, fact in zip(made, facts, strict=True)
    ]
    report = merge(paths)
    assert len(report.rows) == (1 if apart else 2)
    # Their begin is unknown.
    assert [why for _, why in report.skipped] == ["it belongs to another job"] * apart


def killed(path, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_reading_process_that_is_killed_is_told_with_the_remedy(saved, monkeypatch):
    paths = [saved(s) for s in job(2)]
    monkeypatch.setattr(merging, "_read", killed)
    with pytest.raises(OSError, match=r"2 processes that read files was killed.* --jobs 1"):
        merge(paths, jobs=2)


def test_several_processes_read_the_same(saved):
    paths = [saved(s) for s in job(4, data=on(1, 5.0))]
    assert merge(paths, jobs=2).to_json() == merge(paths).to_json()
    with pytest.raises(ValueError, match="jobs is 0, expected 1 or more"):
        merge(paths, jobs=0)


def test_an_executor_reads_the_same_and_stays_open(saved):
    paths = [saved(s) for s in job(12, data=on(1, 5.0))]
    with ThreadPoolExecutor(2) as executor:
        for _ in range(2):
            assert merge(paths, executor=executor).to_json() == merge(paths).to_json()
        with pytest.raises(ValueError, match="jobs is 2: how many read is the executor's business"):
            merge(paths, jobs=2, executor=executor)
    with pytest.raises(TypeError, match=r"executor is 4, expected a concurrent\.futures"):
        merge(paths, executor=4)


def test_the_wait_and_its_part_of_the_step_are_of_the_same_time():
    """Rank 2 is nearly as late as rank 1, so it hardly waits: the mean wait is below the delay."""
    made = judged(job(data=lambda rank, step: {1: 10.0, 2: 9.0}.get(rank, 0.0)))
    said = re.search(r"about ([\d.]+) ms per step \(([\d.]+) % of the step\)", made.verdict)
    step_ms = made.rows[1].step_ms
    assert float(said[1]) == pytest.approx((10.0 + 10.0 + 1.0) / 3, abs=0.3)
    assert float(said[2]) == pytest.approx(100 * float(said[1]) / step_ms, rel=0.01)


def test_the_part_of_the_step_is_of_the_step_that_the_table_shows():
    # One step in five is three times as long: the mean step is not the median.
    late = judged(job(2, data=lambda rank, step: 40.0 * (step % 5 == 0) + 5.0 * (rank == 1)))
    table = {row.rank: row.step_ms for row in late.rows}
    assert late.straggler.late_share == pytest.approx(late.straggler.late_ms / table[1], rel=0.02)


def test_a_job_that_hung_and_was_ended_names_the_rank_that_did_not_wait():
    def run(rank, ms, function=None, step_ms=50.0):
        row = RankRow(
            rank, 3, "n1", "", 45, 0, step_ms, None, None, (), (), None, None, None, None, None,
            None, (),
        )  # fmt: skip
        return RankRun(row, between={"outside": Between(ms, function)})

    hung = FunctionExcess("decode", "/a/dataset.py", 31, 7900.0, 0.0, "time.sleep")
    text = end_text([run(0, 8200.0), run(1, 8000.0, hung), run(2, 8100.0)])
    same_text(text, "ranks-steps")
    assert end_text([run(0, 8200.0, hung), run(1, 8000.0, hung)]) == ""  # both worked
    assert end_text([run(0, 8200.0), run(1, 8000.0)]) == ""
    assert end_text([run(0, 8200.0), run(1, 900.0, hung)]) == ""
    assert end_text([run(0, 8200.0, None, 2000.0), run(1, 8000.0, hung)]) == ""
    assert end_text([run(0, 8200.0)]) == ""


def test_a_file_with_few_steps_clears_no_rank_of_the_others():
    def late(rank, step):
        return 40.0 if rank == 1 and step >= 20 and step % 8 == 0 else 0.0

    made = job(4, steps=300, data=late)
    short = job(4, steps=18, data=late)
    made = judged([*made[:3], short[3]])
    assert made.straggler is not None
    assert made.straggler.rank == 1
    assert made.straggler.late_ms == pytest.approx(4.7, abs=0.4)


def test_a_background_thread_with_more_time_in_sections_is_not_the_late_function():
    ranks = job(2, data=on(1, 5.0))
    for made in ranks:
        prefetch, wait = (len(made.keys) + i for i in range(2))
        object.__setattr__(
            made, "keys", (*made.keys, section("prefetch"), py("background", 7, "prefetch.py"))
        )
        nodes = NodeTable((-1, 0, 1), (0, prefetch, wait), (0, 1, 1), (0, 0, 0), (0, 0, 10**13))
        object.__setattr__(made, "threads", (*made.threads, ThreadTree(2, "other", False, nodes)))
        most = SectionStats(prefetch, 1, 1, 10**13, 10**13, 10**13, 10**13, 0, 0, Histogram(()))
        object.__setattr__(made, "sections", (*made.sections, most))
    assert training_thread(ranks[0]) == 1, "without the saved number it is guessed"
    for made in ranks:
        object.__setattr__(made.steps, "thread", 0)
    made = judged(ranks)
    assert [function.name for function in made.straggler.functions] == ["decode"]
    assert "background" not in f"{made.verdict}{made.finding}"
