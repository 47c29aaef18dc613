"""Tests whether ``fastprof merge`` names the late rank and the cause in real jobs.

    python benchmarks/stragglers.py [--ranks 2 4] [--percent 2 5 10 25 50] [--cause data ...]
                                    [--healthy 4] [--jitter 2] [--steps 100] [--keep DIR]
                                    [--save FILE] [--table FILE]

Each job is ``torchrun`` with gloo; its work is sleeping, so that a few ranks need few CPUs.  In
most jobs one rank sleeps longer at one place, by a given percentage of a step.  There is a row
per job, then a table with a row per cause: misses (a planted delay that was not reported, or for
another rank), wrong sections, functions and steps, and false alarms (a rank reported late although
all are alike; ``jitter``: sequences of different lengths).  The exit status is 1 if there is any.
``unknown`` is a miss for which the report says that it could not have seen such a delay.

``--save FILE`` adds each row to a file, and ``--table FILE`` prints the saved rows without running
a job, so that you can split a long measurement.

A new cause is an entry of ``CAUSES`` and a call of ``planted`` in ``JOB``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
    # A collection in each step; torch's and fastprof's objects alone take longer than 2 ms.
    "gc": ("(unaccounted)", "collect"),
    # Each rank is late in its own quarter of the steps.
    "turns": ("data", "Data.__getitem__"),
    # Sequences of all ranks are 0.5 to 1.5 times as long as usual; those of one rank are longer.
    "lengths": ("forward", "Slow.forward"),
    # The late rank kills itself, or hangs and is ended with SIGTERM, in the middle of the job.
    "killed": ("", ""),
    "hung": ("", "Data.__getitem__"),
}
#: Causes in which all ranks are alike.
HEALTHY = ("healthy", "jitter")
#: Causes that take a fixed time: one percentage is enough.
FIXED = ("stolen", "killed", "hung")
#: A job that hangs is ended after so many seconds.
_HANGS_S = 40.0

#: ms of a step.
STEP = 40.0

JOB = '''
import gc, io, os, random, signal, subprocess, sys, time
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
            time.sleep(0.012 * length(done) + planted("forward", "groups", "no_sync", "lengths"))
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.012 * length(done) + planted("backward", "fsdp"))
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


def length(step):
    """Return by which factor this rank's sequences are longer than usual."""
    if cause not in ("lengths", "jitter"):
        return 1.0
    return random.Random(step * world + rank).uniform(0.5, 1.5)


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
    """One job; in the causes of ``HEALTHY`` all ranks are alike."""

    cause: str
    percent: float
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.cause} {self.percent:g} % {self.ranks} ranks"


@dataclass
class Row:
    """The result of one job; ``wrong`` lists errors, see :func:`judge`."""

    cause: str
    percent: float
    ranks: int
    told: str
    late_ms: float | None
    where: str
    function: str
    wrong: list[str]


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
    turn = {"turns": steps // 4, "killed": steps // 2, "hung": steps // 2}.get(case.cause, 0)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={case.ranks}", "--no-python",
        sys.executable, "-m", "fastprof", "run", "-o", str(folder / "out"),
        str(script),
        case.cause, str(STEP * case.percent / 100), str(late), str(steps), "0", str(turn),
    ]  # fmt: skip
    job = subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = job.communicate(timeout=_HANGS_S if case.cause == "hung" else 600)
    except subprocess.TimeoutExpired:
        job.send_signal(signal.SIGTERM)  # torchrun ends its ranks in the same way
        out, err = job.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    if job.returncode and case.cause not in ("killed", "hung"):
        raise RuntimeError(f"{case.name}: {out[-2000:]}\n{err[-4000:]}")
    return merge([folder / "out"])


def judge(case: Case, report: RankReport) -> list[str]:
    """Return errors: ``miss``, ``unknown``, ``section``, ``function``, ``steps``, ``alarm``."""
    late, between = report.straggler, report.between
    if case.cause in HEALTHY:
        return [] if late is None and between is None and not report.periods else ["alarm"]
    if case.cause == "killed":
        return [] if late is None and report.missing == (case.ranks - 1,) else ["miss"]
    if case.cause == "hung":
        hung = f"rank {case.ranks - 1}"
        told = [note for note in report.notes if "a job that hung" in note]
        if late is not None or not told or hung not in told[0]:
            return ["miss"]
        return [] if f" in {CAUSES[case.cause][1]} (" in told[0] else ["function"]
    if case.cause == "turns":
        found = {period.rank for period in report.periods}
        return [] if found == set(range(min(4, case.ranks))) else [_missed(case, report)]
    if case.cause == "checkpoint":
        if late is not None or between is None or between.rank != case.ranks - 1:
            return ["miss"]
        phase, function = CAUSES[case.cause]
        wrong = [] if between.phase == phase else ["section"]
        named = between.function is not None and between.function.name == function
        return wrong if named else [*wrong, "function"]
    if late is None or late.rank != case.ranks - 1:
        return [_missed(case, report)]
    section, function = CAUSES[case.cause]
    wrong = [] if late.section == section else ["section"]
    if not late.functions or late.functions[0].name != function:
        wrong.append("function")
    if (late.period is None) is (case.cause in ("window", "half")):
        wrong.append("steps")
    return wrong


def _missed(case: Case, report: RankReport) -> str:
    """Return ``unknown`` if the report says that it would not have seen this delay."""
    seen = report.seen_from_ms
    blind = report.straggler is None and (seen is None or seen > STEP * case.percent / 100)
    return "unknown" if blind else "miss"


def row_of(case: Case, report: RankReport) -> Row:
    """Return what the report says on a job, and its errors."""
    late = report.straggler
    told = "nobody" if late is None else f"rank {late.rank}"
    if late is None and report.seen_from_ms is None:
        told = "unknown"
    delay = None if late is None else late.late_ms
    where = "" if late is None else late.section or "nowhere"
    function = "" if late is None or not late.functions else late.functions[0].text
    if late is None and (work := report.between) is not None:
        told, where, delay = f"rank {work.rank}", work.phase, work.wait_ms
        function = "" if work.function is None else work.function.text
    if case.cause == "killed":
        told = f"gone: {', '.join(map(str, report.missing)) or 'none'}"
    return Row(
        case.cause, case.percent, case.ranks, told, delay, where, function, judge(case, report)
    )


def show(row: Row) -> None:
    """Print one job."""
    name = Case(row.cause, row.percent, row.ranks).name
    delay = "" if row.late_ms is None else f"{row.late_ms:.2f}"
    planted = f"{STEP * row.percent / 100:.1f}"
    print(f"{name:<24}{row.told:<10}{delay:>8}{planted:>6}  {row.where:<16}{row.function}"
          f"{'   <- ' + ', '.join(row.wrong) if row.wrong else ''}", flush=True)  # fmt: skip


#: Columns of the table: title, and the error that it counts.
_ERRORS = {
    "missed": "miss", "unknown": "unknown", "section": "section", "function": "function",
    "steps": "steps", "alarms": "alarm",
}  # fmt: skip


def table(rows: Sequence[Row]) -> int:
    """Print a row per cause and percentage with the numbers of errors; return the exit status."""
    kinds = list(dict.fromkeys((row.cause, row.percent) for row in rows))
    print(f"\n{'cause':<12}{'of a step':>10}{'jobs':>6}" + "".join(f"{t:>10}" for t in _ERRORS))
    for cause, percent in sorted(kinds):
        here = [row for row in rows if (row.cause, row.percent) == (cause, percent)]
        size = "" if cause in (*FIXED, *HEALTHY) else f"{percent:g} %"
        print(f"{cause:<12}{size:>10}{len(here):>6}" + _counted(here))
    print(f"{'all':<12}{'':>10}{len(rows):>6}" + _counted(rows))
    return 1 if any(row.wrong for row in rows) else 0


def _counted(rows: Sequence[Row]) -> str:
    counts = Counter(what for row in rows for what in row.wrong)
    return "".join(f"{counts[what] or '.':>10}" for what in _ERRORS.values())


def main() -> int:
    """Run the jobs and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--percent", type=float, nargs="+", default=[5, 10, 25])
    parser.add_argument("--cause", choices=sorted(CAUSES), nargs="*", default=sorted(CAUSES))
    parser.add_argument("--healthy", type=int, default=4, help="jobs without a late rank")
    parser.add_argument("--jitter", type=int, default=0, help="the same, with random lengths")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save", type=Path, help="add the rows to this file")
    parser.add_argument("--table", type=Path, help="print the rows of this file")
    parser.add_argument(
        "--keep", type=Path, help="leave the files here, and judge those that are here already"
    )
    options = parser.parse_args()
    if options.table is not None:
        lines = options.table.read_text().splitlines()
        return table([Row(**json.loads(line)) for line in lines])
    cases = [
        Case(cause, percent, ranks)
        for ranks in options.ranks
        for cause in options.cause
        for percent in (options.percent if cause not in FIXED else options.percent[:1])
    ]
    for cause, count in zip(HEALTHY, (options.healthy, options.jitter), strict=True):
        ranks = options.ranks
        cases += [Case(cause, 0, ranks[i % len(ranks)]) for i in range(count)]
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        print(f"{'job':<24}{'told':<10}{'late ms':>8}{'of':>6}  {'section':<16}function")
        for i, case in enumerate(cases):
            rows.append(row_of(case, run(case, options.steps, root / f"{i:03d}")))
            show(rows[-1])
            if options.save is not None:
                with options.save.open("a") as stream:
                    stream.write(json.dumps(asdict(rows[-1])) + "\n")
    return table(rows)


if __name__ == "__main__":
    sys.exit(main())
