"""The loops with which ``calibrate`` measures the hook, one per kind of event.

The loops use the results of the calls, as programs do: the interpreter specialises calls with
unused arguments and results further, so they would look cheaper than real ones.  Some forms of
a call have a faster path in the interpreter and lose it under the hook; the recorder keeps the
form of each key's first call (``call_form.c``).  The other forms cost nearly the same: a loop
makes several of them and measures their mean.

The Python functions do a little work, as in programs: while an empty one runs, nothing overlaps
with the hook, and it would look dearer; one of three is nearly empty.  Calls in a row cost less
than nested ones; a separate loop measures the difference.  The numbers are not small ones, which
the interpreter caches: creating an object for a result also overlaps with the hook, and takes
longer without it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Turns of each loop; they take some microseconds, so that most runs are not interrupted.
TURNS = 100

_NUMBERS = range(1000, 1000 + TURNS)


@dataclass(frozen=True)
class Loop:
    """``calls`` events of one kind per turn; ``labels`` are names of callees.

    The loops ``made`` and ``nested`` also make other events: see ``NESTED_TURN``.
    ``works``: the callees are Python functions that do the work of the loop ``work``.
    """

    run: Callable[[], None]
    labels: frozenset[str]
    calls: int
    works: bool


def _short(x: int) -> int:
    return x * 3 + 1


def _same(x: int) -> int:
    return x


def _tree(n: int) -> int:
    return n if n < 2 else _tree(n - 1) + _tree(n - 2)


def _passes(x: int) -> int:
    return _short(x) + 1


def _checks(x: object) -> int:
    return abs(x) if isinstance(x, int) else 0


def _keyword(x: int, *, scale: int = 1) -> int:
    return x * 3 + scale


class _Item:
    def __init__(self, value: int, other: int) -> None:
        self.value = value
        self.other = other

    def _own(self, x: int) -> int:
        return x * 3 + 1

    def _named(self, x: int, *, scale: int = 1, shift: int = 0) -> int:
        return x * scale + shift

    def __getitem__(self, index: int) -> int:
        return index * 3 + 1

    @property
    def _read(self) -> int:
        return self.other * 3 + 1

    @property
    def _read_twice(self) -> int:
        return self._read * 3 + 1


class _Empty:
    pass


def _python_calls() -> None:
    item = _ITEM
    total = 0
    for i in _NUMBERS:
        total += _short(i)
        total += item._own(i)
        total += _same(i)


def _nested_calls() -> None:
    total = 0
    for i in _NUMBERS:
        total += _tree(4)
        total += _passes(i)
        total += _checks(i)


def _general_calls() -> None:
    item = _ITEM
    total = 0
    for i in _NUMBERS:
        total += _keyword(i, scale=2)
        total += item._named(i, scale=3, shift=1)


def _unpacked_calls() -> None:
    one = (1,)
    total = 0
    for _ in _NUMBERS:
        total += _short(*one)


def _implicit_calls() -> None:
    item = _ITEM
    total = 0
    for i in _NUMBERS:
        total += item[i]
        total += item._read
        total += item._read_twice


def _resumes() -> None:
    total = 0
    for value in _yields():
        total += value


def _fed_resumes() -> None:
    sum(i for i in _NUMBERS)


def _yields() -> Iterator[int]:
    for i in _NUMBERS:
        yield i * 1000


def _made() -> None:
    few = list(range(1000, 1008))  # made before, like most things that programs iterate over
    total = 0
    for i in _NUMBERS:
        total += sum(i + one for one in few)


def _c_calls() -> None:
    values = [1, 2, 3]
    total = 0
    for i in _NUMBERS:
        total += len(values)
        total += abs(i)
        total += isinstance(i, int)


def _method_calls() -> None:
    values: list[int] = []
    known = {1: 2}
    text = "ab"
    seen: set[int] = set()
    total = 0
    for i in _NUMBERS:
        values.append(i)
        total += known.get(i, 1)
        total += text.upper() is not None
        seen.add(i & 7)


def _c_general_calls() -> None:
    values = [1, 2]
    total = 0
    for i in _NUMBERS:
        total += sum(values, start=i)
        total += "{}".format(1) is not None  # noqa: UP032


def _constructors() -> None:
    total = 0
    for i in _NUMBERS:
        total += int(1.5)
        total += range(i) is not None
        total += _Empty() is not None


def _texts() -> None:
    total = 0
    for i in _NUMBERS:
        total += str(i) is not None


def _inits() -> None:
    total = 0
    for i in _NUMBERS:
        total += _Item(i, 1).other


def _nothing() -> None:
    total = 0
    for i in _NUMBERS:
        total += i


def _work() -> None:
    total = 0
    for i in _NUMBERS:
        total += i * 3 + 1


_ITEM = _Item(0, 1000)


def _loop(run: Callable[[], None], *labels: str, calls: int = 0, works: bool = False) -> Loop:
    return Loop(run, frozenset(labels), calls or max(1, len(labels)), works)


#: Calls in a turn of the loop ``nested``, by kind; ``calls`` of them are nested.
NESTED_TURN = {"python": 12, "c": 2}

#: Nested calls in a turn of the loop ``implicit``.
NESTED_IMPLICIT = 1

#: By the name of the kind's field in ``Calibration``; ``nothing`` is the empty loop, ``work``
#: a loop with the work of the functions.
LOOPS = {
    "nothing": _loop(_nothing),
    "work": _loop(_work),
    "python": _loop(_python_calls, "_short", "_own", calls=3, works=True),
    "nested": _loop(_nested_calls, "_short", calls=11, works=True),
    "general": _loop(_general_calls, "_keyword", "_named", works=True),
    "unpacked": _loop(_unpacked_calls, "_short", works=True),
    "resume": _loop(_resumes, "_yields"),
    "fed": _loop(_fed_resumes, "<genexpr>"),
    "made": _loop(_made, "<genexpr>", calls=9),
    "c": _loop(_c_calls, "len", "abs", "isinstance"),
    "method": _loop(_method_calls, "append", "get", "upper", "add"),
    "c_general": _loop(_c_general_calls, "sum", "format"),
    "implicit": _loop(_implicit_calls, "__getitem__", "_read", calls=4, works=True),
    "constructor": _loop(_constructors, "int", "range", "_Empty"),
    "text": _loop(_texts, "str"),
    "init": _loop(_inits, "__init__"),
}
