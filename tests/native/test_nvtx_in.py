"""NVTX ranges of other libraries become sections; the tests need no GPU or NVIDIA library."""

from __future__ import annotations

import os

import pytest
from helpers import run_command
from nvtx_kit import SOURCES, VARIABLE, build_client, build_listener, compile_c, run_nvtx

HEAD = """
import os, sys, threading
import fastprof
from fastprof import _core, profile_section
from fastprof.capture import nvtx as capture
from nvtx_child import *

path = sys.argv[1]
assert capture.begin() is None
c = client(path)
free = client(path, gil=False)  # the same library, called without the GIL

def record():
    return fastprof.Profiler(functions=False, nvtx=False, skip_first=0)
"""


@pytest.fixture(scope="module", params=["own", "real"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the standalone client, and one built on NVIDIA's headers if installed."""
    return str(build_client(tmp_path_factory.mktemp("nvtx"), request.param))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_client(tmp_path_factory.mktemp("nvtx")))


def test_every_way_to_name_a_range(client: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    assert c.push_a(b"ascii") == 0 and c.pop() == 0
    assert c.push_w("w\\u00efde \\U0001f600") == 0 and c.pop() == 0
    assert c.push_ex(ASCII, b"ex") == 0 and c.pop() == 0
    text = ctypes.create_unicode_buffer("ex wide")
    assert c.push_ex(WIDE, ctypes.addressof(text)) == 0 and c.pop() == 0
    assert c.push_ex(REGISTERED, c.register_a(None, b"kept")) == 0 and c.pop() == 0
    assert c.push_ex(NONE, None) == 0 and c.pop() == 0
    assert c.push_ex(ASCII, None) == 0 and c.pop() == 0
    assert c.push_ex(TOO_SMALL, b"old") == 0 and c.pop() == 0
    assert c.push_ex(WIDE, None) == 0 and c.pop() == 0
    assert c.push_ex(REGISTERED, None) == 0 and c.pop() == 0
    assert c.push_a(None) == 0 and c.pop() == 0
    assert c.push_a(b"") == 0 and c.pop() == 0
    for i in range(3):
        lib = c.domain_a(b"lib")
        assert c.domain_push(lib, ASCII, b"x") == 0 and c.domain_pop(lib) == 0
        assert c.domain_push(lib, REGISTERED, c.register_a(lib, b"kept")) == 0
        assert c.domain_pop(lib) == 0
        assert c.domain_push(lib, REGISTERED, c.register_w(lib, "b\\u00fcro")) == 0
        assert c.domain_pop(lib) == 0
        c.destroy(lib)
    wide = c.domain_w("br\\u00fccke")
    assert wide != lib
    assert c.domain_push(wide, ASCII, b"x") == 0 and c.domain_pop(wide) == 0
got = counts(prof)
assert got == {
    "ascii": 1, "w\\u00efde \\U0001f600": 1, "ex": 1, "ex wide": 1, "kept": 1,
    "(unnamed NVTX range)": 7, "lib/x": 3, "lib/kept": 3, "lib/b\\u00fcro": 3,
    "br\\u00fccke/x": 1}, got
assert not prof.snapshot().counters
""",
        client,
    ).check()


def test_levels_are_counted_per_domain_and_thread(client: str) -> None:
    run_nvtx(
        HEAD
        + """
lib = c.domain_a(b"lib")
with record() as prof:
    assert [c.push_a(b"a") for _ in range(40)] == list(range(40))
    assert [c.domain_push(lib, ASCII, b"b") for _ in range(3)] == [0, 1, 2]
    levels = []
    def other():
        levels.extend([c.push_a(b"t"), c.push_a(b"t"), c.pop(), c.pop(), c.pop()])
    thread = threading.Thread(target=other)
    thread.start(); thread.join()
    assert levels == [0, 1, 1, 0, -1], levels
    assert [c.pop() for _ in range(41)] == [*reversed(range(40)), -1]
    assert [c.domain_pop(lib) for _ in range(4)] == [2, 1, 0, -1]
assert counts(prof) == {"a": 40, "lib/b": 3, "t": 2}
assert prof.snapshot().counters["nvtx_unmatched"] == 3
""",
        client,
    ).check()


def test_ranges_nest_with_sections_and_with_each_other(client: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    for _ in range(2):
        with profile_section("step"):
            c.push_a(b"outer")
            with profile_section("between"):
                c.push_a(b"inner")
                c.pop()
            c.pop()
        prof.step()
assert paths(prof) == ["step", "step/outer", "step/outer/between", "step/outer/between/inner"]
rows = {prof.snapshot().keys[s.key].name: s for s in prof.snapshot().sections}
assert rows["step"].sum_ns >= rows["outer"].sum_ns >= rows["between"].sum_ns \\
    >= rows["inner"].sum_ns > 0
assert prof.steps == 2
""",
        client,
    ).check()


def test_domains_may_cross(own: str) -> None:
    run_nvtx(
        HEAD
        + """
lib = c.domain_a(b"lib")
with record() as prof:
    c.push_a(b"a")
    c.domain_push(lib, ASCII, b"b")
    assert c.pop() == 0
    assert c.domain_pop(lib) == 0
    c.push_a(b"after")
    c.pop()
assert counts(prof) == {"a": 1, "lib/b": 1, "after": 1}
assert "after" in paths(prof) and still_open(prof) == 0
""",
        own,
    ).check()


def test_without_the_gil_ranges_are_counted_and_stay_balanced(client: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    assert c.push_a(b"held") == 0
    assert free.push_a(b"free") == 1
    assert c.push_a(b"inside") == 2
    assert c.pop() == 2
    assert free.pop() == 1
    assert c.pop() == 0
    assert free.native_thread(10) == 0
    assert c.native_thread(10) == 0
assert counts(prof) == {"held": 1, "inside": 1}
assert prof.snapshot().counters == {"nvtx_without_gil": 21}
assert "NVTX ranges not timed, because their thread did not hold the GIL: 21." in \\
    prof.report().notes
""",
        client,
    ).check()


def test_a_subinterpreter_does_not_confuse_who_holds_the_gil(own: str) -> None:
    run_nvtx(
        HEAD
        + """
import ctypes
# Since there was one, PyGILState_Check() says yes to everybody.
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
interpreters.destroy(interpreters.create())
with record() as prof:
    free.push_a(b"free")
    free.pop()
    assert free.native_thread(5) == 0
    c.push_a(b"held")
    c.pop()
assert counts(prof) == {"held": 1}
assert prof.snapshot().counters == {"nvtx_without_gil": 6}
""",
        own,
    ).check()


def test_a_range_that_ends_without_the_gil_leaves_the_path(own: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    c.push_a(b"lost")
    assert free.pop() == 0
    c.push_a(b"next")
    c.pop()
    number = c.start_a(b"process")
    free.end(number)
    c.push_a(b"last")
    c.pop()
assert counts(prof) == {"next": 1, "last": 1}, counts(prof)
assert {"next", "last"} <= set(paths(prof)) and still_open(prof) == 0
assert prof.snapshot().counters == {"nvtx_without_gil": 2}
""",
        own,
    ).check()


def test_process_ranges_need_not_nest(client: str) -> None:
    run_nvtx(
        HEAD
        + """
lib = c.domain_a(b"lib")
text = ctypes.create_unicode_buffer("ex")
with record() as prof:
    a = c.start_a(b"a")
    b = c.start_w("b")
    d = c.start_ex(WIDE, ctypes.addressof(text))
    e = c.domain_start(lib, REGISTERED, c.register_a(lib, b"e"))
    assert len({0, a, b, d, e}) == 5
    c.end(a)
    c.domain_end(lib, e)
    c.end(b)
    c.end(d)
    c.end(d)  # again: ignored
    c.end(123456789)
    c.end(0)
    free.end(free.start_a(b"free"))
    c.push_a(b"after")
    c.pop()
assert counts(prof) == {"a": 1, "b": 1, "ex": 1, "lib/e": 1, "after": 1}
assert "after" in paths(prof) and still_open(prof) == 0
assert prof.snapshot().counters["nvtx_without_gil"] == 1
""",
        client,
    ).check()


def test_a_process_range_belongs_to_the_thread_in_which_it_began(own: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    number = c.start_a(b"handed over")
    thread = threading.Thread(target=c.end, args=(number,))
    thread.start(); thread.join()
    c.push_a(b"after")
    c.pop()
    numbers = []
    thread = threading.Thread(target=lambda: numbers.append(c.start_a(b"its thread ended")))
    thread.start(); thread.join()
    c.end(numbers[0])
assert counts(prof) == {"handed over": 1, "after": 1, "its thread ended": 1}
assert "after" in paths(prof) and still_open(prof) == 0
""",
        own,
    ).check()


def test_more_process_ranges_than_are_kept(own: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    numbers = [c.start_a(b"many") for _ in range(300)]
    for number in numbers:
        c.end(number)
assert counts(prof) == {"many": 256} and still_open(prof) == 0
with record() as prof:
    numbers = [c.start_a(b"many") for _ in range(300)]
with record() as second:  # those of a recording that is over are in nobody's way
    number = c.start_a(b"one")
    for n in numbers:
        c.end(n)
    c.end(number)
assert counts(second) == {"one": 1}
""",
        own,
    ).check()


def test_a_range_left_open_does_not_reach_the_next_run(own: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    c.push_a(b"open")
    c.push_a(b"also open")
    c.start_a(b"never ends")
assert still_open(prof) == 3
assert any("still open" in note for note in prof.report().notes)
assert c.pop() == 1
assert c.push_a(b"not recorded") == 1 and c.pop() == 1
with record() as prof:
    assert c.pop() == 0
    assert c.push_a(b"second") == 0 and c.pop() == 0
assert counts(prof) == {"second": 1} and not prof.snapshot().counters
""",
        own,
    ).check()


def test_levels_are_kept_while_it_is_off(own: str) -> None:
    run_nvtx(
        HEAD
        + """
assert c.push_a(b"before") == 0
capture.end()
assert VARIABLE not in os.environ and _core.nvtx_tool() is None
with record() as prof:
    assert c.push_a(b"off") == 1
    assert capture.begin() is None
    assert c.push_a(b"on") == 2
    assert [c.pop(), c.pop(), c.pop(), c.pop()] == [2, 1, 0, -1]
    c.push_a(b"on again")
    capture.end()
    c.pop()  # off, but what it opened is closed
    profile_section("plain").__enter__()
    profile_section("plain").__exit__()
assert counts(prof) == {"on": 1, "on again": 1, "plain": 1}
assert "plain" in paths(prof)
""".replace("VARIABLE", repr(VARIABLE)),
        own,
    ).check()


def test_names_that_change_at_every_step_are_bounded(own: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    with profile_section("known"):
        pass
    for i in range(2000):
        c.push_a(f"iteration {i}".encode())
        c.pop()
    c.push_a(b"known")
    c.pop()
    handles = {c.register_a(None, f"registered {i}".encode()) for i in range(25000)}
    for handle in list(handles)[:100]:
        c.push_ex(REGISTERED, handle)
        c.pop()
got = counts(prof)
assert got["(other NVTX ranges)"] == 1600 and got["known"] == 2, got
assert len(got) == 502 and len(handles) == 20001, (len(got), len(handles))
""",
        own,
    ).check()


def test_names_that_are_no_text(own: str) -> None:
    run_nvtx(
        HEAD
        + """
with record() as prof:
    for name in (b"\\xff\\xfe", b"long " * 100000):
        c.push_a(name)
        c.pop()
    for code in (0xD800, 0x110000, 0x7FFFFFFF):
        text = (ctypes.c_uint32 * 2)(code, 0)
        c.push_ex(WIDE, ctypes.addressof(text))
        c.pop()
    text = (ctypes.c_uint32 * 100001)(*[0x1F600] * 100000, 0)
    c.push_ex(WIDE, ctypes.addressof(text))
    c.pop()
    c.push_ex(REGISTERED, c.register_a(None, None))
    c.pop()
    c.push_ex(REGISTERED, c.register_w(None, None))
    c.pop()
    c.domain_push(c.domain_a(None), ASCII, b"x")
    c.domain_pop(c.domain_a(None))
    c.domain_w(None)
got = counts(prof)
assert got.pop("\\ufffd\\ufffd") == 1 and got.pop("?") == 3 and got.pop("/x") == 1, got
assert got.pop("(unnamed NVTX range)") == 2
assert len(got) == 2 and all(len(name) < 1100 for name in got), got
""",
        own,
    ).check()


def test_pushes_without_pops_take_bounded_memory(own: str) -> None:
    run_nvtx(
        HEAD
        + """
for level in range(70000):
    assert c.push_a(b"deep") == level
for level in reversed(range(70000)):
    assert c.pop() == level
assert c.pop() == -1
with record() as prof:
    for level in range(66000):
        c.push_a(b"deep")
    for level in range(66000):
        c.pop()
assert counts(prof) == {"deep": 65536}
""",
        own,
    ).check()


def test_ranges_never_synchronize(own: str) -> None:
    run_nvtx(
        HEAD
        + """
calls = []
with fastprof.Profiler(functions=False, nvtx=False, sync="cuda") as prof:
    _core.set_sync_function(lambda: calls.append(1))
    c.push_a(b"range")
    c.pop()
    assert not calls
    with profile_section("section"):
        pass
    assert len(calls) == 2
assert counts(prof) == {"range": 1, "section": 1}
""",
        own,
    ).check()


def test_many_threads(own: str) -> None:
    run_nvtx(
        HEAD
        + """
lib = c.domain_a(b"lib")
def work(library):
    for i in range(200):
        library.push_a(b"outer")
        library.domain_push(lib, REGISTERED, library.register_a(lib, f"r{i % 7}".encode()))
        library.domain_pop(lib)
        library.pop()
with record() as prof:
    threads = [threading.Thread(target=work, args=(x,)) for x in (c, free) * 4]
    for t in threads:
        t.start()
    free.native_thread(500)
    for t in threads:
        t.join()
got = counts(prof)
assert got["outer"] == 800 and sum(got.values()) == 1600, got
assert prof.snapshot().counters == {"nvtx_without_gil": 500 + 4 * 400}
assert still_open(prof) == 0
""",
        own,
    ).check()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_records_nothing_until_it_starts(own: str) -> None:
    run_nvtx(
        HEAD
        + """
import warnings
warnings.simplefilter("ignore")
with record() as prof:
    c.push_a(b"parent")
    pid = os.fork()
    if pid == 0:
        try:
            assert c.push_a(b"child") == 1 and c.pop() == 1 and c.pop() == 0
            assert capture.begin() is None
            with record() as own:
                c.push_a(b"own")
                c.pop()
            assert counts(own) == {"own": 1}
            capture.end()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert c.pop() == 0
assert counts(prof) == {"parent": 1}
""",
        own,
    ).check()


def test_f_off_means_off(own: str) -> None:
    run_nvtx(
        HEAD.replace("assert capture.begin() is None", "capture.begin()")
        + """
with record() as prof:
    assert c.push_a(b"x") == -2 and c.pop() == -2
    assert c.start_a(b"x") == 0
    assert c.domain_a(b"x") is None
""",
        own,
        env={"FASTPROF": "0"},
    ).check()


def test_another_tool_keeps_its_variable(own: str, tmp_path) -> None:
    tool = str(build_listener(tmp_path))
    code = """
import os, sys
from fastprof.capture import nvtx as capture
reason = capture.begin()
assert reason is not None and sys.argv[1] in reason, reason
assert os.environ.get({0!r}) == sys.argv[2]
capture.end()
assert os.environ.get({0!r}) == sys.argv[2]
"""
    run_nvtx(code.format(VARIABLE), tool, tool, env={VARIABLE: tool}).check()
    gone = str(tmp_path / "gone.so")
    run_nvtx(code.format(VARIABLE), gone, gone, env={VARIABLE: gone}).check()
    for variable in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH"):
        run_nvtx(code.format(VARIABLE), variable, "", env={variable: "1"}).check()


def test_a_variable_that_changed_is_not_taken_back(own: str) -> None:
    run_nvtx(
        HEAD
        + """
os.environ["NVTX_INJECTION64_PATH"] = "/somebody/else.so"
capture.end()
assert os.environ["NVTX_INJECTION64_PATH"] == "/somebody/else.so"
assert "/somebody/else.so" in capture.begin()
del os.environ["NVTX_INJECTION64_PATH"]
# One that is set in C, which os.environ does not see.
ctypes.CDLL(None).setenv(b"NVTX_INJECTION64_PATH", b"/c/tool.so", 1)
assert "/c/tool.so" in capture.begin()
assert _core.nvtx_tool() == "/c/tool.so"
""",
        own,
    ).check()


def test_a_child_inherits_the_variable_and_is_not_hurt(own: str, tmp_path) -> None:
    """Python without fastprof, Python with it but not started, and no Python at all."""
    extension = run_nvtx("import fastprof._core as c; print(c.__file__)").check().stdout.strip()
    without = """
import ctypes, sys
c = ctypes.PyDLL(sys.argv[1])
for _ in range(3):
    assert c.push_a(b"x") == -2 and c.pop() == -2
assert "fastprof" not in sys.modules
"""
    run_nvtx(without, own, env={VARIABLE: extension}).check()
    # It may listen later, because the variable names its own extension, so it leaves it set.
    inherits = (
        HEAD
        + """
with record() as prof:
    c.push_a(b"x")
    c.pop()
capture.end()
assert counts(prof) == {"x": 1} and "NVTX_INJECTION64_PATH" in os.environ
"""
    )
    run_nvtx(inherits, own, env={VARIABLE: extension}).check()
    program = compile_c(
        tmp_path / "program",
        SOURCES / "program.c",
        str(SOURCES / "client.c"),
    )
    done = run_command([str(program)], env={VARIABLE: extension}, guard=False).check()
    assert done.stdout == "-2\n"


def test_ranges_at_the_interpreters_end_are_harmless(own: str) -> None:
    run_nvtx(
        HEAD
        + """
class Late:
    def __del__(self):
        c.push_a(b"late")
        c.pop()
        free.push_a(b"late")
        free.pop()
import builtins
builtins.late = Late()
prof = record().start()
c.push_a(b"open at exit")
""",
        own,
    ).check()
