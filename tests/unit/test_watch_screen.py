"""The screen of ``fastprof watch PID``, on hand-made statuses."""

from __future__ import annotations

import pytest
from fastprof.cli.watch_screen import Seen, list_lines, process_lines, sparkline
from fastprof.session.outside.places import Process
from fastprof.session.outside.status import Now, now_from

PROCESS = Process(4711, 7, "", "run", "train.py", "3.11.2", "0.1.0")
NOW = Now(
    beat=3,
    steps=4360,
    phase="steps",
    place="data, Lines.__getitem__ (data.py:29)",
    block_steps=16,
    block_ms=(8.0, 8.0, 4.0, 12.0),
    sections=(("data", 4.0), ("forward", 2.0)),
    functions=(("Lines.__getitem__", "/home/me/data.py", 29, 0.9), ("main", "train.py", 9, 0.1)),
    gpu=(1 << 30, 2 << 30),
    said=("Rank 1 is late.",),
)


def lines(now, width=80, *, ascii_only=False):
    return process_lines(Seen(PROCESS, 75.0, 512 << 20, now), width, ascii_only=ascii_only)


def test_one_process_on_a_screen():
    assert lines(NOW) == [
        "train.py (process 4711, runs for 75.0 s): 4360 steps, 8.00 ms each in the last",
        "  10 s",
        "",
        "step time  ▆▆▃█",
        "           4.00 to 12.0 ms, means of 16 steps",
        "",
        "where a step goes     ms     %",
        "data                4.00  50.0",
        "forward             2.00  25.0",
        "(in none of these)  2.00  25.0",
        "",
        "your functions                    %",
        "Lines.__getitem__  data.py:29  90.0",
        "main  train.py:9               10.0",
        "",
        "Now in data, Lines.__getitem__ (data.py:29).",
        "Memory: 512 MiB of the host; GPU: 1.00 GiB allocated, 2.00 GiB reserved by",
        "  torch.",
        "",
        "Reported so far:",
        "- Rank 1 is late.",
    ]


def test_a_terminal_without_these_characters_gets_others():
    assert "step time  *" in "\n".join(lines(NOW, ascii_only=True))
    assert "\n".join(lines(NOW, ascii_only=True)).isascii()


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, lines(NOW, width))) <= width
    assert max(map(len, list_lines([Seen(PROCESS, 75.0, None, NOW)], width))) <= width


def test_what_is_unknown_is_left_out():
    empty = Now(0, 0, "setup", "", 1, (), (), None, None, ())
    assert process_lines(Seen(PROCESS, None, None, empty), 80, ascii_only=False)[0] == (
        "train.py (process 4711): no step yet"
    )
    assert process_lines(Seen(PROCESS, None, None, None), 80, ascii_only=False) == [
        "train.py (process 4711): no answer yet"
    ]


def test_names_cannot_control_the_terminal():
    hostile = "\x1b[2J\u202e"
    now = Now(0, 1, hostile, hostile, 1, (1.0,), ((hostile, 1.0),),
              ((hostile, hostile, 1, 1.0),), None, (hostile,))  # fmt: skip
    process = Process(1, 1, "", "run", hostile, "3", "1")
    seen = Seen(process, 1.0, 1, now)
    text = "\n".join([*process_lines(seen, 80, ascii_only=False), *list_lines([seen], 80)])
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_list_has_a_row_for_each_process():
    rank = Process(4712, 7, "", "run", "train.py", "3.11.2", "0.1.0", "", "", 1, 2)
    alone = list_lines([Seen(PROCESS, 75.0, None, NOW)], 100)
    assert alone[0].split() == [
        "process",
        "program",
        "runs",
        "for",
        "steps",
        "ms/step",
        "now",
        "in",
    ]
    both = list_lines([Seen(PROCESS, 75.0, None, NOW), Seen(rank, 75.0, None, None)], 100)
    assert "rank" in both[0]
    assert both[-1].split() == [
        "4712", "train.py", "75.0", "s", "1", "n/a", "n/a", "no", "answer",
    ]  # fmt: skip


def test_bars_are_as_high_as_their_values():
    assert sparkline([0, 1, 2, 4], "0123") == "0123"
    assert sparkline([0.0, 0.0], "01") == "00"
    assert sparkline([], "01") == ""


@pytest.mark.parametrize(
    "change",
    [{"steps": "x"}, {"sections": [1]}, {"gpu": [1]}, {"functions": 5}, {"block_ms": None}],
    ids=str,
)
def test_a_status_of_another_version_is_refused(change):
    from dataclasses import asdict

    good = asdict(NOW)
    assert now_from(good) == NOW
    with pytest.raises(ValueError, match="another version"):
        now_from({**good, **change})
    with pytest.raises(ValueError, match="another version"):
        now_from({})
