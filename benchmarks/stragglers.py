"""Tests whether ``fastprof merge`` names the late rank and the cause in real jobs.

    python benchmarks/stragglers.py [--ranks 2 4] [--percent 5 10 25] [--cause data ...]
                                    [--healthy 4] [--steps 100] [--keep DIR]

Each job is ``torchrun`` with gloo; its work is sleeping, so that a few ranks need few CPUs.  In
most jobs one rank sleeps longer at one place, by a given percentage of a step.  The table has a row
per job; below it are the numbers of misses (a planted delay that was not reported, or for another
rank), wrong sections and functions, and false alarms (a rank reported late although all are alike).
The exit status is 1 if there is any.

A new cause is an entry of ``CAUSES`` and a call of ``planted`` in ``JOB``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fastprof import RankReport, merge

#: Planted cause -> the section and the function that the report must name.
CAUSES = {
    "data": ("data", "Data.__getitem__"),
    "forward": ("forward", "Slow.forward"),
    "backward": ("backward", "Slow.backward"),
    "optimizer": ("optimizer", "step_hook"),
    "logging": ("(unaccounted)", "log"),
    "loss": ("data", "Data.__getitem__"),
    "groups": ("forward", "Slow.forward"),
    "window": ("data", "Data.__getitem__"),
    "half": ("data", "Data.__getitem__"),
    # Two batches per step; the first one's gradients stay on the rank.
    "no_sync": ("forward", "Slow.forward"),
    # FSDP spreads parameters over the ranks.
    "fsdp": ("backward", "Slow.backward"),
    # After every tenth step this rank alone writes a file for ten delays.
    "checkpoint": ("checkpoint", "SlowFile.write"),
    # Another process computes on this rank's CPU; the percentage has no effect.
    "stolen": ("forward", "Slow.forward"),
}

#: ms of a step.
STEP = 40.0

JOB = '''
import contextlib, gc, io, os, signal, subprocess, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

cause, delay = sys.argv[1], float(sys.argv[2]) / 1e3
late, steps = int(sys.argv[3]), int(sys.argv[4])
first, turn = (int(text) for text in (sys.argv[5:] or ("0", "0")))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
done = 0


def planted(here, *causes):
    """Return by how many seconds this rank is late here: if one of these causes is planted."""
    who = done // turn % world if cause == "turns" else late
    extra = delay if rank == who and cause in (here, *causes) and done >= first else 0.0
    if cause == "window" and not steps // 2 <= done < steps // 2 + 30:
        extra = 0.0
    if cause == "half" and done < steps // 2:
        extra = 0.0
    if cause == "part" and done >= first + turn:
        extra = 0.0
    return extra


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return steps
    def __getitem__(self, i):
        if done == first + turn and rank == late:
            if cause == "hung":
                time.sleep(600)
            if cause in ("stopped", "killed"):
                os.kill(os.getpid(), signal.SIGSTOP if cause == "stopped" else signal.SIGKILL)
        time.sleep(0.010 + planted("data", "loss", "window", "half", "turns", "part"))
        return torch.ones(64), i % 10


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if cause == "stolen":
            began = time.thread_time()
            while time.thread_time() < began + 0.012:
                pass
        else:
            time.sleep(0.012 + planted("forward", "groups", "no_sync"))
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.012 + planted("backward", "fsdp"))
        return grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 10)
    def forward(self, x):
        return self.two(Slow.apply(self.one(x)))


def step_hook(optimizer, args, kwargs):
    time.sleep(0.003 + planted("optimizer"))


def log(step):
    time.sleep(0.002 + planted("logging"))


kept = []


def collect():
    """A garbage collection, on the late rank of as many objects as the delay takes."""
    if not planted("gc"):
        return
    took = 0.0
    while took < delay:
        began = time.perf_counter()
        gc.collect()
        took = time.perf_counter() - began
        if took < 0.9 * delay:
            kept.extend([i] for i in range(max(100, round(20000 * (delay - took) / 0.001 / 10))))
        else:
            return


class SlowFile(io.BytesIO):
    slept = False
    def write(self, data):
        if not self.slept:
            self.slept = True
            time.sleep(10 * delay)
        return super().write(data)


def save():
    if cause == "checkpoint" and rank == late and done >= first and done % 10 == 9:
        torch.save(model.state_dict(), SlowFile())


def steal():
    """Let another process compute on the late rank's CPU."""
    if cause == "stolen" and done == first and rank == late:
        busy = f"__import__('os').getppid() == {os.getpid()}"
        subprocess.Popen([sys.executable, "-c", f"while {busy}: pass"])


if cause == "stolen":  # it has the affinity of this process
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
if cause == "fsdp":
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(Net())
else:
    model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer.register_step_pre_hook(step_hook)
mine = None
if cause == "groups":
    groups = [dist.new_group([r for r in range(world) if r % 2 == k]) for k in (0, 1)]
    mine = groups[rank % 2]
for done, (x, y) in enumerate(torch.utils.data.DataLoader(Data(), batch_size=1)):
    steal()
    optimizer.zero_grad()
    if cause == "no_sync":
        with model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
    out = model(x)
    if mine is not None:
        dist.all_reduce(out.detach(), group=mine)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    save()
    if cause == "loss" and done % 10 == 9:
        dist.all_reduce(loss.detach())
    log(done)
    collect()
dist.destroy_process_group()
'''


@dataclass(frozen=True)
class Case:
    """One job; ``cause`` None: all ranks are alike."""

    cause: str | None
    percent: float
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.cause or 'healthy'} {self.percent:g} % {self.ranks} ranks"


def run(case: Case, steps: int, folder: Path) -> RankReport:
    """Run one job, unless its files are there, and merge them.

    Raises:
        RuntimeError: the job failed.
    """
    if (folder / "out").is_dir():
        return merge([folder / "out"])
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "job.py"
    script.write_text(JOB)
    late = case.ranks - 1
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={case.ranks}", "--no-python",
        sys.executable, "-m", "fastprof", "run", "-o", str(folder / "out"),
        str(script),
        case.cause or "none", str(STEP * case.percent / 100), str(late), str(steps),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if made.returncode:
        raise RuntimeError(f"{case.name}: {made.stdout[-2000:]}\n{made.stderr[-4000:]}")
    return merge([folder / "out"])


def judge(case: Case, report: RankReport) -> list[str]:
    """Return the errors: ``miss``, ``section``, ``function``, ``window``, ``false alarm``."""
    late, between = report.straggler, report.between
    if case.cause is None:
        return [] if late is None and between is None else ["false alarm"]
    if case.cause == "checkpoint":
        if late is not None or between is None or between.rank != case.ranks - 1:
            return ["miss"]
        phase, function = CAUSES[case.cause]
        wrong = [] if between.phase == phase else ["section"]
        named = between.function is not None and between.function.name == function
        return wrong if named else [*wrong, "function"]
    if late is None or late.rank != case.ranks - 1:
        return ["miss"]
    section, function = CAUSES[case.cause]
    wrong = [] if late.section == section else ["section"]
    if not late.functions or late.functions[0].name != function:
        wrong.append("function")
    if (late.period is None) is (case.cause in ("window", "half")):
        wrong.append("window")
    return wrong


def main() -> int:
    """Run the jobs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--percent", type=float, nargs="+", default=[5, 10, 25])
    parser.add_argument("--cause", choices=sorted(CAUSES), nargs="*", default=sorted(CAUSES))
    parser.add_argument("--healthy", type=int, default=4, help="jobs without a late rank")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--keep", type=Path, help="leave the files here, and judge those that are here already"
    )
    options = parser.parse_args()
    cases = [
        Case(cause, percent, ranks)
        for ranks in options.ranks
        for cause in options.cause
        for percent in options.percent
    ]
    cases += [Case(None, 0, options.ranks[i % len(options.ranks)]) for i in range(options.healthy)]
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        print(f"{'job':<24}{'told':<10}{'late ms':>8}{'of':>6}  {'section':<16}function")
        for i, case in enumerate(cases):
            report = run(case, options.steps, root / f"{i:03d}")
            wrong = judge(case, report)
            late = report.straggler
            told = "nobody" if late is None else f"rank {late.rank}"
            if late is None and report.seen_from_ms is None:
                told = "unknown"
            delay = "" if late is None else f"{late.late_ms:.2f}"
            where = "" if late is None else late.section or "nowhere"
            function = "" if late is None or not late.functions else late.functions[0].text
            if late is None and (work := report.between) is not None:
                told, where, delay = f"rank {work.rank}", work.phase, f"{work.wait_ms:.2f}"
                function = "" if work.function is None else work.function.text
            planted = f"{STEP * case.percent / 100:.1f}"
            print(f"{case.name:<24}{told:<10}{delay:>8}{planted:>6}  {where:<16}{function}"
                  f"{'   <- ' + ', '.join(wrong) if wrong else ''}", flush=True)  # fmt: skip
            for what in wrong:
                counts[what] = counts.get(what, 0) + 1
    planted_jobs = sum(case.cause is not None for case in cases)
    print(
        f"{planted_jobs} jobs with a late rank: {counts.get('miss', 0)} missed, "
        f"{counts.get('section', 0)} wrong sections, {counts.get('function', 0)} wrong functions, "
        f"{counts.get('window', 0)} wrong windows; {len(cases) - planted_jobs} healthy jobs: "
        f"{counts.get('false alarm', 0)} false alarms"
    )
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
