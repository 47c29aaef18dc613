"""Uses torch.profiler only where torch survives it.

A session of torch.profiler belongs to the thread that began it.  Backward calls the program's hooks
in a copy of the thread's state and drops the copy at its end: a session that begins there is lost,
and one that ends there stays in the thread although it is over.  All sessions of a process share
one collector, which the latest takes.  torch crashes if a session ends without its collector, and
if the results of one that ended elsewhere are written.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

from fastprof.session.operators.torch_profile import one_cycle, start_quietly
from fastprof.session.operators.user_profiler import ForeignProfiler
from fastprof.session.patching.wrapping import wrap


def in_backward() -> bool:
    """Return whether autograd runs in this thread: this code is in a hook, or in its backward."""
    # None before torch 2.1: there the test for a live session must do.
    ask = getattr(sys.modules.get("torch._C"), "_current_graph_task_id", None)
    return ask is not None and ask() != -1


class Session:
    """The session of a window.

    Args:
        profile: the new ``torch.profiler.profile``; None: the window has none, because it is lost.
        foreign: watches the program's sessions, which take the collector.
    """

    def __init__(self, profile: Any, foreign: ForeignProfiler) -> None:
        self._profile = profile
        self._foreign = foreign
        # Not the thread's number, which a later thread may get.
        self._thread = threading.local()
        self._taken = False  # its collector is another session's
        self._hushed = False

    def start(self) -> None:
        """Begin, outside of backward."""
        self._thread.is_mine = True
        with self._foreign.own():
            start_quietly(self._profile)

    @property
    def is_my_thread(self) -> bool:
        """Whether this is the thread that began it."""
        return self._profile is None or hasattr(self._thread, "is_mine")

    @property
    def may_end(self) -> bool:
        """Whether it may go on or end now, in this thread."""
        if self._taken and self._foreign.active:
            return False
        return self._profile is None or (self.is_my_thread and not in_backward())

    def step(self, count: int) -> None:
        """Begin step number ``count``; only if :attr:`may_end`."""
        if self._taken:
            self.stop()
        elif self._profile is not None:
            self._profile.step_num = count - 1  # steps may have ended where it could not go on
            with self._foreign.own():
                self._profile.step()

    def stop(self, *, failed: bool = False) -> Any:
        """End it, if it may end; return the finished profile, None if it has no results.

        ``failed``: it raised, or did not begin.
        """
        profile = self._profile
        if profile is None or not self.may_end:
            return None
        live = is_live()
        with self._foreign.own():
            if live and self._taken:
                self._prepare()
            if live or not (failed or self._taken or _records(profile)):
                profile.stop()
        self._profile = None
        has_results = getattr(profile.profiler, "kineto_results", None) is not None
        return profile if has_results and not self._taken else None

    def take_collector(self) -> None:
        """Let it have no collector; in a thread where torch has no session."""
        if not self._taken and not is_live():
            self._taken = True
            self._prepare()

    def _prepare(self) -> None:
        """Prepare a session: it has the collector, and none that records has it."""
        with self._foreign.own(), one_cycle(self._profile):
            self._profile.prepare_trace()

    def give_way(self) -> None:
        """End because the program begins a session, in this thread or another one."""
        profile = self._profile
        if profile is not None and self.is_my_thread and is_live():
            if self._hushed:
                _autograd()._disable_profiler()
                _autograd()._enable_record_function(True)
            else:
                # Even in backward, whose copy has this session: torch refuses a second one.
                with self._foreign.own():
                    if self._taken:
                        self._prepare()
                    profile.stop()
            if not in_backward():
                self._profile = None
        self._taken = True

    def hush(self) -> None:
        """Record no more operators of this thread, in a forked child.

        torch would record until the child ends.  Ending the session there takes long, and may wait
        for a GPU; :meth:`give_way` does it if the child begins its own.
        """
        if self._profile is not None and hasattr(self._thread, "is_mine") and is_live():
            _autograd()._enable_record_function(False)
            self._hushed = True


class BackwardEnds:
    """Calls ``ended`` whenever a call of autograd has ended, from :meth:`watch` on."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._replaced: list[tuple[str, Any, Any]] = []

    def watch(self) -> None:
        """Wrap torch's functions, if they are not wrapped yet."""
        if self._replaced:
            return
        # Called by each user of autograd, and by no other hooks of fastprof.
        for name in ("backward", "grad"):
            original = getattr(_autograd(), name)
            wrapper = wrap(original, None, lambda args, kwargs, result: self._ended())
            setattr(_autograd(), name, wrapper)
            self._replaced.append((name, original, wrapper))

    def forget(self) -> None:
        """Restore them, unless foreign functions replaced ours since."""
        for name, original, wrapper in self._replaced:
            if getattr(_autograd(), name) is wrapper:
                setattr(_autograd(), name, original)
        self._replaced.clear()


def _autograd() -> Any:
    return sys.modules["torch.autograd"]


def is_live() -> bool:
    """Return whether torch has a session in this thread."""
    return bool(_autograd()._profiler_enabled())


def _records(profile: Any) -> bool:
    """Return whether its warm-up is over."""
    return str(profile.current_action.name) != "WARMUP"
