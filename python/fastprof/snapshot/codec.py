"""Writes the recorded data to a saved run, and checks it when reading.

A part of a snapshot is a frozen dataclass that inherits from one of these:

* :class:`Record`: saved as an object, ``{"count": 3, ...}``;
* :class:`Row`: saved as a list of its fields in their order, ``[3, ...]``;
* :class:`Table`: a record whose fields are columns of equal length.

The annotation of a field defines its valid values, so that a new field is one line::

    @dataclass(frozen=True, slots=True)
    class LoadTime(Row):
        worker: Count  # an integer of 0 or more
        key: KeyIndex  # an index of the snapshot's keys
        sum_ns: Later[Count] = 0  # files of earlier versions lack it

``bool``, ``str`` and ``float`` mean themselves (a float is finite); ``X | None`` may be null or
absent; ``tuple[X, ...]`` is a list, ``tuple[X, Y]`` a list of two, ``Mapping[str, X]`` an object.
Integers have a range: ``Annotated[int, Integer(low, high)]``.  A rule about several fields is a
method ``check`` of the class that raises :class:`WrongError`.

The input is untrusted: :func:`read` returns a value that obeys all of these rules, or raises
:class:`~fastprof.SnapshotError` with the field's name in one short line.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from operator import attrgetter, itemgetter
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fastprof.errors import FastprofError, SnapshotError

T = TypeVar("T")

#: A count or a time beyond a signed 64-bit integer is damage, not data.
MAX_INT = 2**63 - 1

#: Larger integers are strings in files: many JSON readers have no others.
EXACT = 2**53


@dataclass(slots=True)
class Known:
    """Tables that indices refer to.  Reading fills them; a table precedes its references.

    ``sizes`` are numbers of rows by a table's name, ``trees`` the numbers of nodes per thread,
    ``roots`` the keys of kind root, and ``steps`` the indexes of the measured steps.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    trees: Sequence[int] = ()
    roots: frozenset[int] = frozenset()
    steps: range = range(0)

    def has_node(self, thread: int, node: int) -> bool:
        """Return whether the tree of ``thread`` has a row ``node``."""
        return 0 <= thread < len(self.trees) and 0 <= node < self.trees[thread]


class WrongError(FastprofError):
    """A value is invalid.  Its place is added on the way up.

    Args:
        value: the value found.
        wanted: the expected value.
        path: its place, relative to the checked object: ``".rows[3]"``.
    """

    def __init__(self, value: object, wanted: str, path: str = "") -> None:
        super().__init__()
        self._value = value
        self._wanted = wanted
        self._path = path

    def under(self, step: str) -> WrongError:
        """Return the same error, relative to the enclosing object."""
        self._path = step + self._path
        return self

    def error(self, where: str) -> SnapshotError:
        """Return it as an error of a whole file; ``where`` is the name of the value read."""
        path = (where + self._path).lstrip(".") or "file"
        return SnapshotError(f"{path} is {show(self._value)}, expected {self._wanted}")


def show(value: object) -> str:
    """Return a short form of any value: ``repr`` of a hostile one may be huge, deep, or fail."""
    if isinstance(value, str):
        return repr(value[:80])
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return repr(value) if value.bit_length() <= 256 else "a huge integer"
    if isinstance(value, (list, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return f"a {type(value).__name__}"


def int_or_none(value: object) -> int | None:
    """Return an untrusted value if it is an integer of 0 or more."""
    return value if type(value) is int and value >= 0 else None


# ---- kinds of values ----


class Kind:
    """The values that a field accepts.  ``plain``: a value is written unchanged."""

    plain = True

    def read(self, value: object, known: Known) -> Any:
        """Return the value.

        Raises:
            WrongError: it is not of this kind.
        """
        raise NotImplementedError

    def write(self, value: Any) -> Any:
        """Return a value for ``json.dumps``."""
        return value

    def write_all(self, values: Iterable[Any]) -> list[Any]:
        """Return the written form of each value in a list."""
        return list(values) if self.plain else [self.write(value) for value in values]


class Integer(Kind):
    """An integer from ``low`` to ``high``."""

    def __init__(self, low: int = 0, high: int = MAX_INT) -> None:
        self._low = low
        self._high = high

    def range(self, known: Known) -> tuple[int, int]:
        """Return the lowest and the highest value."""
        return self._low, self._high

    def read(self, value: object, known: Known) -> int:
        if type(value) is int and self._low <= value <= self._high:
            return value
        low, high = self.range(known)
        if type(value) is str and high > EXACT and len(value) <= 20:
            value = int(value) if value.isascii() and value.isdecimal() else value
        if type(value) is int and low <= value <= high:
            return value
        raise WrongError(value, f"an integer from {low} to {high}")


class Index(Integer):
    """A row of the table ``of``, or an integer from ``low`` on with another meaning."""

    def __init__(self, of: str, low: int = 0) -> None:
        super().__init__(low, low - 1)
        self._of = of

    def range(self, known: Known) -> tuple[int, int]:
        return self._low, known.sizes.get(self._of, 0) - 1


class Number(Kind):
    """A finite number from ``low`` to ``high``."""

    def __init__(self, low: float = float("-inf"), high: float = float("inf")) -> None:
        self._low = low
        self._high = high

    def read(self, value: object, known: Known) -> float:
        if type(value) not in (int, float):
            raise WrongError(value, "a number")
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise WrongError(value, "a finite number") from None
        if not number - number == 0.0:  # NaN or infinite
            raise WrongError(value, "a finite number")
        if not self._low <= number <= self._high:
            raise WrongError(value, f"a number from {self._low:g} to {self._high:g}")
        return number


class Text(Kind):
    """A string."""

    def read(self, value: object, known: Known) -> str:
        if not isinstance(value, str):
            raise WrongError(value, "a string")
        return value


class Choice(Kind):
    """One of several names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def read(self, value: object, known: Known) -> str:
        if not isinstance(value, str) or value not in self._names:
            raise WrongError(value, f"one of {', '.join(self._names)}")
        return value


class Flag(Kind):
    """True or false."""

    def read(self, value: object, known: Known) -> bool:
        if not isinstance(value, bool):
            raise WrongError(value, "true or false")
        return value


class Numbered(Kind):
    """One of several values, saved as its number among them."""

    plain = False

    def __init__(self, *values: Any) -> None:
        self._values = values
        self._number = Integer(0, len(values) - 1)

    def read(self, value: object, known: Known) -> Any:
        return self._values[self._number.read(value, known)]

    def write(self, value: Any) -> int:
        return self._values.index(value)


class Counts(Kind):
    """Counts by name in an object; the names are limited."""

    plain = False

    def __init__(self, *names: str) -> None:
        self._names = names

    def read(self, value: object, known: Known) -> dict[str, int]:
        found = an_object(value)
        count = Integer()
        return {name: at(f".{name}", count, found.get(name), known) for name in self._names}

    def write(self, value: Mapping[str, int]) -> dict[str, int]:
        return dict(value)


class _Optional(Kind):
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.plain = kind.plain

    def read(self, value: object, known: Known) -> Any:
        return None if value is None else self._kind.read(value, known)

    def write(self, value: Any) -> Any:
        return None if value is None else self._kind.write(value)


class List(Kind):
    """A list of at most ``most`` values of one kind."""

    plain = False

    def __init__(self, kind: Kind, most: AtMost | None) -> None:
        self.kind = kind
        self._most = most

    def read(self, value: object, known: Known) -> tuple[Any, ...]:
        items = a_list(value)
        if self._most is not None and len(items) > self._most.rows:
            raise WrongError(len(items), f"at most {self._most.rows} {self._most.called}")
        if isinstance(self.kind, Integer) and items and set(map(type, items)) == {int}:
            # A column may have a million rows: search the wrong one only if there is one.
            low, high = self.kind.range(known)
            if low <= min(items) and max(items) <= high:
                return tuple(items)
        out: list[Any] = []
        read = self.kind.read
        try:
            for item in items:
                out.append(read(item, known))
        except WrongError as wrong:
            raise wrong.under(f"[{len(out)}]") from None
        return tuple(out)

    def write(self, value: Iterable[Any]) -> list[Any]:
        return self.kind.write_all(value)


class _Tuple(Kind):
    plain = False

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds

    def read(self, value: object, known: Known) -> tuple[Any, ...]:
        items = a_list(value)
        if len(items) != len(self._kinds):
            raise WrongError(value, f"a list of {len(self._kinds)}")
        return tuple([kind.read(v, known) for kind, v in zip(self._kinds, items, strict=True)])

    def write(self, value: Sequence[Any]) -> list[Any]:
        return [kind.write(item) for kind, item in zip(self._kinds, value, strict=True)]


class _Mapping(Kind):
    plain = False

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def read(self, value: object, known: Known) -> dict[str, Any]:
        out = {}
        for name, item in an_object(value).items():
            if not isinstance(name, str):
                raise WrongError(name, "a string", " key")
            out[name] = at(f"[{show(name)}]", self._kind, item, known)
        return out

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._kind.write(item) for name, item in value.items()}


def an_object(value: object) -> dict[Any, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise WrongError(value, "an object")
    return value


def a_list(value: object) -> Sequence[Any]:
    """Return a JSON list, or a tuple, which live recordings have."""
    if not isinstance(value, (list, tuple)):
        raise WrongError(value, "a list")
    return value


def at(step: str, kind: Kind, value: object, known: Known) -> Any:
    """Read a value at ``step`` of the enclosing object."""
    try:
        return kind.read(value, known)
    except WrongError as wrong:
        raise wrong.under(step) from None


# ---- marks of annotations ----


class AtMost:
    """A list has at most as many items as ``rows``; errors call them ``called``."""

    def __init__(self, rows: int, called: str = "rows") -> None:
        self.rows = rows
        self.called = called


class Learn:
    """Others refer to the value: reading it calls ``note`` with it."""

    def __init__(self, note: Callable[[Known, Any], None]) -> None:
        self.note = note


class Like:
    """Files of earlier versions lack the field: it then equals the field ``name``."""

    def __init__(self, name: str) -> None:
        self.name = name


class Else:
    """Files of earlier versions lack the field: it is then ``value``; it has no default."""

    def __init__(self, value: object) -> None:
        self.value = value


class Saved:
    """The name of the field in a file, if it differs."""

    def __init__(self, name: str) -> None:
        self.name = name


_LATER, _UNKNOWN, _FLAT, _APART = object(), object(), object(), object()

#: Files of earlier versions lack the field: it then has its default.
Later = Annotated[T, _LATER]
#: A column that is empty if it is unknown.
MaybeEmpty = Annotated[T, _UNKNOWN]
#: Its fields are stored in the enclosing object.
Flat = Annotated[T, _FLAT]
#: The enclosing class reads and writes it.
Apart = Annotated[T, _APART]

Count = Annotated[int, Integer()]
#: Any unsigned 64-bit integer, such as a thread's ident.
Unsigned = Annotated[int, Integer(0, 2**64 - 1)]
KeyIndex = Annotated[int, Index("keys")]
ThreadIndex = Annotated[int, Index("threads")]


def sized(name: str) -> Learn:
    """Return the mark of a table to which indices refer by ``name``."""

    def note(known: Known, rows: Sequence[Any]) -> None:
        known.sizes[name] = len(rows)

    return Learn(note)


# ---- classes ----


class _Part:
    """A dataclass that can be saved."""

    __slots__ = ()

    def check(self, known: Known) -> None:
        """Check rules beyond the fields' kinds, which already hold.

        Raises:
            WrongError: fields contradict each other, or ``known``.
        """


class Record(_Part):
    """Saved as an object with the names of its fields."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers for ``json.dumps``."""
        out: dict[str, Any] = {}
        for f in layout(type(self)):
            value = getattr(self, f.name)
            if f.flat:
                out.update(f.kind.write(value))
            else:
                out[f.saved] = value if f.kind.plain else f.kind.write(value)
        return out


class Row(_Part):
    """Saved as a list of its fields."""

    __slots__ = ()


class Table(Record):
    """A record of columns with equal lengths."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(getattr(self, layout(type(self))[0].name))

    def check(self, known: Known) -> None:
        rows = len(self)
        for f in layout(type(self)):
            if isinstance(f.kind, List) and isinstance(f.kind.kind, Integer):
                n = len(getattr(self, f.name))
                if n != rows and (n or not f.may_be_empty):
                    raise WrongError(n, f"{rows} rows", f".{f.saved}")


@dataclass(frozen=True, slots=True)
class _Saved:
    """One field of a class: see the marks above."""

    name: str
    saved: str
    kind: Kind
    flat: bool
    may_be_empty: bool
    absent: Callable[[Mapping[str, Any]], Any] | None
    note: Callable[[Known, Any], None] | None


_LAYOUTS: dict[type[Any], tuple[_Saved, ...]] = {}


def layout(of: type[Any]) -> tuple[_Saved, ...]:
    """Return how the fields of a class are saved."""
    found = _LAYOUTS.get(of)
    if found is None:
        # Annotations are read at their first use: this keeps importing fast.
        found = _LAYOUTS[of] = _layout(of)
    return found


def _layout(of: type[Any]) -> tuple[_Saved, ...]:
    hints = get_type_hints(of, include_extras=True)
    out = []
    for f in fields(of):
        marks = get_args(hints[f.name])[1:] if get_origin(hints[f.name]) is Annotated else ()
        if not f.init or _APART in marks:
            continue
        name = next((mark.name for mark in marks if isinstance(mark, Saved)), f.name)
        note = next((mark.note for mark in marks if isinstance(mark, Learn)), None)
        out.append(
            _Saved(
                name=f.name,
                saved=name,
                kind=kind_of(hints[f.name]),
                flat=_FLAT in marks,
                may_be_empty=_UNKNOWN in marks,
                absent=_absent(f, marks),
                note=note,
            )
        )
    return tuple(out)


def _absent(f: Field[Any], marks: Sequence[object]) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return the function that computes a missing field from the fields before it."""
    for mark in marks:
        if isinstance(mark, Like):
            return itemgetter(mark.name)
        if isinstance(mark, Else):
            value = mark.value
            return lambda _: value
    if _LATER not in marks:
        return None
    factory, default = f.default_factory, f.default
    return (lambda _: default) if factory is MISSING else (lambda _: factory())


class _Record(Kind):
    plain = False

    def __init__(self, of: type[Any]) -> None:
        self._of = of

    def read(self, value: object, known: Known) -> Any:
        found = an_object(value)
        values: dict[str, Any] = {}
        for f in layout(self._of):
            if f.flat:
                values[f.name] = f.kind.read(found, known)
            elif f.saved in found or f.absent is None:
                values[f.name] = at(f".{f.saved}", f.kind, found.get(f.saved), known)
            else:
                values[f.name] = f.absent(values)
            if f.note is not None:
                f.note(known, values[f.name])
        made = self._of(**values)
        made.check(known)
        return made

    def write(self, value: Record) -> dict[str, Any]:
        return value.to_dict()


class _Row(Kind):
    plain = False

    def __init__(self, of: type[Any]) -> None:
        self._of = of
        self._fields = layout(of)
        self._get = attrgetter(*(f.name for f in self._fields))
        self._reads = [f.kind.read for f in self._fields]
        self._all_plain = all(f.kind.plain for f in self._fields)

    def read(self, value: object, known: Known) -> Any:
        items = a_list(value)
        if len(items) != len(self._fields):
            raise WrongError(value, f"[{', '.join(f.name for f in self._fields)}]")
        values: list[Any] = []
        try:
            for read, item in zip(self._reads, items, strict=True):
                values.append(read(item, known))
        except WrongError as wrong:
            raise wrong.under(f".{self._fields[len(values)].name}") from None
        made = self._of(*values)
        made.check(known)
        return made

    def write(self, value: Row) -> list[Any]:
        return [f.kind.write(v) for f, v in zip(self._fields, self._get(value), strict=True)]

    def write_all(self, values: Iterable[Row]) -> list[Any]:
        if self._all_plain:  # there may be 100,000 of them
            return list(map(list, map(self._get, values)))
        return super().write_all(values)


_SIMPLE: dict[object, Kind] = {bool: Flag(), str: Text(), float: Number()}


def kind_of(hint: Any, most: AtMost | None = None) -> Kind:
    """Return the kind for an annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        for mark in args[1:]:
            if isinstance(mark, Kind):
                return mark
            if isinstance(mark, AtMost):
                most = mark
        return kind_of(args[0], most)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (Union, types.UnionType) and len(args) == 2 and args[1] is type(None):
        return _Optional(kind_of(args[0]))
    if origin is tuple and args[1:] == (...,):
        return List(kind_of(args[0]), most)
    if origin is tuple:
        return _Tuple([kind_of(arg) for arg in args])
    if origin is Mapping and args[0] is str:
        return _Mapping(kind_of(args[1]))
    if isinstance(hint, type) and issubclass(hint, _Part):
        return _Row(hint) if issubclass(hint, Row) else _Record(hint)
    raise TypeError(f"{hint} does not say what a saved value may be; see fastprof.snapshot.codec")


def read(what: type[T], value: object, where: str, known: Known | None = None) -> T:
    """Check a value and return it.

    Args:
        what: an annotation as in a field: a class, ``tuple[Count, ...]``.
        value: the result of ``json.loads`` or of a recorder.
        where: its name in the file, for the error.
        known: the tables to which its indices refer.

    Raises:
        SnapshotError: a value in it is missing, of the wrong type, out of range, or contradicts the
            rest; the message names the field.
    """
    try:
        found: T = kind_of(what).read(value, Known() if known is None else known)
    except WrongError as wrong:
        raise wrong.error(where) from None
    return found
