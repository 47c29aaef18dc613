"""Makes way for other profilers of this process that need the GPU's activity records.

CUPTI has one subscriber slot and one receiver of records per process.  torch.profiler
takes both at its first profile, with CPU activities alone as well, and gets no GPU event
in any later one if it could not; Proton and JAX fail to start.  So while one of them is
about to record, the GPU layer is paused.

It is told by wrapping the module attributes through which they begin and end.  Nothing
else changes for the program: arguments, results and exceptions are passed on as they are.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

_Function = Callable[..., Any]
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]
#: Called in place of a function of another profiler, which is the first argument.
_Around = Callable[[_Function, _Args, _Kwargs], Any]


class Conflicts:
    """Calls ``pause`` before the first of them begins and ``resume`` after the last ended.

    Args:
        pause: called with the name of the profiler; must not raise.
        resume: called without arguments; must not raise.
    """

    def __init__(self, pause: Callable[[str], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        # Recursive: a signal handler may start or stop a profiler while this one does.
        self._lock = threading.RLock()
        self._holders: list[str] = []
        self._watches: tuple[_Watch, ...] = (Torch(self), Proton(self), Jax(self))

    @property
    def holder(self) -> str:
        """Name of the profiler that has the records now; empty if there is none."""
        return self._holders[0] if self._holders else ""

    def install(self) -> None:
        """Watch those profilers that are imported by now; cheap if nothing is new."""
        for watch in self._watches:
            watch.install()

    def uninstall(self) -> None:
        """Give the modules their own functions back; nothing is called from now on."""
        for watch in self._watches:
            watch.uninstall()
        self._holders = []

    def hold(self, name: str) -> None:
        """``name`` is about to begin."""
        with self._lock:
            self._holders.append(name)
            if len(self._holders) == 1:
                self._pause(name)

    def release(self, name: str) -> None:
        """``name`` has ended."""
        with self._lock:
            if name in self._holders:
                self._holders.remove(name)
                if not self._holders:
                    self._resume()


class _Watch:
    """One profiler: which functions of which modules say when it begins and ends."""

    name = ""
    #: All modules through which the functions are called.
    modules: tuple[str, ...] = ()

    def __init__(self, conflicts: Conflicts) -> None:
        self._conflicts = conflicts
        self._holding = False
        # (module, attribute, what it was, what it is now)
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def around(self) -> Mapping[str, _Around]:
        """Return what stands for each function."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Whether the profiler has the records, as far as the calls seen so far tell."""
        raise NotImplementedError

    def adopt(self, module: Any) -> None:
        """Find out whether it was busy before the first call was seen."""

    def install(self) -> None:
        """Wrap the functions, if their modules are imported and complete."""
        if self._replaced:
            return
        modules = [sys.modules.get(name) for name in self.modules]
        wanted = self.around()
        if any(not hasattr(module, name) for module in modules for name in wanted):
            return
        for name, around in wanted.items():
            original = getattr(modules[0], name)
            wrapper = _wrap(original, around)
            for module in modules:
                if getattr(module, name) is original:
                    setattr(module, name, wrapper)
                    self._replaced.append((module, name, original, wrapper))
        self.adopt(modules[0])
        if self.busy():
            self._hold()

    def uninstall(self) -> None:
        """Put the functions back, but not over what somebody else has put there since."""
        replaced, self._replaced = self._replaced, []
        for module, name, original, wrapper in replaced:
            if getattr(module, name, None) is wrapper:
                setattr(module, name, original)
        self._holding = False

    def _hold(self) -> None:
        # A wrapper can outlive uninstall() where the program has kept it.
        if self._replaced and not self._holding:
            self._holding = True
            self._conflicts.hold(self.name)

    def _settle(self) -> None:
        if self._holding and not self.busy():
            self._holding = False
            self._conflicts.release(self.name)


def _wrap(original: _Function, around: _Around) -> _Function:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(original, args, kwargs)

    return call


class Torch(_Watch):
    """``torch.profiler`` and ``torch.autograd.profiler.profile``.

    Each window calls prepare, enable and disable; a window inside another one is allowed.
    ``emit_nvtx`` and ``emit_itt`` call enable and disable, with no activities, and leave
    CUPTI alone.
    """

    name = "torch.profiler"
    modules = ("torch.autograd.profiler",)

    def __init__(self, conflicts: Conflicts) -> None:
        super().__init__(conflicts)
        self._prepared = False
        self._enabled: list[bool] = []  # of each window: is it one that uses CUPTI

    def around(self) -> Mapping[str, _Around]:
        return {
            "_prepare_profiler": self._prepare,
            "_enable_profiler": self._enable,
            "_disable_profiler": self._disable,
        }

    def busy(self) -> bool:
        return self._prepared or any(self._enabled)

    def adopt(self, module: Any) -> None:
        self._prepared = False
        self._enabled = [True] if getattr(module, "_is_profiler_enabled", False) else []

    def _prepare(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        self._hold()
        self._prepared = True
        try:
            return original(*args, **kwargs)
        except BaseException:
            self._prepared = False
            self._settle()
            raise

    def _enable(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        uses_cupti = bool(kwargs.get("activities", args[1:2] and args[1]))
        if uses_cupti:
            self._hold()
            self._prepared = False
        self._enabled.append(uses_cupti)
        try:
            return original(*args, **kwargs)
        except BaseException:
            self._leave()
            raise

    def _disable(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._enabled:
            self._enabled.pop()
        self._settle()


class Proton(_Watch):
    """Triton's profiler: sessions with numbers, which can be deactivated meanwhile."""

    name = "triton.profiler"
    modules = ("triton.profiler.profile", "triton.profiler")

    def __init__(self, conflicts: Conflicts) -> None:
        super().__init__(conflicts)
        self._sessions: set[Any] = set()
        self._active: set[Any] = set()

    def around(self) -> Mapping[str, _Around]:
        return {
            "start": self._start,
            "activate": self._activate,
            "deactivate": self._deactivate,
            "finalize": self._finalize,
        }

    def busy(self) -> bool:
        return bool(self._active)

    def adopt(self, module: Any) -> None:
        # Sessions that were started before cannot be seen.
        self._sessions.clear()
        self._active.clear()

    def _start(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        if kwargs.get("backend") not in (None, "cupti"):
            return original(*args, **kwargs)
        self._hold()
        try:
            session = original(*args, **kwargs)
            if session is not None:  # None: the call did nothing
                self._sessions.add(session)
                self._active.add(session)
            return session
        finally:
            self._settle()

    def _activate(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        named = self._named(args, kwargs)
        if named:
            self._hold()
        try:
            result = original(*args, **kwargs)
            self._active |= named
            return result
        finally:
            self._settle()

    def _deactivate(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            self._active -= self._named(args, kwargs)
            self._settle()

    def _finalize(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            named = self._named(args, kwargs)
            self._active -= named
            self._sessions -= named
            self._settle()

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[Any]:
        """Return the sessions that a call means; without an argument it means all."""
        session = args[0] if args else kwargs.get("session")
        return set(self._sessions) if session is None else {session} & self._sessions


class Jax(_Watch):
    """``jax.profiler.start_trace`` and what ends it; one trace at a time."""

    name = "jax.profiler"
    modules = ("jax._src.profiler", "jax.profiler")

    def __init__(self, conflicts: Conflicts) -> None:
        super().__init__(conflicts)
        self._tracing = False

    def around(self) -> Mapping[str, _Around]:
        return {"start_trace": self._start, "stop_trace": self._stop}

    def busy(self) -> bool:
        return self._tracing

    def adopt(self, module: Any) -> None:
        state = getattr(module, "_profile_state", None)
        self._tracing = getattr(state, "profile_session", None) is not None

    def _start(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        self._hold()
        try:
            result = original(*args, **kwargs)
            self._tracing = True
            return result
        finally:
            self._settle()

    def _stop(self, original: _Function, args: _Args, kwargs: _Kwargs) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            self._tracing = False
            self._settle()
