"""Wraps a function of another package to observe its calls.

It has a separate file because of the function table: time here belongs to that package, and only
the code before and after is fastprof's.
"""

import functools
from collections.abc import Callable
from types import MethodDescriptorType, MethodType
from typing import Any

from fastprof.guards import own_errors

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: Called with the arguments before the function.
Before = Callable[[Args, Kwargs], None]
#: Called afterwards with the arguments and the result, :data:`FAILED` if it raised.
After = Callable[[Args, Kwargs, Any], None]

FAILED = object()


def wrap(
    original: Callable[..., Any],
    before: Before | None,
    after: After,
    skip: Callable[[Args], bool] | None = None,
) -> Callable[..., Any]:
    """Return a function that behaves like ``original``, between ``before`` and ``after``.

    ``skip``: calls neither for arguments for which it returns True; must not raise.
    Exceptions of these two are suppressed: refusing an invalid call is the task of ``original``.
    For a method that is written in C the result is equal to ``original``, see :class:`_Method`.
    """

    # Guarded here instead of in a separate function: this runs at every backward.
    @functools.wraps(original)
    def call_through(*args: Any, **kwargs: Any) -> Any:
        if skip is not None and skip(args):
            return original(*args, **kwargs)
        result: Any = FAILED
        try:
            if before is not None:
                try:
                    before(args, kwargs)
                except own_errors():
                    pass
            result = original(*args, **kwargs)
        finally:
            try:
                after(args, kwargs, result)
            except own_errors():
                pass
        return result

    if isinstance(original, MethodDescriptorType):
        return _Method(original, call_through)
    return call_through


class _Method:
    """Takes the place of a method that is written in C, and is equal to it.

    torch hands ``torch.Tensor.to`` to ``__torch_function__``, where torch and other packages look
    for it in sets of methods that they made earlier.  torch.compile looks at its class.
    """

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._call = call

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self._call, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __eq__(self, other: object) -> Any:
        return self.__wrapped__ == other

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> Any:
        return self.__wrapped__.__reduce__()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.__wrapped__)
