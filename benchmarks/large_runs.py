"""Measures the end of a run with many functions, and the reading of files of about 4 MB.

The end: a program calls each of many functions once; its last statement notes its CPU time, and the
rest of the process is fastprof's work.  Reading: `fastprof report` on saved runs that are valid but
costly (many functions, contexts or threads, a chain of calls, a library, a trace), and on files
that must be refused.
Each result has its goal after it, and `ABOVE` if it is missed.

    PYTHONPATH=python python benchmarks/large_runs.py --functions 200000
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAM = """
import sys, time
for base in range(0, int(sys.argv[1]), 1000):
    source = "\\n".join("def f%010d():\\n    return 1" % i for i in range(base, base + 1000))
    names = {}
    exec(compile(source, "made_%07d.py" % base, "exec"), names)
    for name, function in list(names.items()):
        if name.startswith("f"):
            function()
with open(sys.argv[2], "w") as file:
    file.write(str(time.process_time()))
"""

#: Seconds of CPU and MB: of the end of a run with 200,000 functions, and of reading a file.
END, READ = (2.0, None), (5.0, 300)


def result(what: str, cpu: float, megabytes: float, goal: tuple[float, int | None] | None) -> None:
    line = f"{what}: {cpu:.2f} s of CPU, {megabytes:.0f} MB"
    if goal is not None:
        most, room = goal
        above = cpu > most or (room is not None and megabytes > room)
        limits = f"{most:g} s" + (f", {room} MB" if room is not None else "")
        line += f" (goal: {limits}){' ABOVE' * above}"
    print(line, flush=True)


def spent(command: Sequence[str]) -> tuple[float, float, str]:
    """Return CPU seconds and MB of a command, and the end of its output."""
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "use = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "text = (done.stderr or done.stdout).strip().splitlines()\n"
        "print(use.ru_utime + use.ru_stime, use.ru_maxrss / 1024)\n"
        "print(done.returncode, text[-1] if text else '')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True
    )
    figures, said = done.stdout.splitlines()[:2]
    cpu, megabytes = map(float, figures.split())
    return cpu, megabytes, said


def ends(folder: Path, functions: int, rounds: int) -> None:
    program, note = folder / "program.py", folder / "cpu"
    program.write_text(PROGRAM)
    for module in ("fastprof", "cProfile"):
        start = ["fastprof", "run", "-o", str(folder)] if module == "fastprof" else ["cProfile"]
        if module == "cProfile":
            start += ["-o", str(folder / "c.stats")]
        best, most = float("inf"), 0.0
        for _ in range(rounds):
            cpu, megabytes, _ = spent(
                [sys.executable, "-m", *start, str(program), str(functions), str(note)]
            )
            best, most = min(best, cpu - float(note.read_text())), max(most, megabytes)
        goal = END if module == "fastprof" and functions == 200_000 else None
        result(f"end of {functions} functions, {module}", best, most, goal)


def run_of(threads: Sequence[Sequence[Sequence[int]]], functions: int) -> dict[str, object]:
    names = ("parent", "key", "calls", "resumes", "self_ns")
    keys: list[list[object]] = [["root", "", 0, "(root)", "(root)"]]
    keys += [["python", f"/u/{i % 997}.py", i, f"f{i}", f"f{i}"] for i in range(functions)]
    empty: tuple[str, ...] = ("sections", "loaders", "notes", "forms", "phases")
    return {
        "schema": "fastprof/1",
        "meta": {},
        "duration_ns": 10**12,
        "keys": keys,
        "threads": [
            {"ident": i, "name": f"t{i}", "ended": False, "phase": [], "idle_ns": []}
            | dict(zip(names, columns, strict=True))
            for i, columns in enumerate(threads, 1)
        ],
        "steps": {
            **dict.fromkeys(("count", "skipped", "sum_ns", "min_ns", "max_ns", "apart"), 0),
            **{name: [] for name in ("recent_ns", "hist", "rows", "split", "split_missing")},
            **{name: [] for name in ("split_places", "gc_runs", "unprofiled")},
            "sum_sq": 0.0,
            "series": {"first": 0, "sections_left_out": 0}
            | {name: [] for name in ("start_ns", "wall_ns", "sections", "cpu_ns", "gc_ns")}
            | {name: [] for name in ("switches", "faults", "cpu_wait_ns", "number")}
            | {name: [] for name in ("communication_ns", "autograd_ns")},
        },
        "counters": {},
        "worker_threads": [],
        **{name: [] for name in empty},
    }


def columns(
    n: int, functions: int, above: Callable[[int], int], dice: random.Random
) -> list[list[int]]:
    return [
        [-1, *[above(i) for i in range(1, n)]],
        [0, *[1 + i % functions for i in range(1, n)]],
        [0, *[dice.randrange(1, 1000) for _ in range(1, n)]],
        [0] * n,
        [0, *[dice.randrange(10**4) for _ in range(1, n)]],
    ]


def with_library(run: dict[str, object]) -> dict[str, object]:
    """Return the run with two functions of three a library's, and a section."""
    keys = run["keys"]
    assert isinstance(keys, list)
    for i, key in enumerate(keys):
        if i % 3 and i:
            key[1] = f"/venv/lib/python3.12/site-packages/torch/nn/modules/{i % 97}.py"
            key[3], key[4] = ("forward", f"M{i}.forward") if i % 9 == 1 else (f"_f{i}", f"M._f{i}")
    keys[1][:] = ["section", "", 0, "forward", "forward"]
    return run


def with_trace(run: dict[str, object], events: int, dice: random.Random) -> dict[str, object]:
    keys = run["keys"]
    assert isinstance(keys, list)
    numbers = ("kept", "brief", "lost", "lost_until_ns", "no_memory", "gpu_lost")
    run["trace"] = {
        "min_ns": 0,
        "max_events": events,
        "windows": [[0, 10**12, 0, 0]],
        "threads": [[1, 1, "t1"]],
        "events": {
            "key": [1 + dice.randrange(len(keys) - 1) for _ in range(events)],
            "thread": [0] * events,
            "start_ns": sorted(dice.randrange(10**12) for _ in range(events)),
            "ns": [dice.randrange(10**5) for _ in range(events)],
        },
        "steps": {name: [] for name in ("number", "thread", "start_ns", "ns")},
        "gpu": {
            name: []
            for name in ("what", "device", "stream", "start_ns", "ns", "bytes", *"xyz", "launch")
        },
        "calls": {name: [] for name in ("kind", "thread", "start_ns", "ns", "correlation")},
        **dict.fromkeys((*numbers, "gpu_lost_until_ns"), 0),
    }
    return run


def files(folder: Path) -> dict[str, Path]:
    """Write one file of each kind, the valid ones of about 4 MB."""
    dice = random.Random(45)

    def above(i: int) -> int:
        return dice.randrange(max(0, i - 9), i)

    wide = run_of([columns(250_000, 249_000, lambda i: 0, dice)], 249_000)
    bushy = run_of([columns(680_000, 3000, above, dice)], 3000)
    deep = run_of([columns(640_000, 3000, lambda i: i - 1, dice)], 3000)
    library = with_library(run_of([columns(680_000, 3000, above, dice)], 3000))
    threads = run_of([columns(400, 3000, above, dice) for _ in range(1670)], 3000)
    trace = with_trace(run_of([columns(1000, 3000, above, dice)], 3000), 385_000, dice)
    made = {
        "many functions": gzip.compress(json.dumps(wide).encode(), 5),
        "many contexts": gzip.compress(json.dumps(bushy).encode(), 5),
        "a chain of calls": gzip.compress(json.dumps(deep).encode(), 5),
        "contexts of a library": gzip.compress(json.dumps(library).encode(), 5),
        "1670 threads": gzip.compress(json.dumps(threads).encode(), 5),
        "a trace": gzip.compress(json.dumps(trace).encode(), 5),
        "numbers without end": gzip.compress(b"[" + b"300," * 20_000_000 + b"3]", 5),
        "two million empty members": gzip.compress(b"", 9) * 2_000_000,
    }
    paths = {}
    for name, data in made.items():
        paths[name] = folder / f"{name.replace(' ', '_')}.fprof"
        paths[name].write_bytes(data)
    return paths


def reads(folder: Path) -> None:
    for name, path in files(folder).items():
        for form in ("text", "json", "html"):
            command = [sys.executable, "-m", "fastprof", "report", str(path), "--format", form]
            cpu, megabytes, said = spent([*command, "-o", str(folder / "out")])
            said = f" {said[1:].strip().split(': ', 2)[-1]:.60}" if said[0] != "0" else ""
            size = path.stat().st_size / 1e6
            result(f"{name} ({size:.1f} MB), {form}{said}", cpu, megabytes, READ)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["end", "read"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "read":
            ends(Path(folder), options.functions, options.rounds)
        if options.only != "end":
            reads(Path(folder))


if __name__ == "__main__":
    main()
