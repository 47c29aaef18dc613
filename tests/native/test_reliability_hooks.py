"""Failure modes of control flow and hooks (F1 to F13), on each backend.

The row numbers refer to the page on reliability.  Each test is a child process.
"""

from __future__ import annotations

import sys

import pytest
from hook_child import child, ok


def test_f1_system_exit_through_run_and_runctx(backend: str) -> None:
    """Profile's methods let it pass; the module's functions end with it, like cProfile's."""
    ok(
        """
import io, contextlib
for method in ("run", "runctx", "runcall"):
    prof = new()
    try:
        if method == "run":
            prof.run("import sys; sys.exit(5)")
        elif method == "runctx":
            prof.runctx("sys.exit(5)", {"sys": sys}, {})
        else:
            prof.runcall(sys.exit, 5)
    except SystemExit as error:
        assert error.code == 5
    else:
        raise AssertionError(method)
    assert not prof.active
    assert rows(prof)["<built-in method sys.exit>"] == 1
with contextlib.redirect_stdout(io.StringIO()) as out:
    fastprof.run("import sys; sys.exit(5)")
    fastprof.runctx("sys.exit(5)", {"sys": sys}, {})
assert out.getvalue().count("sys.exit") == 2
""",
        backend,
    )


def test_f1_an_exception_passes_unchanged_and_calls_are_counted(backend: str) -> None:
    ok(
        """
class Special(Exception): pass
def fails(i):
    raise Special(i)
prof = new()
prof.enable()
for i in range(100):
    try:
        fails(i)
    except Special as error:
        assert error.args == (i,)
        assert [t for t in error.__traceback__.tb_next.tb_frame.f_code.co_name] == list("fails")
prof.disable()
assert rows(prof)["fails"] == 100
""",
        backend,
    )


def test_f4_enable_and_disable_are_idempotent(backend: str) -> None:
    ok(
        """
prof = new()
prof.disable()
prof.enable(); prof.enable()
calls(10)
prof.disable()
calls(5)
prof.disable()
calls(5)
assert rows(prof)["f"] == 10
""",
        backend,
    )


def test_f5_enabled_at_one_depth_and_disabled_at_another(backend: str) -> None:
    ok(
        """
prof = new()
def down(n):
    if n:
        down(n - 1)
    else:
        prof.enable()
    f()
def end():
    f()
    prof.disable()
for i in range(50):
    down(10)          # 11 calls of f while enabled
    calls(3)
    end()             # and one
table = rows(prof)
assert table["f"] == 50 * (11 + 3 + 1), table
assert table["calls"] == 50
assert table["end"] == 50
assert "down" not in table   # none of its calls began while enabled
""",
        backend,
    )


def test_f6_disable_in_another_thread_stops_every_thread(backend: str) -> None:
    """The documented choice: disable() from any thread stops the whole process."""
    ok(
        """
prof = new()
prof.enable()
calls(10)
def stop():
    calls(5)
    prof.disable()
    calls(5)
thread = threading.Thread(target=stop)
thread.start()
thread.join()
calls(7)
assert not prof.active
assert rows(prof)["f"] == 15
""",
        backend,
    )


def test_f7_a_second_recorder_is_refused_and_the_first_goes_on(backend: str) -> None:
    ok(
        """
for order in ((0, 1), (1, 0)):
    pair = first, second = new(), new()
    first.enable()
    calls(5)
    try:
        second.enable()
    except fastprof.errors.BusyError as error:
        assert "fastprof" in str(error)
    else:
        raise AssertionError("not refused")
    calls(5)
    for i in order:
        pair[i].disable()
    assert rows(first)["f"] == 10
    assert not second.active and rows(second) == {}
    second.enable(); calls(3); second.disable()
    assert rows(second)["f"] == 3
""",
        backend,
    )


def test_f7_beside_cprofile(backend: str) -> None:
    """setprofile: refused by name.  monitoring: both record, in either order."""
    ok(
        """
import cProfile
def counted(theirs):
    theirs.create_stats()
    return {k[2]: v[1] for k, v in theirs.stats.items()}.get("f", 0)

theirs, ours = cProfile.Profile(), new()
theirs.enable()
calls(5)
if MONITORING or sys.version_info >= (3, 12):
    ours.enable()
    calls(5)
    ours.disable()
    calls(5)
    theirs.disable()
    assert counted(theirs) == 15
    assert rows(ours)["f"] == 5
else:
    try:
        ours.enable()
    except fastprof.errors.BusyError as error:
        assert "Profile" in str(error), error
    else:
        raise AssertionError("not refused")
    calls(5)
    theirs.disable()
    assert counted(theirs) == 10

theirs, ours = cProfile.Profile(), new()
ours.enable()
calls(5)
if sys.version_info >= (3, 12):
    theirs.enable()
    calls(5)
    theirs.disable()
    calls(5)
    ours.disable()
    assert rows(ours)["f"] == 15
    assert counted(theirs) == 5
else:
    # cProfile takes the slot without a word, and takes whatever is there out again.
    theirs.enable()
    calls(5)
    theirs.disable()
    calls(5)
    ours.disable()
    assert ours.displaced
    assert rows(ours)["f"] == 5
    assert counted(theirs) == 5
""",
        backend,
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_f7_the_ids_that_other_tools_insist_on_stay_free() -> None:
    """0 debuggers, 1 coverage.py, 2 cProfile, 3 hypothesis, 5 optimizers."""
    ok(
        """
import fastprof._core
ours = fastprof._core.Recorder(backend="monitoring")
ours.enable()
for id in (0, 1, 2, 3, 5):
    sys.monitoring.use_tool_id(id, "another")
    sys.monitoring.free_tool_id(id)
ours.disable()
""",
        "monitoring",
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_f7_no_free_tool_id(backend: str) -> None:
    code = """
for i in range(6):
    sys.monitoring.use_tool_id(i, f"tool{i}")
prof = new() if BACKEND == "setprofile" else fastprof.Profile()
prof.enable(); calls(10); prof.disable()
assert prof.backend == "setprofile"
assert rows(prof)["f"] == 10
try:
    strict = fastprof.Profile(backend="monitoring")
    strict.enable()
except fastprof.errors.BusyError as error:
    assert "tool0" in str(error) or "tool3" in str(error), error
else:
    raise AssertionError("not refused")
assert [sys.monitoring.get_tool(i) for i in range(6)] == [f"tool{i}" for i in range(6)]
"""
    child(code, backend).check()


def test_f8_sys_setprofile_none_in_the_middle(backend: str) -> None:
    ok(
        """
prof = new()
def inside():
    calls(5)
    sys.setprofile(None)
    calls(5)
prof.enable()
inside()
calls(5)
prof.disable()
table = rows(prof)
if MONITORING:
    assert table["f"] == 15 and not prof.displaced
else:
    assert table["f"] == 5 and prof.displaced, (table, prof.displaced)
    assert any("displaced" in note.lower() for note in prof.report().notes)
prof.clear()
prof.enable(); calls(7); prof.disable()
assert rows(prof)["f"] == 7 and not prof.displaced
""",
        backend,
    )


def test_f9_a_users_profile_function_set_in_the_middle_stays(backend: str) -> None:
    child(
        """
seen = []
def theirs(frame, event, arg):
    seen.append(frame.f_code.co_name)
prof = new()
prof.enable()
calls(5)
sys.setprofile(theirs)
calls(5)
prof.disable()
assert sys.getprofile() is theirs
calls(2)
sys.setprofile(None)
assert seen.count("f") == 2 * 7     # calls and returns
if MONITORING:
    assert rows(prof)["f"] == 10 and not prof.displaced
else:
    assert rows(prof)["f"] == 5 and prof.displaced
exact()
""",
        backend,
    ).check()


def test_f10_a_users_profile_function_from_before_stays(backend: str) -> None:
    ok(
        """
seen = []
def theirs(frame, event, arg):
    seen.append(frame.f_code.co_name)
prof = new()
sys.setprofile(theirs)
try:
    prof.enable()
except fastprof.errors.BusyError as error:
    assert not MONITORING and "function" in str(error), error
else:
    assert MONITORING
calls(5)
prof.disable()
assert sys.getprofile() is theirs
sys.setprofile(None)
assert seen.count("f") == 10
assert rows(prof).get("f", 0) == (5 if MONITORING else 0)
""",
        backend,
    )


def test_f11_what_getprofile_returns_can_be_set_again(backend: str) -> None:
    ok(
        """
prof = new()
prof.enable()
calls(5)
sys.setprofile(sys.getprofile())
calls(5)
threading.setprofile(sys.getprofile())
prof.disable()
assert rows(prof)["f"] == 10 and not prof.displaced
threading.setprofile(None)
""",
        backend,
    )


def test_f12_a_trace_function_beside_us(backend: str) -> None:
    ok(
        """
lines = []
def trace(frame, event, arg):
    if event == "line" and frame.f_code.co_name == "f":
        lines.append(frame.f_lineno)
    return trace
for first in ("trace", "profile"):
    prof = new()
    lines.clear()
    if first == "trace":
        sys.settrace(trace); prof.enable()
    else:
        prof.enable(); sys.settrace(trace)
    calls(10)
    assert sys.gettrace() is trace
    sys.settrace(None)
    prof.disable()
    assert len(lines) == 10, (first, len(lines))
    assert rows(prof)["f"] == 10, first
""",
        backend,
    )


def test_f13_a_misbound_method_keeps_its_own_exception(backend: str) -> None:
    ok(
        """
wrong = [
    lambda: dict.get(print, 42), lambda: list.append(1, 2), lambda: str.join(3, []),
    lambda: bytes.decode("x"), lambda: set.add({}, 1), lambda: int.bit_length("x"),
    lambda: dict.get(), lambda: object.__reduce_ex__(1, "x"), lambda: str.format(),
    lambda: type.mro(3), lambda: float.hex("x"),
]
def kinds():
    out = []
    for call in wrong:
        try:
            call()
        except BaseException as error:
            out.append((type(error), str(error)))
        else:
            out.append(None)
    return out
plain = kinds()
prof = new()
prof.enable()
hooked = kinds()
prof.disable()
assert hooked == plain, [p for p in zip(plain, hooked) if p[0] != p[1]]
assert rows(prof)["<lambda>"] == len(wrong)
""",
        backend,
    )


def test_f13_methods_called_with_junk(backend: str) -> None:
    child(
        """
import warnings
def junk_for(obj, name):
    method = getattr(obj, name)
    if not callable(method) or name in ("__class__", "__init_subclass__"):
        return
    for args in ((), (1,), (None,), ("x", 2), (object(),) * 3, (None,) * 7, (-1, 2**70)):
        try:
            method(*args)
        except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError,
                IndexError, StopIteration, SystemError, OSError) as error:
            assert not isinstance(error, SystemError), (name, args, error)
prof = new()
prof.enable()
hook = sys.getprofile()
objects = [prof, type(prof).__new__(type(prof)), fastprof.profile_section("x")]
if hook is not None:
    objects.append(hook)
    for args in ((), (1, 2, 3), (sys._getframe(), "call", None), (sys._getframe(), 3, None),
                 (sys._getframe(), "no", 1), (None, "call", None)):
        try:
            hook(*args)
        except TypeError:
            pass
if MONITORING:
    mon = sys.monitoring
    tool = next(i for i in range(6) if mon.get_tool(i) and "fastprof" in mon.get_tool(i))
    for name in dir(mon.events):
        event = getattr(mon.events, name)
        if type(event) is not int or event.bit_count() != 1 or name in ("C_RETURN", "C_RAISE"):
            continue
        callback = mon.register_callback(tool, event, None)
        if callback is None:
            continue
        for args in ((), (1,), (None, None), (f.__code__, "x"), (f.__code__, 2**80),
                     (f.__code__, 0, print), (f.__code__, 0, print, None, None), (print,) * 4):
            try:
                callback(*args)
            except (TypeError, ValueError, OverflowError):
                pass
        mon.register_callback(tool, event, callback)
calls(3)
prof.disable()
for obj in objects:
    for name in dir(obj):
        # What starts or ends something has a test of its own.
        if name in ("start_sections", "next_batch", "print_stats", "run", "__enter__", "__del__"):
            continue
        junk_for(obj, name)
        prof.disable()
prof.stop_sections()
prof.clear()
exact()
""",
        backend,
    ).check()
