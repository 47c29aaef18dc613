"""The run of one training job, as an integration's hooks see it.

Nothing here raises into the training: a failing hook is reported once, becomes a
note of the report, and from then on the hooks do nothing.
"""

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastprof.capture import Section
from fastprof.guards import is_near_limit, own_errors
from fastprof.integrations._torch import owner as torch_owner
from fastprof.session import current
from fastprof.session.loaders.timing import Holder
from fastprof.session.own_time import SAMPLED, clock
from fastprof.session.part import Part
from fastprof.session.profiler import Profiler, run_of
from fastprof.session.run import Run

#: Name of a section, and of a phase of the run.
_CHECKPOINT = "checkpoint"


@dataclass(slots=True)
class _Entry:
    """An open action: its section, and whether that was open when another action began."""

    key: object
    name: str
    section: Section | None
    late: bool
    was_open: bool = False


class Session:
    """The run of one training job, as an integration's hooks see it.

    If the program has started its own run, the hooks record into that run; its
    options apply, and the session does not end it.

    Phases of a step lie side by side, never inside each other, although the calls are nested:
    Lightning's ``optimizer_step`` contains forward and backward.  So when a phase begins, the
    session closes the open one and reopens it afterwards.

    If another integration's hooks already record into that run, these do nothing, so that no
    step or phase is counted twice.

    Args:
        defaults: values of options that the user has not given.
        trainer: the trainer of these hooks; the report's advice names its options.
        hooks: False: only the program ends steps.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        defaults: Mapping[str, Any],
        *,
        trainer: str,
        hooks: bool = True,
    ) -> None:
        self._hooks = hooks
        self._trainer = trainer
        running = current.running()
        enabled = options.get("enabled", True)
        self.owner = not (enabled and isinstance(running, Run) and not running.gives_way)
        if isinstance(running, Run) and not self.owner:
            self.profiler: Profiler = running.profiler
        else:
            self.profiler = _new_profiler({**defaults, **options})
        self.run = run_of(self.profiler)
        self._own = self.run.own_time
        #: Whether the hooks do anything.
        self.alive = False
        #: Whether this is a step without automatic sections.
        self.muted = False
        #: Called when that changes.
        self.on_muted: Callable[[], None] = _nothing
        self._switched = _Switched(self)
        self._with_sections = True
        self._saving = 0
        self._sections: dict[str, Section] = {}
        self._stack: list[_Entry] = []
        self._open: Section | None = None
        self._container: Section | None = None
        self._numbered: dict[str, list[Holder]] = {}
        # Phases of the run: before the first step, or outside of steps.
        self._in_setup = True
        self._outside = True
        self._thread = threading.get_ident()
        self._steps_before = 0

    # -- the run

    def start(self) -> None:
        """Start the run, or join the current one."""
        try:
            if self.owner:
                self.profiler.start()
                self.profiler.enter_phase("setup")
            if self._hooks and self._is_second():
                self.run.faults.tell(
                    "Two integrations were attached to one run: the second records nothing, "
                    "detach() the first before attaching another"
                )
                return
            self.alive = self.profiler.running
            if self.alive:
                if self._hooks:
                    self.run.parts.append(self._switched)
                self.run.move_here()
                torch_owner.claim(self)
                self.run.facts["framework"] = self._trainer
                self.run.loading.watches.keep_out_of_steps()
            self._steps_before = self.profiler.steps
        except own_errors() as error:  # the training continues without it
            self.fail("The run could not be started", error)

    def _is_second(self) -> bool:
        first = torch_owner.choose()
        return isinstance(first, Session) and first.alive and first.profiler is self.profiler

    def stop(self) -> None:
        """Close the open sections; end the run if this session started it."""
        if self.alive:
            self._close_all()
        self._die()
        self._numbered.clear()
        if self.owner:
            self.profiler.stop()

    def fail(self, what: str, error: BaseException) -> None:
        """Report a failure once; from now on the hooks do nothing."""
        if not is_near_limit(error):
            self._die()
            self._close_all()
        self.run.faults.add("integration_errors", f"fastprof: {what}", error)

    def _die(self) -> None:
        self.alive = self.muted = False
        self._own.samples = 1
        torch_owner.release(self)
        if self._switched in self.run.parts:
            self.run.parts.remove(self._switched)

    def quietly(self, what: str, action: Callable[..., Any], *args: Any) -> Any:
        """Return ``action(*args)``; on an exception, report it and return None."""
        if not self.alive:
            return None
        own = self._own
        samples, ns, apart_ns = own.samples, own.ns, own.apart_ns
        began = clock() if samples else 0
        try:
            return action(*args)
        except own_errors() as error:  # nothing may reach the training
            self.fail(what, error)
        finally:
            if samples:
                own.took(began, ns, apart_ns, samples)
        return None

    # -- steps without sections

    def switch(self, on: bool) -> bool:
        """Give the next steps their sections, or none; return whether that was done.

        See :meth:`fastprof.session.part.Part.switch_sections`.
        """
        if not self.alive or threading.get_ident() != self._thread:
            return False
        self._with_sections = on
        self._mute()
        return True

    def _mute(self) -> None:
        """Let actions in steps have sections, or none; outside of steps they have them."""
        apart = self._outside or self._saving or self._container is not None
        muted = not self._with_sections and not apart
        if muted != self.muted:
            self.muted = muted
            self._own.samples = 1
            if muted:  # the actions that have begun no longer count
                self._switch(None)
                self._stack.clear()
            self.on_muted()

    # -- steps

    @property
    def steps(self) -> int:
        """Number of steps of this job: an earlier job may have recorded into the same run."""
        return self.profiler.steps - self._steps_before

    def step(self) -> None:
        """End a step."""
        if self.alive:
            self.quietly("A step could not be ended", self.run.step)
            if self.muted:
                self._own.samples = 0 if self.run.steps % SAMPLED else SAMPLED

    def leave_steps(self) -> None:
        """Leave steps until :meth:`begin_step`."""
        if not self._outside and self.alive:
            self._outside = True
            self._mute()
            self.quietly("A phase could not be entered", self.profiler.enter_phase, "outside")

    def begin_step(self) -> None:
        """Begin a step now if none is open."""
        if self._outside and self.alive:
            phase = "setup" if self._in_setup else "outside"
            self._outside = self._in_setup = False
            self.quietly("A phase could not be left", self.profiler.leave_phase, phase)
            self._mute()
            self.quietly("A step could not be started", self.run.recorder.mark)

    # -- sections

    def section(self, name: str) -> Section:
        section = self._sections.get(name)
        if section is None:
            section = self._sections[name] = self.profiler.section(name)
        return section

    def open(self, key: object, name: str = "", *, late: bool = False) -> None:
        """Begin the action ``key``: section ``name``, or none, replaces the open section.

        Args:
            key: the key for :meth:`close`; several actions of a name may be open.
            name: section; empty: no section is open during the action.
            late: open the section only when a ``backward`` in it has ended.
        """
        if self.muted or not self.alive or threading.get_ident() != self._thread:
            return
        own = self._own
        began, ns, apart_ns = clock(), own.ns, own.apart_ns
        try:
            if self._stack:
                self._stack[-1].was_open = self._open is not None
            entry = _Entry(key, name, self.section(name) if name else None, late)
            self._stack.append(entry)
            self._switch(None if late else entry.section)
        except own_errors() as error:
            self.fail("A section could not be opened", error)
        own.took(began, ns, apart_ns)

    def close(self, key: object, *exc_info: Any) -> None:
        """End the action ``key``, and the actions that began in it and did not end."""
        if self.muted or not self.alive or threading.get_ident() != self._thread:
            return
        own = self._own
        began, ns, apart_ns = clock(), own.ns, own.apart_ns
        try:
            stack = self._stack
            i = len(stack) - 1
            while i >= 0 and stack[i].key != key:
                i -= 1
            if i >= 0:
                name = stack[i].name
                del stack[i:]
                self._switch(_section_after(stack[-1], name) if stack else None, *exc_info)
        except own_errors() as error:
            self.fail("A section could not be closed", error)
        own.took(began, ns, apart_ns)

    def open_late(self) -> None:
        """Open the section of the innermost action if that opens late."""
        if self.alive and self._stack and self._stack[-1].late and self._open is None:
            self.quietly("A section could not be opened", self._switch, self._stack[-1].section)

    def enter_container(self, name: str) -> None:
        """Begin section ``name``, which contains the phases of an evaluation."""
        self._switch(None)
        self._stack.clear()
        if self._container is None:
            self.profiler.enter_phase("validation")
            self._container = self.section(name).__enter__()
            self._mute()

    def leave_container(self) -> None:
        """End the section of :meth:`enter_container`, if it has not ended."""
        container, self._container = self._container, None
        if container is not None:
            self._switch(None)
            self._stack.clear()
            container.__exit__(None, None, None)
            self.profiler.leave_phase("validation")
            self._mute()

    def open_checkpoint(self, key: object) -> None:
        """Begin a checkpoint: its section, and the phase of the run."""
        if self.alive and threading.get_ident() == self._thread:
            self.quietly("A phase could not be entered", self.profiler.enter_phase, _CHECKPOINT)
            self._saving += 1
            self._mute()
            self.open(key, _CHECKPOINT)

    def close_checkpoint(self, key: object, *exc_info: Any) -> None:
        """End a checkpoint."""
        if self.alive and threading.get_ident() == self._thread:
            self.close(key, *exc_info)
            self._saving = max(0, self._saving - 1)
            self._mute()
            self.quietly("A phase could not be left", self.profiler.leave_phase, _CHECKPOINT)

    def checkpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``original``, which saves, as a checkpoint; nested calls are part of the outer."""

        saving = _enclosed(original, self.open_checkpoint, self.close_checkpoint)

        def call(*args: Any, **kwargs: Any) -> Any:
            inner = any(entry.name == _CHECKPOINT for entry in self._stack)
            return (original if inner else saving)(*args, **kwargs)

        return call

    def _switch(self, section: Section | None, *exc_info: Any) -> None:
        old, self._open = self._open, None
        if old is not None:
            old.__exit__(*(exc_info or (None, None, None)))
        if section is not None:
            section.__enter__()
            self._open = section

    def _close_all(self) -> None:
        saving = any(entry.name == _CHECKPOINT for entry in self._stack)
        self._stack.clear()
        try:
            if saving:
                self.profiler.leave_phase(_CHECKPOINT)
            if self._outside and not self._in_setup:
                self.profiler.leave_phase("outside")
            self._switch(None)
            self.leave_container()
        except own_errors() as error:
            self.run.faults.add("integration_errors", "fastprof: closing failed", error)

    def is_under_way(self, key: object) -> bool:
        """Return whether the action ``key`` has begun and not ended."""
        return any(entry.key == key for entry in self._stack)

    def number_of(self, loader: Any, split: str) -> str:
        """Return ``loader0``, ``loader1``, ... for a loader without a name.

        Programs make new iterators in every epoch, so the number depends on ``loader.dataset``.
        A new dataset takes over the number of a dead one of the same type.
        """
        data = getattr(loader, "dataset", loader)
        known = self._numbered.setdefault(split, [])
        for test in (Holder.holds, Holder.is_free_for):
            for i, other in enumerate(known):
                if test(other, data):
                    known[i] = Holder(data)
                    return f"loader{i}"
        known.append(Holder(data))
        return f"loader{len(known) - 1}"

    def inside(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``original`` in section ``name``, inside the open section."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.muted or not self.alive:
                return original(*args, **kwargs)
            with self.section(name):
                return original(*args, **kwargs)

        return call

    def around(
        self, name: str, original: Callable[..., Any], *, late: bool = False
    ) -> Callable[..., Any]:
        """Return ``original`` in section ``name``; see :meth:`open` for ``late``."""
        begins = functools.partial(self.open, name=name, late=late)
        enclosed = _enclosed(original, begins, self.close)

        def call(*args: Any, **kwargs: Any) -> Any:
            return (original if self.muted else enclosed)(*args, **kwargs)

        return call


class _Switched(Part):
    """Lets the run switch the sections of a session."""

    kind = "integration"

    def __init__(self, session: Session) -> None:
        self._session = session

    def switch_sections(self, on: bool) -> bool:
        return self._session.switch(on)


class _NoSession(Session):
    """Before the first run: every hook does nothing."""

    def __init__(self) -> None:
        self.alive = self.muted = False
        self._outside = False
        self._stack: list[_Entry] = []
        self._container = None

    def stop(self) -> None:
        """Do nothing: there is no run."""


NO_SESSION: Session = _NoSession()


def _nothing() -> None:
    pass


def _enclosed(
    original: Callable[..., Any], begins: Callable[[object], None], ends: Callable[..., None]
) -> Callable[..., Any]:
    """Return ``original`` between ``begins(key)`` and ``ends(key, *exc_info)``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        key = object()
        begins(key)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            ends(key, *sys.exc_info())
            raise
        ends(key)
        return result

    return call


def _new_profiler(options: dict[str, Any]) -> Profiler:
    rank = options.pop("rank", None)
    try:
        profiler = Profiler(**options)
    except OSError as error:  # the directory existed when the options were checked
        profiler = Profiler(**{**options, "output": None})
        run_of(profiler).faults.add("save_errors", "fastprof: the run will not be saved", error)
    run_of(profiler).identity.of_trainer = rank
    return profiler


def _section_after(entry: _Entry, child: str) -> Section | None:
    """Return the section of ``entry`` to open after its child has ended."""
    if entry.late:
        # Between forward and backward of a closure the optimizer does nothing.
        again = child == "backward" or (child != "forward" and entry.was_open)
    else:
        again = entry.was_open
    return entry.section if again else None
