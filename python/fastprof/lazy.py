"""Attributes that are computed at their first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Lazy(Generic[_T]):
    """``functools.cached_property`` without its lock; two threads may work it out twice.

    Before Python 3.12 that lock is held meanwhile, for all instances together: a process
    that forks just then has it locked for ever.
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> _T:
        # The next time the instance's own attribute is found instead.
        value = vars(instance)[self._compute.__name__] = self._compute(instance)
        return value
