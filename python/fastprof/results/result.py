"""The common part of results, and how a function's data become one."""

import html
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from fastprof.names import encodable

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Result(ABC):
    """What ``print`` and a notebook show of a result: its text."""

    __slots__ = ()

    @abstractmethod
    def to_text(self) -> str:
        """Return it as plain text."""

    def __str__(self) -> str:
        """Return the text for ``print``, which fails for what the encoding lacks."""
        return encodable(self.to_text(), sys.stdout)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_text())}</pre>"


def as_result(kind: Callable[..., _R], data: Any) -> _R:
    """Return the fields of ``data`` as an object of ``kind``, which adds methods only."""
    return kind(**{f.name: getattr(data, f.name) for f in fields(data) if f.init})


def returning(
    kind: Callable[..., _R], function: Callable[_P, Any], module: str
) -> Callable[_P, _R]:
    """Return ``function`` with a result of ``kind``, as a function of ``module``."""

    @wraps(function)
    def made(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return as_result(kind, function(*args, **kwargs))

    made.__module__ = module  # pickles find it there
    made.__signature__ = signature(function).replace(return_annotation=kind)  # type: ignore[attr-defined]
    return made
