"""The saved run, ``.fprof``: a snapshot as JSON in ASCII, compressed with gzip.

The layout is :meth:`fastprof.snapshot.Snapshot.to_dict` with two changes for other JSON readers:
integers above 2**53 are strings, and lone surrogates in names are written as ``\\uNNNN``.  Names
longer than 4096 characters are cut.

A file may come from anywhere.  Its size, shape and memory are checked before it is parsed, and
every value after; nothing in it is ever executed.
"""

import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii
from typing import Any, BinaryIO

from fastprof.errors import LoadError
from fastprof.names import MAX_NAME, without_surrogates
from fastprof.read.limits import Limits
from fastprof.read.smaller import smaller
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.writers import EXACT, compact_json, plain_values, require_tree
from fastprof.snapshot import Key, Snapshot
from fastprof.snapshot.gpu import GpuSnapshot
from fastprof.snapshot.model import forms_of
from fastprof.snapshot.trace import TraceSnapshot

#: The first bytes of a gzip file.
MAGIC = b"\x1f\x8b"

#: Data unpacked at once; they grow by a factor of 1032 at most.
_PIECE = 1 << 14
#: Bytes of JSON whose names are skipped at once.
_LOOKED_AT = 1 << 20
#: fastprof writes one; other tools may have joined some.
_MOST_MEMBERS = 16

#: What a reader accepts by default.
_LIMITS = Limits()
_COLUMNS = ("parent", "key", "calls", "resumes", "self_ns", "phase")


def write(report: Report, stream: BinaryIO) -> None:
    """Write the snapshot behind a report."""
    require_tree(report, "a saved run (.fprof)")
    write_snapshot(report.snapshot, stream)


def write_snapshot(snapshot: Snapshot, stream: BinaryIO) -> None:
    """Write a snapshot; the same snapshot always gives the same bytes.

    A trace with which a reader would refuse the file is left out, and so are contexts and functions
    with little time; a note says so.
    """
    # Level 5 takes half as long again and saves 2 % of most files, nothing of large ones.
    with gzip.GzipFile("", "wb", 4, stream, mtime=0) as packed:
        packed.write(_readable_text(snapshot))


def _readable_text(snapshot: Snapshot) -> bytes:
    """Return a text that a reader accepts."""
    text = _text(snapshot)
    used = _used(text)
    if used > 1 and snapshot.trace is not None:
        snapshot = _without_trace(snapshot, snapshot.trace)
        text = _text(snapshot)
        used = _used(text)
    part = 1.0
    # The part that is no function stays, so one try may not suffice.  With none of the contexts it
    # is all that is left: a reader then needs other limits.
    for rest in reversed(range(_TRIES)):
        if used <= 1:
            break
        part *= 0.9 / min(used, 10.0) if rest else 0.0
        if part < _LEAST_PART and snapshot.gpu is not None:
            snapshot = replace(snapshot, gpu=GpuSnapshot("off", _NO_GPU))
        text = _text(smaller(snapshot, part))
        used = _used(text)
    return text


def _used(text: bytes) -> float:
    """Return the largest part of a reader's limits that a text of ours needs; 1: all of it."""
    # Digits and commas take less than half as much when packed, so `max_bytes` is no concern.
    if len(text) <= _SURELY_READ:
        return 0.0
    # Names may hold punctuation, so their shape is exact only without them; that takes longer.
    marks = text.translate(None, _NOT_MARKS)
    most = _part(text, _shape(marks, marks.count(b'"'), len(text)))
    return most if most <= 1 else _part(text, shape(text))


def _part(text: bytes, found: "Shape") -> float:
    return max(
        len(text) / _LIMITS.max_unpacked_bytes,
        found.values / _LIMITS.max_entries,
        found.memory / _LIMITS.max_memory,
    )


def _without_trace(snapshot: Snapshot, trace: TraceSnapshot) -> Snapshot:
    rows = len(trace.events) + len(trace.gpu) + len(trace.calls)
    note = (
        f"The trace, of {plural(rows, 'event')}, is not in the saved run: fastprof reads no file "
        'that large. Write it to a file of its own (output="run.trace.json.gz"), or lower '
        "max_events of the option trace."
    )
    return replace(snapshot, trace=None, notes=(*snapshot.notes, note))


def _text(snapshot: Snapshot) -> bytes:
    data = replace(snapshot, keys=()).to_dict() | {"forms": forms_of(snapshot.keys)}
    del data["keys"]
    texts = {"keys": _keys(snapshot.keys)}
    for name in ("threads", "worker_threads"):
        made = [_object(thread, _thread(thread)) for thread in data.pop(name)]
        texts[name] = f"[{','.join(made)}]"
    return _object(data, texts).encode("ascii")


def _object(data: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Return an object as JSON; ``texts`` has the JSON of further fields."""
    begin = compact_json(plain_values(data))[:-1]
    return "".join([begin, *[f',"{name}":{text}' for name, text in texts.items()], "}"])


def _keys(keys: Sequence[Key]) -> str:
    # There may be a million keys in few files; nearly all are written as they are.
    files = {file: _quoted(file) for file in {key.file for key in keys}}
    names = [key.name for key in keys]
    is_plain = max(map(len, names), default=0) <= MAX_NAME and all(map(str.isascii, names))
    labels = map(encode_basestring_ascii if is_plain else _quoted, names)
    rows = [
        f'["{key.kind}",{files[key.file]},{key.line if key.line <= EXACT else _string(key.line)},'
        f"{label},{label if key.qualname == key.name else _quoted(key.qualname)}]"
        for key, label in zip(keys, labels, strict=True)
    ]
    return f"[{','.join(rows)}]"


def _string(number: int) -> str:
    return f'"{number}"'


def _quoted(name: str) -> str:
    is_plain = name.isascii() and len(name) <= MAX_NAME
    return encode_basestring_ascii(name if is_plain else without_surrogates(name))


def _thread(thread: dict[str, Any]) -> dict[str, str]:
    """Take the columns out of a thread, and return them as JSON: they may have a million rows."""
    columns = {name: thread.pop(name) for name in _COLUMNS}
    return {
        name: str(column).replace(" ", "")
        if max(column, default=0) <= EXACT
        else compact_json(plain_values(column))
        for name, column in columns.items()
    }


def parse(data: bytes, limits: Limits, without: Sequence[str] = ()) -> Snapshot:
    """Read the bytes of a saved run.

    Args:
        without: fields to leave empty without reading them.

    Raises:
        LoadError: (a ValueError) damaged, of another format, or beyond a limit.
        SnapshotError: (a ValueError) a value in it is wrong.
    """
    try:
        value = json.loads(
            _checked_text(data, limits),
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
        )
    except LoadError:
        raise
    except UnicodeDecodeError:
        raise LoadError("not ASCII") from None
    except RecursionError:
        raise LoadError("nested too deeply") from None
    except ValueError as error:
        raise LoadError(f"not JSON: {error}") from None
    if isinstance(value, dict):
        for name in without:
            value[name] = [] if isinstance(value.get(name), list) else None
    return Snapshot.from_dict(value)


def _checked_text(data: bytes, limits: Limits) -> str:
    """Return the JSON in a file.  Nothing else refers to it, so it is freed once it is parsed."""
    text = unpack(data, limits.max_unpacked_bytes)
    _check_shape(text, limits)
    return text.decode("ascii")


def unpack(data: bytes, max_unpacked_bytes: int) -> bytes:
    """Return the content of a gzip file.

    Raises:
        LoadError: it is damaged, or its content is longer.
    """
    # Not by the gzip module, which takes 15 us for each of a million empty members.
    parts: list[bytes] = []
    size = 0
    rest = data
    try:
        for _ in range(_MOST_MEMBERS):
            member = zlib.decompressobj(wbits=31)
            for at in range(0, len(rest), _PIECE):
                parts.append(member.decompress(rest[at : at + _PIECE]))
                size += len(parts[-1])
                if size > max_unpacked_bytes:
                    raise LoadError(f"unpacks to more than max_unpacked_bytes={max_unpacked_bytes}")
                if member.eof:
                    rest = member.unused_data + rest[at + _PIECE :]
                    break
            else:
                raise LoadError("damaged or cut short: the compressed data have no end")
            if not rest.strip(b"\0"):
                return b"".join(parts)
    except zlib.error as error:
        raise LoadError(f"damaged or cut short: {error}") from None
    raise LoadError(f"consists of more than {_MOST_MEMBERS} compressed parts")


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of values in a JSON text, and the bytes of memory that they need."""

    values: int
    memory: int
    brackets: bytes


def _check_shape(text: bytes, limits: Limits) -> None:
    """Refuse JSON that would need too much memory, from its punctuation alone."""
    if _STRING * (text.count(b'"') // 2) > limits.max_memory:
        raise LoadError(_TOO_LARGE.format(limits.max_memory))
    found = shape(text, limits.max_name)
    if found.values > limits.max_entries:
        raise LoadError(f"holds more values than max_entries={limits.max_entries}")
    if found.memory > limits.max_memory:
        raise LoadError(_TOO_LARGE.format(limits.max_memory))
    depth = 0
    for byte in found.brackets:
        depth += 1 if byte in b"[{" else -1
        if depth > limits.max_depth:
            raise LoadError(f"nested deeper than max_depth={limits.max_depth}")


def shape(text: bytes, max_name: int = _LIMITS.max_name) -> Shape:
    """Return the shape of a text.

    Raises:
        LoadError: it has a longer name, or a string without an end.
    """
    # Without escapes every quote begins or ends a string.
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    name = re.compile(rb'"[^"]{0,%d}"' % max_name)
    marks = []
    start = 0
    while start < len(bare):
        # A piece at a time, because the pattern's result is a list of what is between names.
        end = start + _LOOKED_AT
        if bare.count(b'"', start, end) % 2:
            end = bare.find(b'"', end) + 1 or len(bare)
        between = name.sub(b"", bare[start:end])
        if b'"' in between:
            raise LoadError(f"a name is longer than max_name={max_name}")
        marks.append(between.translate(None, _NOT_MARKS))
        start = end
    return _shape(b"".join(marks), bare.count(b'"'), len(text))


def _shape(structure: bytes, quotes: int, size: int) -> Shape:
    """Return the shape of a text of ``size`` bytes from its punctuation."""
    lists, objects = structure.count(b"["), structure.count(b"{")
    values = structure.count(b",") + lists + objects + 1
    memory = size + _STRING * (quotes // 2) + _LIST * lists + _OBJECT * objects + _VALUE * values
    return Shape(values, memory, structure.translate(None, _NOT_BRACKETS))


_TOO_LARGE = "needs more than max_memory={} bytes"

#: Bytes per object of CPython on 64 bits, rounded up; a value is an integer and its slot.
_STRING, _LIST, _OBJECT, _VALUE = 72, 64, 240, 44

#: A text of ours that is no longer obeys all limits, whatever it holds.
_SURELY_READ = 4 << 20

#: A try takes seconds, at the end of a program.
_TRIES = 6
#: With a smaller part of the functions it is not they that need the room.
_LEAST_PART = 1e-3
_NO_GPU = "fastprof reads no file as large as the saved run with the GPU's data."

_NOT_BRACKETS = bytes(i for i in range(256) if i not in b"[]{}")
_NOT_MARKS = bytes(i for i in range(256) if i not in b'[]{},"')


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise LoadError("an object has the same key twice")
    return out


def _no_constant(name: str) -> Any:
    raise LoadError(f"{name} is not a number")
