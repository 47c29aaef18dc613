"""Splits the GPU's memory into parameters, gradients and optimizer state.

Optimizers are observed when they step, through torch's hook on all of them.  A gradient is as large
as its parameter, so it counts even if it does not exist at the moment.
"""

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from fastprof.guards import own_errors
from fastprof.session.patching.compiling import compiling_test


class OptimizerMemory:
    """Watches optimizers of torch for one run.

    Args:
        fail: receives the error; nothing is watched after one.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._remove: Callable[[], object] | None = None
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._sizes: tuple[int, int, int] | None = None
        #: The device whose memory counts; None: not yet known.
        self.device: int | None = None

    def watch(self) -> None:
        """Begin, if the program has torch with CUDA by now; do nothing the second time."""
        torch, module = sys.modules.get("torch"), sys.modules.get("torch.optim.optimizer")
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if self._remove is not None or register is None or _is_cpu_build(torch):
            return
        compiling = compiling_test(torch)

        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not compiling():
                self._stepped(optimizer)

        self._remove = register(after_step).remove

    def end(self) -> None:
        """Stop watching; keep the results."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()

    def sizes(self) -> tuple[int, int, int] | None:
        """Return bytes of parameters, gradients and state; None if nothing is known."""
        return self._sizes

    def _stepped(self, optimizer: Any) -> None:
        try:
            steps = self._seen.get(optimizer, 0) + 1
            self._seen[optimizer] = steps
            # Occasionally is enough, because they rarely change: after steps 1, 2, 4, 8, ...
            if self.device is not None and not steps & (steps - 1):
                self._sizes = sizes(list(self._seen), self.device)
        except own_errors() as error:  # nothing may reach the training code
            self.end()
            self._fail(error)


def _is_cpu_build(torch: Any) -> bool:
    return getattr(getattr(torch, "version", None), "cuda", None) is None


def sizes(optimizers: Iterable[Any], device: int) -> tuple[int, int, int]:
    """Return bytes of parameters, of their gradients and of state on a CUDA device."""
    parameters: dict[int, Any] = {}
    states: dict[int, Any] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            parameters.update((id(p), p) for p in group["params"])
        for state in optimizer.state.values():
            held = state.values() if isinstance(state, dict) else ()
            states.update((id(t), t) for t in held if hasattr(t, "element_size"))
    here = [p for p in parameters.values() if _is_on(p, device)]
    return (
        sum(map(_bytes, here)),
        sum(_bytes(p) for p in here if p.requires_grad),
        sum(_bytes(t) for i, t in states.items() if i not in parameters and _is_on(t, device)),
    )


def _is_on(tensor: Any, device: int) -> bool:
    return bool(tensor.is_cuda and tensor.device.index == device)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
