"""Sections become NVTX ranges when a tool listens."""

from __future__ import annotations

import glob
import os

import pytest
from nvtx_kit import VARIABLE, build_client, build_listener, run_nvtx

HEAD = """
import asyncio, os, sys, threading
import fastprof
from fastprof import _core, profile_section
from fastprof.capture import nvtx as capture
from nvtx_child import *

tool = listener(sys.argv[1])

def record():
    return fastprof.Profiler(functions=False, nvtx=False, skip_first=0)

def open_ranges():
    depth = {}
    for line in heard(tool):
        thread, what, *_ = line.split()
        assert "UNBALANCED" not in line, heard(tool)
        depth[thread] = depth.get(thread, 0) + (1 if what == "push" else -1)
    return sum(depth.values())
"""
ON = "assert capture.begin_out() is None\n"


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_listener(tmp_path_factory.mktemp("nvtx")))


def run(code: str, tool: str, **env: str) -> None:
    run_nvtx(HEAD + code, tool, env={VARIABLE: tool, **env}).check()


def test_sections_are_ranges_in_a_separate_domain(tool: str) -> None:
    run(
        ON
        + """
with profile_section("dormant"):
    pass
with record() as prof:
    for _ in range(2):
        with profile_section("step"):
            with profile_section("w\\u00e4rme"):
                pass
    @profile_section("decorated")
    def f():
        return 5
    assert f() == 5
    with profile_section("\\ud800"):
        pass
with profile_section("dormant"):
    pass
capture.end_out()
with record() as second:
    with profile_section("off"):
        pass
one = ["1 push fastprof step", "1 push fastprof w\\u00e4rme", "1 pop fastprof -",
       "1 pop fastprof -"]
assert heard(tool) == one + one + [
    "1 push fastprof decorated", "1 pop fastprof -",
    "1 push fastprof (section)", "1 pop fastprof -"], heard(tool)
assert counts(prof) == {"step": 2, "w\\u00e4rme": 2, "decorated": 1, "\\ud800": 1}
assert not prof.snapshot().counters
""",
        tool,
    )


def test_it_is_a_complete_client(tool: str) -> None:
    """It has exactly NVTX's modules, with every function."""
    run(
        ON
        + """
with record(), profile_section("a"):
    pass
assert len(heard(tool)) == 2
""",
        tool,
        LISTENER="strict",
    )


def test_a_tool_without_domains_gets_the_default_one(tool: str) -> None:
    run(
        ON
        + """
with record():
    with profile_section("a"):
        pass
assert heard(tool) == ["1 push - a", "1 pop - -"], heard(tool)
""",
        tool,
        LISTENER="core",
    )


def test_why_not(tool: str, tmp_path) -> None:
    client = str(build_client(tmp_path))
    reason = "reason = capture.begin_out()\nassert reason is not None and {!r} in reason, reason\n"
    rest = """
with record() as prof:
    with profile_section("a"):
        pass
assert heard(tool) == [] and counts(prof) == {"a": 1}
capture.end_out()
"""
    run(reason.format("did not start") + rest, tool, LISTENER="refuse")
    run(ON + rest, tool, LISTENER="deaf")
    run(reason.format("profiling is forced off"), tool, FASTPROF="0")
    for value, why in (
        ("", "no tool listens to NVTX"),
        (str(tmp_path / "gone.so"), "cannot be loaded"),
        ("relative/tool.so", "is not loaded"),
        (client, "is not an NVTX tool"),
    ):
        run_nvtx(HEAD + reason.format(why) + rest, tool, env={VARIABLE: value}).check()


def test_its_own_ranges_do_not_come_back(tool: str) -> None:
    """The extension is not its own tool, whichever way the path is written."""
    code = (
        HEAD
        + """
reason = capture.begin()
assert reason is None, reason
for path in (_core.__file__, sys.argv[2]):
    os.environ["NVTX_INJECTION64_PATH"] = path
    assert "fastprof itself" in capture.begin_out()
with record() as prof:
    with profile_section("a"):
        pass
assert counts(prof) == {"a": 1}
"""
    )
    extension = run_nvtx("import fastprof._core as c; print(c.__file__)").check().stdout.strip()
    link = os.path.join(os.path.dirname(tool), "link.so")
    os.symlink(extension, link)
    run_nvtx(code, tool, link).check()


def test_exceptions_and_generators(tool: str) -> None:
    run(
        ON
        + """
@profile_section("generator")
def numbers():
    yield 1
    yield 2

with record() as prof:
    try:
        with profile_section("a"), profile_section("b"):
            raise KeyError
    except KeyError:
        pass
    for i in numbers():
        with profile_section("body"):
            pass
    for i in numbers():
        break
assert open_ranges() == 0 and "nvtx_unbalanced" not in prof.snapshot().counters
assert [x.split()[-1] for x in heard(tool)][:4] == ["a", "b", "-", "-"]
""",
        tool,
    )


def test_out_of_order_a_range_ends_with_the_one_around_it(tool: str) -> None:
    run(
        ON
        + """
a, b, c = (profile_section(name) for name in "abc")
with record() as prof:
    a.__enter__(); b.__enter__(); c.__enter__()
    a.__exit__()           # ends b and c, too
    b.__exit__(); c.__exit__()
    a.__exit__()           # a stray one
    with c:
        pass
lines = [line.split(maxsplit=3)[1::2] for line in heard(tool)]
assert lines == [["push", "a"], ["push", "b"], ["push", "c"], *[["pop", "-"]] * 3,
                 ["push", "c"], ["pop", "-"]], lines
assert prof.snapshot().counters["nvtx_unbalanced"] == 2
assert any(note.startswith("NVTX ranges that ended") for note in prof.report().notes)
assert counts(prof) == {"a": 1, "b": 1, "c": 2}
""",
        tool,
    )


def test_tasks_that_take_turns_stay_balanced(tool: str) -> None:
    run(
        ON
        + """
async def work(n):
    for i in range(20):
        with profile_section(f"task"):
            with profile_section(f"part {n}"):
                await asyncio.sleep(0)

async def main():
    await asyncio.gather(*(work(n) for n in range(5)))

with record() as prof:
    with profile_section("all"):
        asyncio.run(main())
        assert open_ranges() >= 1
assert open_ranges() == 0
assert counts(prof)["task"] == 100
""",
        tool,
    )


def test_every_thread_has_its_own_stack(tool: str) -> None:
    run(
        ON
        + """
def work():
    for i in range(100):
        with profile_section("outer"):
            with profile_section("inner"):
                pass
with record() as prof:
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
assert open_ranges() == 0 and len(heard(tool)) == 8 * 400
assert not prof.snapshot().counters
""",
        tool,
    )


def test_what_is_open_when_it_ends(tool: str) -> None:
    run(
        ON
        + """
ready, go = threading.Event(), threading.Event()
def work():
    profile_section("left open").__enter__()
    ready.set()
    go.wait()
    with profile_section("second run"):
        pass
with record() as prof:
    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with profile_section("here"):
        prof.stop()
        capture.end_out()
        assert open_ranges() == 1  # the other thread's
assert capture.begin_out() is None
with record() as prof:
    go.set()
    thread.join()
    # Its next section ends what was left over.
    with profile_section("again"):
        pass
assert open_ranges() == 0
assert [line.split(maxsplit=3)[3] for line in heard(tool)] == [
    "left open", "here", "-", "-", "second run", "-", "again", "-"], heard(tool)
assert tool.started() == 1
""",
        tool,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_emits_nothing_until_it_starts(tool: str) -> None:
    run(
        ON
        + """
import warnings
warnings.simplefilter("ignore")
with record() as prof:
    with profile_section("parent"):
        before = len(heard(tool))
        pid = os.fork()
        if pid == 0:
            with profile_section("child"):
                pass
            good = len(heard(tool)) == before
            good = good and capture.begin_out() is None
            with record():
                with profile_section("own"):
                    pass
            lines = [line.split(maxsplit=3)[3] for line in heard(tool)[before:]]
            os._exit(0 if good and lines == ["-", "own", "-"] else 1)
        assert os.waitpid(pid, 0)[1] == 0
assert open_ranges() == 0
""",
        tool,
    )


def test_with_synchronization(tool: str) -> None:
    run(
        ON
        + """
with fastprof.Profiler(functions=False, nvtx=False, sync="cuda") as prof:
    _core.set_sync_function(lambda: order.append(len(heard(tool))))
    order = []
    with profile_section("a"):
        pass
    with profile_section("b", sync=False):
        pass
# Outside of the range first, then inside of it.
assert order == [0, 1] and open_ranges() == 0
assert counts(prof) == {"a": 1, "b": 1}
""",
        tool,
    )


def test_ranges_of_a_library_pass_by(tool: str, tmp_path) -> None:
    """The tool receives both; fastprof ignores the library's ranges."""
    client = str(build_client(tmp_path))
    code = (
        HEAD
        + ON
        + """
c = client(sys.argv[2])
assert capture.begin() is not None
with record() as prof:
    with profile_section("a"):
        c.push_a(b"library")
        c.pop()
assert counts(prof) == {"a": 1}
assert heard(tool) == ["1 push fastprof a", "1 push - library", "1 pop - -", "1 pop fastprof -"]
assert tool.started() == 2
"""
    )
    run_nvtx(code, tool, client, env={VARIABLE: tool}).check()


def test_a_tool_may_take_ranges_later(tool: str) -> None:
    """CUPTI sets its functions when a client requests markers."""
    run(
        ON
        + """
with record() as prof:
    with profile_section("before"):
        tool.attach_now()
        with profile_section("after"):
            pass
assert heard(tool) == ["1 push fastprof after", "1 pop fastprof -"], heard(tool)
assert counts(prof) == {"before": 1, "after": 1} and not prof.snapshot().counters
""",
        tool,
        LISTENER="late",
    )


def test_the_real_cupti_is_such_a_tool() -> None:
    found = sorted(glob.glob("/usr/local/cuda*/**/libcupti.so*", recursive=True))
    if not found:
        pytest.skip("no libcupti on this machine")
    code = """
import fastprof
from fastprof import profile_section
from fastprof.capture import nvtx as capture
reason = capture.begin_out()
assert reason is None, reason
with fastprof.Profiler(functions=False, nvtx=False) as prof:
    for _ in range(100):
        with profile_section("a"), profile_section("b"):
            pass
capture.end_out()
assert not prof.snapshot().counters
"""
    run_nvtx(code, env={VARIABLE: found[-1]}).check()
