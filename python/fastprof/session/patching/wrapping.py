"""Wraps a function of another package to observe its calls.

It has a separate file because of the function table: time here belongs to that package, and only
the code before and after is fastprof's.
"""

import functools
from collections.abc import Callable
from typing import Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: Called with the arguments before the function.
Before = Callable[[Args, Kwargs], None]
#: Called afterwards with the arguments and the result, :data:`FAILED` if it raised.
After = Callable[[Args, Kwargs, Any], None]

FAILED = object()


def wrap(original: Callable[..., Any], before: Before | None, after: After) -> Callable[..., Any]:
    """Return a function that behaves like ``original``, between ``before`` and ``after``.

    Exceptions of these two are suppressed: refusing an invalid call is the task of ``original``.
    """

    # Guarded here instead of in a separate function: this runs at every backward.
    @functools.wraps(original)
    def call_through(*args: Any, **kwargs: Any) -> Any:
        result: Any = FAILED
        if before is not None:
            try:  # noqa: SIM105
                before(args, kwargs)
            except Exception:
                pass
        try:
            result = original(*args, **kwargs)
        finally:
            try:  # noqa: SIM105
                after(args, kwargs, result)
            except Exception:
                pass
        return result

    return call_through
