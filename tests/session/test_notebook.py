"""Runs in IPython: a cell that fails leaves a run behind; ``%%fastprof``."""

from __future__ import annotations

import pytest
from helpers import run_child

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.displaypub import CapturingDisplayPublisher
shell = InteractiveShell.instance(display_pub_class=CapturingDisplayPublisher)
shell.colors = "nocolor"
def run(code):
    result = shell.run_cell(code, store_history=True)
    return repr(result.error_before_exec or result.error_in_exec)
assert run("import fastprof") == "None"
"""


def in_shell(code: str) -> list[str]:
    """Return the lines that `code` prints after "###" in a child process with a shell."""
    pytest.importorskip("IPython")
    result = run_child(SHELL + code)
    assert result.returncode == 0, result.stderr
    return [line[3:] for line in result.stdout.splitlines() if line.startswith("###")]


def test_a_new_profiler_ends_the_run_of_a_cell_that_failed():
    lines = in_shell("""
cell = "p = fastprof.Profiler(); p.start(); work(); p.stop(); report = p.report()"
print("###", run(cell)[:9])
run("def work(): return sum(range(9))")
print("###", run(cell))
print("###", shell.user_ns["report"].snapshot.notes[0])
print("###", run(cell), any("still active" in n for n in shell.user_ns["report"].snapshot.notes))
""")
    assert lines[0] == " NameError"
    assert lines[1] == " None"
    assert lines[2].startswith(" The run started at ")
    assert lines[2].endswith(":1 was still active; this one has ended it.")
    assert lines[3] == " None False"


def test_automatic_sections_can_be_attached_again_after_a_failed_cell():
    lines = in_shell("""
run("from fastprof.integrations import torch_loop")
cell = "loop = torch_loop.attach(functions=False); work(); loop.detach()"
print("###", run(cell)[:9])
run("def work(): pass")
print("###", run(cell))
""")
    assert lines == [" NameError", " None"]


def test_stop_ends_the_run_whose_handle_is_lost_and_returns_it():
    lines = in_shell("""
run("fastprof.Profiler(functions=False).start()")
run("ended = fastprof.stop()")
print("###", shell.user_ns["ended"].running, shell.user_ns["ended"].report().wall_ms > 0)
run("again = fastprof.stop()")
print("###", shell.user_ns["again"])
""")
    assert lines == [" False True", " None"]


MAGIC = """
assert run("%load_ext fastprof") == "None"
outputs = shell.display_pub.outputs
"""


def test_the_magic_shows_the_report_of_the_cell_alone():
    lines = in_shell(
        MAGIC
        + """
print("###", run("%%fastprof report\\ndef slow(n):\\n    return sorted(range(n))\\nslow(9)\\n7"))
report = shell.user_ns["report"]
print("###", outputs[-1]["data"]["text/html"].partition(",")[0][:60])
print("###", [f.name for f in report.functions if f.file.startswith("<ipython-input")])
print("###", [f.name for f in report.functions if "IPython" in f.file])
print("###", [f.line for f in report.functions if f.name == "slow"], shell.user_ns["_"])
print("###", run("%%fastprof no name\\n1"))
"""
    )
    assert lines[0] == " None"
    assert lines[1].startswith(" <pre>In [3]: "), lines[1]
    # Nothing of the shell; the cell's code and what it calls.
    assert sorted(eval(lines[2])) == ["<module>", "slow"]
    assert lines[3:5] == [" []", " [2] 7"]
    assert lines[5].startswith(" ValueError")


def test_the_magic_prints_the_report_in_a_terminal():
    """IPython in a terminal showed "<fastprof.Report 'In [3]': 0 steps, 2 functions, ...>"."""
    pytest.importorskip("IPython")
    code = """
shell.display_formatter.active_types = ["text/plain"]  # as TerminalInteractiveShell does
assert run("%%fastprof\\nsorted(range(9))") == "None"
"""
    result = run_child(SHELL + MAGIC + code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("In [3]: ")
    assert "your functions" in result.stdout
    assert "<fastprof.Report" not in result.stdout


def test_the_magic_shows_the_report_of_a_cell_that_fails_and_its_error_once():
    lines = in_shell(
        MAGIC
        + """
print("###", run("%%fastprof\\ndef bad():\\n    return 1 / 0\\nbad()"))
print("###", "<pre>In [3]: " in outputs[-1]["data"]["text/html"])
print("###", run("%%fastprof\\n1 +"))
print("###", run("fastprof.Profiler(functions=False).start().stop()"))
"""
    )
    assert lines[0] == " ZeroDivisionError('division by zero')"
    assert lines[1] == " True"
    assert lines[2].startswith(" SyntaxError")
    assert lines[3] == " None"


def test_ipython_is_not_imported_for_it():
    result = run_child("""
import sys
import fastprof
fastprof.load_ipython_extension
assert not any(name.partition(".")[0] == "IPython" for name in sys.modules)
""")
    assert result.returncode == 0, result.stderr
