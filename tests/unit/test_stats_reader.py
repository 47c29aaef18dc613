"""Reading .stats without marshal (row F47)."""

from __future__ import annotations

import cProfile
import marshal
import os
import profile
import pstats
import struct
import sys

import pytest
from fastprof.errors import LoadError
from fastprof.read import pstats as stats_reader
from fastprof.read.limits import Limits
from fastprof.results import saved as loading
from fastprof.results.report import build_report
from helpers import MIB, run_child
from hypothesis import given
from hypothesis import strategies as st
from unit.hostile import NAMES, snapshot_with


def work():
    import decimal
    import json

    def recurse(n):
        return n and recurse(n - 1) + len(str(n))

    json.loads(json.dumps([recurse(20), {"a": [1.5] * 10}]))
    sorted([decimal.Decimal(i) for i in range(20)], key=lambda d: -d)


@pytest.fixture
def real_file(tmp_path):
    path = tmp_path / "real.stats"
    measured = cProfile.Profile()
    measured.runcall(work)
    measured.dump_stats(path)
    return path


def test_f47_a_file_of_cprofile_is_read_as_marshal_reads_it(real_file):
    data = real_file.read_bytes()
    assert len(marshal.loads(data)) > 10
    assert stats_reader.parse(data, Limits()) == marshal.loads(data)


def test_f47_files_that_pstats_wrote_are_read_as_marshal_reads_them(real_file, tmp_path):
    stats = pstats.Stats(str(real_file))
    stats.add(str(real_file))
    stats.strip_dirs()
    stats.dump_stats(tmp_path / "sum.stats")
    data = (tmp_path / "sum.stats").read_bytes()
    assert stats_reader.parse(data, Limits()) == marshal.loads(data)


def test_f47_files_of_the_pure_python_profiler_are_read_as_marshal_reads_them(tmp_path):
    measured = profile.Profile()
    measured.runcall(work)
    measured.dump_stats(tmp_path / "pure.stats")
    data = (tmp_path / "pure.stats").read_bytes()
    assert stats_reader.parse(data, Limits()) == marshal.loads(data)
    assert loading.load(tmp_path / "pure.stats").functions


functions = st.tuples(st.text(max_size=5), st.integers(-5, 2**40), st.text(max_size=300))
times = st.one_of(st.floats(-1e9, 1e9), st.integers(0, 100))
counts = st.integers(0, 2**200)
callers = st.dictionaries(functions, st.one_of(counts, st.tuples(counts, counts, times, times)))
tables = st.dictionaries(functions, st.tuples(counts, counts, times, times, callers), max_size=5)


@given(tables, st.sampled_from([2, 3, 4]))
def test_f47_any_good_table_is_read_as_marshal_reads_it(table, version):
    data = marshal.dumps(table, version)
    assert stats_reader.parse(data, Limits()) == marshal.loads(data)


@pytest.mark.parametrize("name", NAMES)
def test_f47_names_are_read_as_marshal_reads_them(name):
    raw = NAMES[name][:1000]
    data = marshal.dumps({(raw, 1, raw): (1, 1, 0.5, 0.5, {})})
    assert stats_reader.parse(data, Limits()) == marshal.loads(data)


MUTATE = """
import random, sys
from fastprof.read import pstats as stats_reader
from fastprof.read.limits import Limits
from fastprof.report.from_stats import report_from_stats
from fastprof.results.report import Report
from fastprof.results.result import as_result
data = open(sys.argv[1], "rb").read()
dice = random.Random(int(sys.argv[2]))
good = 0
for _ in range(4000):
    mutated = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(mutated))
        how = dice.randrange(5)
        if how == 0: mutated[at] = dice.randrange(256)
        elif how == 1: mutated[at] ^= 1 << dice.randrange(8)
        elif how == 2: del mutated[at:at + dice.randrange(1, 9)]
        elif how == 3: mutated[at:at] = dice.randbytes(dice.randrange(1, 9))
        else: mutated[at:at + 4] = dice.choice((b'\\xff' * 3 + b'\\x7f', b'\\xff' * 4))
    try:
        table = stats_reader.parse(bytes(mutated), Limits())
    except ValueError as error:
        assert "\\n" not in str(error) and len(str(error)) < 300
    else:
        good += 1
        report = as_result(Report, report_from_stats(table))
        str(report), report.to_json()
print("survived", good)
"""


@pytest.mark.parametrize("seed", range(3))
def test_f47_damaged_files_give_a_valueerror_or_a_valid_table(tmp_path, seed):
    # A small file, so that most bytes matter.
    path = tmp_path / "in.stats"
    if seed:
        build_report(snapshot_with("f" * seed)).save(path)
    else:
        measured = cProfile.Profile()
        measured.runcall(sorted, [3, 2, 1], key=lambda n: -n)
        measured.dump_stats(path)
    child = run_child(
        MUTATE,
        str(path),
        str(seed),
        rlimit_as=512 * MIB,
        timeout=200,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ).check()
    word, good = child.stdout.split()
    assert word == "survived"
    assert 0 < int(good) < 4000, "the mutations were all harmless, or all fatal"


def test_f47_a_file_cut_at_every_byte_is_refused(real_file):
    data = real_file.read_bytes()
    step = max(1, len(data) // 500)
    for n in [*range(0, len(data), step), len(data) - 1]:
        with pytest.raises(LoadError):
            stats_reader.parse(data[:n], Limits())
    with pytest.raises(LoadError, match="follow"):
        stats_reader.parse(data + b"x", Limits())


FUNCTION = ("f.py", 1, "f")


@pytest.mark.parametrize(
    "table",
    [
        [],
        5,
        None,
        {"f": (1, 1, 0.0, 0.0, {})},
        {("f.py", "1", "f"): (1, 1, 0.0, 0.0, {})},
        {("f.py", True, "f"): (1, 1, 0.0, 0.0, {})},
        {(b"f.py", 1, "f"): (1, 1, 0.0, 0.0, {})},
        {("f.py", 1): (1, 1, 0.0, 0.0, {})},
        {FUNCTION: (1, 1, 0.0, 0.0)},
        {FUNCTION: (1, 1, 0.0, 0.0, {}, 1)},
        {FUNCTION: (1, 1, 0.0, 0.0, ())},
        {FUNCTION: (1.0, 1, 0.0, 0.0, {})},
        {FUNCTION: (1, -1, 0.0, 0.0, {})},
        {FUNCTION: (1, 1, float("nan"), 0.0, {})},
        {FUNCTION: (1, 1, 0.0, float("inf"), {})},
        {FUNCTION: (1, 1, 0.0, 1e300, {})},
        {FUNCTION: (1, 1, "0", 0.0, {})},
        {FUNCTION: (2**300, 1, 0.0, 0.0, {})},
        {FUNCTION: (1, 1, 0.0, 0.0, {FUNCTION: (1, 1, 0.0)})},
        {FUNCTION: (1, 1, 0.0, 0.0, {FUNCTION: 1.5})},
        {FUNCTION: (1, 1, 0.0, 0.0, {FUNCTION: (1, 1, 0.0, float("nan"))})},
        {FUNCTION: (1, 1, 0.0, 0.0, {FUNCTION: {}})},
        {FUNCTION: (1, 1, 0.0, 0.0, {"f": 1})},
        {((((("f",),),),),): 1},
        {FUNCTION: work.__code__},
    ],
)
def test_f47_marshal_that_is_no_profile_is_refused(table):
    with pytest.raises(LoadError):
        stats_reader.parse(marshal.dumps(table), Limits())


def small(text: bytes, flag: int = 0) -> bytes:
    return bytes([ord("z") | flag, len(text)]) + text


def number(value: int) -> bytes:
    return b"i" + struct.pack("<i", value)


def entry(callers: bytes) -> bytes:
    return b")\x05" + number(1) * 4 + callers


KEY = b")\x03" + small(b"f") + number(1) + small(b"g")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{" + KEY + entry(b"{0") + KEY + entry(b"{0") + b"0", "twice"),
        (b"{" + KEY + entry(b"r" + struct.pack("<i", 0)) + b"0", "reference"),
        (b"\xfb" + KEY + entry(b"r" + struct.pack("<i", 0)) + b"0", "encloses"),
        (b"\xfb" + b"\xa9\x03" + b"r" + struct.pack("<i", 1), "encloses"),
        (b"{" + b")\x03" + b"r" + struct.pack("<i", -1), "reference"),
        (b"{" + b"a" + struct.pack("<i", 2**31 - 1) + b"x", "length"),
        (b"{" + b"a" + struct.pack("<i", -5) + b"x", "length"),
        (b"{" + b"(" + struct.pack("<i", 200_000_000), "length"),
        (b"{" + b")\x06" + b"i" * 100, "tuple of 6"),
        (b"{" + b"l" + struct.pack("<i", 10**6), "digits"),
        (b"{" + b"l" + struct.pack("<i", -(2**31)), "digits"),
        (b"{" + b"l" + struct.pack("<ih", 1, -1), "digit"),
        (b"{" + b"l" + struct.pack("<ihh", 2, 1, 0), "zero"),
        (b"{" + small(b"\xff"), "ascii"),
        (b"{" + b"u" + struct.pack("<i", 1) + b"\xff", "utf-8"),
        (b"{" + b")\x01" * 50, "deep"),
        (b"{", "short"),
    ],
)
def test_f47_every_length_and_reference_is_checked(data, why):
    with pytest.raises(LoadError, match=why):
        stats_reader.parse(data, Limits())


def test_f47_one_dict_cannot_stand_for_many():
    # Sharing would let a small file describe a table of any size.
    shared = b"\xfb" + KEY + number(1) + b"0"
    data = b"{" + KEY + entry(shared)
    for i in range(2):
        key = b")\x03" + small(b"h") + number(i) + small(b"g")
        data += key + entry(b"r" + struct.pack("<i", 0))
    with pytest.raises(LoadError, match="reference"):
        stats_reader.parse(data + b"0", Limits())


def test_f46_the_number_of_values_is_limited(real_file):
    with pytest.raises(LoadError, match="max_entries=100"):
        loading.load(real_file, limits=Limits(max_entries=100))
    with pytest.raises(LoadError, match="max_name=4"):
        loading.load(real_file, limits=Limits(max_name=4))


def test_a_stats_file_becomes_a_report_that_says_what_it_lacks(real_file, tmp_path):
    report = loading.load(real_file)
    truth = pstats.Stats(str(real_file))
    assert len(report.functions) == len(truth.stats)
    for row in report.functions:
        cc, nc, tt, ct, callers = truth.stats[(row.file, row.line, row.name)]
        assert (row.primitive_calls, row.calls) == (cc, nc)
        assert (row.self_ms, row.cum_ms) == (tt * 1e3, ct * 1e3)
        assert {
            (e.file, e.line, e.qualname): (e.calls, e.primitive_calls) for e in row.callers
        } == {caller: edge[:2] for caller, edge in callers.items()}
    assert "Read from a .stats file" in str(report)
    report.save(tmp_path / "out.json")
    for suffix in (".fprof", ".stats", ".collapsed", ".speedscope.json"):
        with pytest.raises(ValueError, match="contexts of a recording"):
            report.save(tmp_path / f"out{suffix}")
        assert not (tmp_path / f"out{suffix}").exists()
