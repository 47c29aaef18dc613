"""Compilations of a run: how long each took, in which step, and why.

While the training thread compiles, the run is in the phase ``compile``: steps and sections stand
still, and calls are not recorded (those of a compiler are many, and all its own).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any

from fastprof.guards import dropped, own_errors
from fastprof.session.compiling.interface import Compiler
from fastprof.session.compiling.jax_compiler import JaxCompiler
from fastprof.session.compiling.torch_compiler import TorchCompiler
from fastprof.session.faults import Faults
from fastprof.session.pace import Pace
from fastprof.session.part import Part
from fastprof.session.patching.importing import TorchImport
from fastprof.session.run_phase import RunPhase
from fastprof.snapshot import Snapshot
from fastprof.snapshot.compilations import (
    MAX_BREAKS,
    MAX_EVENTS,
    CompileEvent,
    CompileSnapshot,
    GraphBreak,
)


class Compilations(Part):
    """The compilations of one run.

    Args:
        phase_changes: called in the training thread before the phase changes.
        compilers: adapters; the first one that compiles counts.
    """

    kind = "compile"

    def __init__(
        self,
        recorder: Any,
        phase: RunPhase,
        pace: Pace,
        faults: Faults,
        phase_changes: Callable[[], object],
        compilers: Sequence[Compiler] | None = None,
    ) -> None:
        self._recorder = recorder
        self._phase = phase
        self._pace = pace
        self._faults = faults
        self._phase_changes = phase_changes
        known: Sequence[Compiler] = (
            [TorchCompiler(), JaxCompiler()] if compilers is None else compilers
        )
        self._watches = [_Watch(self, compiler) for compiler in known]
        self._in = 0  # ident of the thread that compiles in the phase
        self._paused = False
        # Kinds and ids of what was compiled in the phase since the last look; id "": unknown.
        self._inside: set[tuple[str, str]] = set()
        self._at = (0, "setup")  # step and phase of the last compilation
        self._compiled = False  # since the last look after a step

    def begin(self) -> None:
        for watch in self._watches:
            watch.begin()

    def next_step(self, count: int) -> int:
        return self._pace.next_step(count)

    def at_step(self, count: int) -> None:
        # What was compiled is read when more is compiled or now; both know where that was.
        if self._compiled:
            self._compiled = False
            for watch in self._watches:
                watch.look(*self._at)
        else:
            for watch in self._watches:
                if watch.on:
                    watch.check()
        self._at = count, "steps"

    def end(self, count: int) -> None:
        if self._in == get_ident():
            self._ends()
        for watch in self._watches:
            watch.look(*self._at)
            watch.end()

    def forget(self) -> None:
        for watch in self._watches:
            watch.end()

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        for watch in self._watches:
            watch.look(*self._at)
            result = watch.result(snapshot.phase_ns("compile"))
            if result is not None:
                return replace(snapshot, compilations=result)
        return snapshot

    # -- called by the compiler

    def is_inside(self, event: CompileEvent) -> bool:
        """Return whether a compilation since the last look was in the run's phase."""
        return bool(self._inside & {(event.kind, event.id), (event.kind, "")})

    def begins(self, kind: str, number: str) -> None:
        """Note that a compilation begins, in any thread."""
        self._compiled = True
        for watch in self._watches:
            watch.look(*self._at)
        if self._in:
            return
        if not self._phase.is_here():
            self._inside = set()
            self._at = self._recorder.steps, "steps"
            return
        self._phase_changes()
        self._inside = {(kind, number)}
        self._in = get_ident()
        self._at = self._recorder.steps, self._phase.enter_compiling()
        self._paused = self._recorder.pause_functions()
        if self._paused:
            self._recorder.pause_functions(unhook=True)

    def ends(self) -> None:
        """Note its end."""
        if self._in == get_ident():
            self._ends()

    def done(self, end: Callable[[], object]) -> None:
        """Note by ``end`` what a compiler has just done, in any thread, if it is a compilation."""
        at = self._recorder.steps, self._phase.now
        if self._at != at:
            for watch in self._watches:
                watch.look(*self._at)
            self._at = at
        if end():
            self._compiled = True

    def _ends(self) -> None:
        self._in = 0
        try:
            if self._paused:
                self._paused = False
                self._recorder.rehook()
                self._recorder.resume_functions()
        finally:
            self._phase.leave_compiling()

    def fault(self, error: BaseException) -> None:
        """Report a failure once; the rest of the run goes on."""
        self._faults.add("compile_errors", "fastprof: compilations are not known", error)


class _Watch:
    """One compiler in one run; a failure ends it."""

    def __init__(self, run: Compilations, compiler: Compiler) -> None:
        self._run = run
        self._compiler = compiler
        self._import = TorchImport(self._imported, compiler.module)
        self.on = False
        self._events: list[CompileEvent] = []
        self._breaks: dict[GraphBreak, int] = {}
        self._inside: list[int] = []  # numbers of events
        self._lost = self._lost_ns = 0
        self._facts: dict[str, Any] = {}

    def begin(self) -> None:
        self._import.watch()

    def end(self) -> None:
        self._import.forget()
        if self.on:
            self.on = False
            self._guarded(self._compiler.detach)

    def check(self) -> None:
        """Let the compiler, if it is on, observe what the program may have switched off."""
        try:
            self._compiler.check()
        except own_errors() as error:
            self._failed(error)

    def look(self, step: int, phase: str) -> None:
        """Read what the compiler has done; it was in this step and phase."""
        if self.on:
            self._guarded(self._look, step, phase)

    def result(self, wall_ns: int) -> CompileSnapshot | None:
        """Return what is known; None: nothing was compiled.

        Args:
            wall_ns: time of the run's phase.
        """
        unknown = tuple(self._compiler.unknown)
        if not self._events and not unknown:
            return None
        return CompileSnapshot(
            compiler=self._compiler.name,
            events=tuple(self._events),
            breaks=tuple(replace(each, count=n) for each, n in self._breaks.items()),
            wall_ns=wall_ns,
            lost=self._lost,
            lost_ns=self._lost_ns,
            unknown=unknown,
            inside=tuple(self._inside),
            **{"version": "", **self._facts},
        )

    def _imported(self) -> None:
        self.on = True
        self._guarded(self._compiler.attach, self._begins, self._ends, self._done)

    def _begins(self, kind: str, number: str) -> None:
        self._guarded(self._run.begins, kind, number)

    def _ends(self) -> None:
        self._guarded(self._run.ends)

    def _done(self, end: Callable[[], object]) -> None:
        if self.on:
            self._guarded(self._run.done, end)

    def _look(self, step: int, phase: str) -> None:
        self._compiler.check()
        before = len(self._events) + self._lost
        for event in self._compiler.events(step, phase):
            if len(self._events) < MAX_EVENTS:
                if self._run.is_inside(event):
                    self._inside.append(len(self._events))
                self._events.append(event)
            else:
                self._lost += 1
                self._lost_ns += event.total_ns
        for each in self._compiler.breaks():
            if each in self._breaks or len(self._breaks) < MAX_BREAKS:
                self._breaks[each] = self._breaks.get(each, 0) + 1
        if before != len(self._events) + self._lost:
            self._facts = self._compiler.facts()

    def _guarded(self, action: Callable[..., object], *args: object) -> None:
        try:
            action(*args)
        except own_errors() as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._run.fault(error)
        if self.on:
            self.on = False
            with dropped():
                self._compiler.detach()
