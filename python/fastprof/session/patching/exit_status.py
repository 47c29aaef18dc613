"""Notes the status with which the program ends itself.

The interpreter does not pass it to exit handlers.
"""

import sys
from threading import get_ident, main_thread
from typing import NoReturn

_failed = False


def watch() -> None:
    """Note the argument of ``sys.exit`` from now on."""
    real_exit = sys.exit

    def noted_exit(status: object = None, /) -> NoReturn:
        global _failed
        if get_ident() == main_thread().ident:  # another thread ends only itself
            # Calls no methods of the program's own objects.
            _failed = status is not None and (not isinstance(status, int) or int.__bool__(status))
        real_exit(status)  # type: ignore[arg-type]

    noted_exit.__name__, noted_exit.__doc__ = "exit", real_exit.__doc__
    sys.exit = noted_exit


def failed() -> bool:
    """Return whether the program ends by an exception, or with another status than 0."""
    return _failed or hasattr(sys, "last_value")
