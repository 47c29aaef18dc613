"""Measures for how long ``fastprof attach`` stops the main thread of its target.

    python benchmarks/attach_pause.py --attaches 5 --seconds 2

The target is a tight loop of Python code.  Between two turns it compares the clock, whose longest
distance holds waits for the interpreter's lock and for a CPU, too, and the CPU time of its main
thread: the pieces of fastprof's work there.  With Python before 3.14 it is in standby.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fastprof

# Where the extension is: the checkout has none if the package is installed.
PACKAGE = str(Path(fastprof.__file__).resolve().parents[1])

#: Prints, and forgets, the distances at each line that it gets.
LOOP = """
import sys
{importing}
import json, select, time

def work():
    total = 0
    for i in range(200):
        total += abs(i)
    return total

longest, pieces = 0.0, []
print("ready", flush=True)
wall, cpu = time.perf_counter(), time.thread_time()
while True:
    work()
    now, used = time.perf_counter(), time.thread_time()
    longest = max(longest, now - wall)
    if used - cpu > 0.001:
        pieces.append(round((used - cpu) * 1e3, 1))
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        print(json.dumps([round(longest * 1e3, 1), pieces]), flush=True)
        longest, pieces = 0.0, []
        now, used = time.perf_counter(), time.thread_time()
    wall, cpu = now, used
"""


def main() -> int:
    """Attach several times to one target; print what it saw before and during each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--attaches", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each (default: 2)")
    options = parser.parse_args()
    by_exec = hasattr(sys, "remote_exec")
    importing = "" if by_exec else f"sys.path.insert(0, {PACKAGE!r}); import fastprof"
    env = {**os.environ, "PYTHONPATH": "" if by_exec else PACKAGE, "FASTPROF": "standby"}
    target = subprocess.Popen(
        [sys.executable, "-c", LOOP.format(importing=importing)], env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert target.stdin is not None
    assert target.stdout is not None
    attach = [
        *(sys.executable, "-m", "fastprof", "attach", str(target.pid)),
        *("--seconds", str(options.seconds), *(["--pythonpath", PACKAGE] if by_exec else [])),
    ]

    def seen(what: str) -> None:
        assert target.stdin is not None
        assert target.stdout is not None
        target.stdin.write("\n")
        target.stdin.flush()
        longest, pieces = json.loads(target.stdout.readline())
        print(
            f"{what:>10}: longest distance {longest} ms; of the main thread's CPU time {pieces} ms"
        )

    try:
        assert target.stdout.readline() == "ready\n"
        for number in range(options.attaches):
            time.sleep(options.seconds)
            seen("before")
            subprocess.run(
                attach, check=True, stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": PACKAGE},
            )  # fmt: skip
            seen(f"attach {number + 1}")
    finally:
        target.kill()
        target.communicate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
