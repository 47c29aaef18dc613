"""What each intervention does in the process of a run.

``edit`` is for those that change arguments of calls; the others are functions with the
intervention's name.
"""

import atexit
import copy
import functools
import gc
import logging
import os
import queue
import sys
import threading
from collections import deque
from contextlib import nullcontext
from typing import Any

from fastprof.guards import own_errors
from fastprof.trial.changes import THREADS, Changes, Edit
from fastprof.trial.model import Values


def edit(name: str, values: Values) -> Edit:
    """Return what changes the arguments of a call for the intervention ``name``."""
    return functools.partial(_edit, name, values)


#: What torch refuses with the new arguments, and the values with which it does not.
_REFUSED: dict[str, dict[str, Any]] = {
    "fused": {"foreach": False},
    "no-workers": {"prefetch_factor": None, "persistent_workers": False, "timeout": 0,
                   "multiprocessing_context": None},
}  # fmt: skip


def _edit(name: str, values: Values, given: dict[str, Any]) -> bool:
    workers = given.get("num_workers") or 0
    if name in ("no-workers", "persistent", "prefetch") and not workers:
        return False
    if name == "workers" and workers >= values["num_workers"]:
        return False
    changed = any(given.get(key) != value for key, value in values.items())
    given.update(values)
    given.update({key: value for key, value in _REFUSED.get(name, {}).items() if key in given})
    return changed


def threads(changes: Changes, name: str, values: Values) -> None:
    """Let torch use so many threads, whatever the program asks for."""

    def as_wanted(given: dict[str, Any]) -> bool:
        given[next(iter(given))] = values["threads"]
        return True

    changes.with_torch(name, lambda torch: torch.set_num_threads(values["threads"]))
    changes.edit(name, (THREADS,), as_wanted)


def thresholds(changes: Changes, name: str, values: Values) -> None:
    """Let the collector run less often, from the first step on."""
    changes.at_first_step(name, lambda: gc.set_threshold(*values["thresholds"]))


def freeze(changes: Changes, name: str, values: Values) -> None:
    """Leave the objects that exist after the first step out of collections."""

    def begin() -> None:
        gc.collect()
        gc.freeze()

    changes.at_first_step(name, begin)


#: Where handlers are whose way to write is known; others may do more than that.
_WRITES = ("logging", "logging.handlers")
#: The attribute of a handler with the records that wait for the writer.
_WAITING = "_fastprof_waiting"


def queued_logging(changes: Changes, name: str, values: Values) -> None:
    """Let a thread write what handlers of logging with a stream or file write.

    The program does not wait for a write, as with a QueueHandler: it does not take the handler's
    lock, which the writer holds meanwhile.
    """
    #: A handler for each record that waits, in their order.
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    process = os.getpid()

    def write() -> None:
        while (handler := waiting.get()) is not None:
            _write(handler, 1)

    writer = threading.Thread(target=write, name="fastprof-log", daemon=True)
    handle = logging.StreamHandler.handle

    @functools.wraps(handle)
    def queued(handler: Any, record: Any) -> Any:
        writes = getattr(handler.emit, "__module__", None) in _WRITES
        # A forked process has no writer.
        if not writes or threading.current_thread() is writer or not writer.is_alive():
            return handle(handler, record)
        passed = handler.filter(record)
        if not passed:
            return passed
        record = passed if isinstance(passed, logging.LogRecord) else record
        later = copy.copy(record)
        try:  # as QueueHandler.prepare(): the program may change the arguments later
            later.msg = record.getMessage()
        except own_errors():  # reporting that is the handler's task
            with handler.lock or nullcontext():
                handler.emit(record)
            return passed
        later.args = None
        vars(handler).setdefault(_WAITING, deque()).append(later)
        waiting.put(handler)
        changes.count(name)
        return passed

    def finish() -> None:
        if os.getpid() != process:
            return
        waiting.put(None)
        writer.join(10.0)
        while not writer.is_alive() and not waiting.empty():  # another thread logs meanwhile
            if (handler := waiting.get()) is not None:
                _write(handler, 1)

    changes.replace(logging.StreamHandler, "handle", queued)
    for kind, method in (
        (logging.StreamHandler, "close"),
        (logging.FileHandler, "close"),
        (logging.StreamHandler, "setStream"),
    ):
        _write_before(changes, kind, method, process)
    writer.start()
    atexit.register(finish)


def _write(handler: Any, most: int = sys.maxsize) -> None:
    """Write records that wait for the writer; they may have been written since."""
    with handler.lock or nullcontext():
        waiting = vars(handler).get(_WAITING, ())
        for _ in range(min(most, len(waiting))):  # others may log meanwhile
            handler.emit(waiting.popleft())


def _write_before(changes: Changes, kind: Any, method: str, process: int) -> None:
    """Let a method of handlers write what waits first: whoever calls it may hold the lock."""
    original = getattr(kind, method)

    @functools.wraps(original)
    def after_writing(handler: Any, *args: Any, **kwargs: Any) -> Any:
        with handler.lock or nullcontext():
            if os.getpid() == process:  # a forked process leaves it to its parent
                _write(handler)
            return original(handler, *args, **kwargs)

    changes.replace(kind, method, after_writing)


def non_blocking(changes: Changes, name: str, values: Values) -> None:
    """Let copies to the GPU return at once."""

    def begin(torch: Any) -> bool:
        for method in ("to", "cuda"):
            original = getattr(torch.Tensor, method)

            def moved(
                self: Any, *args: Any, _original: Any = original, _name: str = method, **kwargs: Any
            ) -> Any:
                target = [*args[:1], kwargs.get("device")]
                to_gpu = _name == "cuda" or any("cuda" in str(one) for one in target)
                copies = to_gpu and self.device.type == "cpu" and len(args) < 2
                if copies and kwargs.setdefault("non_blocking", True):
                    changes.count(name)
                return _original(self, *args, **kwargs)

            changes.replace(torch.Tensor, method, functools.wraps(original)(moved))
        return False

    changes.with_torch(name, begin)


def cudnn_benchmark(changes: Changes, name: str, values: Values) -> None:
    """Let cuDNN choose its convolutions by measuring."""
    changes.with_torch(name, lambda torch: setattr(torch.backends.cudnn, "benchmark", True))


def tf32(changes: Changes, name: str, values: Values) -> None:
    """Let matrix products use TF32."""
    changes.with_torch(name, lambda torch: torch.set_float32_matmul_precision("high"))


def compile(changes: Changes, name: str, values: Values) -> None:  # noqa: A001 - its name
    """Compile the first module that is called while training: the model."""
    _to_model(changes, name, lambda torch, module: module.compile())


def bf16(changes: Changes, name: str, values: Values) -> None:
    """Compute the model's forward in bfloat16."""

    def change(torch: Any, module: Any) -> None:
        # In the class: a copy of the model must not call this one, and can be saved.
        owner = module if "forward" in vars(module) else type(module)
        autocast = torch.autocast(values["device"], dtype=torch.bfloat16)
        changes.replace(owner, "forward", autocast(owner.forward))

    _to_model(changes, name, change)


def _to_model(changes: Changes, name: str, change: Any) -> None:
    def begin(torch: Any) -> bool:
        modules = sys.modules["torch.nn.modules.module"]
        handles: list[Any] = []

        def first_call(module: Any, args: Any) -> None:
            # A loss has no parameters.
            if handles and module.training and next(module.parameters(), None) is not None:
                handles.pop().remove()
                change(torch, module)
                changes.count(name)

        handles.append(modules.register_module_forward_pre_hook(first_call))
        return False

    changes.with_torch(name, begin)
