"""NVIDIA's own `nvtx` package as the library whose ranges become sections."""

from __future__ import annotations

import importlib.util

import pytest
from helpers import BACKENDS
from nvtx_kit import VARIABLE, build_listener, run_nvtx

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nvtx") is None, reason="needs the nvtx package"
)

HEAD = """
import sys, threading
import fastprof
from fastprof import profile_section
from fastprof.capture import nvtx as capture
from nvtx_child import *
"""


def test_annotations_become_sections() -> None:
    run_nvtx(
        HEAD
        + """
assert capture.begin() is None
import nvtx

@nvtx.annotate("decorated", color="red", domain="lib", category="c")
def f():
    with nvtx.annotate("inside"):
        pass

def in_a_thread():
    for _ in range(10):
        nvtx.push_range("thread")
        nvtx.pop_range()

with fastprof.Profiler(functions=False, nvtx=False, skip_first=0) as prof:
    for i in range(5):
        with profile_section("step"):
            with nvtx.annotate("forward", payload=i):
                f()
            nvtx.mark("a mark is no section")
            number = nvtx.start_range("process")
            nvtx.end_range(number)
            domain = nvtx.get_domain("own domain")
            attributes = domain.get_event_attributes(message="message")
            domain.push_range(attributes)
            domain.pop_range()
    threads = [threading.Thread(target=in_a_thread) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
capture.end()
with nvtx.annotate("after"):
    pass
assert counts(prof) == {
    "step": 5, "forward": 5, "lib/decorated": 5, "inside": 5, "process": 5,
    "own domain/message": 5, "thread": 40}, counts(prof)
assert {"step/forward/lib/decorated/inside", "step/process",
        "step/own domain/message", "thread"} <= set(paths(prof)), paths(prof)
assert not prof.snapshot().counters
"""
    ).check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_and_ranges_are_both_right(backend: str) -> None:
    run_nvtx(
        HEAD
        + """
assert capture.begin() is None
import nvtx

def leaf():
    return sum(range(50))

def work():
    with nvtx.annotate("range"):
        for _ in range(3):
            leaf()

with fastprof.Profiler(
    functions=True, nvtx=False, recorder={"backend": sys.argv[1]}
) as prof:
    for _ in range(20):
        work()
report = prof.report()
rows = {row.name: row for row in report.functions if row.name in ("leaf", "work")}
assert rows["leaf"].calls == 60 and rows["work"].calls == 20, rows
assert counts(prof) == {"range": 20}
assert not prof.snapshot().counters
# `leaf` runs inside of the range, whatever else is on the path.
snapshot = prof.snapshot()
inside = 0
for thread in snapshot.threads:
    nodes = thread.nodes
    for i in range(len(nodes.key)):
        if nodes.parent[i] >= 0 and snapshot.keys[nodes.key[i]].qualname == "leaf":
            above = nodes.parent[i]
            while nodes.parent[above] >= 0 and snapshot.keys[nodes.key[above]].kind != "section":
                above = nodes.parent[above]
            assert snapshot.keys[nodes.key[above]].name == "range"
            inside += nodes.calls[i]
assert inside == 60, inside
""",
        backend,
    ).check()


def test_a_tool_hears_sections_and_ranges(tmp_path) -> None:
    tool = str(build_listener(tmp_path))
    run_nvtx(
        HEAD
        + """
assert capture.begin_out() is None
import nvtx
tool = listener(sys.argv[1])
# The listener of the tests takes plain messages, the package sends registered ones.
with fastprof.Profiler(functions=False, nvtx=False) as prof:
    with profile_section("section"):
        with nvtx.annotate("library"):
            pass
lines = [line.split(maxsplit=2)[1:] for line in heard(tool)]
assert [what for what, _ in lines] == ["push", "push", "pop", "pop"], lines
assert lines[0][1] == "fastprof section" and tool.started() == 2, lines
assert counts(prof) == {"section": 1}
""",
        tool,
        env={VARIABLE: tool},
    ).check()
