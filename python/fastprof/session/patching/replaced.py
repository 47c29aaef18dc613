"""Replaces attributes of other packages, and restores them exactly."""

import weakref
from contextlib import suppress
from functools import partial
from typing import Any

_INHERITED = object()

#: By address: a replacement that was below another one when its run ended, and what it replaced.
#: Whoever restores the other one puts it back.  By identity: a stand-in may be equal to its method.
_left: dict[int, tuple[weakref.ref[Any], Any]] = {}


class Replaced:
    """The attributes that one part of fastprof has replaced.

    Parts may end in either order.  An attribute that somebody else has replaced since is left
    alone: ours stays below it, and passes calls through.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Any, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def has(self, value: Any) -> bool:
        """Return whether ``value`` is one of the replacements."""
        return any(new is value for _, _, _, new in self._entries)

    def put(self, owner: Any, name: str, new: Any) -> None:
        """Set ``owner.name`` to ``new``, until :meth:`restore`."""
        old = vars(owner).get(name, _INHERITED)
        setattr(owner, name, new)
        self._entries.append((owner, name, old, new))

    def restore(self) -> None:
        """Restore the attributes, the last one first."""
        while self._entries:
            owner, name, old, new = self._entries.pop()
            if vars(owner).get(name) is not new:
                with suppress(TypeError):  # nothing refers weakly to it
                    _left[id(new)] = weakref.ref(new, partial(_left.pop, id(new))), old
                continue
            old = _below(old)
            if old is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


def _below(value: Any) -> Any:
    """Return ``value``, or what it replaced if its run is over."""
    while _left:  # an audit hook sees each id()
        ref, old = _left.get(id(value), (None, None))
        if ref is None or ref() is not value:
            break
        value = old
    return value
