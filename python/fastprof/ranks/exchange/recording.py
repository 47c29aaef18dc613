"""Turns a rank's recording into the windows that it publishes.

Another thread than the training thread reads it, while the training thread waits for the GIL.
So it copies the last steps and the self times of the tree as bytes, which is fast, and looks
up their functions only when rank 0 asks.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastprof.capture.convert import key_from
from fastprof.clock import time
from fastprof.guards import own_errors
from fastprof.ranks.live.window import (
    COLUMNS,
    MAX_BLOCKS,
    MEASURED,
    RankDetail,
    RankWindow,
    Request,
    Row,
    block_size,
    joined,
    means,
    measured,
)
from fastprof.ranks.row import BETWEEN, Function, program_of
from fastprof.report.origin import is_own, is_users, shown_name
from fastprof.report.phase_names import BACKWARD, is_communication
from fastprof.report.rows import UNACCOUNTED
from fastprof.report.stats import rarer
from fastprof.session.gpu.cuda_init import used_cuda
from fastprof.snapshot import Key
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

if TYPE_CHECKING:
    from types import FrameType

    from fastprof.capture.options import Recorder

#: A window covers the steps of the last 10 s in about 32 blocks.
_SECONDS = 10.0
_BLOCKS = 32
_SECTIONS = 6
#: Number of kept trees: functions can be reported for these moments.
_TREES = 6
#: Bytes of two copies that are compared at a time.
_CHUNK = 4096
#: Most contexts that are compared: a million that all took time would need half a second.
_MOST_COMPARED = 250_000
#: Most contexts whose functions are looked up, those with the most time: an import in the first
#: step, such as that of torch's compiler, makes 100,000 of them.
_MOST_CONTEXTS = 20_000
#: Number of windows for the time between steps: few of them may contain a checkpoint.
_PHASES = 4  # so the time between steps is of the last 15 s
_FUNCTIONS = 24
#: Steps wait this long for their times on the GPU; then these count as unknown.
_GPU_LATE_S = 15.0
_Function = tuple[str, str, int, int, Mapping[str, int]]


class Recording:
    """Makes the windows of one rank, one after the other.

    Args:
        job, rank, world_size, host: as in :class:`~fastprof.ranks.live.window.RankWindow`.
    """

    def __init__(self, recorder: Recorder, job: str, rank: int, world_size: int, host: str) -> None:
        self._recorder = recorder
        self._about = (job, rank, world_size, host)
        self._next = 0
        self._is_plain = False
        self._size = 0
        self._names: tuple[str, ...] = ()
        self._columns: tuple[str, ...] = ("wall",)
        self._blocks: dict[int, Row] = {}
        self._waits: dict[int, int] = {}
        self._section_of: dict[int, str] = {}
        self._trees: list[tuple[int, int, bytes]] = []
        #: Number of measured steps, and times of the run's phases, at the last windows.
        self._phases: list[tuple[int, list[int]]] = []
        #: Of the training thread at the last window.
        self._position: object = None
        self._beat = 0
        self._gpu_compute = 0
        #: The last step whose waits on the GPU were known, and since when.
        self._gpu_last, self._gpu_since = -1, 0.0

    def window(self, *, ended: bool = False) -> RankWindow:
        """Return the current window."""
        job, rank, world_size, host = self._about
        self._beat += 1
        raw = self._last_steps()
        if raw is None:
            return RankWindow(
                job, rank, world_size, host, self._beat, 0, ended=ended,
                process=os.getpid(), parent=os.getppid(),
            )  # fmt: skip
        self._keep_tree(raw)
        waiting = self._add(raw)
        number = raw["phase"]
        phase = RUN_PHASES[number] if 0 <= number < len(RUN_PHASES) else ""
        frame = sys._current_frames().get(raw["thread"])
        place, waits = where(raw, frame, functions="autograd" in self._columns)
        return RankWindow(
            job=job,
            rank=rank,
            world_size=world_size,
            host=host,
            beat=self._beat,
            steps=raw["steps"],
            phase=phase,
            place=place,
            waits=waits,
            ended=ended,
            size=max(1, self._size),
            columns=self._columns,
            sections=self._names,
            blocks=self._blocks,
            waiting=waiting,
            between=self._between(raw),
            process=os.getpid(),
            parent=os.getppid(),
            works=self._has_moved(frame, raw["last_event"]) and phase in BETWEEN,
            cuda=_uses_cuda(),
            gpu_busy=raw["gpu_busy"],
            gpu_compute=self._gpu_compute,
        )

    def _last_steps(self) -> dict[str, Any] | None:
        """Return the steps with functions, or the plain ones once these are most.

        Waits for other ranks are known by functions; without them by sections, which plain steps
        may lack.
        """
        if self._is_plain:
            return self._recorder.window(self._next, True)
        raw = self._recorder.window(self._next)
        if raw is None:
            return None
        plain = self._recorder.window(self._next, True) or raw
        more = len(plain["number"]) > len(raw["number"])
        self._is_plain = more and _has_sections(plain, raw)
        return plain if self._is_plain else raw

    def _has_moved(self, frame: FrameType | None, last_event: int) -> bool:
        """Return whether the training thread has made a call, or is at another instruction."""
        position = None if frame is None else (id(frame.f_code), frame.f_lasti)
        before, self._position = self._position, (position, last_event)
        return self._position != before

    def _add(self, raw: Mapping[str, Any]) -> dict[str, int]:
        """Add the blocks that have become complete; return communication by section.

        It is in us per step since the last window; sections that only wait count to no section.
        """
        numbers = array("q", raw["number"])
        times = {name: array("q", raw[f"{name}_ns"]) for name in COLUMNS}
        sections = {name: array("q", column) for name, column in raw["sections"]}
        settled = self._settled(times["wall"], numbers, raw["gpu_last"])
        is_cut = settled < len(numbers)
        if is_cut:
            for column in (numbers, *times.values(), *sections.values()):
                del column[settled:]
        if not numbers:
            return {}
        wall = times["wall"]
        computed = array("q", raw["gpu_compute_ns"])[: len(numbers)]
        self._gpu_compute = max(0, sum(computed) // len(computed) // 1000)
        # A pause of the step, as for validation, is in no step of the host.
        times["gpu_wait"] = array("q", map(min, times["gpu_wait"], wall))
        if not self._size:
            self._size = _size(wall)
        elif sum(wall) > 0:
            size = _size(wall)
            if size >= 4 * self._size:  # steps have become much shorter
                self._blocks = joined(self._blocks, self._size, size)
                self._size = size
            elif 4 * size <= self._size:
                self._blocks, self._size = {}, size
        end = int(numbers[-1]) + 1 if is_cut else int(raw["steps"])
        done = end - end % self._size
        times[MEASURED] = array("q", measured(numbers, self._size))
        known = tuple(name for name in times if not (times[name] and min(times[name]) < 0))
        waits = [name for name in sections if is_communication(name)]
        largest = sorted(sections, key=lambda name: (name not in BACKWARD, -sum(sections[name])))
        names = tuple(name for name in largest if name not in waits)[:_SECTIONS]
        columns: list[array[int]] = [times[name] for name in known]
        if "communication" in known:
            # The larger of the two in each step.
            told = known.index("communication")
            for name in waits:
                columns[told] = array("q", map(max, columns[told], sections[name]))
        else:
            names = (*waits, *names)[:_SECTIONS]
        columns += [sections[name] for name in names]
        if (known, names) != (self._columns, self._names):
            order = [*self._columns, *(f"section {name}" for name in self._names)]
            wanted = [*known, *(f"section {name}" for name in names)]
            if set(wanted) <= set(order):
                at = [order.index(name) for name in wanted]
                self._blocks = {s: tuple(row[i] for i in at) for s, row in self._blocks.items()}
            else:
                self._blocks = {}
            self._columns, self._names = known, names
        found = means(columns, numbers, self._size)
        self._blocks |= {start: row for start, row in found.items() if start < done}
        for start in sorted(self._blocks)[:-MAX_BLOCKS]:
            del self._blocks[start]
        self._next = done
        waiting = self._communication(raw, len(numbers))
        if "communication" in known:
            # The rest is in no section, or in sections that only wait.
            whole = sum(columns[known.index("communication")]) // len(numbers) // 1000
            waiting[UNACCOUNTED] = max(0, whole - sum(waiting.values()))
        return waiting

    def _settled(self, wall: array[int], numbers: array[int], last: int) -> int:
        """Return the number of leading steps whose waits on the GPU are known or stay unknown.

        CUPTI delivers records seconds late.

        Args:
            wall, numbers: of the steps.
            last: the last step whose wait is known; -1: no GPU runs collectives.
        """
        known = bisect_right(numbers, last)
        if last != self._gpu_last or known == len(numbers):
            self._gpu_last, self._gpu_since = last, time.monotonic()
        late = time.monotonic() - self._gpu_since > _GPU_LATE_S
        if last < 0 or late or sum(wall[known:]) > _GPU_LATE_S * 1e9:
            return len(numbers)
        return known

    def _communication(self, raw: Mapping[str, Any], steps: int) -> dict[str, int]:
        """Return communication in us per step since the last window, by top-level section."""
        now = dict(raw["waits"])
        if not set(now) <= set(self._section_of):
            self._section_of |= self._sections(set(now))
        found: dict[str, int] = {}
        for node, ns in now.items():
            name = self._section_of.get(node, UNACCOUNTED)
            if name in self._names:
                found[name] = found.get(name, 0) + ns - self._waits.get(node, 0)
        self._waits = now
        return {name: ns // steps // 1000 for name, ns in found.items() if ns > 0}

    def _between(self, raw: Mapping[str, Any]) -> dict[str, int]:
        """Return the time between steps in us per step of the last windows, by phase."""
        self._phases = [*self._phases, (raw["measured"], raw["phases_ns"])][-_PHASES:]
        (first, before), (last, now) = self._phases[0], self._phases[-1]
        if last == first:
            return {}
        at = {name: RUN_PHASES.index(name) for name in BETWEEN}
        found = {name: (now[i] - before[i]) // (last - first) // 1000 for name, i in at.items()}
        return {name: us for name, us in found.items() if us > 0}

    def _sections(self, wanted: set[int]) -> dict[int, str]:
        nodes = self._recorder.nodes(array("q", wanted).tobytes())
        if nodes is None:
            return {}
        rows, keys = nodes
        found = {}
        for wait in wanted:
            name, node = UNACCOUNTED, wait
            while node > 0 and node in rows:
                above, key = rows[node]
                if 0 <= key < len(keys) and keys[key][0] == "section":
                    name = keys[key][3]
                node = above
            found[wait] = name
        return found

    # -- functions -------------------------------------------------------------

    def _keep_tree(self, raw: Mapping[str, Any]) -> None:
        """Keep the time of each context up to now."""
        times = self._recorder.node_times()
        if times is not None:
            self._trees = [*self._trees, (raw["steps"], raw["measured"], times)][-_TREES:]

    def detail(self, request: Request) -> RankDetail:
        """Return the times of functions in the steps that ``request`` names, as far as known.

        If it names a phase between the steps: of that phase in all kept trees, per step.
        """
        job, rank, *_ = self._about
        if request.phase in BETWEEN:
            functions = self._functions(0, sys.maxsize, RUN_PHASES.index(request.phase))
        else:
            functions = self._functions(request.first, request.last, STEPS)
        return RankDetail(job, rank, request.number, functions)

    def _functions(self, first: int, last: int, phase: int) -> tuple[_Function, ...]:
        if len(self._trees) < 2:
            return ()
        # A tree from before the first measured step would add imports and warm-up steps, one from
        # before ``first`` steps in which the rank was not late.
        in_steps = [tree for tree in self._trees if tree[1]]
        trees = in_steps if len(in_steps) > 1 else self._trees
        within = [tree for tree in trees[:-1] if first <= tree[0] < last]
        begin = min(within or trees[:-1], key=lambda tree: abs(tree[0] - first))
        later = [tree for tree in trees if tree[1] > begin[1]]
        if not later:
            return ()
        end = min(later, key=lambda tree: abs(tree[0] - last))
        return self._described(_spent(begin[2], end[2]), end[1] - begin[1], phase)

    def functions_so_far(self) -> tuple[_Function, ...]:
        """Return the times of functions in the steps of the whole run, up to the last window."""
        if not self._trees:
            return ()
        _, steps, times = self._trees[-1]
        return self._described(_spent(b"", times), max(1, steps), STEPS)

    def _described(self, spent: dict[int, int], steps: int, phase: int) -> tuple[_Function, ...]:
        if len(spent) > _MOST_CONTEXTS:
            most = sorted(spent, key=lambda node: -spent[node])[:_MOST_CONTEXTS]
            spent = {node: spent[node] for node in most}
        nodes = self._recorder.nodes(array("q", spent).tobytes())
        if nodes is None:
            return ()
        found = _program(*nodes, spent, self._waiting_nodes(), steps, phase)
        rows = []
        for (name, file, line), function in found.items():
            called = {of: round(ms * 1000) for of, ms in function.called.items()}
            rows.append((name, file, line, round(function.ms * 1000), called))
        rows.sort(key=lambda row: -row[3])
        return tuple(rows[:_FUNCTIONS])

    def _waiting_nodes(self) -> set[int]:
        raw = self._recorder.window(sys.maxsize)
        return set() if raw is None else {node for node, _ in raw["waits"]}


def _has_sections(plain: Mapping[str, Any], raw: Mapping[str, Any]) -> bool:
    """Return whether sections ran in as many plain steps as in others."""
    here, there = (
        {name: sum(map(bool, array("q", column))) for name, column in of["sections"]}
        for of in (plain, raw)
    )
    return not rarer(here, len(plain["number"]) // 8, there, len(raw["number"]) // 8)


def _uses_cuda() -> bool:
    try:
        return used_cuda() is not None
    except own_errors():  # a torch without it
        return False


def _size(wall: array[int]) -> int:
    usual = sum(wall) / len(wall) / 1e9
    return block_size(round(_SECONDS / max(usual, 1e-6)), _BLOCKS)


def _spent(begin: bytes, end: bytes) -> dict[int, int]:
    """Return the contexts' own time in ns between two copies of the tree, where it is not 0.

    Of more than :data:`_MOST_COMPARED` only some.
    """
    spent: dict[int, int] = {}
    for at in range(0, len(end), _CHUNK):
        if len(spent) > _MOST_COMPARED:
            break
        here, there = begin[at : at + _CHUNK], end[at : at + _CHUNK]
        if here == there:  # as most are
            continue
        before, after = array("q", here), array("q", there)
        before.extend([0] * (len(after) - len(before)))
        first = at // after.itemsize
        spent |= {
            first + i: b - a for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b
        }
    return spent


def _program(
    rows: Mapping[int, tuple[int, int]],
    descriptions: list[tuple[str, str, int, str, str]],
    spent: Mapping[int, int],
    waits: set[int],
    steps: int,
    wanted: int,
) -> dict[tuple[str, str, int], Function]:
    """Return the program's functions in one phase of the run, in ms per step."""
    keys = [key_from(description) for description in descriptions]
    keys.append(Key("root", "", 0, "", ""))
    root = len(keys) - 1
    place = {node: i for i, node in enumerate(rows)}  # parents come first
    parents = [place.get(above, 0) for above, _ in rows.values()]
    numbers = [key if key >= 0 else root for _, key in rows.values()]
    # As in saved runs: C functions that fastprof calls are fastprof's.
    owns = [is_own(key) for key in keys]
    ours = [False] * len(rows)
    for i, (parent, number) in enumerate(zip(parents, numbers, strict=True)):
        ours[i] = owns[number]
        if i and ours[parent] and keys[number].kind in ("c", "type"):
            ours[i], numbers[i] = True, root
    phase = [STEPS] * len(rows)
    outside = {place[node] for node in waits & rows.keys()}
    for i, (above, key) in enumerate(rows.values()):
        if key < 0:
            phase[i] = -1 - key
        elif above > 0:
            phase[i] = phase[parents[i]]
        if phase[i] != wanted:
            outside.add(i)
    return program_of(
        parents,
        numbers,
        [spent.get(node, 0) for node in rows],
        keys,
        outside,
        steps,
    )


def where(raw: Mapping[str, Any], frame: FrameType | None, *, functions: bool) -> tuple[str, bool]:
    """Return where the training thread stands, and whether it waits for other ranks there."""
    sections: list[str] = raw["open"]
    parts = [sections[-1]] if sections else []
    # If the recorder records functions, it reports the call of a waiting function.
    waits = raw["waiting"] or any(map(is_communication, sections))
    if not waits and not functions and sections:
        waits = sections[0] in BACKWARD
    while frame is not None:
        code = frame.f_code
        key = Key(
            "python", code.co_filename, frame.f_lineno, code.co_name,
            getattr(code, "co_qualname", code.co_name),
        )  # fmt: skip
        if is_users(key):
            file = code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
            name = "code outside of functions" if code.co_name == "<module>" else shown_name(key)
            parts.append(f"{name} ({file}:{frame.f_lineno})")
            break
        frame = frame.f_back
    return ", ".join(parts)[:200], bool(waits)
