"""The kinds of values in a saved run, and the errors of values of another kind.

A kind reads a value from a file and writes it; :mod:`fastprof.snapshot.codec` finds the kind of a
field in its annotation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastprof.errors import FastprofError, SnapshotError

#: A count or a time beyond a signed 64-bit integer is damage, not data.
MAX_INT = 2**63 - 1

#: Larger integers are strings in files: many JSON readers have no others.
EXACT = 2**53


#: The values of a list that are read at once.
_PART = 1 << 15
#: When more different values are kept, to be shared, they are forgotten.
_SHARED = 1 << 16


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
    _shared: dict[Any, Any] = field(default_factory=dict)

    def shared(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values in which equal ones are one object, as far as that saves memory.

        Args:
            values: of one type.
        """
        if len(self._shared) > _SHARED:
            self._shared.clear()
        return list(map(self._shared.setdefault, values, values))

    def has_node(self, thread: int, node: int) -> bool:
        """Return whether the tree of ``thread`` has a row ``node``."""
        return 0 <= thread < len(self.trees) and 0 <= node < self.trees[thread]


class WrongError(FastprofError):
    """A value is invalid.  Its place is added on the way up.

    Args:
        path: its place, relative to the checked object: ``".rows[3]"``.
    """

    def __init__(self, value: object, wanted: str, path: str = "") -> None:
        super().__init__()
        self._value = value
        self._wanted = wanted
        self._path = path

    def under(self, step: str) -> "WrongError":
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


class Kind:
    """The values that a field accepts.  ``plain``: a value is written unchanged."""

    plain = True

    def read(self, value: object, known: Known) -> Any:
        """Return the value.

        Raises:
            WrongError: it is not of this kind.
        """
        raise NotImplementedError

    def read_all(self, values: Sequence[Any], known: Known) -> Sequence[Any] | None:
        """Return many values, read faster than one by one; None: not possible, or one is wrong."""
        return None

    def write(self, value: Any) -> Any:
        """Return a value for ``json.dumps``."""
        return value

    def write_all(self, values: Iterable[Any]) -> list[Any]:
        """Return the written form of each value in a list."""
        return list(values) if self.plain else [self.write(value) for value in values]

    def renumbered(self, value: Any, numbers: Mapping[str, Sequence[int]]) -> Any:
        """Return the value with other indices of some tables: by a table's name, old -> new."""
        return value


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

    def read_all(self, values: Sequence[Any], known: Known) -> Sequence[Any] | None:
        low, high = self.range(known)
        are_all = _all_are(int, values) and low <= min(values) and max(values) <= high
        return known.shared(values) if are_all else None


class Index(Integer):
    """A row of the table ``of``, or an integer from ``low`` on with another meaning."""

    def __init__(self, of: str, low: int = 0) -> None:
        super().__init__(low, low - 1)
        self._of = of

    def range(self, known: Known) -> tuple[int, int]:
        return self._low, known.sizes.get(self._of, 0) - 1

    def renumbered(self, value: int, numbers: Mapping[str, Sequence[int]]) -> int:
        return numbers[self._of][value] if value >= 0 and self._of in numbers else value


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

    def read_all(self, values: Sequence[Any], known: Known) -> Sequence[Any] | None:
        return known.shared(values) if _all_are(str, values) else None


class Choice(Kind):
    """One of several names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def read(self, value: object, known: Known) -> str:
        if not isinstance(value, str) or value not in self._names:
            raise WrongError(value, f"one of {', '.join(self._names)}")
        return value

    def read_all(self, values: Sequence[Any], known: Known) -> Sequence[Any] | None:
        are_all = _all_are(str, values) and set(values).issubset(self._names)
        return known.shared(values) if are_all else None


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


class Optional(Kind):
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.plain = kind.plain

    def read(self, value: object, known: Known) -> Any:
        return None if value is None else self._kind.read(value, known)

    def write(self, value: Any) -> Any:
        return None if value is None else self._kind.write(value)

    def renumbered(self, value: Any, numbers: Mapping[str, Sequence[int]]) -> Any:
        return None if value is None else self._kind.renumbered(value, numbers)


class AtMost:
    """A list has at most as many items as ``rows``; errors call them ``called``."""

    def __init__(self, rows: int, called: str = "rows") -> None:
        self.rows = rows
        self.called = called


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
        out: list[Any] = []
        for start in range(0, len(items), _PART):
            part = items[start : start + _PART]
            # A column may have a million rows: search the wrong one only if there is one.
            found = self.kind.read_all(part, known)
            out += self._one_by_one(part, start, known) if found is None else found
        return tuple(out)

    def _one_by_one(self, items: Sequence[Any], start: int, known: Known) -> list[Any]:
        """Return values, of which the first has the index ``start``."""
        out: list[Any] = []
        read = self.kind.read
        try:
            for item in items:
                out.append(read(item, known))
        except WrongError as wrong:
            raise wrong.under(f"[{start + len(out)}]") from None
        return out

    def write(self, value: Iterable[Any]) -> list[Any]:
        return self.kind.write_all(value)

    def renumbered(
        self, value: Iterable[Any], numbers: Mapping[str, Sequence[int]]
    ) -> tuple[Any, ...]:
        return tuple([self.kind.renumbered(item, numbers) for item in value])


class Tuple(Kind):
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

    def renumbered(
        self, value: Sequence[Any], numbers: Mapping[str, Sequence[int]]
    ) -> tuple[Any, ...]:
        items = zip(self._kinds, value, strict=True)
        return tuple([kind.renumbered(item, numbers) for kind, item in items])


class Object(Kind):
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


def _all_are(of: type, values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {of}


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
