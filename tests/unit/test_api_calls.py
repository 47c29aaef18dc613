"""Compares the table of CUDA calls in csrc/gpu/api_calls.c to installed NVIDIA headers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import ROOT

INCLUDE = sorted(Path("/usr/local").glob("cuda*/include/cupti_driver_cbid.h"))
DOMAINS = ["RUNTIME", "DRIVER"]
# Calls with similar names that cause no records on the device: they build a graph, run a function
# on the host, move pages, or were replaced by CUDA 3.2.
OTHER = re.compile(
    r"Graph(Exec|Add)?\w*(Node|Params)|LaunchHostFunc|BatchMemOp|Prefetch|Discard"
    r"|^cu64|^cuMemcpy_v2$|Decompress|MemSet(Access|MemPool|Attribute)|LaunchAttribute"
)
ALIKE = re.compile(r"Launch|Memcpy|Memset|Synchronize")


def table(domain: str) -> dict[int, tuple[str, str]]:
    text = (ROOT / "csrc" / "gpu" / "api_calls.c").read_text(encoding="utf-8")
    part = re.search(rf"#define {domain}_CALLS\(X\)(.*?)\n\n", text, re.S)
    assert part is not None
    rows = re.findall(r"X\((\d+), (\w+), (\w+)\)", part[1])
    found = {int(number): (what, name) for number, what, name in rows}
    assert len(found) == len(rows) > 60
    return found


def header(domain: str) -> dict[int, str]:
    if not INCLUDE:
        pytest.skip("no CUPTI headers on this machine")
    text = INCLUDE[-1].with_name(f"cupti_{domain.lower()}_cbid.h").read_text(encoding="utf-8")
    rows = re.findall(rf"CUPTI_{domain}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
    return {int(number): re.sub(r"_v\d{4,5}$", "", name) for name, number in rows}


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_number_is_the_call_that_is_named(domain: str) -> None:
    names = header(domain)
    newest = max(number for number, name in names.items() if name != "SIZE")
    assert [
        (number, name, names.get(number))
        for number, (_, name) in table(domain).items()
        if number <= newest and names.get(number) != name
    ] == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_call_that_gives_work_or_waits_is_missing(domain: str) -> None:
    known = table(domain)
    assert [
        name
        for number, name in header(domain).items()
        if ALIKE.search(name) and not OTHER.search(name) and number not in known
    ] == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_twins_are_of_one_class(domain: str) -> None:
    by_name = {name: what for what, name in table(domain).values()}
    assert [
        name
        for name, what in by_name.items()
        if by_name.get(re.sub(r"_(ptsz|ptds)$|_v2(_ptsz|_ptds)?$", "", name), what) != what
    ] == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_an_asynchronous_call_does_not_wait(domain: str) -> None:
    for what, name in table(domain).values():
        assert (what == "SYNC") == ("Synchronize" in name), name
        assert (what == "GRAPH") == bool(re.search("Graph|Batch|MultiDevice", name)), name
        if "Async" in name or "Launch" in name or "Memset" in name:
            assert what in ("LAUNCH", "GRAPH"), name
