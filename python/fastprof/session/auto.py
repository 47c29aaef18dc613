"""The run that ``FASTPROF=1`` starts when fastprof is imported."""

import sys

from fastprof import own_imports
from fastprof.names import encodable
from fastprof.session.environment.switch import is_worker
from fastprof.session.output.periodic import final_report, timings
from fastprof.session.profiler import Profiler, run_of


def start() -> Profiler | None:
    """Start the run and return it, unless this process is fastprof's own command or a worker.

    It has default options, gives way to a run that the program itself starts, and reports to
    ``sys.stderr`` when the program ends.  A worker process (of a DataLoader, a pool, ...)
    inherits the environment, but the user wants to see the training process.
    """
    if own_imports.is_own_command() or is_worker():
        return None
    profiler = Profiler()
    run = run_of(profiler)
    run.gives_way = True

    def print_at_exit() -> None:
        rows = timings(profiler.snapshot())
        profiler.report().show(sys.stderr)
        if rows:  # without a section the screen says more
            summary = final_report(rows, profiler.steps)
            sys.stderr.write(encodable(f"\n{summary}", sys.stderr))
        if hasattr(sys.stderr, "flush"):  # the program's own object need not have more than write()
            sys.stderr.flush()

    run.print_at_exit = print_at_exit
    profiler.start()
    profiler.enter_phase("setup")
    return profiler
