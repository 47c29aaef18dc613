"""Standing in for a function of another package, to know when it is called.

Alone in its file because of the function table: time in here is that package's, and only
what is done before and after is fastprof's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: Called with the arguments before the function is.
Before = Callable[[Args, Kwargs], None]
#: Called afterwards with the arguments and the result, :data:`FAILED` if it raised.
After = Callable[[Args, Kwargs, Any], None]

FAILED = object()


def wrap(original: Callable[..., Any], before: Before | None, after: After) -> Callable[..., Any]:
    """Return what does the same as ``original``, between ``before`` and ``after``.

    An exception of these two goes no further: a call that makes no sense is for
    ``original`` to refuse.
    """

    # Guarded here and not in a separate function: this runs at every backward.
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
