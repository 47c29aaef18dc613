"""``fastprof watch``: the ranks of a running job in a terminal, read-only."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from fastprof.cli.output import write_text
from fastprof.cli.parsing import Parser
from fastprof.clock import time
from fastprof.ranks.exchange.find import DIRECTORY
from fastprof.ranks.exchange.running import running_jobs
from fastprof.ranks.exchange.watch_sources import Folder, source_of, store_at
from fastprof.ranks.exchange.watching import Watch
from fastprof.render.watch import watch_lines
from fastprof.tables.layout import width_of

_EVERY_S = 2.0
#: A job without messages for this long is dead.
_DEAD_S = 60.0
#: Lines in a file or a pipe.
_PIPED_LINES = 80
_STORE = re.compile(r"[^/\\\s]+:[0-9]{1,5}")
_ENDED = "The job has ended."


def run(argv: Sequence[str]) -> int:
    """Show the ranks of the job that ``argv`` names until it ends."""
    parser = Parser(
        prog="fastprof watch",
        description="Show the ranks of a running job: which is late, and where a step goes.",
    )
    parser.add_argument(
        "folder",
        metavar="DIR|HOST:PORT",
        nargs="?",
        help="the directory in which the ranks meet, or MASTER_ADDR:MASTER_PORT as the program "
        f"has set them (default: ${DIRECTORY}, else that of the newest job on this machine, or the "
        "store at which its ranks meet)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print the ranks once and exit (default in a pipe)"
    )
    options = parser.parse_args(argv)
    with closing(_watch(options.folder or os.environ.get(DIRECTORY))) as watch:
        if options.once or not sys.stdout.isatty():
            lines = _picture(watch, width_of(sys.stdout), _PIPED_LINES) or [_ENDED]
            write_text("".join(f"{line}\n" for line in lines))
            return 0
        with suppress(KeyboardInterrupt):
            write_text(f"{_follow(watch)}\n")
    return 0


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
        "no process of this user on this machine has the environment of a job of several ranks: "
        f"name the job's {DIRECTORY}, or MASTER_ADDR:MASTER_PORT of a job that sets them in the "
        "program (a job of jax can be read from the directory only)"
    )


def _picture(watch: Watch, width: int, height: int) -> list[str] | None:
    job = watch.look()
    return None if job is None else watch_lines(job, watch.said(), width, height)


def _follow(watch: Watch) -> str:
    """Show the ranks repeatedly; return the reason for the end."""
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return _loop(watch, _print)
    # Text: otherwise a name such as "[red]" would be markup.
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        return _loop(watch, lambda lines: live.update(Text("\n".join(lines)), refresh=True))


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
