"""An exception of a signal handler reaches the program wherever it interrupts fastprof's code.

A trace function sends the signal before one instruction of fastprof's code, the next time before
the next one, and so on, so no test depends on when a timer fires.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers import run_child

SWEEP = """
import json, logging, opcode, signal, sys
import fastprof

logging.disable(logging.CRITICAL)
ROOT = fastprof.__path__[0]
# Where the interpreter looks for signals: after these instructions.
CHECKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "JUMP_ABSOLUTE",
          "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW"}
before = {}
left = handled = 0

class Limit(Exception):
    pass

def handler(signum, frame):
    global handled
    handled += 1
    raise Limit

def tracer(frame, event, arg):
    if not frame.f_code.co_filename.startswith(ROOT):
        return None
    frame.f_trace_opcodes = True
    return instruction

def instruction(frame, event, arg):
    global left
    if event == "opcode":
        last, before[frame] = before.get(frame), frame.f_lasti
        if last is not None and opcode.opname[frame.f_code.co_code[last]] in CHECKS:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGALRM)
    return instruction

signal.signal(signal.SIGALRM, handler)
PROGRAM

work(); work()
places = lost = stuck = 0
while True:
    places += 1
    left, handled = 1 + (places - 1) * STRIDE, 0
    before.clear()
    sys._getframe().f_trace_opcodes = True  # 3.12 traces instructions only if a frame has asked
    sys.settrace(tracer)
    try:
        work()
    except Limit:
        caught = 1
    else:
        caught = 0
    finally:
        sys.settrace(None)
    if not handled:
        break
    lost += 1 - caught
    steps = prof.steps
    work()
    stuck += prof.steps == steps
prof.stop()
print(json.dumps([places, lost, stuck, prof._run.faults.counts]))
"""

PLAIN = """
class Logger:
    def log_metrics(self, metrics, step):
        pass

prof = fastprof.Profiler(functions=False, logger=Logger(), log_every=1)
prof.start()

loader = prof.loader([1])

def work():
    for batch in loader:
        with prof.section("forward"):
            pass
        prof.step()
"""

TORCH = """
import torch
from fastprof.integrations import torch_loop

prof = fastprof.Profiler(functions=False)
prof.start()
prof.enter_phase("setup")
torch_loop.attach(prof)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)

def work():
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


def sweep(program: str, stride: int) -> list[Any]:
    script = SWEEP.replace("PROGRAM", program).replace("STRIDE", str(stride))
    out = run_child(script, timeout=120.0).check().stdout
    return list(json.loads(out.splitlines()[-1]))


def test_p9_a_handlers_exception_passes_through_a_step_with_a_logger() -> None:
    places, lost, stuck, faults = sweep(PLAIN, 1)
    assert places > 30
    assert (lost, stuck, faults) == (0, 0, {})


def test_p9_a_handlers_exception_passes_through_the_hooks_on_torch() -> None:
    pytest.importorskip("torch")
    places, lost, stuck, faults = sweep(TORCH, 5)
    assert places > 30
    assert (lost, stuck, faults) == (0, 0, {})


def test_p9_a_handlers_exception_passes_through_a_synchronised_section() -> None:
    out = run_child(
        """
import signal, sys, types
import fastprof

armed = False

def synchronize():
    global armed
    if armed:
        armed = False
        signal.raise_signal(signal.SIGALRM)

def handler(signum, frame):
    raise TimeoutError("time is up")

torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: True, is_current_stream_capturing=lambda: False, synchronize=synchronize
)
sys.modules["torch"] = torch
signal.signal(signal.SIGALRM, handler)
caught = 0
with fastprof.Profiler(functions=False, sync=True) as prof:
    for _ in range(5):
        armed = True
        try:
            with fastprof.profile_section("forward"):
                for _ in range(10):
                    pass
        except TimeoutError as error:
            caught += str(error) == "time is up"
print(caught, prof.snapshot().counters.get("sync_errors", 0))
"""
    ).check()
    assert out.stdout.split() == ["5", "0"]


DEEP = """
import sys

def down(n, action):
    if n:
        return down(n - 1, action)
    action()

def at_the_limit(action):
    met = 0
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        try:
            down(depth, action)
        except RecursionError:
            met += 1
    return met
"""

LOGGER_AT_THE_LIMIT = """
import fastprof
calls = 0

class Logger:
    def log_metrics(self, metrics, step):
        down(60, self.count)

    def count(self):
        global calls
        calls += 1

profiler = fastprof.Profiler(logger=Logger(), log_every=1)
profiler.start()

def step():
    with fastprof.profile_section("forward"):
        pass
    profiler.step()

for _ in range(5):
    step()
met = at_the_limit(step)
before = calls
for _ in range(5):
    step()
profiler.stop()
print(met > 0, before > 0, calls > before)
print([note for note in profiler.report().notes if "switched off" in note])
"""

TORCH_AT_THE_LIMIT = """
import fastprof, torch
from fastprof.integrations import torch_loop
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=8)

def train():
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

profiler = fastprof.Profiler()
profiler.start()
torch_loop.attach(profiler)
train()
met = at_the_limit(train)
for _ in range(5):
    train()
profiler.stop()
print(met > 0)
print([note for note in profiler.report().notes if "switched off" in note])
"""


def test_p9_a_logger_is_not_switched_off_where_the_program_is_at_its_recursion_limit() -> None:
    done = run_child(DEEP + LOGGER_AT_THE_LIMIT)
    assert done.stdout == "True True True\n[]\n", done.stderr


def test_p9_sections_are_not_switched_off_where_the_program_is_at_its_recursion_limit() -> None:
    pytest.importorskip("torch")
    done = run_child(DEEP + TORCH_AT_THE_LIMIT, timeout=120)
    assert done.stdout.endswith("True\n[]\n"), done.stdout + done.stderr
