"""Jobs of many ranks: groups of windows, merged along any tree and judged by rank 0."""

from __future__ import annotations

import json
import random
import re
import zlib
from base64 import b64encode
from dataclasses import replace
from functools import reduce

import fastprof.ranks
import pytest
from fastprof.clock import time
from fastprof.ranks.blocks import HeardRank, add_blocks
from fastprof.ranks.exchange import groups as exchange
from fastprof.ranks.exchange.channel import window_key
from fastprof.ranks.exchange.groups import Groups
from fastprof.ranks.exchange.talk import Talk
from fastprof.ranks.groups.late import GroupJudge
from fastprof.ranks.groups.summary import (
    MOST,
    RankGroup,
    bucket_of,
    group_of,
    merge,
    middle_ms,
    quantile_ms,
)
from fastprof.ranks.groups.wire import MAX_GROUP_BYTES, decode_group, encode_group
from fastprof.ranks.live.window import RankWindow, encode
from fastprof.ranks.render.brief import brief_lines_live
from wording import same_text

JOB = "01234567"
OWN_MS = {"data": 10.0, "forward": 15.0, "backward": 15.0, "optimizer": 5.0}
SIZE = 8


class Store:
    """Values in memory; counts the values read at a time."""

    def __init__(self):
        self.values, self.most = {}, 0

    def put(self, key, value):
        self.values[key] = value

    def get(self, keys):
        self.most = max(self.most, len(keys))
        return {key: self.values[key] for key in keys if key in self.values}


class Job:
    """Ranks that wait in backward for the latest; ``late`` is ms by rank and step."""

    def __init__(self, world, *, late=None, noise=0.02, seed=1, where="data"):
        self.random = random.Random(seed)
        self.world, self.noise, self.where = world, noise, where
        self.late = late or (lambda rank, step: 0.0)
        self.blocks = [{} for _ in range(world)]
        self.store = Store()
        self.leaders = {r: Groups(self.store, JOB, r, world) for r in range(0, world, exchange.FAN)}
        self.judge = GroupJudge(JOB, world)
        self.step, self.beat, self.now = 0, 0, 100.0
        self.dead, self.changes, self.said = set(), {}, []

    def make(self, blocks):
        for start in range(self.step, self.step + blocks * SIZE, SIZE):
            shared = self.random.gauss(1.0, 0.1)
            for rank, of in enumerate(self.blocks):
                noise = max(0.1, self.random.gauss(1.0, self.noise))
                works = {name: ms * shared * noise for name, ms in OWN_MS.items()}
                works[self.where] = works.get(self.where, 0.0) + self.late(rank, start)
                own = sum(works.values())
                engine = max(0.0, 60.0 * shared - own)
                works["backward"] += engine
                row = (own + engine, 0.0, engine, *(works[name] for name in OWN_MS))
                of[start] = tuple(round(1000 * ms) for ms in row)
        self.step += blocks * SIZE

    def window(self, rank):
        window = RankWindow(
            JOB, rank, self.world, f"n{rank}", self.beat, self.step, size=SIZE,
            columns=("wall", "communication", "autograd"), sections=tuple(OWN_MS),
            blocks=dict(sorted(self.blocks[rank].items())[-25:]), place=f"data, decode{rank}",
        )  # fmt: skip
        return replace(window, **self.changes.get(rank, {}))

    def tick(self, blocks=12):
        """Run five seconds of steps; return rank 0's verdicts."""
        self.make(blocks)
        self.beat, self.now = self.beat + 1, self.now + 5.0
        for rank in set(range(self.world)) - self.dead:
            self.store.put(window_key(rank), encode(self.window(rank)))
        for rank, leader in reversed(self.leaders.items()):
            if rank not in self.dead:
                leader.publish(self.now)
        self.leaders[0].tell(self.judge, self.now)
        said = [*self.judge.look(self.now), *self.judge.look(self.now + 6.0)]
        self.said += said
        return said

    def run(self, ticks, blocks=12):
        for _ in range(ticks):
            self.tick(blocks)
        return self.said


class GpuJob(Job):
    """Ranks whose GPUs wait in collectives, and whose hosts wait for their GPUs in backward."""

    def window(self, rank):
        window = super().window(rank)
        rows = {start: (row[0], 500, *row[2:]) for start, row in window.blocks.items()}
        columns = ("wall", "autograd", "gpu_wait")
        return replace(window, columns=columns, blocks=rows, cuda=True)


def groups(count, seed=1, world=1000):
    job = Job(world)
    job.blocks = [{} for _ in range(count)]
    job.random = random.Random(seed)
    job.make(12)
    found = []
    for rank in range(count):
        known = HeardRank(job.window(rank), 1.0, 1.0 - rank, lives=True)
        known.window = replace(known.window, waits=bool(rank % 3))
        add_blocks(known, known.window)
        found.append(group_of(JOB, world, {rank: known}, 20.0 - rank, 12.0, 8.0))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_merged_along_any_tree(seed):
    parts = groups(14, seed)
    whole = reduce(merge, parts)
    shuffled = random.Random(seed)
    left = list(parts)
    shuffled.shuffle(left)
    while len(left) > 1:
        a, b = left.pop(shuffled.randrange(len(left))), left.pop(shuffled.randrange(len(left)))
        left.append(merge(a, b))
    assert left == [whole]
    assert (whole.heard, len(whole.most)) == (14, MOST)
    assert merge(whole, RankGroup(JOB, 1000)) == whole
    assert decode_group(encode_group(whole)) == whole


def test_what_ranks_publish_is_merged_as_bytes_too():
    job = Job(200)
    job.make(12)
    a, b, c = (encode(job.window(rank)) for rank in range(3))
    whole = fastprof.ranks.merge(fastprof.ranks.merge(a, b), c)
    assert decode_group(whole) == decode_group(fastprof.ranks.merge(a, fastprof.ranks.merge(c, b)))
    assert decode_group(whole).heard == 3
    other = encode(replace(job.window(1), job="other"))
    with pytest.raises(ValueError, match="different jobs"):
        fastprof.ranks.merge(a, other)
    with pytest.raises(ValueError, match="not a value that fastprof wrote"):
        fastprof.ranks.merge(a, b"odd")


def test_percentiles_are_within_one_percent():
    noise = random.Random(1)
    for spread in (0.01, 0.3, 2.0):
        values = sorted(50.0 * noise.lognormvariate(0.0, spread) for _ in range(20_000))
        of = {}
        for ms in values:
            of[bucket_of(ms)] = of.get(bucket_of(ms), 0) + 1
            assert middle_ms(bucket_of(ms)) == pytest.approx(ms, rel=0.006)
        for part in (0.01, 0.1, 0.5, 0.9, 0.99):
            exact = values[round(part * (len(values) - 1))]
            assert quantile_ms(of, part) == pytest.approx(exact, rel=0.01)
    assert quantile_ms({}, 0.5) == quantile_ms({0: 7}, 0.9) == 0.0


def test_a_value_is_at_most_so_long_and_the_oldest_blocks_go():
    one = groups(14)[-1]
    noise = random.Random(1)
    wide = {b: {k: noise.randrange(10**6) for k in range(2000)} for b in one.blocks["autograd"]}
    value = encode_group(replace(one, blocks={"autograd": wide}))
    assert len(value) <= MAX_GROUP_BYTES
    kept = [start for _, start in decode_group(value).blocks["autograd"]]
    assert 0 < len(kept) < len(wide)
    assert max(kept) == max(start for _, start in wide)


def test_hostile_values_are_refused_or_consistent():
    value = encode_group(reduce(merge, groups(14)))
    noise = random.Random(1)
    known = json.loads(zlib.decompress(value))
    for _ in range(300):
        data = bytearray(value)
        data[noise.randrange(len(data))] ^= noise.randrange(1, 256)
        with pytest.raises(ValueError):
            decode_group(bytes(data))
    odd = (None, -1, 10**30, 1.5, True, "x" * 10_000, [], [[]], {}, {"x": 1}, [1] * 5000, [[1, 2]])
    for name in known:
        for wrong in (*odd, {"autograd": []}, {"autograd": [0]}):
            if name == "v" and wrong is True:
                continue  # true is 1 to Python, and nothing depends on it
            made = zlib.compress(json.dumps({**known, name: wrong}).encode())
            try:
                group = decode_group(made)
            except ValueError:
                continue
            judge = GroupJudge(group.job, group.world_size)
            judge.hear_group(group, 1.0)
            judge.look(2.0)
            judge.job_now(3.0)
    bomb = zlib.compress(b" " * (1 << 22))
    for data in (b"", b"\x00" * 10, bomb, b"x" * (MAX_GROUP_BYTES + 1)):
        with pytest.raises(ValueError):
            decode_group(data)


def test_ranks_beyond_the_size_of_the_job_are_refused():
    known = json.loads(zlib.decompress(encode_group(reduce(merge, groups(14)))))
    outside = replace(Job(1001).window(1000), world_size=1000)
    seen = [1000, "n", "data", 5, 20]
    for wrong in (
        {"of": 13},
        {"of": 10},
        {"counts": [1001, *known["counts"][1:]]},
        {"works": {"autograd": [5, 15]}, "walls": {"autograd": [5, 15]}},
        {"most": [[1000, 5, b64encode(encode(outside)).decode()]]},
        {"standing": [seen]},
        {"lost": [seen]},
    ):
        made = zlib.compress(json.dumps({**known, **wrong}).encode())
        with pytest.raises(ValueError, match="not a value that fastprof wrote"):
            decode_group(made)
    assert decode_group(zlib.compress(json.dumps({**known, "of": 14}).encode())).heard == 14


@pytest.mark.parametrize(
    ("world", "late", "fan", "direct"),
    [
        pytest.param(4200, 3333, exchange.FAN, exchange.DIRECT, marks=pytest.mark.slow),
        (280, 222, 8, 8),
    ],
)
def test_a_late_rank_of_many_is_told_with_its_section_and_rank_0_reads_little(
    monkeypatch, world, late, fan, direct
):
    monkeypatch.setattr(exchange, "FAN", fan)
    monkeypatch.setattr(exchange, "DIRECT", direct)
    job = Job(world, late=lambda rank, step: 2.5 if rank == late and step >= 288 else 0.0)
    assert job.leaders[0].levels == 2
    job.run(3)
    assert job.said == []
    job.run(2)
    (line,) = job.said
    assert line.startswith(f"Rank {late} (host n{late}) is late by 2.")
    assert ": data +2." in line
    assert job.store.most <= max(fan, direct)
    lines = brief_lines_live(job.judge.job_now(job.now), 100)
    assert lines[0].startswith(
        f"Ranks: {world} of {world}, in the last 10 s of steps. Rank {late} "
    )
    assert f"{late} (late)" in "\n".join(lines)


@pytest.mark.parametrize("world", [129, 4096, 4097, 131_072, 1_000_000])
def test_rank_0_reads_at_most_128_groups(world):
    assert len(Groups(Store(), JOB, 0, world).keys()) <= 128


def test_a_rank_of_many_whose_gpu_waits_least_is_told():
    job = GpuJob(200, late=lambda rank, step: 4.0 if rank == 77 else 0.0, where="forward")
    job.run(4)
    (line,) = job.said
    same_text(line, "ranks-groups")
    assert ": forward +" in line
    assert job.judge.job_now(job.now).late.signal == "gpu"
    assert GpuJob(200).run(6) == []


@pytest.mark.parametrize("where", ["forward", "backward", "(rest)"])
def test_a_late_rank_is_told_wherever_it_is_late_and_its_end_too(where):
    job = Job(160, late=lambda rank, step: 4.0 if rank == 7 and step < 500 else 0.0, where=where)
    job.run(9)
    assert len(job.said) == 2
    name = "code in no section" if where == "(rest)" else where
    same_text(job.said[0], "ranks-groups")
    assert f": {name} +" in job.said[0]
    same_text(job.said[1], "ranks-groups")


def cpu_windows(job, *, cpu=None, cpu_wait=None):
    """Add CPU times and waits for a CPU in ms, by rank, to the windows of a job."""
    window = job.window

    def more(rank):
        of = window(rank)
        extra = tuple(
            round(1000 * ms(rank) * job.random.gauss(1.0, 0.02)) for ms in (cpu, cpu_wait) if ms
        )
        names = tuple(n for n, ms in (("cpu", cpu), ("cpu_wait", cpu_wait)) if ms)
        wide = len(of.columns)
        return replace(
            of,
            columns=(*of.columns, *names),
            blocks={s: (*row[:wide], *extra, *row[wide:]) for s, row in of.blocks.items()},
        )

    job.window = more


def test_a_rank_of_many_that_waits_for_a_cpu_is_told_so_against_the_others():
    job = Job(160, late=lambda rank, step: 5.0 if rank == 7 else 0.0)
    cpu_windows(job, cpu_wait=lambda rank: 6.0 if rank == 7 else 1.0)
    (line,) = job.run(5)
    same_text(line, "ranks-groups")


def test_a_rank_of_many_that_computes_longer_in_backward_is_told_so():
    job = Job(160)
    cpu_windows(job, cpu=lambda rank: 24.0 if rank == 77 else 20.0)
    (line,) = job.run(5)
    same_text(line, "ranks-groups")
    assert job.run(5) == [line]


def test_a_rank_of_many_that_computes_more_and_does_less_otherwise_is_not_late():
    job = Job(160, late=lambda rank, step: -4.0 if rank == 77 else 0.0)
    cpu_windows(job, cpu=lambda rank: 24.0 if rank == 77 else 20.0)
    assert job.run(6) == []


def test_that_one_of_many_ranks_works_between_its_steps_is_told():
    job = Job(160)
    window = job.window

    def between(rank):
        of = window(rank)
        if rank == 3:  # the others' steps are longer by its checkpoints
            return replace(of, between={"checkpoint": 8000, "validation": 100})
        waits = {s: (row[0] + 8000, row[1], row[2] + 8000, *row[3:5], row[5] + 8000, *row[6:])
                 for s, row in of.blocks.items()}  # fmt: skip
        return replace(of, blocks=waits, between={"validation": 100})

    job.window = between
    (line,) = job.run(6)
    same_text(line, "ranks-groups")
    assert job.judge.metrics["profile/ranks/late_rank"] == 3.0
    verdict = job.judge.job_now(job.now).verdict
    same_text(verdict, "ranks-groups")


def test_checkpoints_of_many_ranks_for_which_nobody_waits_are_not_told():
    job = Job(160)
    window = job.window
    job.window = lambda rank: replace(window(rank), between={"checkpoint": 8000})
    assert job.run(6) == []


def test_a_late_rank_of_many_is_not_over_because_others_are_later():
    def late(rank, step):
        if rank == 7:
            return 9.0 if 288 <= step < 1500 else 0.0
        return 30.0 if 20 <= rank < 28 and step >= 700 else 0.0

    job = Job(160, late=late)
    job.run(11)
    same_text(job.said[0], "ranks-groups")
    later = [line for line in job.said if re.search(r" is late by (30\.\d|29\.\d) ms ", line)]
    assert later
    assert not any("not late any more" in line for line in job.said)
    verdict = job.judge.job_now(job.now).verdict
    assert re.search(r" is late by (30\.\d|29\.\d) ms per step since (about )?step ", verdict)
    same_text(verdict, "ranks-groups")
    job.run(12)  # rank 7 is not among those with most own work
    over = [line for line in job.said if "not late any more" in line]
    assert len(over) == 1
    same_text(over[0], "ranks-groups")


def test_a_single_stall_of_one_of_many_ranks_is_told_and_is_no_verdict():
    job = Job(160, late=lambda rank, step: 600.0 if (rank, step) == (77, 400) else 0.0)
    job.run(9)
    same_text(job.said, "ranks-groups")


def test_a_hang_with_many_silent_ranks_is_one_sentence_with_counts():
    job = Job(200)
    job.run(3)
    job.dead.update(range(100, 170))
    job.changes = {rank: {"waits": True} for rank in range(200)}
    job.run(5, blocks=0)
    (line,) = job.said
    same_text(line, "ranks-groups")
    same_text(job.judge.job_now(job.now).verdict, "ranks-groups")
    job.dead.clear()
    job.changes = {}
    job.run(2)
    same_text(job.said[1:], "ranks-groups")


@pytest.mark.parametrize(
    ("noise", "world"),
    [*(pytest.param(noise, 400, marks=pytest.mark.slow) for noise in (0.02, 0.1, 0.3)), (0.3, 160)],
)
def test_of_ranks_alike_none_is_told(noise, world):
    job = Job(world, noise=noise, seed=round(100 * noise))
    assert job.run(25) == []
    same_text(job.judge.job_now(job.now).verdict, "ranks-groups")


def test_a_leader_that_is_gone_does_not_hide_its_ranks():
    job = Job(200, late=lambda rank, step: 5.0 if rank == 70 else 0.0)
    job.dead.add(64)  # it leads 70
    job.run(6)
    same_text([line.split(" is late")[0] for line in job.said], "ranks-groups")
    assert job.judge.job_now(job.now).heard == 199


def test_a_rank_that_goes_silent_is_told_once_and_heard_again():
    job = Job(200)
    job.run(3)
    job.dead.add(135)
    job.run(5)
    (line,) = job.said
    same_text(line, "ranks-groups")
    same_text("\n".join(brief_lines_live(job.judge.job_now(job.now), 100)), "ranks-groups")
    job.dead.clear()
    job.run(2)
    same_text(job.said[1:], "ranks-groups")


def test_a_rank_that_hangs_is_told_with_where_it_stands():
    job = Job(200)
    job.run(3)
    job.changes = {rank: {"waits": rank != 42} for rank in range(200)}
    job.run(5, blocks=0)
    (line,) = job.said
    same_text(line, "ranks-groups")
    same_text(job.judge.job_now(job.now).verdict, "ranks-groups")
    job.changes = {}
    job.run(2)
    assert job.said[1:] == ["Steps end again."]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (True, "Rank 42 (host n42) is in data, decode42, and 199 others wait."),
        (None, ""),  # nothing is known of them
    ],
)
def test_a_rank_of_many_whose_gpu_has_no_work_hangs(others, told):
    job = GpuJob(200)
    job.run(3)
    job.changes = {rank: {"gpu_busy": others if rank != 42 else False} for rank in range(200)}
    job.run(5, blocks=0)
    assert job.said == ([f"No step has ended for 15.0 s: {told}"] if told else [])


def test_of_many_ranks_whose_gpus_all_have_work_none_is_the_cause():
    job = GpuJob(200)
    job.run(3)
    job.changes = {rank: {"gpu_busy": True} for rank in range(200)}
    job.run(5, blocks=0)
    (line,) = job.said
    same_text(line, "ranks-groups")


def test_a_late_rank_that_stands_while_others_end_steps_is_no_end_of_the_comparison():
    job = Job(200, late=lambda rank, _step: 10.0 if rank in (50, 77) else 0.0)
    job.run(6)
    stood = job.window(77)
    job.changes[77] = {"steps": stood.steps, "blocks": stood.blocks}
    job.run(6, blocks=2)
    assert "is late" in job.judge.job_now(job.now).verdict
    assert any(row.rank == 77 for row in job.judge.job_now(job.now).rows)


def test_while_the_store_was_away_nobody_was_silent(monkeypatch):
    job = Job(200)
    job.run(4)
    job.now += 40.0
    monkeypatch.setattr(time, "monotonic", lambda: job.now)
    for leader in reversed(job.leaders.values()):
        talk = object.__new__(Talk)
        talk._groups, talk._judge = leader, job.judge if leader.rank == 0 else None
        talk.listen_anew()
        leader.publish(job.now)
    job.judge.hear_group(job.leaders[0].whole(job.now), job.now)
    assert job.judge.look(job.now) == []
    assert "silent" not in job.judge.job_now(job.now).verdict


def test_groups_of_another_job_are_ignored():
    job = Job(200)
    job.run(2)
    judge = GroupJudge("other", 200)
    judge.hear_group(job.leaders[0].whole(job.now), job.now)
    assert judge.look(job.now) == []
    assert judge.ignored["of another job or rank"] == 1
