"""What each intervention does in the process of a run.

``edit`` is for those that change arguments of calls; the others are functions with the
intervention's name.
"""

import atexit
import copy
import functools
import gc
import logging
import queue
import sys
import threading
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


def queued_logging(changes: Changes, name: str, values: Values) -> None:
    """Let a thread write what handlers of logging with a stream or file write."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def write() -> None:
        while (item := waiting.get()) is not None:
            real, handler, record = item
            with handler.lock or nullcontext():  # as Handler.handle(): it may be closed meanwhile
                real(handler, record)

    writer = threading.Thread(target=write, name="fastprof-log", daemon=True)

    def finish() -> None:
        waiting.put(None)
        writer.join(10.0)

    for kind in (logging.StreamHandler, logging.FileHandler):
        _queue_emits(changes, name, kind, waiting, writer)
    writer.start()
    atexit.register(finish)


def _queue_emits(changes: Changes, name: str, kind: Any, waiting: Any, writer: Any) -> None:
    real = kind.emit

    @functools.wraps(real)
    def emit(handler: Any, record: Any) -> None:
        # A forked process has no writer.
        if threading.current_thread() is writer or not writer.is_alive():
            real(handler, record)
            return
        queued = copy.copy(record)
        try:  # as QueueHandler.prepare(): the program may change the arguments later
            queued.msg = record.getMessage()
        except own_errors():  # reporting that is the handler's task
            real(handler, record)
            return
        queued.args = None
        changes.count(name)
        waiting.put((real, handler, queued))

    changes.replace(kind, "emit", emit)


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
