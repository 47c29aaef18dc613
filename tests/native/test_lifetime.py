"""Recorders, hooks and keys that are freed during use; every case once crashed or lost data.

Each test uses a child process, because the failure was a crash.
"""

from __future__ import annotations

import sys

import pytest
from helpers import BACKENDS, FREE_THREADED, run_child

monitoring_only = pytest.mark.skipif("monitoring" not in BACKENDS, reason="needs sys.monitoring")


def check(code: str, backend: str = "setprofile", timeout: float = 60) -> None:
    run_child(f"BACKEND = {backend!r}\n{code}", timeout=timeout).check()


def test_a_module_imported_anew_never_finds_old_records(backend: str) -> None:
    check(
        """
import sys
import fastprof._core as a
def f(): pass
r = a.Recorder(backend=BACKEND); r.enable(); f(); r.disable(); r.clear(); del r
for m in [m for m in sys.modules if m.startswith("fastprof")]: del sys.modules[m]
import fastprof._core as b
assert a is not b
r = b.Recorder(backend=BACKEND); r.enable()
for _ in range(1000): f()
r.disable()
assert len(r.export()["threads"]) == 1
""",
        backend,
    )


def test_a_recorder_that_outlives_its_module_reads_nothing_of_it() -> None:
    """If garbage contains the type, the module and a recorder, the recorder is freed last."""
    run_child(
        """
import atexit, gc, os, sys
register, atexit.register = atexit.register, lambda *a, **k: None
at_fork, os.register_at_fork = os.register_at_fork, lambda **k: None
from fastprof import _core
atexit.register, os.register_at_fork = register, at_fork

class Holder:
    pass

def make():
    holder = Holder()
    holder.recorder, holder.itself = _core.Recorder(), holder
    _core.set_decorator_function(lambda section, function: holder)

make()
for name in [name for name in sys.modules if name.startswith("fastprof")]:
    del sys.modules[name]
del _core
gc.collect()
""",
        env={"PYTHONMALLOC": "debug"},
    ).check()


def test_f25_a_subclass_with_del_is_stopped_when_it_goes(backend: str) -> None:
    check(
        """
import gc
from fastprof._core import Recorder, profile_section
class R(Recorder):
    def __del__(self): pass
r = R(backend=BACKEND); r.start_sections(); r.enable()
del r; gc.collect()
junk = [bytearray(700) for _ in range(1000)]
other = Recorder(backend=BACKEND); other.enable(); other.disable()
for i in range(100):
    with profile_section("x"): pass
""",
        backend,
    )


def test_f25_a_recorder_brought_back_to_life_is_stopped_when_it_goes(backend: str) -> None:
    check(
        """
import gc
from fastprof._core import Recorder, profile_section
keep = []
class C:
    def __del__(self): keep.append(self.r)
class R(Recorder): pass
r = R(backend=BACKEND); c = C(); c.r = r; r.c = c
del r, c; gc.collect()
r = keep.pop(); del r.c
r.start_sections(); r.enable(); del r; gc.collect()
junk = [bytearray(700) for _ in range(1000)]
for i in range(100):
    with profile_section("x"): pass
other = Recorder(backend=BACKEND); other.enable(); other.disable()
""",
        backend,
    )


def test_clear_while_the_recorder_is_being_read_is_refused(backend: str) -> None:
    check(
        """
from fastprof._core import Recorder, profile_section
said = []
class Evil:
    def __repr__(self):
        try: r.clear()
        except RuntimeError as error: said.append(str(error))
        return "evil"
class M(type): fromkeys = Evil()
class D(dict, metaclass=M): pass
r = Recorder(backend=BACKEND); r.start_sections(); r.enable()
for i in range(50):
    with profile_section("s%d" % i): pass
D.fromkeys([1])
r.disable()
assert len(r.export()["sections"]) == 50
assert said and "being read" in said[0], said
r.clear()
""",
        backend,
    )


@pytest.mark.skipif(FREE_THREADED, reason="a free-threaded build collects too seldom")
def test_sections_may_be_opened_while_the_recorder_is_being_read() -> None:
    """For example by a finalizer: the table of a thread's sections grows during the reading."""
    run_child(
        """
import gc
from fastprof._core import Recorder, profile_section
recorder = Recorder(skip_steps=0)
recorder.start_sections()
recorder.mark()
names = [f"section {i}" for i in range(8)]
for name in names:
    with profile_section(name):
        pass
recorder.step()
opened = 0

def opens(phase, info):
    global opened
    for _ in range(8 if opened < 4000 else 0):
        opened += 1
        with profile_section(f"later {opened}"):
            pass

gc.callbacks.append(opens)
gc.set_threshold(1)
data = recorder.export()
gc.callbacks.clear()
assert opened
sections = [data["keys"][row[0]][3] for row in data["sections"]]
rows = [data["keys"][row[0]][3] for row in data["steps"]["rows"]]
assert [name for name in sections if name in names] == names, sections[:12]
assert rows == names, rows
""",
        env={"MALLOC_PERTURB_": "85"},  # freed memory has no valid content
    ).check()


def test_a_method_table_inside_the_object_that_a_function_is_bound_to(backend: str) -> None:
    """As in numba: the key is the table's address, so the object must live as long as the key."""
    check(
        """
import ctypes, gc, weakref
from fastprof._core import Recorder
api = ctypes.pythonapi
class Def(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("run", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]
METH_O = 8
api.PyCFunction_NewEx.restype = ctypes.py_object
api.PyCFunction_NewEx.argtypes = [ctypes.POINTER(Def), ctypes.py_object, ctypes.c_void_p]
class Dispatcher:
    value = 42
    def __init__(self):
        run = ctypes.cast(api.PyObject_GetAttr, ctypes.c_void_p)
        self.table = Def(b"dispatch", run, METH_O, None)
class Data(list): pass
def call():
    dispatcher, data = Dispatcher(), Data()
    run = api.PyCFunction_NewEx(dispatcher.table, dispatcher, None)
    r.enable()
    assert run("value") == 42
    data.append(1)
    r.disable()
    return weakref.ref(dispatcher), weakref.ref(data)
r = Recorder(backend=BACKEND)
dispatcher, data = call()
gc.collect()
assert dispatcher() is not None
assert data() is None
names = [key[4] for key in r.export()["keys"]]
assert "Dispatcher.dispatch" in names, names
r.clear()
gc.collect()
assert dispatcher() is None
""",
        backend,
    )


def test_threads_may_come_and_go_while_the_recorder_is_being_read(backend: str) -> None:
    check(
        """
import threading
from fastprof._core import Recorder, profile_section
go = threading.Event(); done = threading.Event()
class Slow:
    def __repr__(self):
        go.set(); done.wait(20); return "slow"
class M(type): fromkeys = Slow()
class D(dict, metaclass=M): pass
r = Recorder(backend=BACKEND); r.start_sections(); r.enable()
def work():
    for i in range(50):
        with profile_section("s%d" % i): pass
    D.fromkeys([1])
def short():
    with profile_section("z"): pass
def spawn():
    go.wait(20)
    for i in range(80):
        t = threading.Thread(target=short); t.start(); t.join()
    done.set()
s = threading.Thread(target=spawn); s.start()
t = threading.Thread(target=work); t.start(); t.join()
r.disable()
assert len(r.export()["sections"]) >= 50
s.join()
""",
        backend,
    )


def test_the_synchronize_function_may_drop_the_recorder() -> None:
    check(
        """
import fastprof._core as c
def sync():
    global r
    r = None
    raise ValueError
r = c.Recorder(); r.start_sections(); c.set_sync_function(sync)
with c.profile_section("x", sync=True): pass
""",
    )


def test_f22_ctrl_c_inside_the_synchronize_function_reaches_the_program() -> None:
    check(
        """
import fastprof._core as c
pressed = [1]
def sync():
    if pressed: pressed.pop(); raise KeyboardInterrupt
r = c.Recorder(); r.start_sections(); c.set_sync_function(sync)
try:
    with c.profile_section("x", sync=True):
        for _ in range(1000): pass
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("swallowed")
""",
    )


SHADOW = """
import types
sys.modules["threading"] = types.ModuleType("threading")
sys.modules["threading"]._shutdown = lambda: None
"""


@pytest.mark.parametrize("shadow", ["", SHADOW])
def test_the_exit_of_a_signal_handler_inside_the_synchronize_function_ends_the_program(
    shadow: str,
) -> None:
    result = run_child(
        """
import signal, sys, time
import fastprof._core as c
signal.signal(signal.SIGALRM, lambda *args: sys.exit(7))
r = c.Recorder(); r.start_sections()
"""
        + shadow
        + """
c.set_sync_function(lambda: time.sleep(0.001))
signal.setitimer(signal.ITIMER_REAL, 0.05)
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    with c.profile_section("x", sync=True): pass
sys.exit("swallowed")
"""
    )
    assert (result.returncode, result.stderr) == (7, "")


def test_python_code_in_the_last_destructors_of_a_thread_is_safe() -> None:
    check(
        """
import ctypes, threading, time
import fastprof._core as c
lib = ctypes.CDLL(None)
F = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
r = c.Recorder()
ended = threading.Event()
def short():
    with c.profile_section("z"): pass
def last(p):
    for i in range(80):
        t = threading.Thread(target=short); t.start(); t.join()
    for i in range(100):
        with c.profile_section("in destructor"): pass
    ended.set()
callback = F(last); key = ctypes.c_uint()
assert lib.pthread_key_create(ctypes.byref(key), callback) == 0
def work():
    with c.profile_section("w"): pass
    lib.pthread_setspecific(key, ctypes.c_void_p(1))
r.start_sections()
t = threading.Thread(target=work); t.start(); t.join()
assert ended.wait(30)
r.export()
""",
    )


def test_f14_a_timer_that_removes_the_hook_in_a_new_thread() -> None:
    check(
        """
import sys, threading, fastprof._core as c
main = threading.get_ident()
def timer():
    global r
    if threading.get_ident() != main and r is not None:
        sys.setprofile(None); threading.setprofile(None)
        r = None
    return 1.0
r = c.Recorder(timer, backend="setprofile")
def work(): pass
t = threading.Thread(target=work)
r.enable(); sys.setprofile(None); t.start(); t.join()
""",
    )


def test_f19_a_fork_while_another_thread_sets_the_hook() -> None:
    check(
        """
import os, threading, time, warnings
import fastprof._core as c
warnings.simplefilter("ignore", DeprecationWarning)
r = c.Recorder(backend="setprofile"); inside = threading.Event(); go = threading.Event()
real = threading.setprofile
def slow(hook): inside.set(); go.wait(20); return real(hook)
threading.setprofile = slow
t = threading.Thread(target=r.enable); t.start(); inside.wait(20)
pid = os.fork()
if pid == 0:
    threading.setprofile = real
    assert not r.active
    c.Recorder(backend="setprofile").enable()
    r.clear()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
go.set(); t.join(); r.disable()
""",
    )


def test_f4_disable_and_enable_from_inside_a_switch() -> None:
    check(
        """
import sys, threading, fastprof._core as c
r = c.Recorder(backend="setprofile")
real = threading.setprofile
def stop_inside(hook):
    r.disable(); return real(hook)
threading.setprofile = stop_inside; r.enable(); threading.setprofile = real
assert not r.active and sys.getprofile() is None
r.enable()
said = []
real_get = threading.getprofile
def start_inside():
    try: r.enable()
    except RuntimeError as error: said.append(error)
    return real_get()
threading.getprofile = start_inside; r.disable(); threading.getprofile = real_get
assert said and not r.active
r.enable(); r.disable()
""",
    )


def test_f33_the_table_of_keys_is_bounded_as_the_tree_is(backend: str) -> None:
    check(
        """
import fastprof._core as c
r = c.Recorder(max_nodes=16, builtins=False, backend=BACKEND); r.enable()
for i in range(2000): exec(compile("pass", f"f{i}", "exec"))
for i in range(2000): eval("sum(x for x in (1, 2))")
kept = len(r.code_objects())
assert kept <= 32, kept
r.pause_functions()
for i in range(2000): eval("sum(x for x in (1, 2))")
assert len(r.code_objects()) == kept, len(r.code_objects())
r.disable()
""",
        backend,
    )


def test_f50_next_batch_without_init() -> None:
    check(
        """
import copy, pickle, fastprof._core as c
r = c.Recorder.__new__(c.Recorder)
try: r.next_batch(0, iter([]), c.profile_section("data"))
except RuntimeError as error: assert "super().__init__" in str(error)
else: raise AssertionError
for sync in (None, True, False):
    s = c.profile_section("a", sync=sync)
    assert copy.copy(s) is s and pickle.loads(pickle.dumps(s)) is s
""",
    )


@monitoring_only
@pytest.mark.skipif(FREE_THREADED, reason="there only the collector frees code objects")
def test_what_runs_while_the_tables_are_cleared_is_recorded_whole() -> None:
    check(
        """
import types, weakref, fastprof._core as c
def g(): return 1
fired = []
def callback(w): fired.append(1); g()
ns = dict(c=c, types=types)
code = compile('''
m = types.MethodType(len, [1])
r = c.Recorder(backend="monitoring"); r.enable()
for _ in range(3): m()
''', "dyn", "exec")
w = weakref.ref(code, callback)
exec(code, ns); r = ns["r"]; g(); callback(0); del fired[:]
del code
r.clear()
assert fired
r.disable()
r.export()
""",
        "monitoring",
    )


@monitoring_only
def test_a_fallback_is_forgotten_when_a_tool_id_is_free_again() -> None:
    check(
        """
import sys, fastprof._core as c
for i in (2, 3, 4, 5): sys.monitoring.use_tool_id(i, "x")
r = c.Recorder(); r.enable(); r.disable()
assert r.backend == "setprofile" and r.export()["fell_back"]
for i in (2, 3, 4, 5): sys.monitoring.free_tool_id(i)
r.clear(); r.enable(); r.disable()
assert r.backend == "monitoring" and not r.export()["fell_back"]
""",
        "monitoring",
    )


@pytest.mark.skipif(sys.version_info < (3, 13), reason="only 3.13 can run without its lock")
@pytest.mark.skipif(not FREE_THREADED, reason="needs a free-threaded build")
@pytest.mark.parametrize("gil", ["0", "1"])
def test_f39_a_free_threaded_build_keeps_its_lock_as_it_is(gil: str) -> None:
    """Eight threads, exact counts; `tests/threads/test_free_threads.py` has more."""
    result = run_child(
        """
import sys, threading
enabled = sys._is_gil_enabled()
import fastprof._core as core
assert sys._is_gil_enabled() == enabled
def f(): pass
def work():
    for _ in range(20000): f()
    for _ in range(1000):
        with core.profile_section("work"): f()
r = core.Recorder(); r.enable(); r.start_sections()
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
r.stop_sections(); r.disable()
d = r.export()
key = next(i for i, k in enumerate(d["keys"]) if k[0] == "python" and k[3] == "f")
columns = [t[2] for t in d["threads"]]
assert sum(n for c in columns for k, n in zip(c[1], c[2]) if k == key) == 8 * 21000
assert sum(s[2] for s in d["sections"]) == 8 * 1000
""",
        env={"PYTHON_GIL": gil},
    )
    result.check()
    assert result.stderr == ""


def test_classes_of_the_program_and_what_their_methods_close_over_are_not_kept(
    backend: str,
) -> None:
    """Their calls are recorded, also where another class has the memory of one that is gone."""
    check(
        """
import collections, gc, weakref
from fastprof._core import Recorder
class Model: pass
def make():
    model = Model()
    class Meta(type): pass
    class Layer(metaclass=Meta):
        def weights(self): return model
    class Batch(list):
        def weights(self): return model
    class Step:
        def __call__(self): return model
    class Scale:
        __call__ = len([]).__add__
        def weights(self): return model
    Layer().weights(); Layer.mro(); Layer.__subclasses__()
    Batch().append(1); Batch().copy(); Batch.__class_getitem__(int)
    super(Batch, Batch).__init_subclass__()
    dict.fromkeys([1]); Step()(); Scale()(1)
    things = (model, Meta, Layer, Batch, Step, Scale)
    return [weakref.ref(thing, gone.append) for thing in things]
gone = collections.deque()
r = Recorder(backend=BACKEND)
r.enable()
alive = [ref for _ in range(200) for ref in make()]
r.disable()
gc.collect()
left = [ref() for ref in alive if ref() is not None]
assert not left, (len(left), left[:6])
assert len(gone) == len(alive)
d = r.export()
calls = {}
for thread in d["threads"]:
    for key, number in zip(thread[2][1], thread[2][2]):
        name = d["keys"][key][4]
        calls[name] = calls.get(name, 0) + number
assert calls["list.append"] == calls["list.copy"] == calls["dict.fromkeys"] == 200, calls
assert calls["type.mro"] == calls["type.__subclasses__"] == 200, calls
if BACKEND == "monitoring":
    assert calls["Layer"] == 200 and calls["Batch"] == calls["Step"] == 400, calls
    assert calls["Scale"] == 400, calls
""",
        backend,
    )


def test_a_class_that_is_renamed_while_it_is_called_is_recorded(backend: str) -> None:
    check(
        """
from fastprof._core import Recorder
class Model:
    def __init__(self, name):
        type(self).__qualname__ = "".join(["renamed ", name])
def make():
    for i in range(1000):
        Model(str(i))
r = Recorder(backend=BACKEND)
r.enable()
make()
r.disable()
d = r.export()
names = [key[4] for key in d["keys"]]
assert "Model.__init__" in names or "__init__" in names, names
r.clear()
""",
        backend,
    )
