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
        sum_ns: Count

``bool``, ``str`` and ``float`` mean themselves (a float is finite); ``X | None`` may be null or
absent, every other field must be there; ``tuple[X, ...]`` is a list, ``tuple[X, Y]`` a list of
two, ``Mapping[str, X]`` an object.  Integers have a range: ``Annotated[int, Integer(low, high)]``.
A rule about several fields is a method ``check`` of the class that raises :class:`WrongError`.

The input is untrusted: :func:`read` returns a value that obeys all of these rules, or raises
:class:`~fastprof.errors.SnapshotError` with the field's name in one short line.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fastprof.snapshot.kinds import (
    AtMost,
    Flag,
    Index,
    Integer,
    Kind,
    Known,
    List,
    Number,
    Object,
    Optional,
    Text,
    Tuple,
    WrongError,
    a_list,
    an_object,
    at,
)

T = TypeVar("T")

# ---- marks of annotations ----


class Learn:
    """Others refer to the value: reading it calls ``note`` with it."""

    def __init__(self, note: Callable[[Known, Any], None]) -> None:
        self.note = note


class Saved:
    """The name of the field in a file, if it differs."""

    def __init__(self, name: str) -> None:
        self.name = name


_UNKNOWN, _FLAT, _APART = object(), object(), object()

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

    def renumbered(self, numbers: Mapping[str, Sequence[int]]) -> Any:
        """Return the part with other indices of some tables.

        Args:
            numbers: a table's name -> the new number of each of its rows.
        """
        changed = {}
        for f in layout(type(self)):
            value = getattr(self, f.name)
            new = f.kind.renumbered(value, numbers)
            if new is not value:
                changed[f.name] = new
        return replace(self, **changed) if changed else self  # type: ignore[type-var]


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
                note=note,
            )
        )
    return tuple(out)


class _OfPart(Kind):
    plain = False

    def __init__(self, of: type[Any]) -> None:
        self._of = of

    def renumbered(self, value: Any, numbers: Mapping[str, Sequence[int]]) -> Any:
        return value.renumbered(numbers)


class _Record(_OfPart):
    def read(self, value: object, known: Known) -> Any:
        found = an_object(value)
        values: dict[str, Any] = {}
        for f in layout(self._of):
            if f.flat:
                values[f.name] = f.kind.read(found, known)
            else:
                values[f.name] = at(f".{f.saved}", f.kind, found.get(f.saved), known)
            if f.note is not None:
                f.note(known, values[f.name])
        made = self._of(**values)
        made.check(known)
        return made

    def write(self, value: Record) -> dict[str, Any]:
        return value.to_dict()


class _Row(_OfPart):
    def __init__(self, of: type[Any]) -> None:
        super().__init__(of)
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

    def read_all(self, values: Sequence[Any], known: Known) -> Sequence[Any] | None:
        if self._of.check is not _Part.check or set(map(type, values)) != {list}:
            return None
        if set(map(len, values)) != {len(self._fields)}:
            return None
        columns = []
        for i, f in enumerate(self._fields):
            column = f.kind.read_all([row[i] for row in values], known)
            if column is None:
                return None
            columns.append(column)
        return list(map(self._of, *columns))

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
        return Optional(kind_of(args[0]))
    if origin is tuple and args[1:] == (...,):
        return List(kind_of(args[0]), most)
    if origin is tuple:
        return Tuple([kind_of(arg) for arg in args])
    if origin is Mapping and args[0] is str:
        return Object(kind_of(args[1]))
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
