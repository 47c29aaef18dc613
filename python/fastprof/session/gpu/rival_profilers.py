"""Pauses for other profilers of this process that need the GPU's activity records.

CUPTI has one subscriber slot and one receiver of records per process. torch.profiler takes both at
its first profile, even with CPU activities alone, and if it fails to, it gets no GPU event in any
later one; Proton and JAX then fail to start.  So while one of them records, the GPU layer pauses.

Wrappers of the module attributes with which they begin and end notify it.  Nothing else changes for
the program: arguments, results and exceptions pass through unchanged.
"""

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fastprof.session.patching.replaced import Replaced
from fastprof.session.patching.wrapping import FAILED, After, Args, Before, Kwargs, wrap


class Told(Protocol):
    """What a watch tells; :class:`Conflicts` is one."""

    def hold(self, name: str) -> None:
        """Note that ``name`` is about to begin."""

    def release(self, name: str) -> None:
        """Note that ``name`` has ended."""


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
        self._watches: tuple[_Watch, ...] = (
            Torch(self),
            TorchMonitor(self),
            Proton(self),
            Jax(self),
        )

    @property
    def holder(self) -> str:
        """Name of the profiler that has the records now; empty if there is none."""
        return self._holders[0] if self._holders else ""

    def install(self) -> None:
        """Watch the profilers imported so far; cheap if nothing is new."""
        for watch in self._watches:
            watch.install()

    def uninstall(self) -> None:
        """Restore the modules' own functions; nothing is called from now on."""
        for watch in self._watches:
            watch.uninstall()
        self._holders = []

    def hold(self, name: str) -> None:
        """Note that ``name`` is about to begin."""
        with self._lock:
            self._holders.append(name)
            if len(self._holders) == 1:
                self._pause(name)

    def release(self, name: str) -> None:
        """Note that ``name`` has ended."""
        with self._lock:
            if name in self._holders:
                self._holders.remove(name)
                if not self._holders:
                    self._resume()


class _Watch:
    """One profiler: the functions of its modules with which it begins and ends."""

    name = ""
    #: All modules through which the functions are called.
    modules: tuple[str, ...] = ()

    def __init__(self, told: Told) -> None:
        self._told = told
        self._holding = False
        self._replaced = Replaced()

    def calls(self) -> Mapping[str, tuple[Before | None, After]]:
        """Return the callbacks before and after each of the functions."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Return whether the profiler has the records, by the calls observed so far."""
        raise NotImplementedError

    def adopt(self, module: Any) -> None:
        """Find out whether it was busy before the first observed call."""
        raise NotImplementedError

    def install(self) -> None:
        """Wrap the functions, if their modules are imported and complete."""
        if self._replaced:
            return
        modules = [sys.modules.get(name) for name in self.modules]
        calls = self.calls()
        if any(not hasattr(module, name) for module in modules for name in calls):
            return
        for name, (before, after) in calls.items():
            original = getattr(modules[0], name)
            wrapper = wrap(original, before, after)
            for module in modules:
                if getattr(module, name) is original:
                    self._replaced.put(module, name, wrapper)
        self.adopt(modules[0])
        if self.busy():
            self._hold()

    def uninstall(self) -> None:
        """Restore the functions, unless foreign functions replaced ours since."""
        self._replaced.restore()
        self._holding = False

    def _hold(self, args: Args = (), kwargs: Kwargs | None = None) -> None:
        # A wrapper can outlive uninstall() if the program has kept it.
        if self._replaced and not self._holding:
            self._holding = True
            self._told.hold(self.name)

    def _settle(self) -> None:
        if self._holding and not self.busy():
            self._holding = False
            self._told.release(self.name)


class Torch(_Watch):
    """``torch.profiler`` and ``torch.autograd.profiler.profile``.

    Each window calls prepare, enable and disable; a window inside another one is allowed.
    ``emit_nvtx`` and ``emit_itt`` call enable and disable, with no activities, and leave
    CUPTI alone.
    """

    name = "torch.profiler"
    modules = ("torch.autograd.profiler",)

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self._prepared = False
        self._windows: list[bool] = []  # of those enabled: does it use CUPTI

    def calls(self) -> Mapping[str, tuple[Before | None, After]]:
        return {
            "_prepare_profiler": (self._prepare, self._was_prepared),
            "_enable_profiler": (self._enable, self._was_enabled),
            "_disable_profiler": (None, self._was_disabled),
        }

    def busy(self) -> bool:
        return self._prepared or any(self._windows)

    def adopt(self, module: Any) -> None:
        self._prepared = False
        self._windows = [True] if getattr(module, "_is_profiler_enabled", False) else []

    def _prepare(self, args: Args, kwargs: Kwargs) -> None:
        self._hold()
        self._prepared = True

    def _was_prepared(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        if result is FAILED:
            self._prepared = False
        self._settle()

    def _enable(self, args: Args, kwargs: Kwargs) -> None:
        uses_cupti = bool(kwargs.get("activities", args[1:2] and args[1]))
        if uses_cupti:
            self._hold()
            self._prepared = False
        self._windows.append(uses_cupti)

    def _was_enabled(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        if result is FAILED:
            self._was_disabled(args, kwargs, result)

    def _was_disabled(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        if self._windows:
            self._windows.pop()
        self._settle()


class TorchMonitor(_Watch):
    """torch's monitor of CUPTI, an experimental backend of ``torch.profiler``.

    There is one per process, and it may run without any ``torch.profiler``.
    """

    name = "torch.profiler's CUPTI monitor"
    modules = ("torch.profiler._cupti_monitor",)

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self._monitor: Any = None  # torch's module

    def calls(self) -> Mapping[str, tuple[Before | None, After]]:
        return {
            "start_collection": (self._hold, self._settled),
            "stop_collection": (None, self._settled),
        }

    def busy(self) -> bool:
        return getattr(self._monitor, "_monitor_singleton", None) is not None

    def adopt(self, module: Any) -> None:
        self._monitor = module

    def _settled(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        self._settle()


class Proton(_Watch):
    """Triton's profiler: numbered sessions, which can be deactivated temporarily."""

    name = "triton.profiler"
    modules = ("triton.profiler.profile", "triton.profiler")

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self._sessions: set[Any] = set()
        self._active: set[Any] = set()

    def calls(self) -> Mapping[str, tuple[Before | None, After]]:
        return {
            "start": (self._start, self._was_started),
            "activate": (self._activate, self._was_activated),
            "deactivate": (None, self._was_deactivated),
            "finalize": (None, self._was_finalized),
        }

    def busy(self) -> bool:
        return bool(self._active)

    def adopt(self, module: Any) -> None:
        # Sessions that were started before cannot be seen.
        self._sessions.clear()
        self._active.clear()

    def _start(self, args: Args, kwargs: Kwargs) -> None:
        if _uses_cupti(kwargs):
            self._hold()

    def _was_started(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        # None: the call did nothing.
        if result is not FAILED and result is not None and _uses_cupti(kwargs):
            self._sessions.add(result)
            self._active.add(result)
        self._settle()

    def _activate(self, args: Args, kwargs: Kwargs) -> None:
        if self._named(args, kwargs):
            self._hold()

    def _was_activated(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        if result is not FAILED:
            self._active |= self._named(args, kwargs)
        self._settle()

    def _was_deactivated(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        self._active -= self._named(args, kwargs)
        self._settle()

    def _was_finalized(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        ended = self._named(args, kwargs)
        self._active -= ended
        self._sessions -= ended
        self._settle()

    def _named(self, args: Args, kwargs: Kwargs) -> set[Any]:
        """Return the sessions of a call; without an argument it means all."""
        session = args[0] if args else kwargs.get("session")
        return set(self._sessions) if session is None else {session} & self._sessions


def _uses_cupti(kwargs: Kwargs) -> bool:
    return kwargs.get("backend") in (None, "cupti")


class Jax(_Watch):
    """``jax.profiler.start_trace`` and its ends; one trace at a time."""

    name = "jax.profiler"
    modules = ("jax._src.profiler", "jax.profiler")

    def __init__(self, told: Told) -> None:
        super().__init__(told)
        self._tracing = False

    def calls(self) -> Mapping[str, tuple[Before | None, After]]:
        return {
            "start_trace": (self._hold, self._was_started),
            "stop_trace": (None, self._was_stopped),
        }

    def busy(self) -> bool:
        return self._tracing

    def adopt(self, module: Any) -> None:
        state = getattr(module, "_profile_state", None)
        self._tracing = getattr(state, "profile_session", None) is not None

    def _was_started(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        if result is not FAILED:
            self._tracing = True
        self._settle()

    def _was_stopped(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        self._tracing = False
        self._settle()
