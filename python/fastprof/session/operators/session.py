"""Uses torch.profiler only where torch survives it.

A session of torch.profiler belongs to the thread that began it.  Backward calls the program's hooks
in a copy of the thread's state and drops the copy at its end: a session that begins there is lost,
and one that ends there stays in the thread although it is over.  All sessions of a process share
one collector, which the latest takes.  torch crashes if a session ends without its collector, and
if the results of one that ended elsewhere are written.  It writes the end of a ``record_function``
into the memory of the session in which it began, also if that has ended and its memory is free.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

from fastprof.guards import dropped
from fastprof.session.operators.forked_exit import let_children_exit
from fastprof.session.operators.torch_profile import one_cycle, start_quietly
from fastprof.session.operators.user_profiler import ForeignProfiler
from fastprof.session.patching.replaced import Replaced
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
        blocks: knows the blocks that have to end first.
    """

    def __init__(self, profile: Any, foreign: ForeignProfiler, blocks: "OpenBlocks") -> None:
        self._profile = profile
        self._foreign = foreign
        self._blocks = blocks
        # Not the thread's number, which a later thread may get.
        self._thread = threading.local()
        self._taken = False  # its collector is another session's
        self._hushed = False

    def start(self) -> None:
        """Begin, outside of backward."""
        self._thread.is_mine = True
        let_children_exit()
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
                self._end_blocks()
                profile.stop()
        self._profile = None
        has_results = getattr(profile.profiler, "kineto_results", None) is not None
        return profile if has_results and not self._taken else None

    def _end_blocks(self) -> None:
        self._blocks.end()
        # It is one of them; torch fails to end it, and the session, if it has not begun.
        self._profile.step_rec_fn = None

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
            self._end_blocks()
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
        self._wrappers = Replaced()

    def watch(self) -> None:
        """Wrap torch's functions, if they are not wrapped yet."""
        if self._wrappers:
            return
        # Called by each user of autograd, and by no other hooks of fastprof.
        for name in ("backward", "grad"):
            original = getattr(_autograd(), name)
            self._wrappers.put(
                _autograd(), name, wrap(original, None, lambda args, kwargs, result: self._ended())
            )

    def forget(self) -> None:
        """Restore torch's functions."""
        self._wrappers.restore()


class OpenBlocks:
    """The blocks of ``record_function`` that began in a session and are open, per thread.

    ``Optimizer.step`` is such a block, and its hooks end a step.  The program has others.
    """

    def __init__(self) -> None:
        self._here = threading.local()
        self._wrappers = Replaced()

    def watch(self) -> None:
        """Notice blocks from now on."""
        if not self._wrappers:
            block = sys.modules["torch.autograd.profiler"].record_function
            # Noted before it begins: an exception from outside may come just after.
            began = wrap(block.__enter__, self._begins, lambda args, kwargs, result: None)
            self._wrappers.put(block, "__enter__", began)
            self._wrappers.put(block, "__exit__", wrap(block.__exit__, None, self._left))

    def forget(self) -> None:
        """Restore torch's functions."""
        self._wrappers.restore()

    def end(self) -> None:
        """End those of this thread, the innermost first; their second end does nothing."""
        for block in self._open()[::-1]:
            with dropped():
                block.__exit__(None, None, None)
        self._open().clear()

    def _open(self) -> list[Any]:
        blocks: list[Any] = self._here.__dict__.setdefault("blocks", [])
        return blocks

    def _begins(self, args: Any, kwargs: Any) -> None:
        if is_live():
            self._open().append(args[0])

    def _left(self, args: Any, kwargs: Any, result: Any) -> None:
        blocks = self._open()
        # By identity, the latest: a block may be entered again in itself.
        for i in range(len(blocks) - 1, -1, -1):
            if blocks[i] is args[0]:
                del blocks[i]
                return


def _autograd() -> Any:
    return sys.modules["torch.autograd"]


def is_live() -> bool:
    """Return whether torch has a session in this thread."""
    return bool(_autograd()._profiler_enabled())


def _records(profile: Any) -> bool:
    """Return whether its warm-up is over."""
    return str(profile.current_action.name) != "WARMUP"
