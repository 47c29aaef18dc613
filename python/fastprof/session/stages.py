"""Distinguishes stages of a run: pretraining and finetuning have different steps.

A stage begins when an optimizer that has not stepped before steps on a batch of a loader that the
current stage has not used.  On the same loader one begins after some steps, if the class of the
optimizer or the shapes of its parameters are new.  If an optimizer of an earlier stage steps again,
they were no stages but parts of one loop, and become one; so they do when stages with a loader and
optimizer of a kind come back a second time (the clients of federated training), or if there are too
many (folds, clients).
"""

import weakref
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from fastprof.capture.options import Recorder
from fastprof.report.phase_names import BACKWARD, DATA, FORWARD, OPTIMIZER
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot
from fastprof.snapshot.stages import MAX_STAGES, Stage

#: Each step of a loop whose sections are automatic has one of these.
_AUTOMATIC = (FORWARD, BACKWARD, OPTIMIZER)
#: Steps of a stage before another may begin on its loader: optimizers that take turns do so sooner.
_SETTLED = 20

#: A loader's tag, an optimizer's class, and the shapes of its parameters.
_Kind = tuple[int, str, object]


@dataclass(slots=True)
class _Open:
    """A stage as far as it is known: its first step, measured steps before it, its kinds."""

    optimizer: str
    tag: int
    first: int = 0
    before: int = 0
    kinds: set[_Kind] = field(default_factory=set)
    result: Stage | None = None


class Stages(Part):
    """The stages of one run; only the training thread calls it.

    Args:
        name: returns a loader's name by its tag.
    """

    kind = "stage"

    def __init__(self, recorder: Recorder, name: Callable[[int], str]) -> None:
        self._recorder = recorder
        self._name = name
        self._stages: list[_Open] = []
        self._of: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._shapes: weakref.WeakKeyDictionary[Any, object] = weakref.WeakKeyDictionary()
        self._last: tuple[weakref.ref[Any], int] | None = None
        # Stages whose loader has come back, with a new optimizer.
        self._returned: list[int] = []
        self._is_loop = False

    @property
    def number(self) -> int:
        """Number of the current stage, from 1; 0: there is only one so far."""
        return len(self._stages) if len(self._stages) > 1 else 0

    def step_ends(
        self,
        by: object,
        optimizer: str,
        tag: int,
        shapes: Callable[[Any], object] = lambda _: (),
    ) -> None:
        """Note the end of a step.

        Args:
            by: what ended it: an optimizer, or another object in a loop without one.
            optimizer: the optimizer's class; empty: none.
            tag: the loader of its batch.
            shapes: returns the shapes of the parameters of ``by``.
        """
        if self._last is not None and self._last[0]() is by and self._last[1] == tag:
            return
        self._last = weakref.ref(by), tag
        stages, known = self._stages, self._of.get(by)
        if known is None:
            self._shapes[by] = shapes(by)
        kind = tag, optimizer, self._shapes[by]
        if not stages:
            stages.append(_Open(optimizer, tag))
        elif known is not None:
            self._join(known)
        elif not self._is_loop and self._differs(kind):
            earlier = [i for i, stage in enumerate(stages) if kind in stage.kinds]
            self._is_loop = len(stages) == MAX_STAGES
            if self._is_loop:
                self._join(0)
            elif earlier and self._returned:
                self._join(min(*earlier, *self._returned))
            else:
                self._returned += earlier
                self._begin(stages[-1], optimizer, tag)
        if known is None:
            self._of[by] = len(stages) - 1
        stages[-1].kinds.add(kind)

    def _differs(self, kind: _Kind) -> bool:
        """Return whether a new optimizer's step of this kind begins a stage."""
        current = self._stages[-1]
        if not current.optimizer or all(tag != kind[0] for tag, *_ in current.kinds):
            return True
        return kind not in current.kinds and self._recorder.steps - current.first >= _SETTLED

    def _join(self, first: int) -> None:
        """Make the stages from number ``first`` on one."""
        stages = self._stages
        if first < len(stages) - 1:
            stages[first].kinds.update(*(gone.kinds for gone in stages[first + 1 :]))
            del stages[first + 1 :]
            stages[first].result = None
            for other, of in list(self._of.items()):
                self._of[other] = min(of, first)

    def _begin(self, current: _Open, optimizer: str, tag: int) -> None:
        before, current.result = self._result(current)
        self._stages.append(_Open(optimizer, tag, self._recorder.steps, before))

    def _result(self, stage: _Open) -> tuple[int, Stage]:
        """Return the number of measured steps so far, and the stage if it ends now."""
        windows = [self._recorder.window(stage.first, plain) or {} for plain in (False, True)]
        windows.sort(key=lambda window: -len(window.get("wall_ns", b"")))
        walls = sorted(array("q", windows[0].get("wall_ns", b"")))
        measured = windows[0].get("measured", stage.before)
        parts = next(filter(None, map(_parts, windows)), {})
        return measured, Stage(
            first=stage.first,
            steps=max(0, measured - stage.before),
            optimizer=stage.optimizer,
            loader=self._name(stage.tag) if stage.tag >= 0 else "",
            timed=len(walls),
            sum_ns=sum(walls),
            p50_ns=walls[len(walls) // 2] if walls else 0,
            p95_ns=walls[len(walls) * 95 // 100] if walls else 0,
            sections=tuple((n, round(part * sum(walls))) for n, part in parts.items() if part),
        )

    def metrics(self) -> dict[str, float]:
        """Return the number of the current stage as a metric, if there are several."""
        return {"profile/train/stage": self.number} if self.number else {}

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, stages=self.stages())

    def stages(self) -> tuple[Stage, ...]:
        """Return all stages so far; none if there is only one."""
        if len(self._stages) < 2:
            return ()
        return tuple(stage.result or self._result(stage)[1] for stage in self._stages)


def _parts(window: Mapping[str, Any]) -> dict[str, float]:
    """Return each section's part of a step; none: no step has sections.

    Automatic sections may be off in most steps (see :mod:`fastprof.session.function_windows`), the
    loaders' are not.
    """
    walls = array("q", window.get("wall_ns", b""))
    columns = {name: array("q", column) for name, column in window.get("sections", ())}
    phases = [columns[name] for names in _AUTOMATIC for name in names if name in columns]
    have = [not phases or any(column[i] for column in phases) for i in range(len(walls))]
    seen = sum(compress(walls, have))
    if not seen:
        return {}
    parts = {name: sum(compress(of, have)) / seen for name, of in columns.items()}
    always = {name: sum(columns[name]) / sum(walls) for name in DATA if name in columns}
    others = 1.0 - sum(parts[name] for name in always)
    scale = (1.0 - sum(always.values())) / others if others > 0 else 1.0
    return {name: always.get(name, part * scale) for name, part in parts.items()}
