"""fastprof's own copy of the module ``time``.

A test or a library may replace the functions of ``time``, also where other modules have imported
them, and stop the clock (freezegun, mock): fastprof then measured nothing, or waited for ever.  The
functions of this copy are objects of their own, so nothing finds and replaces them.

The C library's clock may stand still, too (libfaketime).  No wait relies on a clock alone: it also
counts its pauses.
"""

import time as _shared
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import TYPE_CHECKING


def _copy() -> object:
    spec: ModuleSpec | None = _shared.__spec__
    if spec is None or spec.loader is None:
        return _shared
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    import time as time
    from _thread import RLock
    from threading import Lock
else:
    time = _copy()


def acquired(lock: "Lock | RLock", seconds: float) -> bool:
    """Acquire ``lock`` within ``seconds`` or a little more; return whether it succeeded.

    The lock's own time limit never ends if the clock stands still.
    """
    pause, passed = 0.001, 0.0
    while not lock.acquire(blocking=False):
        if passed >= seconds:
            return False
        time.sleep(pause)
        passed += pause
        pause = min(2 * pause, 0.05)
    return True
