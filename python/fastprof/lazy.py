"""Attributes that are computed at their first use."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Lazy(Generic[_T]):
    """``functools.cached_property`` without its lock; two threads may compute the value twice.

    Before Python 3.12 all instances share that lock during the computation: a process that forks at
    that moment keeps it locked forever.
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> _T:
        # The next access finds the instance's own attribute.
        value = vars(instance)[self._compute.__name__] = self._compute(instance)
        return value
