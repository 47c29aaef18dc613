"""Keeps ``torch.compile`` from compiling fastprof's own functions.

When compiled code falls back to Python, the compiler inspects every function called there,
including hooks.  It runs fastprof's functions unchanged, because this module adds them to the
compiler's list of exceptions.
"""

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

#: Modules whose functions are on the list, by the list and their name.
_exempt: dict[tuple[int, str], ModuleType] = {}


def leave_alone(torch: Any) -> None:
    """Exempt the loaded functions of fastprof; does nothing if this torch has no such list.

    The first call takes about 20 ms; any thread may make it.
    """
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    skip = getattr(frames, "skip_code", None)  # torch before 2.6
    if skip is None:
        set_strategy = getattr(frames, "set_code_exec_strategy", None)
        action, strategy = (getattr(frames, f"_Frame{n}", None) for n in ("Action", "ExecStrategy"))
        if set_strategy is None or action is None or strategy is None:
            return
        own = strategy(action.SKIP, action.DEFAULT)

        def skip(code: CodeType) -> None:
            set_strategy(code, own)

    for code in _codes(id(frames)):
        skip(code)


def _codes(where: int) -> Iterator[CodeType]:
    for name, module in list(sys.modules.items()):
        key = where, name
        if not name.startswith("fastprof.") or _exempt.get(key) is module:  # None: not imported
            continue
        if not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _exempt[key] = module  # it is loaded, and gets no more functions
        for value in list(vars(module).values()):
            yield from _codes_of(value, name)


def _codes_of(value: Any, module: str) -> Iterator[CodeType]:
    if isinstance(value, FunctionType) and value.__module__ == module:
        yield from _nested(value.__code__)
    elif isinstance(value, property):
        yield from _codes_of(value.fget, module)
    elif isinstance(value, (staticmethod, classmethod)):
        yield from _codes_of(value.__func__, module)
    elif isinstance(value, type) and value.__module__ == module:
        for inner in list(vars(value).values()):
            if not isinstance(inner, type):
                yield from _codes_of(inner, module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
