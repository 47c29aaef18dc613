"""Puts back builtins that the program has deleted, while fastprof works after it.

Sandboxes and tests delete ``open``, or all of them.  Nothing here uses a builtin.
"""

import builtins
from typing import Any

_now = vars(builtins)
_were = dict(_now)
_were.pop("_", None)  # a prompt's last value: the program's
_callable, _missing = callable, object()
#: Those that were put back, and what the program had left.
_left: dict[str, Any] = {}

#: To be compared with ``<=``, which is no call: the recording goes on then.
OURS, THEIRS = _were.items(), _now.items()


def put_back() -> None:
    """Make every builtin usable that was when this module was imported."""
    if OURS <= THEIRS:
        return
    for name, value in OURS:
        now = _now.get(name, _missing)
        if now is _missing or (_callable(value) and not _callable(now)):
            _left[name], _now[name] = now, value


def take_away() -> None:
    """Leave the builtins as the program did; for its functions at exit."""
    for name, value in _left.items():
        if value is _missing:
            _now.pop(name, None)
        else:
            _now[name] = value
    _left.clear()
