"""Loader names in metric keys."""

from __future__ import annotations

import re

import pytest
from fastprof.session.output.metric_names import component_among
from hypothesis import given
from hypothesis import strategies as st

ALLOWED = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")


def alone(name: str) -> str:
    return component_among(name, set())


HOSTILE = [
    "../x", "a/b", "a b", "{}", "x" * 300, "CON", ".", "..", "...", "\0", "\n", "\x1b[31m",
    "</ScRiPt><script>", "=1+1", "@x", "\ud800", "\u202e", "é", "$(reboot)", "x" * 10_000_000,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: ascii(n)[:20])
def test_f44_hostile_names_become_one_harmless_path_component(name) -> None:
    clean = component_among(name, set())
    assert ALLOWED.match(clean)
    assert clean.strip(".")


def test_s4_13_a_slash_and_a_space_become_underscores() -> None:
    assert alone("a/b c") == "a_b_c"
    assert alone("main-2.x_y") == "main-2.x_y"


def test_f44_cut_names_stay_different() -> None:
    one, two = alone("x" * 300 + "1"), alone("x" * 300 + "2")
    assert one != two
    assert len(one) == len(two) == 100
    assert alone("y" * 100) == "y" * 100


@given(st.lists(st.text(min_size=1, max_size=130), unique=True, max_size=30))
def test_f44_names_never_collide(names) -> None:
    taken: set[str] = set()
    for name in names:
        clean = component_among(name, taken)
        assert ALLOWED.match(clean)
        assert clean not in taken
        taken.add(clean)


def test_f44_a_hash_distinguishes_names_that_collide() -> None:
    clean = component_among("a b", {"a_b"})
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", clean)
    again = component_among("a b", {"a_b", clean})
    assert again not in {"a_b", clean}
