"""Tests how soon rank 0 names the late rank and the cause while real jobs run.

    python benchmarks/stragglers_live.py [--ranks 2 4] [--percent 5 10 25 50] [--cause data ...]
                                         [--healthy 2] [--seconds 30] [--save FILE] [--table FILE]

The jobs are the same as in ``stragglers.py``: ``torchrun`` with gloo, and sleeping as work.  All
ranks are alike for some seconds; then one is late at one place, by a given percentage of a step.  A
row shows rank 0's first verdict, and the seconds from the first late step to it.  Below are the
numbers of misses (no verdict in time, or one of another rank), wrong sections, wrong functions and
false alarms.  The exit status is 1 if there is any.

``--save FILE`` adds each row to a file, and ``--table FILE`` prints the saved rows as one table
without running a job, so that you can split a long measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from stragglers import CAUSES, JOB, STEP

#: Planted cause -> the section and the function that rank 0 must name; empty: none.
LIVE = {
    **{name: CAUSES[name] for name in ("data", "forward", "backward", "optimizer", "no_sync")},
    **{name: CAUSES[name] for name in ("fsdp", "checkpoint", "stolen", "groups", "lengths")},
    "logging": ("code in no section", "log"),
    "gc": ("code in no section", "collect"),
    "part": ("data", "Data.__getitem__"),
    "turns": ("data", "Data.__getitem__"),
    "hung": ("data", "Data.__getitem__"),
    # Its last known place is up to 5 s old, and may be anywhere.
    "stopped": ("", ""),
    "killed": ("", ""),
}
#: Causes after which the rank ends no more steps.
HANGS = ("hung", "stopped", "killed")
#: Steps before the delay, and steps per turn of delays that come and go.
FIRST, TURN = 150, 500
#: A verdict after more seconds is too late.
PROMISE_S = 20.0

#: The output that marks the begin of the first late step.
_MARK = "first late step"
_LATE = re.compile(
    r"Rank (\d+)(?: \(host \S+\))? is late by [\d.]+ \w+ per step"
    r"(?:, waits for a CPU not counted,)? since (?:about )?step (\d+)(?: or earlier)?: "
    r"([a-z ]+), (?:it waits for a CPU for [^,]+, )?(\S+) \("
)
_BETWEEN = re.compile(
    r"The others wait for rank (\d+).* between steps: writing checkpoints(?:, (\S+) \(|)"
)
_STANDS = re.compile(r"No step has ended for .*?: Rank (\d+).*? stands in (\w+), (\S+) \(")
_SILENT = re.compile(r"Rank (\d+).*? has sent no heartbeat .*? last seen in (\w+), (\S+) \(")
_ENDS = re.compile(r"Rank (\d+).* is not late any more since about step (\d+)\.")
_ANY = re.compile(
    r"Rank (\d+) .*(?: is late | is not late any | no heartbeat )"
    r"|No step has ended|The others wait for"
)


@dataclass
class Row:
    """One job: the planted cause, and rank 0's verdict (None: none)."""

    cause: str
    percent: float
    ranks: int
    seconds: float | None
    said: str
    wrong: list[str]


def run(cause: str, percent: float, ranks: int, seconds: float) -> Row:
    """Run one job until its first verdict (or the end, if the delay comes and goes)."""
    late = ranks - 1
    steps = FIRST + round(seconds / STEP * 1e3)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        begin = f'    if done == first and rank == 0: print("{_MARK}", flush=True)\n'
        script.write_text(
            JOB.replace("    optimizer.zero_grad()\n", begin + "    optimizer.zero_grad()\n", 1)
        )
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={ranks}", "--no-python",
            sys.executable, "-m", "fastprof", "run", "-o", str(Path(folder) / "out"), str(script),
            cause, str(STEP * percent / 100), str(late), str(steps), str(FIRST),
            str(TURN if cause in ("part", "turns") else 0),
        ]  # fmt: skip
        job = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        began, told, after = None, [], 0.0
        assert job.stdout is not None
        try:
            for line in job.stdout:
                now = time.monotonic()
                if line.startswith(_MARK):
                    began = now
                elif _ANY.match(line):
                    after = after if told else now - (began or now)
                    told.append(line.strip())
                    if cause not in ("part", "turns"):
                        break
                elif line.startswith("Ranks:"):
                    break  # the report at the end
        finally:
            os.killpg(job.pid, signal.SIGCONT)
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return judge(cause, percent, ranks, told, after)


def judge(cause: str, percent: float, ranks: int, told: list[str], after: float) -> Row:
    """Return the verdict and its errors."""
    first = told[0] if told else ""
    row = Row(cause, percent, ranks, after if told else None, " / ".join(told), [])
    if cause == "killed":  # torchrun ends the job before a rank counts as lost, after 15 s
        return row
    if cause == "healthy":
        row.wrong = ["false alarm"] if told else []
        return row
    if cause == "checkpoint":
        between = _BETWEEN.match(first)
        row.wrong = [] if between and int(between[1]) == ranks - 1 else ["miss"]
        if between and between[2] != LIVE[cause][1]:
            row.wrong.append("function")
        if told and after > PROMISE_S:
            row.wrong.append("slow")
        return row
    found = _LATE.match(first) or _STANDS.match(first) or _SILENT.match(first)
    if not told:
        row.wrong = ["miss"]
    elif found is None:
        row.wrong = ["section", "function"]
    else:
        *_, section, function = found.groups()
        culprit = ranks - 1
        if cause == "turns":
            culprit = FIRST // TURN % ranks
        if int(found[1]) != culprit:
            row.wrong = ["miss"]
        else:
            wanted = LIVE[cause]
            row.wrong = [
                what
                for what, is_there, there in zip(
                    ("section", "function"), wanted, (section, function), strict=True
                )
                if is_there != there and cause != "stopped"
            ]
        if cause == "part" and not any(map(_ENDS.match, told[1:])):
            row.wrong.append("end")
        if cause == "turns" and len({text.split()[1] for text in told if " is late " in text}) < 2:
            row.wrong.append("turn")
        if after > PROMISE_S:
            row.wrong.append("slow")
    return row


def table(rows: list[Row]) -> int:
    """Print rows and their errors; return the exit status."""
    print(f"{'job':<26}{'s':>6}  said")
    for row in rows:
        name = f"{row.cause} {row.percent:g} % {row.ranks} ranks"
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        wrong = f"   <- {', '.join(row.wrong)}" if row.wrong else ""
        print(f"{name:<26}{seconds:>6}  {row.said[:150] or 'nothing'}{wrong}", flush=True)
    counts = Counter(what for row in rows for what in row.wrong)
    healthy = sum(row.cause == "healthy" for row in rows)
    print(
        f"{len(rows) - healthy} jobs with a late rank: {counts['miss']} missed, "
        f"{counts['section']} wrong sections, {counts['function']} wrong functions, "
        f"{counts['end'] + counts['turn']} changes that were not told, {counts['slow']} later "
        f"than {PROMISE_S:.0f} s; {healthy} healthy jobs: "
        f"{counts['false alarm']} false alarms"
    )
    return 1 if counts else 0


def main() -> int:
    """Run the jobs and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--percent", type=float, nargs="+", default=[5, 10, 25, 50])
    parser.add_argument("--cause", choices=sorted(LIVE), nargs="*", default=sorted(LIVE))
    parser.add_argument("--healthy", type=int, default=0, help="jobs without a late rank")
    parser.add_argument("--seconds", type=float, default=30.0, help="after the first late step")
    parser.add_argument("--save", type=Path, help="add the rows to this file")
    parser.add_argument("--table", type=Path, help="print the rows of this file")
    options = parser.parse_args()
    if options.table is not None:
        lines = options.table.read_text().splitlines()
        return table([Row(**json.loads(line)) for line in lines])
    jobs = [
        (cause, percent, ranks)
        for ranks in options.ranks
        for cause in options.cause
        for percent in (options.percent if cause not in HANGS else options.percent[:1])
    ]
    jobs += [
        ("healthy", 0.0, options.ranks[i % len(options.ranks)]) for i in range(options.healthy)
    ]
    rows = []
    for job in jobs:
        rows.append(run(*job, options.seconds))
        if options.save is not None:
            with options.save.open("a") as stream:
                stream.write(json.dumps(asdict(rows[-1])) + "\n")
    return table(rows)


if __name__ == "__main__":
    sys.exit(main())
