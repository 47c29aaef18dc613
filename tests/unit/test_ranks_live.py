"""Judging ranks of artificial windows: the reported rank, the delay, and false alarms."""

from __future__ import annotations

import random
import re
from array import array
from dataclasses import replace

import pytest
from fastprof.ranks.live.amount import Begin
from fastprof.ranks.live.between import BetweenNow
from fastprof.ranks.live.judge import Judge
from fastprof.ranks.live.text import late_text
from fastprof.ranks.live.window import (
    RankDetail,
    RankWindow,
    Request,
    block_size,
    decode,
    encode,
    encode_detail,
    means,
    measured,
)
from fastprof.ranks.model import FunctionExcess, RankRow, Straggler
from fastprof.ranks.render.brief import brief_lines_live
from fastprof.ranks.row import Between, RankRun, RankSteps
from fastprof.ranks.verdict import by_steps
from fastprof.render.watch import watch_lines
from wording import same_text

JOB = "0123abcd"
STEP_MS, TICK_S = 50.0, 5.0
COLUMNS = ("wall", "communication", "autograd")
SECTIONS = ("data", "forward", "backward", "optimizer")
OWN_MS = {"data": 5.0, "forward": 20.0, "backward": 15.0, "optimizer": 5.0}


def nothing(rank, step):
    return 0.0


class Job:
    """Ranks that wait in backward for the last one, as in their windows and in rank 0.

    ``late`` is ms by rank and step, added to the section ``where``; ``noise`` is the relative
    variation of a section from rank to rank, ``shared`` the common variation of all ranks.
    Steps in ``unmeasured`` are in no window.
    """

    def __init__(self, world=4, *, late=nothing, where="data", noise=0.02, shared=0.1, seed=1):
        self.random = random.Random(seed)
        self.world, self.late, self.where = world, late, where
        self.noise, self.shared = noise, shared
        self.judge = Judge(JOB, world)
        self.now, self.step, self.beat = 100.0, 0, 0
        self.size = block_size(round(10_000 / STEP_MS))
        self.rows = [[] for _ in range(world)]
        self.numbers = []
        self.blocks = [{} for _ in range(world)]
        self.said = []
        self.silent = set()
        self.unmeasured = frozenset()

    def jitter(self, part):
        return max(0.1, self.random.gauss(1.0, part))

    def make_step(self):
        shared = self.jitter(self.shared)
        works = []
        for rank in range(self.world):
            work = {n: ms * shared * self.jitter(self.noise) for n, ms in OWN_MS.items()}
            work[self.where] = work.get(self.where, 0.0) + self.late(rank, self.step)
            works.append(work)
        longest = max(sum(work.values()) for work in works)
        for rank, work in enumerate(works):
            engine = longest - sum(work.values())
            row = (longest, 0.0, engine, *(work[n] + engine * (n == "backward") for n in SECTIONS))
            if self.step not in self.unmeasured:
                self.rows[rank].append(row)
        if self.step not in self.unmeasured:
            self.numbers.append(self.step)
        self.step += 1
        return longest / 1000

    def tick(self):
        """Run five seconds of steps, publish each rank's window, return rank 0's verdicts."""
        until = self.now + TICK_S
        while self.now < until:
            self.now += self.make_step()
        self.beat += 1
        return self.publish()

    def publish(self, **changes):
        said = []
        for rank in range(self.world):
            value = self.value(rank, **changes)
            if rank not in self.silent:
                self.judge.hear(rank, value, self.now)
        said += self.judge.look(self.now)
        request = self.judge.request()
        if request is not None:
            for rank in request.ranks:
                self.judge.tell(rank, self.detail(rank, request))
            said += self.judge.look(self.now + 1.0)
        self.said += said
        return said

    def value(self, rank, **changes):
        columns = [[round(ms * 1e6) for ms in of] for of in zip(*self.rows[rank], strict=True)]
        names = COLUMNS
        if self.unmeasured:
            names = (*COLUMNS, "measured")
            columns.insert(len(COLUMNS), measured(self.numbers, self.size))
        done = self.step - self.step % self.size
        found = means(columns, self.numbers, self.size)
        self.blocks[rank] |= {start: row for start, row in found.items() if start < done}
        self.rows[rank] = [
            r for r, n in zip(self.rows[rank], self.numbers, strict=True) if n >= done
        ]
        if rank == self.world - 1:
            self.numbers = [n for n in self.numbers if n >= done]
        fields = {
            "job": JOB, "rank": rank, "world_size": self.world, "host": f"n{rank}",
            "beat": self.beat, "steps": self.step, "size": self.size, "columns": names,
            "sections": SECTIONS, "blocks": self.blocks[rank], **changes,
        }  # fmt: skip
        return encode(RankWindow(**fields))

    def detail(self, rank, request):
        if request.phase:
            assert (request.phase, request.ranks) == ("checkpoint", (rank,))
            rows = (("save", "train.py", 30, 8000, {"torch.save": 7900}), ("f", "a.py", 1, 9, {}))
            return encode_detail(RankDetail(JOB, rank, request.number, rows))
        steps = range(request.first, request.last)
        late = sum(self.late(rank, step) for step in steps) / len(steps)
        decode_us = round((OWN_MS["data"] + late) * 1000)
        functions = (
            ("decode", "dataset.py", 31, decode_us, {}),
            ("step", "train.py", 9, 20_000, {}),
        )
        return encode_detail(RankDetail(JOB, rank, request.number, functions))

    def still(self, state_of):
        """Publish the ranks in these states after five seconds without a step; return verdicts."""
        self.now += TICK_S
        self.beat += 1
        for rank in range(self.world):
            if rank not in self.silent:
                self.judge.hear(rank, self.value(rank, **state_of(rank)), self.now)
        return self.judge.look(self.now)

    def run(self, ticks):
        for _ in range(ticks):
            self.tick()
        return self.said


def on(rank, ms, first=0, last=10**9):
    return lambda r, step: ms if r == rank and first <= step < last else 0.0


@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("first", [1000, 1040, 1240, 1320])
def test_a_rank_that_becomes_late_is_named_with_section_function_and_first_step(world, first):
    job = Job(world, late=on(1, 9.0, first=first))
    while job.step < first:
        assert job.tick() == []
    began = job.now
    while not job.said:
        job.tick()
    (line,) = job.said
    assert job.now - began <= 20.0
    told = re.match(
        r"Rank 1 \(host n1\) is late by ([\d.]+) ms per step .*: data \+([\d.]+) ms, in "
        r"decode \(dataset.py:31\); this costs the job about ([\d.]+) %, backward in C\+\+ not ",
        line,
    )
    assert told is not None, line
    # All figures are of the steps since it is late, not of the healthy ones of the window, too.
    late_ms, section_ms, percent = map(float, told.groups())
    assert late_ms == pytest.approx(9.0, rel=0.04)
    assert section_ms == pytest.approx(9.0, rel=0.04)
    assert percent == pytest.approx(100 * 9.0 / 54.0, rel=0.06)
    since = int(line.split("since about step ")[1].split(":")[0])
    assert abs(since - first) <= 2 * job.size
    assert job.run(12) == [line]  # and no further verdict


def test_who_listens_late_does_not_know_when_a_delay_began():
    """The windows that are there when ``fastprof watch`` starts show a late rank from the first."""
    job = Job(2, late=on(1, 9.0))
    job.run(40)
    anew = Judge(JOB, 2)
    for rank in range(2):
        anew.hear(rank, job.value(rank), job.now)
    verdict = anew.job_now(job.now).verdict
    since = re.search(r" per step since step (\d+) or earlier: data", verdict)
    assert since, verdict
    assert int(since[1]) > 2000
    same_text(job.judge.job_now(job.now).verdict, "ranks-live")


def test_no_rank_is_late_by_less_than_nothing():
    """Rank 1 is late by 4 ms per step, rank 0 by 70 ms in 8 steps of 104: 5.4 ms per step."""
    job = Job(2, late=lambda r, s: 4.0 if r == 1 else 70.0 * (s % 104 < 8))
    assert not re.search(r"(by|to) -", " ".join(job.run(20)))


@pytest.mark.parametrize("where", ["forward", "backward", "(rest)"])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_a_delay_of_5_percent_is_found_within_two_windows(where, noise):
    job = Job(4, late=on(2, 2.5, first=800), where=where, noise=noise)
    while job.step < 800:
        job.tick()
    began = job.now
    while not job.said:
        job.tick()
    assert job.now - began <= 20.0
    told = {"(rest)": "code in no section"}.get(where, where)
    same_text(job.said[0], "ranks-live")
    assert f": {told} +2." in job.said[0]


@pytest.mark.parametrize("world", [2, 4, 16])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_healthy_ranks_are_never_told_in_hundreds_of_windows(world, noise):
    job = Job(world, noise=noise, seed=world)
    assert job.run(60 if world < 16 else 30) == []
    assert job.judge.judged >= 25
    assert job.judge.metrics["profile/ranks/late_rank"] == -1.0


@pytest.mark.slow
def test_less_than_one_healthy_window_in_a_thousand_is_told():
    # Noise of 30 % in each section of each rank, and occasional pauses on any rank.
    judged = begun = 0
    for seed in range(20):
        pauses = random.Random(seed)
        late = {}

        def pause(rank, step, pauses=pauses, late=late):
            if (rank, step) not in late:
                late[rank, step] = pauses.paretovariate(2.5) if pauses.random() < 0.1 else 0.0
            return late[rank, step]

        job = Job((2, 3, 4, 8)[seed % 4], noise=0.3, late=pause, seed=seed)
        job.run(120)
        judged += job.judge.judged
        begun += job.judge.begun
    assert judged > 2000
    assert begun <= judged // 1000


def test_a_rank_that_lets_the_others_wait_between_steps_is_told_once():
    job, us = Job(4), 8000
    value = job.value

    def of(rank):
        window = decode(value(rank))
        if rank == 0:
            return encode(replace(window, between={"checkpoint": us}))
        rows = {  # wall time, and the engine's waits for other ranks
            start: (row[0] + us, row[1], row[2] + us, *row[3:])
            for start, row in window.blocks.items()
        }
        return encode(replace(window, blocks=rows))

    job.value = of
    (line,) = job.run(12)
    same_text(line, "ranks-live")
    assert re.search(r"; this costs the job up to 15\.\d+ % of that time\.$", line)
    assert job.judge.job_now(job.now).verdict.startswith(
        f"No rank is late in its steps. {line.split(';')[0]}"
    )
    metrics = job.judge.metrics
    assert metrics["profile/ranks/late_rank"] == 0.0
    assert metrics["profile/ranks/wait_ms"] == pytest.approx(8.0, abs=0.1)
    assert metrics["profile/ranks/cost_percent"] == pytest.approx(15.0, abs=1.0)
    us = 24_000
    more = job.run(4)
    assert len(more) == 2
    assert " it 16.0 ms" in more[1]


@pytest.mark.parametrize(("world", "seed"), [(2, 1), (4, 2), (4, 3), (8, 4)])
def test_a_delay_of_5_percent_in_30_percent_of_noise_is_told_within_two_minutes(world, seed):
    job = Job(world, late=on(1, 2.6, first=400, last=2800), noise=0.3, seed=seed)
    while job.step < 400:
        assert job.tick() == []
    began = job.now
    while not job.said and job.now < began + 120.0:
        job.tick()
    (line,) = job.said
    same_text(line, "ranks-live")
    assert re.search(r": data \+2\.[56]\d ms, in decode \(dataset.py:31\); ", line)
    while job.step < 2800:
        assert job.tick() == []
    job.run(24)
    assert len(job.said) == 2
    same_text(job.said[1], "ranks-live")


@pytest.mark.parametrize("seed", range(3))
def test_long_pauses_now_and_then_are_told_as_a_late_rank(seed):
    job = Job(4, late=lambda r, step: 150.0 if r == 1 and step % 20 == 19 else 0.0, seed=seed)
    (line,) = job.run(36)
    same_text(line, "ranks-live")


def test_a_delay_that_is_over_is_not_told():
    for seed in range(4):
        job = Job(4, late=on(1, 2.6, first=400, last=900), noise=0.3, seed=seed)
        while job.step < 900:
            job.tick()
        said = len(job.said)
        job.run(20)
        assert all("not late any more" in line for line in job.said[said:])


def test_work_between_steps_is_told_without_a_function_if_there_is_no_answer():
    judge = BetweenNow()
    runs = [between_run(0, 45.0, 160.0), between_run(1, 53.0, 0.0), between_run(2, 53.0, 0.0)]
    assert judge.look(runs) is None
    work = judge.look(runs)
    judge.ask(work, Request(JOB, 1, 0, 9, (0,), "checkpoint"), 100.0)
    assert (judge.look(runs), judge.explain(104.0)) == (None, [])
    (line,) = judge.explain(105.0)
    same_text(line, "ranks-live")
    assert (judge.request, judge.look(runs)) == (None, None)
    assert judge.text(runs) == line


def between_run(rank, step_ms, between_ms):
    row = RankRow(
        rank, 3, None, "", 20, 0, step_ms, None, None, (), (), None, None, None, None, None, None,
        (),
    )  # fmt: skip
    return RankRun(row, between={"checkpoint": Between(between_ms)} if between_ms else {})


def test_work_between_steps_that_fits_into_the_wait_for_a_later_rank_is_not_told():
    """Rank 0 logs for 8 ms between its steps, while all wait for rank 1."""
    job, us = Job(4, late=on(1, 20.0)), 8000
    value = job.value

    def of(rank):
        window = decode(value(rank))
        if rank:
            return encode(window)
        rows = {
            start: (row[0] - us, row[1], row[2] - us, *row[3:])
            for start, row in window.blocks.items()
        }
        return encode(replace(window, between={"outside": us}, blocks=rows))

    job.value = of
    same_text([line.split(" by ")[0] for line in job.run(12)], "ranks-live")
    assert "between steps" not in job.judge.job_now(job.now).verdict


def test_a_checkpoint_for_which_nobody_waits_is_not_told():
    job = Job(4)
    value = job.value
    job.value = lambda rank: encode(replace(decode(value(rank)), between={"checkpoint": 8000}))
    assert job.run(8) == []


def test_a_rank_that_is_not_late_any_more_is_told_once():
    job = Job(4, late=on(1, 9.0, first=400, last=1600))
    job.run(30)
    assert len(job.said) == 2
    same_text(job.said[1], "ranks-live")
    assert job.judge.metrics["profile/ranks/late_rank"] == -1.0


def test_a_rank_that_becomes_later_is_told_again():
    job = Job(4, late=lambda r, s: 0.0 if r != 1 or s < 400 else 5.0 if s < 1400 else 20.0)
    job.run(24)
    assert len(job.said) == 2
    same_text(job.said[1], "ranks-live")


def test_a_late_rank_is_not_over_because_another_is_later_which_is_told_too():
    def late(rank, step):
        return {1: 9.0 if step >= 400 else 0.0, 2: 40.0 if step >= 1400 else 0.0}.get(rank, 0.0)

    for world in (3, 4, 8):
        job = Job(world, late=late)
        job.run(30)
        same_text([line.split(" by ")[0] for line in job.said], "ranks-live")
        assert "not known" not in job.judge.job_now(job.now).verdict
        assert job.judge.metrics["profile/ranks/late_rank"] == 2.0


def test_two_ranks_that_are_later_than_each_other_in_turns_are_told():
    # Both are late in every window; the latest one alternates.
    def late(rank, step):
        return {1: 3.0 + (step // 100) % 2, 2: 4.0 - (step // 100) % 2}.get(rank, 0.0)

    job = Job(5, late=late, noise=0.25)
    job.run(40)
    told = " ".join(job.said)
    for rank in (1, 2):
        assert f"Rank {rank} (host n{rank}) is late" in told or f"well: rank {rank}." in told


def test_many_ranks_that_fall_silent_are_one_sentence():
    job = Job(16)
    job.run(6)
    job.silent = set(range(4, 14))
    job.run(5)
    (line,) = job.said
    same_text(line, "ranks-live")
    told = job.judge.job_now(job.now).verdict
    same_text(told, "ranks-live")
    job.silent, job.beat = set(), 5000
    same_text(job.tick(), "ranks-live")


def test_a_late_rank_that_falls_silent_is_not_said_to_be_late_no_more():
    job = Job(4, late=on(1, 9.0))
    while not job.said:
        job.tick()
    job.silent = {1}
    job.run(6)
    assert not any("not late any more" in line for line in job.said)
    same_text(job.said[1], "ranks-live")


def test_ranks_that_are_late_in_turns_are_told_as_such():
    job = Job(4, late=lambda r, s: 10.0 if (s // 400) % 4 == r else 0.0)
    job.run(40)
    begins = [line for line in job.said if " is late by " in line]
    assert [line.split()[1] for line in begins[:5]] == ["0", "1", "2", "3", "0"]
    same_text(begins[4], "ranks-live")


def test_a_single_long_step_is_told_once_and_is_no_verdict():
    job = Job(4, late=lambda r, s: 5000.0 if (r, s) == (2, 700) else 0.0)
    job.run(30)
    (line,) = job.said
    same_text(line, "ranks-live")
    assert job.judge.begun == 0


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("ms", [200.0, 300.0, 400.0, 600.0])
def test_a_large_delay_that_stays_is_told_once_with_its_amount(world, ms):
    job = Job(world, late=on(1, ms, first=1243))
    job.run(40)
    (line,) = job.said
    same_text(line, "ranks-live")
    assert float(line.split(" is late by ")[1].split(" ms")[0]) == pytest.approx(ms, rel=0.06)
    since = int(line.split("since about step ")[1].split(":")[0])
    assert abs(since - 1243) <= 2 * job.size


def test_the_end_of_a_large_delay_is_no_single_stall():
    job = Job(4, late=on(1, 400.0, first=1243, last=1400))
    job.run(40)
    assert len(job.said) == 2
    same_text(job.said[1], "ranks-live")
    assert abs(int(job.said[1].split()[-1].rstrip(".")) - 1400) <= 2 * job.size


def test_a_stall_over_two_blocks_is_told_once_and_one_of_a_late_rank_too():
    def late(rank, step):
        slow = 9.0 if rank == 1 and step >= 1000 else 0.0
        return slow + (2500.0 if (rank, step) in ((2, 703), (2, 704), (1, 1700)) else 0.0)

    job = Job(4, late=late)
    job.run(40)
    same_text(job.said[0], "ranks-live")
    same_text(job.said[1], "ranks-live")
    same_text(job.said[2], "ranks-live")
    assert len(job.said) == 3


def test_a_stall_in_a_block_with_unmeasured_steps_is_as_long_as_it_was():
    job = Job(2, late=lambda r, s: 1500.0 if (r, s) == (1, 700) else 0.0)
    job.unmeasured = frozenset(range(701, 704))
    job.run(30)
    same_text(job.said, "ranks-live")


def test_a_stall_of_the_last_seconds_is_not_left_out_at_the_end():
    job = Job(2, late=lambda r, s: 2000.0 if (r, s) == (0, 800) else 0.0)
    while job.step < 850:
        job.tick()
    verdict = job.judge.job_now(job.now).verdict
    same_text(verdict, "ranks-live")


def test_stalls_that_recur_are_told_less_and_less_often():
    """A rank saves for 2 s in every 200th step: 30 lines in 5 minutes are too many."""
    job = Job(2, late=lambda r, s: 2000.0 if (r, s % 200) == (0, 199) else 0.0)
    job.run(60)
    same_text(job.said[0], "ranks-live")
    same_text(job.said[2], "ranks-live")
    assert [line.split()[6] for line in job.said[1:]] == ["2nd", "4th", "8th", "16th"]


def test_a_healthy_jitter_in_turns_is_no_finding():
    rng = random.Random(3)
    order = [rng.randrange(4) for _ in range(20000)]
    job = Job(4, late=lambda r, s: 10.0 if order[s] == r else 0.0)
    assert job.run(40) == []


def test_metrics_say_who_is_late_now():
    job = Job(2, late=on(1, 9.0))
    while not job.said:
        job.tick()
    job.run(3)
    metrics = job.judge.metrics
    assert metrics["profile/ranks/late_rank"] == 1.0
    assert metrics["profile/ranks/wait_ms"] == pytest.approx(9.0, abs=1.0)
    assert metrics["profile/ranks/cost_percent"] == pytest.approx(16.0, abs=4.0)


def test_a_silent_rank_is_told_within_two_windows_with_where_it_was_seen():
    job = Job(4)
    job.run(6)
    job.publish(beat=1000, place="data, decode (dataset.py:31)")
    job.silent, silent_since = {3}, job.now
    while not job.said:
        job.tick()
    assert job.now - silent_since <= 20.0
    (line,) = job.said
    same_text(line, "ranks-live")
    assert job.run(4) == [line]
    job.silent, job.beat = set(), 5000
    same_text(job.tick(), "ranks-live")


def test_the_others_are_judged_while_one_rank_is_silent():
    job = Job(4, late=on(1, 9.0, first=1000))
    job.run(4)
    job.silent = {3}
    job.run(20)
    assert any("is late by" in line and line.startswith("Rank 1 ") for line in job.said)


def test_who_stands_still_while_the_others_wait_is_told():
    job = Job(3)
    job.run(6)
    states = [{"place": "backward", "waits": True}] * 3
    states[1] = {"place": "data, decode (dataset.py:31)", "waits": False}
    for _ in range(5):
        job.said += job.still(states.__getitem__)
    (line,) = job.said
    same_text(line, "ranks-live")
    assert "Steps end again." in job.run(1)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("backward, main (train.py:9)", ", in backward, main (train.py:9)."),
        (
            "evaluate (train.py:30)",
            (
                ": rank 1 is in evaluate (train.py:30); ranks 0, 2 are in backward, main "
                "(train.py:9). They may have called different collectives."
            ),
        ),
    ],
)
def test_where_ranks_wait_is_told_if_all_wait(place, told):
    job = Job(3)
    job.run(6)
    states = [{"place": "backward, main (train.py:9)", "waits": True} for _ in range(3)]
    states[1]["place"] = place
    for _ in range(5):
        job.said += job.still(states.__getitem__)
    assert job.said == [f"No step has ended for 15.0 s: each rank waits for the others{told}"]
    assert job.judge.job_now(job.now).verdict.endswith(f"each rank waits for the others{told}")


def test_a_phase_between_steps_that_goes_on_is_no_hang():
    """Ranks validate in step for 40 s; at each look another one waits for the rest."""
    job = Job(4)
    job.run(6)
    for i in range(8):
        states = [
            {"phase": "validation", "works": True, "waits": rank != i % 4} for rank in range(4)
        ]
        assert job.still(states.__getitem__) == []
    for _ in range(4):  # and now rank 2 hangs
        job.said += job.still(lambda rank: {"phase": "validation", "waits": rank != 2})
    same_text(job.said, "ranks-live")


def test_hosts_that_wait_for_their_gpus_are_neither_late_nor_cleared():
    """Rank 1 loses 20 ms in data; the others spin meanwhile, in loss.item()."""
    job = Job(2)
    value = job.value

    def of(rank, **changes):
        window = decode(value(rank, **changes))
        rows = {  # wall, CPU, communication, autograd; own work of rank 0 includes its wait
            start: (row[0], row[0] - (20_000 if rank else 0), row[1], 5000, *row[3:])
            for start, row in window.blocks.items()
        }
        columns = ("wall", "cpu", "communication", "autograd")
        return encode(replace(window, columns=columns, blocks=rows, cuda=True))

    job.value = of
    assert job.run(10) == []
    same_text(job.judge.job_now(job.now).verdict, "ranks-live")
    places = ["forward, step (train.py:9)", "data, decode (dataset.py:31)"]
    for _ in range(4):
        job.said += job.still(lambda rank: {"place": places[rank]})
    (line,) = job.said
    same_text(line, "ranks-live")


GPU_COLUMNS = ("wall", "cpu", "cpu_wait", "communication", "autograd", "gpu_wait")


def on_gpus(job, *, gpu_wait=lambda engine_us: engine_us, cpu_wait=lambda rank: 0, **changes):
    """Let the ranks wait in collectives on their GPUs; their hosts wait for these in backward."""
    value = job.value

    def of(rank, **more):
        window = decode(value(rank, **more))
        rows = {
            start: (row[0], row[0], cpu_wait(rank), 0, 500, gpu_wait(row[2]), *row[3:])
            for start, row in window.blocks.items()
        }
        fields = {"columns": GPU_COLUMNS, "blocks": rows, "cuda": True, **changes}
        return encode(replace(window, **fields))

    job.value = of
    return job


@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("where", ["data", "forward"])
def test_a_rank_whose_gpu_waits_least_in_collectives_is_late(world, where):
    job = on_gpus(Job(world, late=on(1, 9.0, first=100), where=where))
    said = job.run(8)
    assert len(said) == 1, said
    assert re.match(rf"Rank 1 \(host n1\) is late by [89]\.\d+ ms per step .*: {where}", said[0]), (
        said
    )
    assert job.judge.job_now(job.now).late.signal == "gpu"


def test_a_gpu_that_computes_longer_is_told_if_no_section_of_its_host_is_longer():
    """The hosts wait for their GPUs in the same section, and equally long."""
    job = on_gpus(Job(4, late=on(1, 9.0), where="forward"))
    value = job.value

    def of(rank, **more):
        window = decode(value(rank, **more))
        rows = {start: (*row[:6], row[0]) for start, row in window.blocks.items()}
        computes = 44_000 if rank == 1 else 35_000
        return encode(replace(window, sections=("forward",), blocks=rows, gpu_compute=computes))

    job.value = of
    job.detail = lambda rank, request: encode_detail(RankDetail(JOB, rank, request.number, ()))
    (line,) = job.run(6)
    assert re.match(
        r"Rank 1 \(host n1\) is late by [89]\.\d+ ms per step .*: GPU \+9\.00 ms; ", line
    )


def test_healthy_ranks_with_gpus_are_not_late_and_are_cleared():
    for seed in range(3):
        job = on_gpus(Job(4, noise=0.05, seed=seed))
        assert job.run(20) == []
        same_text(job.judge.job_now(job.now).verdict, "ranks-live")


def test_gpus_without_collectives_clear_nobody():
    """Broadcasts and point-to-point transfers are not in the column."""
    job = on_gpus(Job(4, late=on(1, 9.0)), gpu_wait=lambda engine_us: 0)
    assert job.run(10) == []
    same_text(job.judge.job_now(job.now).verdict, "ranks-live")


def test_a_host_that_waits_for_a_cpu_while_its_gpu_works_makes_no_other_rank_late():
    job = on_gpus(Job(2, late=on(1, 1.0)), cpu_wait=lambda rank: 0 if rank else 9000)
    assert job.run(10) == []
    same_text(job.judge.job_now(job.now).verdict, "ranks-live")


FORWARD, DATA = "forward, step (train.py:9)", "data, decode (dataset.py:31)"


PLACES_NOW = (
    "rank 1 is in data, decode (dataset.py:31); ranks 0, 2 are in forward, step (train.py:9)."
)
CULPRIT = (
    "Rank 1 (host n1) is in data, decode (dataset.py:31) while its GPU has no work, and 2 "
    "others wait."
)
# One GPU computes for ever, or its collective waits for a rank that has work, too.
ALL_BUSY = (
    f"{PLACES_NOW} Each rank waits for others, or its GPU has unfinished work, so the cause is "
    "not known."
)
NOT_KNOWN = f"{PLACES_NOW} Only the records of their GPUs would show which of them wait for others."


@pytest.mark.parametrize(
    ("busy", "told"),
    [
        ((True, False, True), CULPRIT),
        ((True, True, True), ALL_BUSY),
        ((True, False, None), NOT_KNOWN),
        ((False, False, False), PLACES_NOW),
    ],
)
def test_of_ranks_with_gpus_the_one_whose_gpu_has_no_work_hangs(busy, told):
    job = on_gpus(Job(3))
    assert job.run(4) == []
    places = (FORWARD, DATA, FORWARD)
    for _ in range(5):
        job.said += job.still(lambda rank: {"place": places[rank], "gpu_busy": busy[rank]})
    assert job.said == [f"No step has ended for 15.0 s: {told}"]


def test_without_recorded_waits_no_rank_is_cleared():
    """As in a job of jax: the steps of ranks that wait for each other are equally long."""
    job = Job(4, late=on(1, 9.0))
    value = job.value

    def of(rank):
        window = decode(value(rank))
        rows = {start: (row[0], *row[3:4]) for start, row in window.blocks.items()}
        return encode(replace(window, columns=("wall",), sections=("data",), blocks=rows))

    job.value = of
    assert job.run(8) == []
    verdict = job.judge.job_now(job.now).verdict
    same_text(verdict, "ranks-live")


def test_a_rank_at_another_pace_is_not_late():
    """Rank 0 learns or evaluates: a step of ten times the length, and a tenth of the steps."""
    job = Job(4)
    value = job.value

    def of(rank):
        window = decode(value(rank))
        if rank:
            return encode(window)
        rows = {start: tuple(10 * us for us in row) for start, row in window.blocks.items()}
        return encode(replace(window, steps=window.steps // 10, blocks=rows))

    job.value = of
    assert job.run(10) == []
    same_text(job.judge.job_now(job.now).verdict, "ranks-live")


def test_a_function_that_is_not_most_of_a_section_is_not_said_to_be_in_it():
    late = Straggler(
        rank=1, host=None, work_ms=60.0, others_ms=50.0, late_ms=10.0, late_share=0.1,
        section="forward", section_ms=26.0, section_others_ms=20.0, waits=((0, 10.0),), also=(),
        functions=(FunctionExcess("decode", "dataset.py", 31, 9.0, 5.0),),
    )  # fmt: skip
    same_text(late_text(late, Begin(100, shown=True), False), "ranks-live")
    late = replace(late, without_cpu_wait=True)
    left_out = " by 10.0 ms per step, waits for a CPU not counted"
    assert f"{left_out}, since about step 100: forward" in late_text(
        late, Begin(100, shown=True), False
    )
    assert f"{left_out}: forward" in late_text(late, Begin(100, shown=True), True)


def test_no_time_with_waits_for_a_cpu_stands_beside_a_delay_without_them():
    decode = FunctionExcess("decode", "dataset.py", 31, 61.8, 30.0, "time.sleep")
    late = Straggler(
        rank=1, host=None, work_ms=66.0, others_ms=50.0, late_ms=16.0, late_share=0.1,
        section="data", section_ms=61.8, section_others_ms=30.0, waits=((0, 16.0),), also=(),
        functions=(decode,), without_cpu_wait=True,
    )  # fmt: skip
    start = (
        "Rank 1 is late by 16.0 ms per step, waits for a CPU not counted, since about step 100: "
        "data"
    )
    where, costs = "decode (dataset.py:31), mostly in time.sleep", "costs the job about 10.0 %."
    assert late_text(late, Begin(100, shown=True), False) == f"{start}, in {where}; this {costs}"
    part = replace(decode, ms=9.0, others_ms=5.0)
    assert late_text(replace(late, functions=(part,)), Begin(100, shown=True), False) == (
        f"{start}, and of all functions most in {where}, +4.00 ms; this {costs}"
    )
    assert (
        late_text(replace(late, functions=()), Begin(100, shown=True), False)
        == f"{start}; this {costs}"
    )
    # A difference that fits the delay has its time.
    late = replace(late, section_ms=46.5, functions=(replace(decode, ms=46.1),))
    assert (
        late_text(late, Begin(100, shown=True), False)
        == f"{start} +16.5 ms, in {where}; this {costs}"
    )


def test_each_part_of_a_sentence_stands_with_its_time():
    late = Straggler(
        rank=1, host="vm", work_ms=6.7, others_ms=4.4, late_ms=2.35, late_share=0.127,
        section="forward", section_ms=5.05, section_others_ms=2.5, waits=((0, 2.35),), also=(),
        functions=(FunctionExcess("Net.forward", "train.py", 8, 4.25, 1.68, "GRU.forward"),),
        cpu_wait=(3.1, 1.81), signal="autograd",
    )  # fmt: skip
    same_text(late_text(late, Begin(0, shown=True), False), "ranks-live")
    nowhere = replace(late, section=None, section_ms=None, section_others_ms=None)
    same_text(late_text(nowhere, Begin(0, shown=True), False), "ranks-live")
    unknown = replace(nowhere, functions=())
    same_text(late_text(unknown, Begin(0, shown=True), False), "ranks-live")


def test_waits_for_a_cpu_that_make_a_delay_look_longer_are_said_not_to_count():
    def run(rank, own_ms, wait_ms):
        steps = RankSteps(
            numbers=array("q", range(40)), wall=array("d", [50.0] * 40),
            sections={"data": array("d", [own_ms + wait_ms] * 40)}, communication=None,
            autograd=array("d", [50.0 - own_ms - wait_ms] * 40), cpu=None, gc=None,
            cpu_wait=array("d", [wait_ms] * 40),
        )  # fmt: skip
        return replace(between_run(rank, 50.0, 0.0), steps=steps)

    def late(wait_ms):
        return by_steps([run(0, 40.0, 0.0), run(1, 42.5, wait_ms)]).straggler_of(1)

    assert late(0.2).late_ms == pytest.approx(2.5)
    assert not late(0.2).without_cpu_wait
    # The section then has 2.0 ms more, or 4.5 ms for a delay of 2.5.
    assert late(2.0).late_ms == pytest.approx(2.5)
    assert late(2.0).without_cpu_wait
    # Another rank's section, with its waits, is longer than its work, and both are printed.
    both = by_steps([run(0, 9.0, 1.2), run(1, 30.0, 1.3)]).straggler_of(1)
    assert both.without_cpu_wait
    idle = by_steps([run(0, 0.0, 0.0), run(1, 30.0, 0.0)]).straggler_of(1)
    assert not idle.without_cpu_wait
    # Where they are most of the delay, they count.
    assert late(3.9).late_ms == pytest.approx(6.4)
    assert late(3.9).cpu_wait == pytest.approx((3.9, 0.0))


def test_ranks_that_have_ended_are_not_silent():
    job = Job(2)
    job.run(4)
    job.beat += 1
    assert job.publish(ended=True) == []
    job.now += 100.0
    assert job.judge.look(job.now) == []


def test_a_rank_that_is_restarted_begins_anew():
    job = Job(2)
    job.run(6)
    again = Job(2, late=on(1, 9.0), seed=2)
    again.judge, again.now, again.beat = job.judge, job.now, 1000
    again.run(8)
    assert any(line.startswith("Rank 1 (host n1) is late by") for line in again.said)


def test_a_rank_whose_window_lacks_the_column_of_the_verdict_has_no_own_work():
    job = Job(4, late=on(1, 9.0))
    while not job.said:
        job.tick()
    assert job.judge.job_now(job.now).late.signal == "autograd"
    blocks = {start: row[:2] + row[3:] for start, row in job.blocks[2].items()}
    lacking = {"beat": 9000, "columns": ("wall", "communication"), "blocks": blocks}
    job.judge.hear(2, job.value(2, **lacking), job.now)
    rows = job.judge.job_now(job.now).rows
    assert [row.work_ms is None for row in rows] == [False, False, True, False]
    job.judge.look(job.now)
    for _ in range(6):  # each later window lacks it too
        job.tick()
        blocks = {start: row[:2] + row[3:] for start, row in job.blocks[2].items()}
        lacking = {"beat": job.beat + 9000, "columns": ("wall", "communication"), "blocks": blocks}
        job.judge.hear(2, job.value(2, **lacking), job.now)
        job.judge.look(job.now)
        job.judge.job_now(job.now)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_rank_that_may_be_late_is_named_above_the_table_that_shows_it(seed):
    job = Job(2, late=on(1, 2.0), noise=0.1, seed=seed)
    while job.step < 160:
        job.tick()
    told = job.judge.job_now(job.now)
    (row,) = (row for row in told.rows if row.rank == 1)
    found = re.match(r"Rank 1 \(host n1\) may be late by ([\d.]+) ms per step; it", told.verdict)
    assert float(found[1]) == pytest.approx(row.late_ms, rel=0.01)
    assert (told.late, row.state) == (None, "")


def test_a_rank_that_is_late_in_a_part_of_the_first_window_is_not_passed_over():
    job = Job(2, late=on(1, 9.0, first=70), noise=0.1)
    while job.step < 140:
        job.tick()
    told = job.judge.job_now(job.now)
    shown = max(row.late_ms for row in told.rows)
    seen_from = re.match(r"Who .* only a rank late by ([\d.]+) ms per step would", told.verdict)
    assert float(seen_from[1]) > shown > 2.0


@pytest.mark.parametrize("steps", [0, 3])
def test_too_few_steps_are_the_reason_that_nothing_is_known(steps):
    job = Job(2)
    while job.step < steps * job.size:
        job.now += job.make_step()
    job.publish()
    told = job.judge.job_now(job.now).verdict
    same_text(told, "ranks-live")


def test_own_work_in_the_table_leaves_out_what_the_verdict_leaves_out():
    job, lacking = Job(3, late=on(1, 15.0)), None
    value = job.value

    def of(rank, **more):
        window = decode(value(rank, **more))
        if rank == lacking:
            return encode(window)
        rows = {start: (*row[:3], 6000 * rank, *row[3:]) for start, row in window.blocks.items()}
        return encode(replace(window, columns=(*COLUMNS, "cpu_wait"), blocks=rows))

    job.value = of
    while not job.said:
        job.tick()
    told = job.judge.job_now(job.now)
    assert told.late.without_cpu_wait
    (row,) = (row for row in told.rows if row.rank == 1)
    assert row.late_ms == pytest.approx(told.late.late_ms, rel=0.1)
    for lines in (brief_lines_live(told, 100), watch_lines(told, (), 100, 30)):
        assert any(line.endswith("; own work without waits for a CPU:") for line in lines)
    lacking = 2
    job.judge.hear(2, job.value(2, beat=9000), job.now)
    assert [row.work_ms is None for row in job.judge.job_now(job.now).rows] == [False, False, True]


def hang(job, *, rank, seconds, silent=False):
    """Let no step end: ``rank`` hangs, the others wait; ``silent``: it publishes nothing."""
    states = [{"place": "backward", "waits": True}] * job.world
    states[rank] = {"place": "data", "waits": False}
    said, before = [], job.silent
    job.silent = {rank} if silent else set()
    for _ in range(round(seconds / TICK_S)):
        said += job.still(states.__getitem__)
    job.silent = before
    return said


def test_a_job_that_hangs_is_not_said_to_have_no_late_rank():
    job = Job(4)
    job.run(6)
    same_text(job.judge.job_now(job.now).verdict, "ranks-live")
    hang(job, rank=2, seconds=30.0)
    told = job.judge.job_now(job.now)
    assert told.late is None
    same_text(told.verdict, "ranks-live")
    hang(job, rank=2, seconds=290.0, silent=True)
    told = job.judge.job_now(job.now)
    same_text(told.verdict, "ranks-live")
    shown = " ".join(brief_lines_live(told, 200))
    same_text(shown, "ranks-live")
    assert "No rank is late" not in shown


def test_the_live_verdict_is_said_to_be_of_the_last_seconds():
    job = Job(4)
    job.run(6)
    lines = brief_lines_live(job.judge.job_now(job.now), 100)
    same_text(lines[0], "ranks-live")
    same_text(lines, "ranks-live")


def test_steps_end_again_is_said_only_if_a_step_has_ended():
    job = Job(4)
    job.run(6)
    same_text(hang(job, rank=2, seconds=30.0)[0], "ranks-live")
    said = hang(job, rank=2, seconds=60.0, silent=True)
    assert len(said) == 1
    same_text(said[0], "ranks-live")
    job.judge.listen_anew(job.now)
    assert "Steps end again." not in hang(job, rank=2, seconds=5.0, silent=True)
    assert "Steps end again." in job.tick()


def test_a_rank_that_knows_no_functions_does_not_spend_no_time_in_them():
    """Else +15.0 ms in a function stands beside a delay of 10 ms."""
    job = Job(2, late=on(1, 10.0))
    detail = job.detail

    def of(rank, request):
        nothing_known = encode_detail(RankDetail(JOB, rank, request.number, ()))
        return detail(rank, request) if rank else nothing_known

    job.detail = of
    job.run(4)
    (line,) = job.said
    same_text(line, "ranks-live")
