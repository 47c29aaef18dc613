"""Finds the newest run of a folder, for every command that reads a saved run."""

import os
import re
from pathlib import Path

from fastprof.errors import LoadError

_SUFFIX = ".fprof"
_RANK = re.compile(r"rank(\d+)_")


def newest_run(path: str | os.PathLike[str]) -> str:
    """Return the path of a saved run: ``path``, or the newest below it if it is a folder.

    Of the ranks of one job it is the first.

    Raises:
        LoadError: (a ValueError) the folder has no run.
    """
    name = os.fsdecode(path)
    return ranks_of_newest(name)[0] if os.path.isdir(name) else name


def ranks_of_newest(folder: str | os.PathLike[str]) -> list[str]:
    """Return the saved runs of the newest job in a folder or its direct subfolders, by rank.

    A run without a rank is a job alone.

    Raises:
        LoadError: (a ValueError) there is none.
    """
    top = Path(os.fsdecode(folder))
    below = [path for path in _entries(top) if path.is_dir() and not path.is_symlink()]
    runs = [path for where in (top, *below) for path in _entries(where) if _is_run(path)]
    if not runs:
        raise LoadError(f"no saved run (*{_SUFFIX}) in the folder {str(top)!r}")
    newest = max(runs, key=lambda path: (path.stat().st_mtime_ns, path.name))
    if _RANK.match(newest.name) is None:
        return [str(newest)]
    # The files of a job's ranks have the same name in one folder, except for the rank.
    rest = _RANK.sub("", newest.name, count=1)
    ranks: dict[int, Path] = {}
    for path in runs:
        found = _RANK.match(path.name)
        if found and path.parent == newest.parent and _RANK.sub("", path.name, count=1) == rest:
            ranks[int(found[1])] = path
    return [str(ranks[rank]) for rank in sorted(ranks)]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_run(path: Path) -> bool:
    return path.name.endswith(_SUFFIX) and not path.name.startswith(".") and path.is_file()
