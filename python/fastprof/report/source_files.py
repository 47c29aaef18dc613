"""Source files of a recording: digests when it is made, lines when it is shown.

A recording may come from a stranger, who would like to see a file of the reader.  So only a file is
shown whose content the recording proves to know.
"""

import hashlib
import os
import stat
import tokenize
from _io import open as open_file  # the program may replace the builtin
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO

from fastprof.names import readable
from fastprof.report.origin import is_users_file
from fastprof.snapshot import Snapshot

_SUFFIXES = (".py", ".pyw")
_MOST_BYTES = 2 << 20
_MOST_FILES = 200
#: Files named in a sentence.
_NAMED = 4
#: A file changed later than this after the run's begin may not be the one that ran; clocks differ.
_MAY_DIFFER_NS = 1_000_000_000


def digests(snapshot: Snapshot) -> dict[str, str]:
    """Return the SHA-256 of the files of the functions with most own time, by their paths.

    The program's files first: its time is often in C functions and libraries that it calls.
    Without files that were changed during the run: a program under way is often edited.
    """
    until = snapshot.meta.get("recorded_until_ns")
    began = until - snapshot.duration_ns if isinstance(until, int) else None
    ns: dict[str, int] = {}
    files = [key.file if key.kind == "python" else "" for key in snapshot.keys]
    for tree in (*snapshot.threads, *snapshot.worker_threads):
        for key, own in zip(tree.nodes.key, tree.nodes.self_ns, strict=True):
            ns[files[key]] = ns.get(files[key], 0) + own
    largest = sorted(filter(is_source, ns), key=lambda file: (not is_users_file(file), -ns[file]))
    return dict(_of_files(largest[:_MOST_FILES], began))


def lines_of(path: str, snapshot: Snapshot) -> list[str]:
    """Return the lines of a file with their ends; none if it is not the file of the recording.

    Args:
        path: the file, relative to the working folder, as in `fastprof run train.py`.
        snapshot: the recording; one of an earlier fastprof has no digests, and so no lines.
    """
    digest = (snapshot.sources or {}).get(path)
    content = None if digest is None else _content(path)
    if content is None or hashlib.sha256(content).hexdigest() != digest:
        return []
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        text = content.decode(encoding)
    except (ValueError, SyntaxError, LookupError):
        return []
    return text.replace("\r\n", "\n").replace("\r", "\n").splitlines(keepends=True)


def is_source(path: str) -> bool:
    """Return whether the name is that of a file whose lines can be shown."""
    return path.endswith(_SUFFIXES)


def missing_text(paths: Iterable[str], snapshot: Snapshot) -> str:
    """Return in sentences why files of the recording have no lines here; empty: they have some."""
    if snapshot.sources is None:
        return (
            "No source lines: this recording has no digests of its source files. An earlier "
            "fastprof made it, or it is a table of functions, such as a .stats file."
        )
    reasons: dict[str, list[str]] = {}
    for path in paths:
        if path not in snapshot.sources:
            why = "changed while the program ran, or not found then"
        elif not lines_of(path, snapshot):
            # Not which of both: the recording's author need not know what files there are.
            why = "changed since the run, or not found from this folder"
        else:
            continue
        reasons.setdefault(why, []).append(readable(path, 80))
    said = []
    for why, files in reasons.items():
        more = len(files) - _NAMED
        said.append(f"{', '.join(files[:_NAMED])}{f' and {more} more' if more > 0 else ''} ({why})")
    return f"No source lines of {', '.join(said)}." if said else ""


def _of_files(paths: Iterable[str], began: int | None) -> Iterable[tuple[str, str]]:
    for path in paths:
        try:
            found = os.stat(path)
            if began is not None and found.st_mtime_ns > began + _MAY_DIFFER_NS:
                continue
            digest = _digest(os.path.abspath(path), found.st_mtime_ns, found.st_size)
        except (OSError, ValueError):  # a bad name, too
            continue
        if digest is not None:
            yield path, digest


# A run is saved several times, and a change of a file changes the other arguments.
@lru_cache(1024)
def _digest(path: str, _changed_ns: int, _size: int) -> str | None:
    content = _content(path)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _content(path: str) -> bytes | None:
    if not is_source(path):
        return None
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return None
        with open_file(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except (OSError, ValueError):  # a bad name, too
        return None
