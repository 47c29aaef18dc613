"""The process is the same before and after a run: see docs/intrusions.md."""

from __future__ import annotations

import sys

import pytest
from helpers import run_child, run_command

#: Defines state(): what a program can find of its process outside of fastprof's own modules.
STATE = """
import _thread, asyncio, atexit, builtins, faulthandler, gc, importlib.machinery, os, signal, sys
import threading, time, warnings

# With the first thread of a process the C library catches a signal of its own.
begun = len(os.listdir("/proc/self/task"))
_thread.start_new_thread(lambda: None, ())
while len(os.listdir("/proc/self/task")) > begun:
    pass

def state():
    found = {
        "handlers": [signal.getsignal(n) for n in range(1, signal.NSIG)],
        "timers": [signal.getitimer(n) for n in (0, 1, 2)],
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "caught": [line for line in open("/proc/self/status")
                   if line.startswith(("SigB", "SigI", "SigC"))],
        "meta_path": list(map(id, sys.meta_path)) + [id(sys.meta_path)],
        "path_hooks": list(map(id, sys.path_hooks)),
        "path": list(sys.path),
        "hooks": [sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook,
                  sys.getprofile(), sys.gettrace(), threading.getprofile(), threading.gettrace()],
        "threading": {n: id(v) for n, v in vars(threading).items() if callable(v)},
        "thread class": {n: id(v) for n, v in vars(threading.Thread).items()},
        "os": {n: id(v) for n, v in vars(os).items()},
        "supports": sorted(map(str, os.supports_fd)),
        "loader": {n: id(v) for n, v in vars(importlib.machinery.SourceFileLoader).items()},
        "builtins": {n: id(v) for n, v in vars(builtins).items()},
        "env": dict(os.environ),
        "fds": {n: os.readlink(f"/proc/self/fd/{n}").partition("[")[0]
                for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")},
        "threads": len(os.listdir("/proc/self/task")),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(map(id, gc.callbacks))],
        "interval": [sys.getswitchinterval(), sys.getrecursionlimit(), threading.stack_size()],
        "streams": [id(sys.stdout), id(sys.stderr), id(sys.stdin)],
        "warnings": list(warnings.filters),
        "umask": os.umask(0o22),
        "faulthandler": faulthandler.is_enabled(),
        "policy": asyncio.get_event_loop_policy.__module__,
    }
    os.umask(found["umask"])
    if hasattr(sys, "monitoring"):
        found["tools"] = [sys.monitoring.get_tool(n) for n in range(6)]
        found["events"] = [sys.monitoring.get_tool(n) and sys.monitoring.get_events(n)
                           for n in range(6)]
    if "torch" in sys.modules:
        import torch, torch.utils.data.dataloader as data
        for name, owner in (("torch", torch), ("tensor", torch.Tensor), ("loader", data),
                            ("optimizer", torch.optim.Optimizer), ("module", torch.nn.Module),
                            ("autograd", torch.autograd)):
            found[f"torch.{name}"] = {n: id(v) for n, v in vars(owner).items()
                                      if callable(v) and not n.startswith("__")}
    return found

def changes(before):
    for _ in range(100):
        after = state()
        found = {name: (old, after[name]) for name, old in before.items() if old != after[name]}
        if list(found) != ["threads"]:
            break
        time.sleep(0.05)  # the system counts a thread until some time after its end
    return found
"""

RUN = """
import fastprof

def run():
    with fastprof.Profiler(**OPTIONS) as prof:
        for _ in prof.loader(range(3), name="main"):
            with fastprof.profile_section("forward"):
                sum(range(100))
            prof.step()
    assert prof.report().to_text()
"""

#: The first run loads modules, and registers what lasts as long as the process.
COMPARE = """
run()
before = state()
run()
left = changes(before)
assert not left, left
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("options", ["", "functions=False", "trace=True", "gpu=True"])
def test_a_profiler_leaves_the_process_as_it_found_it(tmp_path, options: str) -> None:
    lines = f"import os\nos.chdir({str(tmp_path)!r})\nOPTIONS = dict({options})\n"
    first = "before = state()\nrun()\nleft = changes(before)\nassert not left, left\n"
    run_child(STATE + lines + RUN + first + COMPARE).check()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_torch_is_as_before_after_automatic_sections(tmp_path) -> None:
    pytest.importorskip("torch")
    code = f"""
import os
os.chdir({str(tmp_path)!r})
import fastprof, torch, torch.profiler
from fastprof.integrations import torch_loop

def run():
    with fastprof.Profiler(operators=fastprof.OperatorProfile()) as prof:
        attached = torch_loop.attach(prof)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in torch.utils.data.DataLoader(torch.zeros(8, 2), 2):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    attached.detach()
"""
    run_child(STATE + code + COMPARE, timeout=120).check()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("command", ["run -o out", "-o out.fprof"])
def test_functions_at_exit_find_the_process_as_python_leaves_it(tmp_path, command: str) -> None:
    (tmp_path / "program.py").write_text(
        STATE
        + """
import os
def shown():
    now = state()
    del now["streams"]
    for name in ("threading", "thread class", "os", "loader", "builtins"):
        now[name] = sorted(n for n in now[name])
    now["meta_path"] = [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path]
    now["path_hooks"] = len(sys.path_hooks)
    now["gc"] = now["gc"][:3] + [len(gc.callbacks)]
    now["real"] = [os._exit.__class__.__name__, os.execv.__class__.__name__]
    for name, value in now.items():
        print(name, str(value).replace(str(id(value)), ""))
atexit.register(shown)
"""
    )
    alone = run_command([sys.executable, "program.py"], cwd=tmp_path).check()
    command_line = [sys.executable, "-m", "fastprof", *command.split(), "program.py"]
    recorded = run_command(command_line, cwd=tmp_path).check()
    ours = recorded.stdout.splitlines()
    theirs = alone.stdout.splitlines()
    missing = [line for line in theirs if line not in ours]
    assert not missing, (missing, ours)
