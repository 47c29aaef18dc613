"""``fastprof merge``: compares the ranks of a distributed job."""

import os
import sys
from collections.abc import Sequence

from fastprof.cli.output import add_format, chosen_format, write_text
from fastprof.cli.parsing import Parser
from fastprof.read.merge import merge
from fastprof.render.formats import RANK_FORMATS, render_ranks
from fastprof.tables.layout import width_of

#: Reading fewer files takes less time than starting processes.
_MANY = 16


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _jobs(paths: Sequence[str]) -> int:
    # A folder may contain any number.
    if len(paths) < _MANY and not any(os.path.isdir(path) for path in paths):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def run(argv: Sequence[str]) -> int:
    """Merge the saved runs that ``argv`` names."""
    parser = Parser(
        prog="fastprof merge",
        description="Compare the ranks of a distributed job: which is late, and why.",
    )
    parser.add_argument(
        "files",
        metavar="F",
        nargs="+",
        help="the .fprof file of each rank, or the folder that has them",
    )
    add_format(parser, RANK_FORMATS)
    parser.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help=f"read in N processes (default: one per CPU, from {_MANY} files on)",
    )
    options = parser.parse_args(argv)
    name = chosen_format(options, RANK_FORMATS)
    report = merge(options.files, jobs=options.jobs or _jobs(options.files))
    limits = {}
    if name == "text" and options.output is None:
        limits["width"] = width_of(sys.stdout)
    write_text(render_ranks(report, name, **limits), options.output)
    return 0
