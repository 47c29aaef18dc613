"""Reads ``.stats`` files without :mod:`marshal`.

``marshal.load`` is made for files that Python itself wrote: a damaged one may crash the process,
and five bytes can make it request gigabytes.  A profile needs few of its types - a dict of tuples
of strings and numbers - so this module reads just those, checks every length against the remaining
bytes, and every value against the format of a profile.  Any error is a :class:`LoadError`.
"""

import math
import struct
from typing import Any, TypeAlias

from fastprof.errors import LoadError
from fastprof.read.limits import Limits

#: (file, line, name)
Function: TypeAlias = tuple[str, int, str]
#: (calls, primitive calls, own seconds, cumulative seconds), or calls alone
Caller: TypeAlias = tuple[int, int, float, float] | int
#: (primitive calls, calls, own seconds, cumulative seconds, callers)
Entry: TypeAlias = tuple[int, int, float, float, dict[Function, Caller]]

_MAX_DEPTH = 6
_MAX_TUPLE = 5
_MAX_DIGITS = 16  # of 15 bits each
_FLAG_REF = 0x80
_NULL = ord("0")
#: A profile of thirty thousand years is damage.
_MAX_SECONDS = 1e12


class _Unfinished:
    """Marks an object that contains itself, or that must not be shared."""


def parse(data: bytes, limits: Limits) -> dict[Function, Entry]:
    """Read the bytes of a ``.stats`` file.

    Raises:
        LoadError: (a ValueError) the bytes are not a valid profile.
    """
    reader = _Reader(data, limits)
    try:
        table = reader.value(1)
    except struct.error:
        raise LoadError("cut short") from None
    if not isinstance(table, dict):
        raise LoadError("not a profile: the file does not hold a dict")
    if reader.at != len(data):
        raise LoadError(f"{len(data) - reader.at} bytes follow the profile")
    for entry in table.values():
        _check_entry(entry)
    return table


class _Reader:
    def __init__(self, data: bytes, limits: Limits) -> None:
        self.at = 0
        self._data = data
        self._limits = limits
        self._refs: list[Any] = []
        self._values = 0

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise LoadError("not a profile: nested too deeply")
        self._values += 1
        if self._values > self._limits.max_entries:
            raise LoadError(f"holds more values than max_entries={self._limits.max_entries}")
        byte = self._byte()
        flag, code = byte & _FLAG_REF, chr(byte & ~_FLAG_REF)
        if code == "r":
            return self._reference()
        slot = None
        if flag:  # numbered before its content, as in marshal
            slot = len(self._refs)
            self._refs.append(_Unfinished)
        out = self._new(code, depth)
        # Only immutable, complete values may be shared: a dict shared by many entries would let a
        # small file describe an enormous table.
        if slot is not None and not isinstance(out, dict) and not _holds_dict(out):
            self._refs[slot] = out
        return out

    def _new(self, code: str, depth: int) -> Any:
        if code == "{":
            return self._dict(depth)
        if code in "()":
            n = self._byte() if code == ")" else self._length()
            if n > _MAX_TUPLE:
                raise LoadError(f"not a profile: a tuple of {n} items")
            return tuple([self.value(depth + 1) for _ in range(n)])
        if code == "i":
            return self._int32()
        if code == "l":
            return self._long()
        if code == "g":
            (number,) = struct.unpack_from("<d", self._data, self.at)
            self.at += 8
            return number
        if code in "zZ":
            return self._text(self._byte(), "ascii")
        if code in "aA":
            return self._text(self._length(), "ascii")
        if code in "ut":
            return self._text(self._length(), "utf-8")
        raise LoadError(f"not a profile: a value of type {code!r}")

    def _reference(self) -> Any:
        index = self._int32()
        if not 0 <= index < len(self._refs):
            raise LoadError("not a profile: a reference to nothing")
        out = self._refs[index]
        if out is _Unfinished:
            raise LoadError("not a profile: a reference to a dict or to an object that encloses it")
        return out

    def _dict(self, depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        while True:
            if self.at >= len(self._data):
                raise LoadError("cut short")
            if self._data[self.at] == _NULL:
                self.at += 1
                return out
            key = self.value(depth + 1)
            if not _is_function(key):
                raise LoadError("not a profile: a key that is not (file, line, name)")
            if key in out:
                raise LoadError("a function occurs twice")
            out[key] = self.value(depth + 1)

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise LoadError("cut short")
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _int32(self) -> int:
        (number,) = struct.unpack_from("<i", self._data, self.at)
        self.at += 4
        return int(number)

    def _length(self) -> int:
        n = self._int32()
        if not 0 <= n <= len(self._data) - self.at:
            raise LoadError("cut short, or a length is wrong")
        return n

    def _long(self) -> int:
        n = self._int32()
        digits = abs(n)
        if digits > _MAX_DIGITS:
            raise LoadError(f"not a profile: an integer of {digits} digits")
        out = 0
        for i in range(digits):
            (digit,) = struct.unpack_from("<h", self._data, self.at)
            self.at += 2
            if not 0 <= digit < 1 << 15:
                raise LoadError("a digit of an integer is out of range")
            out |= digit << (15 * i)
        if digits and out >> (15 * (digits - 1)) == 0:
            raise LoadError("an integer has a leading zero")
        return out if n >= 0 else -out

    def _text(self, n: int, encoding: str) -> str:
        if n > self._limits.max_name:
            raise LoadError(f"a name is longer than max_name={self._limits.max_name}")
        raw = self._data[self.at : self.at + n]
        if len(raw) != n:
            raise LoadError("cut short")
        self.at += n
        try:
            return raw.decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        except UnicodeDecodeError:
            raise LoadError(f"a name is not {encoding}") from None


def _holds_dict(value: object) -> bool:
    return isinstance(value, tuple) and any(
        isinstance(item, dict) or _holds_dict(item) for item in value
    )


def _is_function(key: object) -> bool:
    return (
        isinstance(key, tuple)
        and len(key) == 3
        and type(key[0]) is str
        and type(key[1]) is int
        and type(key[2]) is str
    )


def _is_time(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value) and abs(value) <= _MAX_SECONDS
    return type(value) is int and abs(value) <= _MAX_SECONDS


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _check_entry(entry: Any) -> None:
    if not (isinstance(entry, tuple) and len(entry) == 5):
        raise LoadError("not a profile: an entry that is not a tuple of 5")
    primitive, calls, own, cumulative, callers = entry
    if not (
        _is_count(primitive)
        and _is_count(calls)
        and _is_time(own)
        and _is_time(cumulative)
        and isinstance(callers, dict)
    ):
        raise LoadError("not a profile: an entry that is not (calls, calls, s, s, callers)")
    for caller in callers.values():
        if _is_count(caller):
            continue
        if not (
            isinstance(caller, tuple)
            and len(caller) == 4
            and _is_count(caller[0])
            and _is_count(caller[1])
            and _is_time(caller[2])
            and _is_time(caller[3])
        ):
            raise LoadError("not a profile: a caller that is not a count or 4 numbers")
