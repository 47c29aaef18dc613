"""Replays a job of 100,000 ranks; checks rank 0's cost and results.

    python benchmarks/ranks_replay.py [--ranks 100000] [--windows 6] [--late-percent 5]
                                      [--missing 1] [--healthy]

Windows of artificial ranks pass through the product's code: it encodes each rank's window, leaders
group and merge them (``ranks/exchange/groups.py``), rank 0 merges the groups and judges
(``ranks/groups/late.py``).  Rank 0 is a separate process; the table shows its CPU time and
memory.  All ranks are alike for some windows; then one is late.  Some percent of the nodes (of 8
ranks) publish nothing.  The exit status is 1 if a goal is missed: 1 s and 512 MB for rank 0 per
window, percentiles within 1 %, the right rank and section, and no earlier verdict.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from fastprof.ranks.exchange.channel import window_key
from fastprof.ranks.exchange.groups import FAN, Groups
from fastprof.ranks.groups.late import GroupJudge
from fastprof.ranks.groups.summary import quantile_ms
from fastprof.ranks.live.window import RankWindow, encode

JOB = "01234567"
#: ms of each section, without the time in which all ranks wait for each other.
OWN = {"data": 10.0, "forward": 15.0, "backward": 15.0, "optimizer": 5.0}
STEP_MS = 50.0
EVERY_S = 5.0
#: Steps per block, and blocks per window.
SIZE, BLOCKS = 8, 25
#: Number of ranks with different noise; further ranks repeat it.
DIFFERENT = 4096
NODE = 8


class Store:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        return {key: self.values[key] for key in keys if key in self.values}

    def close(self, *, last: bool) -> None:
        pass


class Ranks:
    """The ranks; ``noise``: relative noise of each section's time in one step."""

    def __init__(self, world: int, noise: float, late: int, late_ms: float, first: int) -> None:
        self.world, self.noise = world, noise
        self.late, self.late_ms, self.first = late, late_ms, first
        self.random = random.Random(1)
        self.blocks: list[dict[int, tuple[int, ...]]] = [{} for _ in range(min(world, DIFFERENT))]
        self.late_blocks: dict[int, tuple[int, ...]] = {}
        self.shared = 1.0

    def more(self, blocks: int, begin: int) -> None:
        """Create blocks of steps from step ``begin`` on."""
        for start in range(begin, begin + blocks * SIZE, SIZE):
            shared = self.random.gauss(1.0, 0.1)
            for of in (*self.blocks, self.late_blocks):
                is_late = of is self.late_blocks and start >= self.first
                of[start] = self._row(shared, self.late_ms if is_late else 0.0)
                of.pop(start - 48 * SIZE, None)

    def _row(self, shared: float, late_ms: float) -> tuple[int, ...]:
        # A mean of SIZE steps.
        noise = self.noise / SIZE**0.5
        works = [max(0.0, ms * self.random.gauss(shared, noise)) for ms in OWN.values()]
        works[0] += late_ms
        if self.random.random() < 0.02:  # a pause now and then
            works[1] += self.random.uniform(0.0, STEP_MS) / SIZE
        own = sum(works)
        engine = max(0.0, 1.15 * STEP_MS * shared - own)
        works[2] += engine
        return tuple(round(1000 * ms) for ms in (own + engine, 0.0, engine, *works))

    def window(self, rank: int, beat: int, steps: int) -> bytes:
        """Return the value that a rank publishes."""
        blocks = self.late_blocks if rank == self.late else self.blocks[rank % len(self.blocks)]
        kept = dict(sorted(blocks.items())[-BLOCKS:])
        return encode(
            RankWindow(
                JOB, rank, self.world, f"node{rank // NODE}", beat, steps, size=SIZE,
                columns=("wall", "communication", "autograd"), sections=tuple(OWN), blocks=kept,
            )
        )  # fmt: skip

    def own_ms(self, rank: int) -> float:
        """Return the own work of a rank in the last window."""
        blocks = self.late_blocks if rank == self.late else self.blocks[rank % len(self.blocks)]
        rows = [blocks[start] for start in sorted(blocks)[-BLOCKS:]]
        return sum(row[0] - row[2] for row in rows) / len(rows) / 1000


def root(world: int, pipe: Connection) -> None:
    """Play rank 0: read values, judge, send the verdict."""
    store = Store()
    groups, judge = Groups(store, JOB, 0, world), GroupJudge(JOB, world)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while True:
        received = pipe.recv()
        if received is None:
            return
        now, values = received
        store.values |= values
        began = time.process_time()
        group = groups.whole(now)
        judge.hear_group(group, now)
        said = judge.look(now)
        said += judge.look(now + 6.0)  # no rank answers rank 0's requests
        took = time.process_time() - began
        signal = next(iter(group.works), "")
        parts = [quantile_ms(group.works.get(signal, {}), part) for part in (0.5, 0.9, 0.99)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = sum(map(len, store.values.values()))
        pipe.send((said, took, peak, peak - before, parts, group.heard, size))


def lead(ranks: Ranks, there: list[int], own: range, pipe: Connection) -> None:
    """Play some leaders of 32 ranks each, and their ranks."""
    store = Store()
    mine = [rank for rank in there if rank // FAN in own]
    leaders = [Groups(store, JOB, rank, ranks.world) for rank in mine if rank % FAN == 0]
    led = {leader.rank // FAN for leader in leaders}
    while (received := pipe.recv()) is not None:
        beat, now, begin, blocks = received
        ranks.more(blocks, begin)
        longest = 0
        for rank in mine:
            value = ranks.window(rank, beat, begin + blocks * SIZE)
            longest = max(longest, len(value))
            store.put(window_key(rank), value)
        began = time.process_time()
        for leader in leaders:
            leader.publish(now, 1)
        took = time.process_time() - began
        lone = {window_key(rank) for rank in mine if rank // FAN not in led}
        values = {
            key: value
            for key, value in store.values.items()
            if key.startswith("group") or key in lone
        }
        works = [ranks.own_ms(rank) for rank in mine]
        pipe.send((values, longest, 1000 * took / max(1, len(leaders)), works))


def main() -> int:
    """Replay the job and print a row per window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=100_000)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--noise", type=float, default=0.1, help="of a section, from step to step")
    parser.add_argument("--late-percent", type=float, default=5.0)
    parser.add_argument("--missing", type=float, default=1.0, help="percent of the nodes")
    parser.add_argument("--healthy", action="store_true", help="no rank is late")
    parser.add_argument("--jobs", type=int, default=2, help="processes that are leaders")
    options = parser.parse_args()
    world = options.ranks
    late = world * 2 // 3
    per_window = round(EVERY_S * 1000 / STEP_MS / SIZE)
    first = (BLOCKS + per_window) * SIZE
    late_ms = 0.0 if options.healthy else STEP_MS * options.late_percent / 100
    nodes = list(range(1, -(-world // NODE)))
    gone = set(random.Random(2).sample(nodes, round(options.missing / 100 * len(nodes))))
    gone.discard(late // NODE)
    there = [rank for rank in range(world) if rank // NODE not in gone]
    ranks = Ranks(world, options.noise, late, late_ms, first)
    ranks.more(BLOCKS - per_window, 0)
    # Spawn: a fork would copy this process's memory into rank 0.
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    context.Process(target=root, args=(world, theirs), daemon=True).start()
    pipes = []
    groups = -(-world // FAN)
    for i in range(options.jobs):
        here, there_end = context.Pipe()
        own = range(groups * i // options.jobs, groups * (i + 1) // options.jobs)
        context.Process(target=lead, args=(ranks, there, own, there_end), daemon=True).start()
        pipes.append(here)
    store = Store()
    upper = [Groups(store, JOB, rank, world) for rank in there if rank % FAN**2 == 0]
    top = Groups(store, JOB, 0, world)
    begin, now = (BLOCKS - per_window) * SIZE, 100.0
    wrong: list[str] = []
    told_at = None
    print(
        f"{world} ranks, {len(gone)} of {len(nodes) + 1} nodes missing; a step takes "
        f"{STEP_MS:.0f} ms; rank {late} is late by {late_ms:.2f} ms from step {first} on"
    )
    for beat in range(1, options.windows + 1):
        now += EVERY_S
        for one in pipes:
            one.send((beat, now, begin, per_window))
        begin += per_window * SIZE
        answers = [one.recv() for one in pipes]
        for values, *_ in answers:
            store.values |= values
        for leader in upper if top.levels > 1 else ():
            leader.publish(now, 2)
        pipe.send((now, store.get(top.keys())))
        said, took, peak, more, parts, heard, size = pipe.recv()
        works = sorted(ms for *_, found in answers for ms in found)
        exact = [works[round(part * (len(works) - 1))] for part in (0.5, 0.9, 0.99)]
        apart = max(abs(a / b - 1) for a, b in zip(parts, exact, strict=True)) if beat > 1 else 0.0
        print(
            f"window {beat}: rank 0 {took:.3f} s of CPU time, {peak / 1024:.0f} MB "
            f"({more / 1024:.0f} MB more), reads {size / 1e6:.2f} MB of {heard} ranks; percentiles "
            f"within {100 * apart:.2f} %; a leader {max(ms for *_, ms, _ in answers):.1f} ms; a "
            f"window has {max(n for _, n, *_ in answers)} bytes; said: {said or 'nothing'}",
            flush=True,
        )
        wrong += ["time"] * (took > 1.0) + ["memory"] * (peak > 512 * 1024)
        wrong += ["percentiles"] * (apart > 0.01)
        if said and told_at is None:
            told_at = begin
            who = f"Rank {late} (host node{late // NODE}) is late"
            wrong += ["false alarm"] * (begin <= first or options.healthy)
            wrong += ["rank or section"] * (who not in said[0] or ": data +" not in said[0])
    for one in (pipe, *pipes):
        one.send(None)
    if told_at is None and not options.healthy:
        wrong.append("miss")
    elif told_at is not None:
        print(f"said {(told_at - first) * STEP_MS / 1000:.0f} s after the first late step")
    print(f"wrong: {', '.join(wrong) or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
