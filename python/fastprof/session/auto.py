"""The run that ``FASTPROF=1`` starts when fastprof is imported."""

from __future__ import annotations

import sys
from pathlib import Path

from fastprof.session.output.periodic import final_report, timings
from fastprof.session.profiler import Profiler


class AutomaticProfiler(Profiler):
    """A run with default options that reports to ``sys.stderr`` when the program ends.

    It makes way for a run that the program itself starts, which then reports as its own
    options say.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gives_way = True

    def stop_at_exit(self) -> None:
        """End the run, and print the report and the section summary."""
        self.stop()
        if self._is_primary():
            self._protect("report", self._print_at_exit)

    def _print_at_exit(self) -> None:
        rows = timings(self.snapshot())
        text = f"{self.report().to_text()}\n\n{final_report(rows, self.steps)}"
        sys.stderr.write(text)
        sys.stderr.flush()


def start() -> Profiler | None:
    """Start the run and return it, unless this process is fastprof's own command or a worker.

    A worker process (of a DataLoader, a pool, ...) inherits the environment, but what
    the user wants to see is the training process.
    """
    if _is_own_command() or _is_worker():
        return None
    profiler = AutomaticProfiler().start()
    profiler.enter_phase("setup")
    return profiler


def _is_own_command() -> bool:
    """Whether this is ``python -m fastprof`` or ``fastprof``, which start their own run."""
    module = _module_run(sys.orig_argv[1:])
    if module is not None:
        return module.partition(".")[0] == "fastprof"
    return bool(sys.argv) and Path(sys.argv[0]).stem == "fastprof"


def _module_run(arguments: list[str]) -> str | None:
    """What ``-m`` names in the interpreter's own arguments, those before the script."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-") or argument == "-":
            return None
        if argument.startswith("--"):
            if argument == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for i, letter in enumerate(argument[1:], 2):
            if letter == "m":
                return argument[i:] or next(rest, "")
            if letter == "c":
                return None
            if letter in "WX":
                if not argument[i:]:
                    next(rest, None)
                break
    return None


def _is_worker() -> bool:
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return False
    # A spawned worker imports the program before it knows its parent process; until
    # then it is told apart by a mark on its process object.
    return processes.parent_process() is not None or bool(
        getattr(processes.current_process(), "_inheriting", False)
    )
