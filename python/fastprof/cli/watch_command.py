"""``fastprof watch``: running processes, or the ranks of a job, in a terminal, read-only."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial

from fastprof.cli.output import write_text
from fastprof.cli.parsing import Parser
from fastprof.cli.watch_process import ProcessWatch, list_of, next_lines, once_lines
from fastprof.clock import time
from fastprof.ranks.exchange.find import DIRECTORY
from fastprof.ranks.exchange.running import running_jobs
from fastprof.ranks.exchange.watch_sources import Folder, source_of, store_at
from fastprof.ranks.exchange.watching import Watch
from fastprof.render.watch import watch_lines
from fastprof.session.outside.ask import (
    NoAnswerError,
    named,
    of_folder,
    processes_or_none,
    recorded,
)
from fastprof.session.outside.places import RUN, Place, Process
from fastprof.tables.layout import width_of

_EVERY_S = 2.0
#: A job without messages for this long is dead.
_DEAD_S = 60.0
#: Lines in a file or a pipe.
_PIPED_LINES = 80
_STORE = re.compile(r"[^/\\\s]+:[0-9]{1,5}")
_ENDED = "The job has ended."


def run(argv: Sequence[str]) -> int:
    """Show what ``argv`` names until it ends: a process, or the ranks of a job."""
    parser = Parser(
        prog="fastprof watch",
        description="Show a running process: its steps, where a step goes, its functions. Or the "
        "ranks of a running job: which is late. Without arguments: list the processes of this user "
        "on this machine that fastprof records.",
    )
    parser.add_argument(
        "what",
        metavar="PID|DIR|HOST:PORT",
        nargs="?",
        help="the number of a process, or the folder of its files; or, for ranks, the directory in "
        "which they meet, or MASTER_ADDR:MASTER_PORT as the program has set them",
    )
    parser.add_argument(
        "--ranks",
        action="store_true",
        help=f"show the ranks of the job at ${DIRECTORY}, else of the newest job on this machine",
    )
    parser.add_argument(
        "--once", action="store_true", help="print it once and exit (default in a pipe)"
    )
    options = parser.parse_args(argv)
    once = options.once or not sys.stdout.isatty()
    found = [] if options.ranks else _processes(options.what)
    if len(found) == 1 and options.what:
        recorded(found[0][0])
        _show_process(*found[0], once=once)
        return 0
    if found:
        lines = list_of(found, width_of(sys.stdout))
        write_text("".join(f"{line}\n" for line in [*lines, *_more(found)]))
        return 0
    with closing(_watch(options.what or os.environ.get(DIRECTORY))) as watch:
        if once:
            lines = _picture(watch, width_of(sys.stdout), _PIPED_LINES) or [_ENDED]
            write_text("".join(f"{line}\n" for line in lines))
            return 0
        with suppress(KeyboardInterrupt):
            write_text(f"{_follow(partial(_loop, watch))}\n")
    return 0


def _processes(what: str | None) -> list[tuple[Process, Place]]:
    """Return the processes to show; none: ranks are to be shown.

    Raises:
        ValueError, OSError: ``what`` is the number of a process that cannot be asked.
    """
    if what is None:
        return [] if os.environ.get(DIRECTORY) else processes_or_none()
    if what.isascii() and what.isdigit() and len(what) < 11 and not os.path.exists(what):
        return [named(what)]
    return of_folder(what) if os.path.isdir(what) else []


def _more(found: Sequence[tuple[Process, Place]]) -> list[str]:
    shown = next((process for process, _ in found if process.mode == RUN), None)
    lines = [""] if shown is None else ["", f"One of them: fastprof watch {shown.pid}"]
    waits = next((process for process, _ in found if process.mode != RUN), None)
    if waits is not None:
        lines.append(f"One in standby, to record for a while: fastprof attach {waits.pid}")
    if any(process.world_size > 1 for process, _ in found):
        lines.append("Which rank is late: fastprof watch --ranks")
    return lines


def _show_process(process: Process, place: Place, *, once: bool) -> None:
    if once:
        lines = once_lines(process, place, width_of(sys.stdout))
        write_text("".join(f"{line}\n" for line in lines))
        return
    watch = ProcessWatch(process, place)
    with suppress(KeyboardInterrupt):
        write_text(f"{_follow(partial(_loop_process, watch))}\n")


def _loop_process(watch: ProcessWatch, show: Callable[[Sequence[str]], None]) -> str:
    try:
        while True:
            show(next_lines(watch, width_of(sys.stdout)))
            time.sleep(_EVERY_S)
    except NoAnswerError as error:
        return f"{str(error)[:1].upper()}{str(error)[1:]}."


def _watch(folder: str | None) -> Watch:
    if folder:
        if not os.path.isdir(folder):
            if _STORE.fullmatch(folder):
                return Watch(store_at(folder))
            raise ValueError(f"no such directory: {folder}")
        return Watch(Folder(folder))
    problem: Exception | None = None
    for env in running_jobs():
        try:
            return Watch(source_of(env))
        except (OSError, ValueError) as error:
            problem = problem or error
    if problem is not None:
        raise ValueError(str(problem))
    raise ValueError(
        "no process of this user on this machine is recorded by fastprof now, and "
        "none has the environment of a job of several ranks: "
        f"name the job's {DIRECTORY}, or MASTER_ADDR:MASTER_PORT of a job that sets them in the "
        "program (a job of jax can be read from the directory only)"
    )


def _picture(watch: Watch, width: int, height: int) -> list[str] | None:
    job = watch.look()
    return None if job is None else watch_lines(job, watch.said(), width, height)


def _follow(loop: Callable[[Callable[[Sequence[str]], None]], str]) -> str:
    """Let ``loop`` show lines, the next over the last; return what it returns."""
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return loop(_print)
    # Text: otherwise a name such as "[red]" would be markup.
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        return loop(lambda lines: live.update(Text("\n".join(lines)), refresh=True))


def _print(lines: Sequence[str]) -> None:
    # From the upper left corner, over the previous text.
    sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(lines) + "\n")
    sys.stdout.flush()


def _loop(watch: Watch, show: Callable[[Sequence[str]], None]) -> str:
    while True:
        lines = _picture(watch, width_of(sys.stdout), shutil.get_terminal_size().lines)
        if lines is None:
            return _ENDED
        show(lines)
        silent = watch.silent_s()
        if silent > _DEAD_S:
            return f"No rank has sent a heartbeat for {silent:.0f} s: the job is dead, or stopped."
        time.sleep(_EVERY_S)
