"""Runs ``fastprof run`` repeatedly, each time in a fork of a process that has imported torch.

    python runner.py OUT SCRIPT [ARGUMENT...] -- OUT SCRIPT [ARGUMENT...] ...

Importing torch takes longer than most of the runs.  OUT/log.txt has the output of each.  The exit
status is the number of failed runs.
"""

from __future__ import annotations

import os
import sys
import traceback

from fastprof.cli import main


def preload() -> None:
    import torch

    # The first optimizer imports half of torch.
    torch.optim.SGD([torch.zeros(1)])


def run_in_fork(out: str, arguments: list[str]) -> int:
    os.makedirs(out, exist_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        log = os.open(os.path.join(out, "log.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = main(["run", "-o", out, *arguments])
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # Do not run the parent's exit handlers twice.
        os._exit(status)


def split(arguments: list[str]) -> list[list[str]]:
    runs: list[list[str]] = [[]]
    for argument in arguments:
        if argument == "--":
            runs.append([])
        else:
            runs[-1].append(argument)
    return [run for run in runs if run]


if __name__ == "__main__":
    preload()
    sys.exit(sum(run_in_fork(out, rest) != 0 for out, *rest in split(sys.argv[1:])))
