"""The summary in the terminal after ``fastprof run``: four blocks in cProfile's manner."""

from __future__ import annotations

import pstats
import re
from typing import TextIO

from fastprof.exporters.pstats_ import as_pstats
from fastprof.exporters.stats_reader import Entry, Function

ROWS = 25

#: What tensors are called differs between versions of torch; a method of that name is
#: theirs if its type is.
_TENSOR_ITEM = r"method 'item' of 'torch"


def print_summary(stats: dict[Function, Entry], stream: TextIO) -> None:
    """Write the four blocks for a table as :func:`~fastprof.exporters.pstats_.stats_dict` has."""
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
