"""Files of an operator window: tables and the trace, in torch.profiler's own layout."""

import gzip
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fastprof.fileio import atomic_write
from fastprof.report.operators import OperatorReport
from fastprof.session.environment.rank import Identity, find_local_rank
from fastprof.session.operators.events import WindowEvents
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.output.files import path_of_rank
from fastprof.tables.layout import table_lines
from fastprof.tables.operators import MEMORY_ROWS, memory_table, operator_table

STATS_FILE = "profile_stats.txt"
_STATS_ROWS = 20


def prefix_of(rank: int, cycle: int | None) -> str:
    """Return the prefix of a window's file names; ``cycle`` is None for a single one."""
    prefix = f"prof_{rank:03}_local_{find_local_rank():02}"
    return prefix if cycle is None else f"{prefix}_cycle{cycle}"


def sort_keys(options: OperatorProfile, *, cuda: bool) -> list[str]:
    """Return the sort keys of the tables; each table is a file."""
    keys = []
    if options.enable_cpu_profiling:
        keys += ["cpu_time_total", "self_cpu_time_total"]
    if cuda:
        keys += ["cuda_time_total", "self_cuda_time_total"]
    if options.profile_memory:
        keys += ["cpu_memory_usage", "self_cpu_memory_usage"]
        if cuda:
            keys += ["cuda_memory_usage", "self_cuda_memory_usage"]
    return keys


def write_window(
    profile: Any,
    events: WindowEvents,
    directory: str,
    prefix: str,
    options: OperatorProfile,
    *,
    cuda: bool,
) -> list[str]:
    """Write the files of a finished ``torch.profiler.profile``; return their names.

    ``events`` are the events of that profile.

    Raises:
        OSError: a file cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    names = []
    for by_shape in (False, True) if options.record_shapes else (False,):
        averages = events.averages(by_shape=by_shape)
        for key in sort_keys(options, cuda=cuda):
            name = f"{prefix}_{key}{'_by_shape' if by_shape else ''}.txt"
            table = averages.table(sort_by=key, row_limit=options.row_limit)
            with atomic_write(os.path.join(directory, name)) as stream:
                stream.write(table.encode("utf-8", "backslashreplace"))
            names.append(name)
    name = f"{prefix}_pt_trace.json.gz"
    _write_trace(profile, os.path.join(directory, name))
    return [*names, name]


def _write_trace(profile: Any, path: str) -> None:
    # torch writes the file itself, so it writes to a directory that no other user can open.
    with tempfile.TemporaryDirectory(prefix=".fastprof-", dir=os.path.dirname(path)) as private:
        plain = Path(private) / "trace.json"
        profile.export_chrome_trace(str(plain))
        with (
            open(plain, "rb") as source,
            atomic_write(path) as stream,
            gzip.GzipFile(
                filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0
            ) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)


def write_stats(operators: OperatorReport, directory: str, rank: int) -> str:
    """Write the operators of all windows as one table of 20 rows; return the file's name.

    Raises:
        OSError: the file cannot be written.
    """
    os.makedirs(directory, exist_ok=True)
    tables = [operator_table(operators, "device" if operators.device else "cpu", _STATS_ROWS)]
    if operators.memory:
        tables.append(memory_table(operators, MEMORY_ROWS))
    text = "\n".join("\n".join([table.title, *table_lines(table), ""]) for table in tables)
    path = path_of_rank(os.path.join(directory, STATS_FILE), Identity(), rank)
    with atomic_write(path) as stream:
        stream.write(text.encode("ascii"))
    return os.path.basename(path)
