"""Detects the modules that a program trains from how it uses them."""

import sys
import weakref
from collections.abc import Iterable
from itertools import islice
from typing import Any

from fastprof.guards import own_errors

#: Attributes in which wrappers (DDP, compiled modules) keep the wrapped module.
WRAPPED = ("module", "_orig_mod", "_fsdp_wrapped_module")

#: Number of values of a model's output to search for a loss.
_LOOKED_AT = 8


def unwrap(module: Any) -> Any:
    """Return the program's module inside of wrappers."""
    for _ in range(8):
        inner = module.__dict__.get("_modules")
        wrapped = [inner[name] for name in WRAPPED if name in inner] if inner else []
        if not wrapped or wrapped[0] is None:
            break
        module = wrapped[0]
    return module


def _largest(module: Any, path: str, held: set[int]) -> tuple[str, int]:
    """Return the largest module at or below ``module`` with no parameter in ``held``, and its size.

    Only parameters that require gradients count.
    """
    graded = [p for p in module.parameters() if p.requires_grad]
    if held.isdisjoint(map(id, graded)):
        kind = type(module).__name__
        return f"{path} ({kind})" if path else kind, sum(p.numel() for p in graded)
    below = (
        _largest(child, f"{path}.{name}" if path else name, held)
        for name, child in module.named_children()
    )
    return max(below, key=lambda pair: pair[1], default=("", 0))


def has_loss(output: Any) -> bool:
    """Return whether the output has a loss: a single number where backward can begin.

    The look calls no property and no method of the program's classes, which may compute the loss.
    """
    # One function, not any() nor a second one: a step may have hundreds of calls.
    try:
        torch = sys.modules["torch"]
        tensor, kind = torch.Tensor, type(output)
        values: Iterable[Any]
        if issubclass(kind, tensor):
            values = (output,)
        elif issubclass(kind, tuple):
            values = tuple.__getitem__(output, slice(_LOOKED_AT))
        elif issubclass(kind, list):
            values = list.__getitem__(output, slice(_LOOKED_AT))
        elif issubclass(kind, dict):
            values = islice(dict.values(output), _LOOKED_AT)
        else:
            values = (object.__getattribute__(output, "__dict__").get("loss"),)
        for value in values:
            if type(value) is tensor:
                if value.dim() == 0 and value.requires_grad:
                    return True
            elif issubclass(type(value), tensor):
                # Its __torch_function__ is the program's.
                with torch._C.DisableTorchFunctionSubclass():
                    if value.dim() == 0 and value.requires_grad:
                        return True
    except own_errors():  # no attributes, or no plain tensor
        pass
    return False


def has_optimizers() -> bool:
    """Return whether the program has ever made an optimizer of torch."""
    module = sys.modules.get("torch.optim.optimizer")
    classes = [] if module is None else [module.Optimizer]
    for cls in classes:
        # torch sets it when the first optimizer of a class is made.
        if getattr(vars(cls).get("step"), "hooked", False):
            return True
        classes += cls.__subclasses__()
    return False


def has_compiled() -> bool:
    """Return whether ``torch.compile`` has compiled a function of the program."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    try:
        return counters is not None and counters["frames"]["ok"] > 0
    except own_errors():  # another form in another torch
        return False


def _refused(groups: Any) -> str:
    for group in groups:
        if group.get("differentiable"):
            return "differentiable=True"
        for parameter in group["params"]:
            if parameter.is_complex():
                return "complex parameters"
            if parameter.grad is not None and parameter.grad.is_sparse:
                return "sparse gradients"
    return ""


class Models:
    """The trained modules and their modes.

    Args:
        knows_optimizers: the program had no optimizer before, so all are seen.
    """

    def __init__(self, *, knows_optimizers: bool = True) -> None:
        # Outermost modules that were called with gradients on, until :meth:`untrained` looks.
        self._graded: weakref.WeakSet[Any] | None = weakref.WeakSet()
        #: Whether all optimizers are known, not only those that were made or have stepped since.
        self.knows_optimizers = knows_optimizers
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._looked_at: weakref.WeakSet[Any] = weakref.WeakSet()
        # Whether each module was in training mode when it was last trained.
        self._modes: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        #: The last trained module, and whether it was in training mode.
        self.trained: weakref.ref[Any] | None = None
        self.trained_mode = True
        # Its successor.
        self._candidate: weakref.ref[Any] | None = None
        #: A module that may be the trained one was called since the last backward.
        self.called_already = False
        #: That module differs from the last one, or has another mode.
        self.changes = False
        self._seen: weakref.ref[Any] | None = None
        # Modules whose parameters no known optimizer has.
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()

    def optimizer_made(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)
        self._others.clear()

    def optimizer_stepped(self, optimizer: Any) -> None:
        """Note that an optimizer has stepped, which may be older than the hooks."""
        self._stepped.add(optimizer)

    def refuses_fused(self, optimizer: Any) -> str:
        """Return why torch would refuse ``fused=True`` for an optimizer; look once, after a step.

        Empty: it would not, or it is unknown.
        """
        if optimizer in self._looked_at:
            return ""
        self._looked_at.add(optimizer)
        try:
            # A parameter's __torch_function__ is the program's.
            with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
                return _refused(optimizer.param_groups)
        except own_errors():  # an optimizer of the program's, with other groups
            return ""

    def called(self, module: Any) -> None:
        """Note a call with gradients on; of several calls before backward the first counts."""
        if self._candidate is None or self._candidate() is not module:
            # A loss or a normalisation has no parameters, and no mode that matters.
            if next(iter(module.parameters()), None) is None:
                return
            self._candidate = weakref.ref(module)
        self.called_already = self.changes = True

    def graded(self, module: Any) -> None:
        """Note a call with gradients on."""
        if self._graded is not None:
            self._graded.add(module)

    def untrained(self) -> tuple[str, int, int, float] | None:
        """Return what records gradients for no optimizer; look once.

        The result is the name of the largest such module and its number of parameters, the number
        of all such parameters, and their part of those that require gradients.  None: each has an
        optimizer, or it is unknown, because optimizers keep copies.
        """
        roots, self._graded = self._graded, None
        held = {
            id(parameter)
            for optimizer in (*self._optimizers, *self._stepped)
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        sizes = {id(p): p.numel() for root in roots or () for p in root.parameters()
                 if p.requires_grad}  # fmt: skip
        if held.isdisjoint(sizes):
            return None
        found = [_largest(unwrap(root), "", held) for root in roots or ()]
        name, size = max(found, key=lambda pair: pair[1], default=("", 0))
        total = sum(count for number, count in sizes.items() if number not in held)
        return (name, size, total, total / sum(sizes.values())) if size else None

    def called_without_gradients(self, module: Any) -> None:
        """Note a call with gradients off."""
        if self.trained is None:
            self._seen = weakref.ref(module)

    def backward(self) -> None:
        """Note the begin of backward: the called module was trained."""
        self.called_already = self.changes = False
        module = None if self._candidate is None else self._candidate()
        if module is None:
            return
        if self._candidate is not self.trained or self.trained_mode != module.training:
            self.trained, self.trained_mode = self._candidate, module.training
            self._modes[unwrap(module)] = module.training

    def is_trained(self, module: Any) -> bool:
        """Return whether the module was trained, or an optimizer has its parameters."""
        module = unwrap(module)
        return module in self._modes or self._will_be_trained(module)

    def would_be_evaluated(self, module: Any) -> bool:
        """Return whether evaluation mode means that the module is being evaluated."""
        module = unwrap(module)
        mode = self._modes.get(module)
        return self._will_be_trained(module) if mode is None else mode

    def _will_be_trained(self, module: Any) -> bool:
        if module in self._others:
            return False
        first = next(iter(module.parameters()), None)
        for optimizer in list(self._optimizers) if first is not None else ():
            for group in optimizer.param_groups:
                if any(parameter is first for parameter in group["params"]):
                    return True
        self._others.add(module)
        return False

    def are_evaluated(self) -> bool:
        """Return whether the last trained model is in evaluation mode.

        The result is False if it was trained in that mode.
        """
        module = None if self.trained is None else self.trained()
        if module is None:  # use the last one called without gradients
            module = None if self._seen is None else self._seen()
            return module is not None and not module.training
        return self.trained_mode and not module.training

    def is_trained_one_evaluated(self) -> bool:
        """Return whether a model was trained in training mode, and is in evaluation mode."""
        return self.trained is not None and self.trained() is not None and self.are_evaluated()
