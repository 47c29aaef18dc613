"""The last lines of ``fastprof run``: the files and the next command.

With --full there are also four blocks in cProfile's style.
"""

import pstats
import re
import shlex
from collections.abc import Sequence
from typing import TextIO

from fastprof.export.pstats_ import as_pstats
from fastprof.read.pstats import Entry, Function
from fastprof.tables.layout import wrapped

ROWS = 25

#: The names of tensor classes differ between versions of torch; the type of a method with that name
#: identifies them.
_TENSOR_ITEM = r"method 'item' of 'torch"


def last_lines(
    folder: str, files: Sequence[str], run: str, width: int, *, ranks: bool = False
) -> list[str]:
    """Return the written files and the next command to type; nothing if none was written.

    Args:
        run: the argument of ``fastprof report`` for this run.
        ranks: whether the folder belongs to a job of several ranks.
    """
    if not files:  # where they are instead was reported
        return []
    lines = wrapped(f"Wrote {folder}: {', '.join(files)}", width, rest="  ")
    return [*lines, *next_lines(run, width, ranks=ranks)]


def next_lines(run: str, width: int, *, ranks: bool = False) -> list[str]:
    """Return the commands that show more of the run ``run``, and of its ``ranks``."""
    name = shlex.quote(run)
    text = (
        f"More: fastprof report {name} --full (or --findings, --section NAME, --phase NAME, "
        "-o run.html)"
    )
    if ranks:
        text += f"; all ranks over the steps: fastprof merge {name} -o ranks.html"
    return wrapped(text, width, rest="  ")


def print_summary(stats: dict[Function, Entry], stream: TextIO) -> None:
    """Write the four blocks for a table of :func:`~fastprof.export.pstats_.stats_dict`."""
    if not stats:
        stream.write("No function calls were recorded.\n")
        return
    shown = as_pstats(stats, stream)
    stream.write(f"=== TOP {ROWS} BY CUMULATIVE TIME ===\n")
    shown.sort_stats(pstats.SortKey.CUMULATIVE).print_stats(ROWS)
    stream.write(f"=== TOP {ROWS} BY SELF TIME ===\n")
    shown.sort_stats(pstats.SortKey.TIME).print_stats(ROWS)
    stream.write("=== DATALOADER SHUTDOWN ===\n")
    _print_callers(shown, r"\(_shutdown_workers\)", "_shutdown_workers was not called", stream)
    stream.write("=== TENSOR.ITEM() CALLERS ===\n")
    _print_callers(shown, _TENSOR_ITEM, "Tensor.item was not called", stream)


def _print_callers(shown: pstats.Stats, pattern: str, otherwise: str, stream: TextIO) -> None:
    labels = (pstats.func_std_string(label) for label in shown.stats)  # type: ignore[attr-defined]
    if any(re.search(pattern, label) for label in labels):
        shown.print_callers(pattern)
    else:
        stream.write(f"{otherwise}\n\n")
