"""Merges the function profiles of loaders' workers into one tree per loader."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fastprof.capture.convert import fold_own_functions
from fastprof.capture.lines import Lines
from fastprof.fileio import read_bounded
from fastprof.guards import own_errors
from fastprof.own_imports import Protected
from fastprof.session.faults import Faults
from fastprof.session.loaders.worker_side import MAX_BYTES, PART, WHOLE, WorkerInit
from fastprof.snapshot import Key, NodeTable, Snapshot, ThreadTree
from fastprof.snapshot.codec import Count, Record, read
from fastprof.snapshot.kinds import Known
from fastprof.snapshot.loaders import LoadTime
from fastprof.snapshot.model import learn_keys, with_forms

#: Rows of one loader's tree; further contexts are left out, and the report says so.
MAX_ROWS = 500_000

#: Files of ended workers are merged when there are this many.
_MANY = 64

#: Passes of a loader whose workers record in windows: later ones show the same.
_PASSES = 3

_COLUMNS = ("parent", "key", "calls", "resumes", "self_ns")
#: The columns after these are about phases of the run, which workers do not have.
_NO_PHASES: dict[str, Any] = {"phase": [], "idle_ns": []}
_ROOT = Key("root", "", 0, "(root)", "(root)")


class WorkerProfiles:
    """Makes the loaders' workers record, and collects their files.

    Args:
        on: False: nothing is recorded; "auto": single batches of the first passes.
    """

    def __init__(
        self, on: bool | Literal["auto"], backend: str, max_depth: int, faults: Faults
    ) -> None:
        self.on = on is not False
        #: Whether workers record single batches only.
        self.windows: bool = on == "auto"
        self._passes: dict[int, int] = {}
        self._backend = backend
        self._max_depth = max_depth
        self._faults = faults
        self._folder: str | None = None
        self._owner = os.getpid()
        self._merged: dict[int, MergedTree] = {}

    @contextlib.contextmanager
    def recorded(self, loader: Any, tag: int) -> Iterator[None]:
        """Within the block, record workers started by ``loader`` as those of ``tag``."""
        changed = False
        original = None
        if self.on and _starts_workers(loader) and self._is_recorded(tag):
            try:
                if self._folder is None:
                    with Protected():
                        import tempfile

                    self._folder = tempfile.mkdtemp(prefix="fastprof-workers-")
                    self._owner = os.getpid()
                original = loader.worker_init_fn
                loader.worker_init_fn = WorkerInit(
                    original, self._folder, tag, self._backend, self._max_depth, self.windows
                )
                changed = True
            except own_errors() as error:
                self.on = False
                self._faults.add("worker_errors", "fastprof: workers are not recorded", error)
        try:
            yield
        finally:
            if changed:
                loader.worker_init_fn = original

    def _is_recorded(self, tag: int) -> bool:
        self._passes[tag] = self._passes.get(tag, 0) + 1
        return not self.windows or self._passes[tag] <= _PASSES

    def merge_many(self) -> None:
        if self._folder is not None and len(os.listdir(self._folder)) >= _MANY:
            self._merge(WHOLE, set())

    def _merge(self, suffix: str, seen: set[str]) -> None:
        with Protected():
            import json

        if self._folder is None or self._owner != os.getpid():
            return
        for path in sorted(Path(self._folder).glob("*" + suffix)):
            if path.stem in seen:
                continue
            seen.add(path.stem)
            try:
                tag = int(path.name.partition("-")[0])
                data = json.loads(read_bounded(path, max_bytes=MAX_BYTES))
                self._merged.setdefault(tag, MergedTree()).add(data)
            except own_errors() as error:
                self._faults.add("worker_errors", "fastprof: a worker's profile is lost", error)
            with contextlib.suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Merge the existing files and remove the folder; running workers leave nothing more."""
        # Twice, because a worker may end meanwhile; it is counted once.
        seen: set[str] = set()
        for suffix in (WHOLE, PART, WHOLE):
            self._merge(suffix, seen)
        if self._folder is not None and self._owner == os.getpid():
            with Protected():
                import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self.on = False

    def of(self, tag: int) -> "MergedTree | None":
        """Return the data collected from the loader ``tag``."""
        return self._merged.get(tag)

    def lines(self) -> list[Lines]:
        """Return the samples of lines, per loader that has any."""
        return [merged.lines for merged in self._merged.values()]

    def add_to(self, snapshot: Snapshot, names: Sequence[str]) -> Snapshot:
        """Return ``snapshot`` with one tree per loader that has any; ``names`` by tag."""
        if not self._merged:
            return snapshot
        keys = list(snapshot.keys)
        number = {key: i for i, key in reversed(list(enumerate(keys)))}
        trees = []
        notes = []
        calibration = snapshot.calibration
        for tag, merged in sorted(self._merged.items()):
            if len(merged.nodes) > 1:
                trees.append(merged.tree(f"(workers of {names[tag]})", keys, number))
                if calibration is None and merged.backend:
                    from fastprof.capture.calibrate import calibration as measure

                    calibration = measure(merged.backend)
            if merged.dropped:
                notes.append(
                    f"Contexts of the workers of {names[tag]} beyond {MAX_ROWS} were left out."
                )
            if merged.error:
                notes.append(f"A worker of {names[tag]} was not recorded: {merged.error}.")
        return replace(
            snapshot,
            keys=tuple(keys),
            worker_threads=tuple(trees),
            calibration=calibration,
            notes=(*snapshot.notes, *notes),
        )


def _starts_workers(loader: Any) -> bool:
    own = getattr(loader, "__dict__", {})
    return "worker_init_fn" in own and bool(own.get("num_workers"))


@dataclass(frozen=True, slots=True)
class _File(Record):
    """A worker's data without its trees."""

    worker: Count
    fetches: tuple[Count, Count, Count]
    error: str
    backend: str
    keys: tuple[Key, ...]
    lines: tuple[tuple[str, Count, str, Count, Count], ...] | None = None


class MergedTree:
    """The trees of all threads of many processes as one."""

    def __init__(self) -> None:
        self.processes = 0
        self.dropped = 0
        self.error = ""
        self.backend = ""
        self.loads: dict[int, LoadTime] = {}
        self.lines: dict[tuple[str, int, str, int], int] = {}
        self._rows: dict[tuple[int, Key], int] = {}
        #: ``[parent, key, calls, resumes, self_ns]`` per node.
        self.nodes: list[list[Any]] = [[-1, _ROOT, 0, 0, 0]]

    def add(self, value: object) -> None:
        """Add one process's file.

        Raises:
            SnapshotError: the value is not in a worker's format.
        """
        if not isinstance(value, dict):
            raise TypeError("a worker's file holds no object")
        fold_own_functions(value)
        file = read(_File, value, "worker")
        # A worker records no sections; a file with sections would mix them with the loop's.
        if any(key.kind == "section" for key in file.keys):
            raise ValueError("a worker's file has a section")
        keys = with_forms(file.keys, value)
        known = Known()
        learn_keys(known, keys)
        trees = [
            read(
                NodeTable,
                _NO_PHASES | dict(zip(_COLUMNS, columns, strict=False)),
                "worker.threads",
                known,
            )
            for _ident, _ended, columns in value["threads"]
        ]
        load = LoadTime(file.worker, *file.fetches)
        self.error = self.error or file.error
        for tree in trees:
            self._add_tree(tree, keys)
        for path, first, name, line, samples in file.lines or ():
            at = (path, first, name, line)
            self.lines[at] = self.lines.get(at, 0) + samples
        self.backend = self.backend or file.backend
        self.processes += 1 if trees else 0
        if load.count:
            before = self.loads.get(load.worker, LoadTime(load.worker, 0, 0, 0))
            self.loads[load.worker] = LoadTime(
                load.worker,
                before.count + load.count,
                before.sum_ns + load.sum_ns,
                max(before.max_ns, load.max_ns),
            )

    def _add_tree(self, tree: NodeTable, keys: Sequence[Key]) -> None:
        row_of: list[int | None] = []
        columns = (tree.parent, tree.key, tree.calls, tree.resumes, tree.self_ns)
        for i, (parent, key, calls, resumes, self_ns) in enumerate(zip(*columns, strict=True)):
            above = row_of[parent] if i else -1
            row = 0 if i == 0 else None if above is None else self._row(above, keys[key])
            row_of.append(row)
            if row is not None:
                node = self.nodes[row]
                node[2] += calls
                node[3] += resumes
                node[4] += self_ns

    def _row(self, parent: int, key: Key) -> int | None:
        row = self._rows.get((parent, key))
        if row is None:
            if len(self.nodes) >= MAX_ROWS:
                self.dropped += 1
                return None
            row = self._rows[parent, key] = len(self.nodes)
            self.nodes.append([parent, key, 0, 0, 0])
        return row

    def tree(self, name: str, keys: list[Key], number: dict[Key, int]) -> ThreadTree:
        """Return it as a tree over ``keys``, and append its own keys to these."""
        column = []
        for _, key, *_ in self.nodes:
            at = number.get(key)
            if at is None:
                at = number[key] = len(keys)
                keys.append(key)
            column.append(at)
        parent, _, calls, resumes, self_ns = map(tuple, zip(*self.nodes, strict=True))
        return ThreadTree(0, name, True, NodeTable(parent, tuple(column), calls, resumes, self_ns))
