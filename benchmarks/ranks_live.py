"""Measures the cost of comparing ranks during a job, for the training thread and for rank 0.

    python benchmarks/ranks_live.py

The comparing thread costs the training thread at most its own CPU time, in which it holds the GIL.
So this script measures that time per window: for every rank (the last steps of a real run, its
tree, the published value), for rank 0 (judging artificial ranks), and for the client of a TCPStore
of torch in this process.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from array import array
from pathlib import Path

from fastprof import Profiler, profile_section
from fastprof.ranks.exchange.recording import Recording
from fastprof.ranks.live.judge import Judge
from fastprof.ranks.live.window import COLUMNS, RankWindow, encode
from fastprof.session.profiler import run_of

#: Seconds between two published windows.
EVERY_S = 5.0
STEP_MS = 50.0
SECTIONS = ("data", "forward", "backward", "optimizer")


def of_every_rank() -> None:
    """Print the CPU time of a window of 100 steps, in a run with a large tree."""
    import json.decoder  # noqa: F401 - something with many functions

    with Profiler(gpu=False, ranks=False) as prof:
        sources = sorted(Path(statistics.__file__).parent.glob("*.py"))[:60]
        for source in sources:  # many contexts
            compile(source.read_text(encoding="utf-8"), str(source), "exec")
            statistics.quantiles([random.random() for _ in range(50)])
        for _ in range(100):
            for name in SECTIONS:
                with profile_section(name):
                    statistics.fmean([random.random() for _ in range(200)])
            prof.step()
        recorder = run_of(prof).recorder
        copies = []
        for _ in range(20):
            began = time.perf_counter()
            recorder.window(0)
            recorder.node_times()
            copies.append(1000 * (time.perf_counter() - began))
        took = []
        for _ in range(20):
            recording = Recording(recorder, "job", 1, 8, "host")
            began = time.thread_time()
            data = encode(recording.window())
            took.append(1000 * (time.thread_time() - began))
        began = time.thread_time()
        recorder.nodes(array("q", range(recorder.memory()["nodes"])).tobytes())
        names = 1000 * (time.thread_time() - began)
        nodes = recorder.memory()["nodes"]
    ms = statistics.median(took)
    print(
        f"every rank: {ms:.2f} ms of CPU time per window of 100 steps, that is "
        f"{ms / 10 / EVERY_S:.3f} % of the time; {statistics.median(copies):.3f} ms of it copies "
        f"under the GIL in one piece ({nodes} contexts); {len(data)} bytes"
    )
    print(f"a rank that is asked for its functions: {names:.2f} ms in one piece, once per verdict")


def of_rank_0(world: int) -> None:
    """Print the CPU time of reading and judging ``world`` ranks once."""
    noise = random.Random(1)
    judge = Judge("job", world)
    blocks: list[dict[int, tuple[int, ...]]] = [{} for _ in range(world)]
    took = []
    for beat in range(1, 7):
        values = []
        for rank in range(world):
            for i in range(12 * (beat - 1), 12 * beat):
                works = [round(noise.gauss(10_000, 300)) for _ in SECTIONS]
                engine = 50_000 - sum(works)
                blocks[rank][i * 8] = (50_000, 40_000, 0, 0, max(0, engine), *works)
            values.append(
                encode(
                    RankWindow(
                        "job", rank, world, f"node{rank}", beat, 96 * beat, size=8,
                        columns=COLUMNS, sections=SECTIONS, blocks=blocks[rank],
                    )
                )
            )  # fmt: skip
        now = 100.0 + EVERY_S * beat
        began = time.thread_time()
        for rank, value in enumerate(values):
            judge.hear(rank, value, now)
        judge.look(now)
        took.append(1000 * (time.thread_time() - began))
    ms = statistics.median(took[-3:])
    print(
        f"rank 0 of {world}: {ms:.2f} ms of CPU time per window of {len(values[0])} bytes a rank, "
        f"{ms / 10 / EVERY_S:.3f} % of the time if each is judged"
    )


def of_the_store(world: int) -> None:
    """Print the CPU time of a window with a store of torch, for every rank and for rank 0."""
    from datetime import timedelta

    from fastprof.ranks.exchange import store
    from torch import distributed

    server = distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30)
    )
    store._is_used = lambda: True
    channel = store.StoreChannel(("127.0.0.1", server.port), "01234567")
    keys = [f"window-{rank}" for rank in range(world)]
    for key in keys:
        channel.put(key, random.randbytes(2048))
    channel.get(keys)
    took: list[list[float]] = [[], []]
    for _ in range(20):
        began = time.thread_time()
        channel.put(keys[-1], random.randbytes(2048))
        for _ in range(int(EVERY_S)):
            channel.get(["request"])
        took[0].append(1000 * (time.thread_time() - began))
        began = time.thread_time()
        channel.get(keys)
        took[1].append(1000 * (time.thread_time() - began))
    channel.close(last=True)
    rank_ms, root_ms = map(statistics.median, took)
    print(
        f"store, {world} ranks: {rank_ms:.2f} ms of CPU time per window and rank, "
        f"{root_ms:.2f} ms more on rank 0"
    )


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}; windows every {EVERY_S:.0f} s")
    of_every_rank()
    for ranks in (2, 8, 64, 1000):
        of_rank_0(ranks)
    try:
        import torch  # noqa: F401
    except ImportError:
        print("store: not measured, torch is not installed")
    else:
        for ranks in (8, 64, 1000):
            of_the_store(ranks)
