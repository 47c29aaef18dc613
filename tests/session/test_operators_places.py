"""Operator windows in programs that end steps, and the run, where torch.profiler cannot be used."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from helpers import run_child

pytest.importorskip("torch")

START = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
import fastprof, torch
from fastprof.integrations import torch_loop
from torch.utils.checkpoint import checkpoint
torch.set_num_threads(1)

KINDS = [torch.profiler.ProfilerActivity.CPU]

def options(**more):
    return fastprof.OperatorProfile(
        **{"enable_cpu_profiling": True, "save_dir": None, "schedule": fastprof.Schedule(), **more}
    )

def profiler(**more):
    functions = more.pop("functions", False)
    return fastprof.Profiler(functions=functions, gpu=False, operators=options(**more))

def multiply():
    return torch.mm(torch.ones(8, 8), torch.ones(8, 8))

def in_thread(action, *args):
    thread = threading.Thread(target=action, args=args)
    thread.start()
    thread.join()

def calls(report):
    rows = report.operators.rows if report.operators else ()
    return sum(row.calls for row in rows if row.name == "aten::mm")

def shown(prof):
    report = prof.report()
    windows = report.operators and report.operators.windows
    print(report.steps.count, windows, calls(report), *[n for n in report.notes if "perator" in n])

def torch_is_well():
    # One of the program's own: nothing of fastprof's is left in this thread.
    with torch.profiler.profile(activities=KINDS) as own:
        multiply()
    assert sum(e.count for e in own.key_averages() if e.key == "aten::mm") == 1, own.key_averages()
    assert not torch.autograd._profiler_enabled()
    print("done")

x = torch.ones(8, 8, requires_grad=True)
"""


#: Name -> program.  One interpreter that has imported torch forks for each.
PROGRAMS: dict[str, str] = {}

RUN = """
import json, tempfile, traceback
import torch._inductor.config  # the first torch.profiler imports it, which takes a second
def run(program):
    with tempfile.TemporaryFile("w+") as out:
        if (pid := os.fork()) == 0:
            status = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                exec(compile(program, "program", "exec"), globals())
                status = 0
            except BaseException:
                traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        return status, out.read()
print(json.dumps({name: run(program) for name, program in json.load(sys.stdin).items()}))
"""


@pytest.fixture(scope="module")
def outcomes() -> Any:
    result = run_child(START + RUN, stdin=json.dumps(PROGRAMS), timeout=600).check()
    return json.loads(result.stdout)


@pytest.fixture
def printed(outcomes: Any, request: pytest.FixtureRequest) -> list[str]:
    """The lines that the test's program printed; the program must have ended well."""
    status, text = outcomes[request.node.name]
    assert status == 0, text
    return [line for line in text.splitlines() if not line.startswith(_OF_TORCH)]


#: torch's own messages.
_OF_TORCH = ("[W", "ERROR: External init callback", "Operators", "USDT")


def program(code: str, **cases: str) -> Any:
    """Add ``code`` as the program of a test; ``cases``: a text in place of ``CASE`` for each."""

    def add(test: Any) -> Any:
        for name, case in cases.items():
            PROGRAMS[f"{test.__name__}[{name}]"] = code.replace("CASE", case)
        if not cases:
            PROGRAMS[test.__name__] = code
            return test
        return pytest.mark.parametrize("case", cases)(test)

    return add


def exits(code: str) -> list[str]:
    """Return the lines that a program prints, which must end well with its interpreter."""
    return run_child(START + code, timeout=180).check().stdout.splitlines()


SCHEDULES = {"whole": "None", "scheduled": "fastprof.Schedule()"}

# Each ends a step in every backward.
PLACES = {
    "a hook of a tensor": """
x.register_hook(lambda grad: prof.step() and None)
def step(): (x @ x).sum().backward()
""",
    "a hook after the gradient is accumulated": """
x.register_post_accumulate_grad_hook(lambda p: prof.step() and None)
def step(): (x @ x).sum().backward()
""",
    "a hook of several tensors": """
torch.autograd.graph.register_multi_grad_hook([x], lambda grads: prof.step() and None)
def step(): (x @ x).sum().backward()
""",
    "a hook of a module": """
model = torch.nn.Linear(8, 8)
model.register_full_backward_hook(lambda module, inputs, outputs: prof.step() and None)
def step(): model(x @ x).sum().backward()
""",
    "a function's backward": """
class Ends(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, grad):
        prof.step()
        return grad
def step(): Ends.apply(x @ x).sum().backward()
""",
    "recomputation": """
def part(x):
    if torch._C._current_graph_task_id() != -1: prof.step()
    return (x @ x).exp()
def step(): checkpoint(part, x, use_reentrant=False).sum().backward()
""",
    "reentrant recomputation": """
def part(x):
    if torch._C._current_graph_task_id() != -1: prof.step()
    return (x @ x).exp()
def step(): checkpoint(part, x, use_reentrant=True).sum().backward()
""",
    "a hook that unpacks a saved tensor": """
def unpack(tensor):
    if not unpacked:
        unpacked.append(prof.step())
    return tensor
def step():
    unpacked.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack): y = (x @ x).sum()
    y.backward()
unpacked = []
""",
    "a callback of the engine": """
x.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(prof.step))
def step(): (x @ x).sum().backward()
""",
    "a hook in autograd.grad": """
def step():
    y = x @ x
    y.register_hook(lambda grad: prof.step() and None)
    torch.autograd.grad(y.sum(), x)
""",
}


@program(
    """
seen = []
CASE
with profiler(on_trace_ready=lambda profile: seen.append(profile)) as prof:
    for _ in range(10): step()
assert len(seen) == 1
shown(prof)
torch_is_well()
""",
    **PLACES,
)
def test_steps_that_end_inside_backward_have_whole_windows(printed: list[str], case: str) -> None:
    # A step has the product in forward, and two in backward (or in the linear layer's); the
    # recomputation has one more.
    (steps, number), done = printed[0].rsplit(" ", 1), printed[1]
    assert steps == "10 ((2, 4),)"
    assert int(number) % 3 == 0
    assert int(number) >= 9
    assert done == "done"


#: Each has a block of ``record_function`` in which a step or the run ends, or a profiler begins.
BLOCKS = {
    "of the optimizer": """
with torch_loop.attach(gpu=False, operators=options()):
    optimizer = torch.optim.SGD([x], lr=0.1)
    for _ in range(10):
        multiply()
        optimizer.step()
""",
    "of the program": """
with profiler() as prof:
    for _ in range(10):
        with Block("step"), Block("inner"):
            multiply()
            prof.step()
""",
    "at the end of the run": """
prof = profiler(schedule=None)
prof.start()
with Block("step"):
    multiply()
    prof.stop()
""",
    "around a profiler of the program": """
with profiler(schedule=None) as prof:
    with Block("step"):
        multiply()
        with torch.profiler.profile(activities=KINDS): multiply()
""",
}


@program(
    """
Block = torch.profiler.record_function
enter, leave = Block.__enter__, Block.__exit__
recorded, late = {}, []
def entered(block):
    recorded[id(block)] = torch.autograd._profiler_enabled()
    return enter(block)
def left(block, *error):
    if recorded.pop(id(block), False):
        late.append(not torch.autograd._profiler_enabled())
    return leave(block, *error)
Block.__enter__, Block.__exit__ = entered, left
CASE
assert (Block.__enter__, Block.__exit__) == (entered, left)
print(any(late), len(late) > 0)
torch_is_well()
""",
    **BLOCKS,
)
def test_no_block_of_the_program_outlives_the_session_it_began_in(
    printed: list[str], case: str
) -> None:
    # torch writes its end into the session's memory, which is free then.
    assert printed == ["False True", "done"]


@program("""
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in optimizers: p.register_post_accumulate_grad_hook(update)
with torch_loop.attach(gpu=False, operators=options()) as loop:
    for _ in range(10): model(torch.ones(2, 8)).sum().backward()
report = loop.report()
print(report.steps.count, report.operators.windows)
print({row.name: row.calls for row in report.operators.rows if "step" in row.name})
print({s.name: s.count for s in report.in_phase("all").sections})
torch_is_well()
""")
def test_steps_of_optimizers_inside_backward_have_a_window(printed: list[str]) -> None:
    steps, operators, sections, done = printed
    assert steps == "10 ((2, 4),)"
    assert operators == "{'Optimizer.step#SGD.step': 12}"
    assert "'backward': 10" in sections
    assert done == "done"


@program("""
x.register_hook(lambda grad: prof.step() and None)
with profiler(functions=True) as prof:
    for _ in range(10): (x @ x).sum().backward()
report = prof.report().in_phase("all")
names = {row.name for row in report.functions}
print(names & {"key_averages", "stop_trace", "prepare_trace", "_averages", "start"})
print(next(row.calls for row in report.functions if row.name == "<lambda>"))
""")
def test_functions_and_steps_do_not_contain_the_work_after_backward(printed: list[str]) -> None:
    assert printed == ["set()", "10"]


@program("""
x.register_hook(lambda grad: prof.step() and None)
with profiler(schedule=fastprof.Schedule(warmup=0, active=1)) as prof:
    for _ in range(5): (x @ x).sum().backward()
shown(prof)
torch_is_well()
""")
def test_a_window_over_before_a_backward_could_open_it(printed: list[str]) -> None:
    assert printed == [
        (
            "5 () 0 Operators were not recorded: the steps of the window ended inside backward, "
            "where torch.profiler cannot begin."
        ),
        "done",
    ]


@program("""
def end(grad):
    prof.step()
x.register_hook(end)
with profiler(max_events=40) as prof:
    for _ in range(8):
        y = x
        for _ in range(20): y = y * 1.01
        y.sum().backward()
shown(prof)
""")
def test_one_step_is_too_many_operators_inside_backward_too(printed: list[str]) -> None:
    (line,) = printed
    assert line.startswith("8 () 0 Operators were not recorded in steps 2 to 4: a step calls about")


@program(
    """
prof = profiler(schedule=CASE).start()
def end(grad):
    if prof.steps == 3: prof.stop()
x.register_hook(end)
while prof.running:
    (x @ x).sum().backward()
    if prof.running: prof.step()
shown(prof)
(x @ x).sum().backward()
torch_is_well()
""",
    **SCHEDULES,
)
def test_a_run_that_ends_inside_backward(printed: list[str], case: str) -> None:
    line, done = printed
    assert "was lost, because the run ended inside backward." in line
    assert line.count("perator") == 1
    assert done == "done"


def test_a_run_that_ends_inside_the_last_backward_of_the_program() -> None:
    code = """
prof = profiler(schedule=None).start()
x.register_hook(lambda grad: prof.stop())
(x @ x).sum().backward()
print("done")
"""
    assert exits(code) == ["done"]


@program(
    """
profs = []
def begin(grad):
    if not profs: profs.append(profiler(schedule=CASE).start())
x.register_hook(begin)
for _ in range(8):
    (x @ x).sum().backward()
    profs[0].step()
profs[0].stop()
shown(profs[0])
torch_is_well()
""",
    **SCHEDULES,
)
def test_a_run_that_began_inside_backward(printed: list[str], case: str) -> None:
    line, done = printed
    assert line.split(" ", 1)[1].startswith("((1, " if case == "whole" else "((2, ")
    assert done == "done"


@pytest.mark.parametrize("attach", ["attach(operators=options(schedule=None))", "attach()"])
def test_a_run_of_a_thread_that_has_ended(attach: str) -> None:
    code = f"""
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    global loop
    loop = torch_loop.{attach}
    for _ in range(4):
        model(x).sum().backward()
        optimizer.step()
in_thread(train)
loop.detach()
shown(loop)
print("done")
"""
    line, done = exits(code)
    assert line.startswith("4 ")
    assert ("because the run ended in another thread" in line) == ("options" in attach)
    assert done == "done"


@program("""
turn, back = threading.Semaphore(0), threading.Semaphore(0)
def train():
    global prof
    prof = profiler(schedule=None).start()
    for round in range(3):
        (x @ x).sum().backward()
        if round == 0: prof.step()
        back.release(); turn.acquire()
    torch_is_well()
thread = threading.Thread(target=train); thread.start(); back.acquire()
prof.stop()
shown(prof)
for _ in range(2): turn.release(); back.acquire()
turn.release(); thread.join()
torch_is_well()
""")
def test_a_thread_that_goes_on_after_its_run_ended_elsewhere(printed: list[str]) -> None:
    line, *done = printed
    assert "was lost, because the run ended in another thread." in line
    assert done == ["done", "done"]


@program("""
def train():
    with profiler() as prof:
        for _ in range(8): multiply(); prof.step()
    shown(prof)
in_thread(train)
torch_is_well()
""")
def test_training_in_a_thread_has_its_window(printed: list[str]) -> None:
    assert printed == ["8 ((2, 4),) 3", "done"]


@program(
    """
where = "CASE"
def profile():
    with torch.profiler.profile(activities=KINDS) as own:
        multiply()
        if "until" in where: go_on.acquire()
    print(sum(e.count for e in own.key_averages() if e.key == "aten::mm"))
    # Not the null device: torch replaces the file that is there.
    own.export_chrome_trace(os.path.join(tempfile.mkdtemp(), "own.json"))
go_on = threading.Semaphore(0)
prof = profiler().start()
for i in range(8):
    if "hook" in where and i == 3:
        y = x * 1
        y.register_hook(lambda grad: profile())
        y.sum().backward()
    elif i == 3 and "until" in where:
        thread = threading.Thread(target=profile)
        thread.start()
        while not prof.report().operators.lost: pass
    elif i == 3:
        in_thread(profile)
    multiply()
    prof.step()
prof.stop()
if "until" in where: go_on.release(); thread.join()
(x @ x).sum().backward()
shown(prof)
print("done") if "hook" in where else torch_is_well()
""",
    hook="hook",
    thread="thread",
    longer="thread until the end",
)
def test_the_program_profiles_elsewhere_while_a_window_is_open(
    printed: list[str], case: str
) -> None:
    *counts, line, done = printed
    assert counts == ["1"]
    assert "was lost, because the program used torch.profiler itself." in line
    assert done == "done"


@program("""
with torch.autograd.profiler.profile(use_kineto=True) as own:
    torch.autograd.profiler._is_profiler_enabled = False
    with profiler() as prof:
        for _ in range(8): multiply(); prof.step()
print(sum(e.count for e in own.key_averages() if e.key == "aten::mm"))
shown(prof)
""")
def test_a_state_that_another_profiler_left_in_the_thread_is_not_touched(
    printed: list[str],
) -> None:
    count, line = printed
    assert count == "8"
    assert "was lost, because the program used torch.profiler itself." in line


@program("""
prof = profiler().start()
for i in range(4): multiply(); prof.step()
pid = os.fork()
if pid == 0:
    code = 0
    try:
        for _ in range(10): multiply()
        torch_is_well()
    except BaseException as error:
        print(error, flush=True)
        code = 1
    sys.stdout.flush()
    os._exit(code)
assert os.waitpid(pid, 0)[1] == 0
for i in range(4): multiply(); prof.step()
prof.stop()
shown(prof)
""")
def test_a_forked_child_does_not_record_on(printed: list[str]) -> None:
    assert printed == ["done", "8 ((2, 4),) 3"]


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library's on_exit")
def test_a_forked_child_exits_in_the_ordinary_way_after_a_window() -> None:
    code = """
import atexit, ctypes
libc = ctypes.CDLL(None)
open_in_c = libc.fopen
open_in_c.restype = ctypes.c_void_p
with profiler() as prof:
    for _ in range(8): multiply(); prof.step()
for _ in range(3):
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        signal.alarm(60)  # torch's collector waits for a thread that the child does not have
        out = open_in_c(b"/dev/stdout", b"a")  # with a buffer, which exit writes
        libc.fputs(b"from C, ", ctypes.c_void_p(out))
        atexit.register(print, "from Python,", end=" ")
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert sorted(exits(code)) == ["from Python, from C, 3"] * 3


@program("""
import resource
prof = profiler().start()
for i in range(3): multiply(); prof.step()
pid = os.fork()
if pid == 0:
    def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    multiply()
    before = peak()
    for _ in range(40_000): multiply()
    os._exit(peak() - before > 30_000)  # KiB; recorded operators take 100,000
assert os.waitpid(pid, 0)[1] == 0
""")
def test_the_memory_of_a_forked_child_does_not_grow_by_operators(printed: list[str]) -> None:
    assert printed == []


@program("""
prepare = torch.autograd.profiler._prepare_profiler
def interrupted(*args, **kwargs):
    torch.autograd.profiler._prepare_profiler = prepare
    os.kill(os.getpid(), signal.SIGUSR1)
    for _ in range(100): pass
    return prepare(*args, **kwargs)
signal.signal(signal.SIGUSR1, lambda *args: prof.step())
torch.autograd.profiler._prepare_profiler = interrupted
with profiler() as prof:
    for i in range(8): multiply(); prof.step()
shown(prof)
torch_is_well()
""")
def test_a_signal_handler_ends_a_step_while_a_window_opens(printed: list[str]) -> None:
    line, done = printed
    assert line.startswith("9 ((2, ")
    assert done == "done"


_CTRL_C = {
    f"{when}{name}": f"{name} {when}"
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
    for when in ("before", "after")
}


@program(
    """
torch.profiler.profile(activities=KINDS)
name, when = "CASE".split()
original = getattr(torch.autograd.profiler, name)
pressed = []
def interrupted(*args, **kwargs):
    if when == "after": result = original(*args, **kwargs)
    if not pressed:
        pressed.append(1)
        raise KeyboardInterrupt
    return result if when == "after" else original(*args, **kwargs)
setattr(torch.autograd.profiler, name, interrupted)
try:
    with profiler() as prof:
        for _ in range(8): multiply(); prof.step()
except KeyboardInterrupt:
    print("interrupted")
torch_is_well()
""",
    **_CTRL_C,
)
def test_ctrl_c_while_torch_profiler_begins_or_ends(printed: list[str], case: str) -> None:
    assert printed == ["interrupted", "done"]


@program("""
with profiler() as prof:
    for i in range(8):
        with torch.inference_mode(): multiply(); prof.step()
shown(prof)
torch_is_well()
""")
def test_inference_mode_and_a_window(printed: list[str]) -> None:
    assert printed == ["8 ((2, 4),) 3", "done"]
