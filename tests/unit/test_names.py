"""Hostile names through every exporter and every reader of our files."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import json
import pstats
import re
import sys
import textwrap
import types
import unicodedata

import pytest
from fastprof.names import (
    MAX_NAME,
    cut,
    elided,
    encodable,
    ends_cut,
    printable_name,
    readable,
    text_width,
    without_surrogates,
)
from fastprof.render import terminal
from fastprof.results import saved as loading
from fastprof.results.report import build_report
from fastprof.tables.cells import Table
from fastprof.tables.layout import table_lines, wrapped
from helpers import run_child, run_command
from hypothesis import given
from hypothesis import strategies as st
from unit.hostile import NAMES, snapshot_with

SUFFIXES = (".fprof", ".stats", ".json", ".txt", ".speedscope.json", ".collapsed",
            ".gpu.speedscope.json", ".gpu.collapsed")  # fmt: skip
any_name = st.text(st.characters(), max_size=30)


def saved(tmp_path, name, suffix):
    path = tmp_path / f"out{suffix}"
    build_report(snapshot_with(NAMES[name])).save(path)
    return path


def assert_prints(text, also=""):
    bad = {c for c in text if unicodedata.category(c)[0] in "CZ" and c not in " " + also}
    assert not bad, [hex(ord(c)) for c in sorted(bad)]


@given(any_name, st.integers(3, 40))
def test_p4_names_for_people_print_and_fit(name, limit):
    out = readable(name, limit)
    assert_prints(out)
    assert text_width(out) <= limit
    if name.isprintable() and text_width(name) <= limit:
        assert out == name


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "shift_jis", "no such"])
@given(any_name)
def test_p4_an_output_gets_what_it_can_encode_and_escapes_of_the_rest(encoding, name):
    name = readable(name)
    stream = types.SimpleNamespace(encoding=encoding)
    out = encodable(name, stream)
    known = "ascii" if encoding == "no such" else encoding
    out.encode(known)
    with contextlib.suppress(UnicodeEncodeError):
        # Some encodings read what they wrote as another character.
        assert out == name.encode(known).decode(known)


def test_p4_only_an_object_without_encoding_is_judged_by_the_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "__stdout__", types.SimpleNamespace(encoding="ascii"))
    assert encodable("caf\u00e9", object()) == "caf\\xe9"
    assert encodable("caf\u00e9", io.StringIO()) == "caf\u00e9"


def test_widths_are_columns_of_a_terminal():
    texts = ("abc", "\u524d\u5411", "e\u0301", "\uff21", "\u00e9")
    assert list(map(text_width, texts)) == [3, 4, 1, 2, 1]
    assert readable("\u524d\u5411" * 9, 10) == "\u524d\u5411\u524d..."
    assert elided("\u524d" * 9, 11) == "\u524d...\u524d\u524d"
    assert elided("\u524d\u524d.\u5411." + "x" * 9, 16) == "\u524d\u524d..." + "x" * 9
    assert ends_cut(["\u524d" * 9, "\u524d" * 8], 11)[1] == "\u524d\u524d\u524d...#2"


@given(st.text("ab\u524de\u0301 ", max_size=60), st.integers(10, 30))
def test_lines_and_cells_are_no_wider_than_the_terminal(text, width):
    lines = wrapped(text, width, "- ")
    assert all(text_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "-" + text.replace(" ", "")
    drawn = table_lines(Table("", ("name", "ms"), ((text.strip() or "x", "1.0"), ("y", "12.0"))))
    assert len({text_width(line) for line in drawn}) == 1


@given(st.lists(st.text("abc-.", min_size=1, max_size=9), max_size=20), st.integers(20, 40))
def test_ascii_is_wrapped_as_the_standard_library_does(words, width):
    text = " ".join(words)
    assert wrapped(text, width, "", "  ") == (
        textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]
    )


def test_readers_see_no_hash_and_names_of_series_stay_apart():
    assert readable("x" * 61, 60) == "x" * 57 + "..."
    assert cut("x" * 61, 60) != cut("x" * 62, 60)


@given(any_name)
def test_p4_printable_names_keep_letters_and_escape_the_rest(name):
    out = printable_name(name)
    assert_prints(out)
    out.encode()
    if name.isprintable():
        assert out == name


@given(any_name)
def test_f43_names_in_json_have_no_lone_surrogate_and_lose_nothing_else(name):
    out = without_surrogates(name)
    out.encode()
    if not any(0xD800 <= ord(c) < 0xE000 for c in name):
        assert out == name


def test_f43_cut_names_stay_different():
    first, second = "x" * 1_000_000 + "a", "x" * 1_000_000 + "b"
    assert len(cut(first)) == len(cut(second)) == MAX_NAME
    assert cut(first) != cut(second)
    assert cut("short") == "short"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_f43_every_exporter_writes_every_name(tmp_path, name, suffix):
    path = saved(tmp_path, name, suffix)
    data = path.read_bytes()
    if suffix == ".fprof":
        data = gzip.decompress(data)
    if suffix == ".stats":
        # Readers of .stats print names unchanged.
        for function, row in pstats.Stats(str(path)).stats.items():
            for part in (function, *row[4]):
                assert_prints(part[0] + part[2])
                assert len(part[0]) <= 10 * MAX_NAME
        return
    text = data.decode("utf-8")
    assert_prints(text, also="\n")
    if suffix.endswith("json") or suffix == ".fprof":
        assert text.isascii()
        strict = json.loads(text, parse_constant=lambda _: pytest.fail("not strict JSON"))
        json.dumps(strict, ensure_ascii=False).encode()  # no lone surrogate after decoding
    if suffix == ".txt":
        assert max(map(len, text.splitlines())) < 6 * MAX_NAME
    if suffix == ".collapsed":
        stacks = [line.rsplit(" ", 1) for line in text.splitlines()]
        total = sum(int(weight) for _, weight in stacks)
        report = build_report(snapshot_with(NAMES[name]))
        assert total == round(report.threads[0].total_ms * 1e6)
        assert max(stack.count(";") for stack, _ in stacks) == 4


@pytest.mark.parametrize("name", NAMES)
def test_f43_a_saved_run_is_read_back(tmp_path, name):
    report = loading.load(saved(tmp_path, name, ".fprof"))
    expected = without_surrogates(NAMES[name])
    assert report.sections[0].name == expected
    assert report.section(expected).count == 10
    assert report.functions[0].qualname == expected
    assert [r.self_ms for r in report.functions] == [
        r.self_ms for r in build_report(snapshot_with(NAMES[name])).functions
    ]
    # And .stats without marshal, as pstats reads it.
    path = saved(tmp_path, name, ".stats")
    assert len(loading.load(path).functions) == len(pstats.Stats(str(path)).stats)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", NAMES)
def test_p4_nothing_in_a_name_reaches_the_terminal_raw(name, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "250")
    stream = Terminal()
    terminal.show(build_report(snapshot_with(NAMES[name])), stream, full=True)
    drawn = stream.getvalue()
    assert "\u2501" in drawn or "\u2500" in drawn  # it was drawn
    without_style = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", without_style)
    if name == "markup":
        assert "[red]bold" in without_style.replace("\n", "")
    if name == "ESC":
        assert "\x1b[31m" not in drawn
        assert "\\x1b[31mred" in without_style


def test_text_is_plain_where_the_stream_is_no_terminal():
    stream = io.StringIO()
    report = build_report(snapshot_with("f"))
    terminal.show(report, stream)
    assert stream.getvalue() == report.to_text() == str(report)


# ---- foreign readers ----


@pytest.mark.parametrize("name", NAMES)
def test_f43_snakeviz_reads_every_name(tmp_path, name):
    stats = pytest.importorskip("snakeviz.stats")
    loaded = pstats.Stats(str(saved(tmp_path, name, ".stats")))
    json.dumps(stats.json_stats(loaded), allow_nan=False).encode()
    assert len(stats.json_stats(loaded)) == 3
    assert len(stats.table_rows(loaded)) == 3


@pytest.mark.parametrize("name", NAMES)
def test_f43_tuna_reads_every_name(tmp_path, name):
    tuna = pytest.importorskip("tuna.main")
    tree = tuna.read(str(saved(tmp_path, name, ".stats")))
    json.dumps(tree, allow_nan=False).encode()


needs = {module: importlib.util.find_spec(module) for module in ("gprof2dot", "flameprof")}


@pytest.mark.skipif(not needs["gprof2dot"], reason="gprof2dot is not installed")
def test_f43_gprof2dot_reads_every_name(tmp_path):
    for number, name in enumerate(NAMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = saved(folder, name, ".stats")
        command = [sys.executable, "-m", "gprof2dot", "-f", "pstats", "-n0", "-e0", str(path)]
        dot = run_command(command).check().stdout
        assert dot.count("->") == 2, name
        assert dot.startswith("digraph"), name


@pytest.mark.skipif(not needs["flameprof"], reason="flameprof is not installed")
def test_f43_flameprof_reads_every_name(tmp_path):
    paths = []
    for number, name in enumerate(NAMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths.append(str(saved(folder, name, ".stats")))
    # Its script reads one file; one process reads all of them.
    run_child(
        "import runpy, sys\n"
        "for path in list(sys.argv[1:]):\n"
        "    sys.argv = ['flameprof', '--format=log', path]\n"
        "    runpy.run_module('flameprof', run_name='__main__')\n",
        *paths,
    ).check()
