"""The environment variable FASTPROF, and the modules that ``import fastprof`` loads."""

from __future__ import annotations

import re
import sys

import pytest
from helpers import run_child

SECTIONS = """
from fastprof import profile_section
import fastprof
for _ in range(7):
    with profile_section("forward_pass"):
        pass
    fastprof.step()
print("done")
"""


def test_s3_02_unset_means_no_output_at_all() -> None:
    for env in ({}, {"FASTPROF": ""}):
        result = run_child(SECTIONS, env=env).check()
        assert result.stdout == "done\n"
        assert result.stderr == ""


def test_s3_02_one_means_reports_at_exit() -> None:
    result = run_child(SECTIONS, env={"FASTPROF": "1"}).check()
    assert result.stdout == "done\n", "the program's own output is left alone"
    assert "=== Final Profiling Summary (7 steps) ===" in result.stderr
    assert re.search(r"^forward_pass: count=7, total=", result.stderr, re.MULTILINE)
    assert result.stderr.count("=== Final") == 1


def test_s3_02_a_run_without_sections_has_no_empty_summary() -> None:
    code = "import fastprof\ndef work(): return sum(range(200_000))\nwork()\n"
    result = run_child(code, env={"FASTPROF": "1"}).check()
    assert re.search(r"^ *work  child.py:2 ", result.stderr, re.MULTILINE)
    assert "Summary" not in result.stderr
    assert "Insights" not in result.stderr


def test_s3_02_the_report_at_exit_is_as_wide_as_the_terminal() -> None:
    terminal = "import sys; sys.stderr.isatty = lambda: True\n"
    result = run_child(terminal + SECTIONS, env={"FASTPROF": "1", "COLUMNS": "60"}).check()
    report = result.stderr.partition("=== Final")[0]
    assert max(map(len, report.splitlines())) <= 60, report


def test_s3_02_zero_forces_everything_off() -> None:
    code = """
import fastprof
with fastprof.start_training_profiling(1) as handle:
    with fastprof.profile_section("x"):
        pass
    handle.step()
    fastprof.step()
with fastprof.Profiler(functions=True) as prof:
    with fastprof.profile_section("x"):
        pass
    assert list(prof.loader([1, 2], "main")) == [1, 2]
    assert prof.step() == 0
assert prof.snapshot().sections == ()
print("done")
"""
    result = run_child(code, env={"FASTPROF": "0"}).check()
    assert (result.stdout, result.stderr) == ("done\n", "")


def test_s3_02_a_wrapper_script_that_sets_it_works() -> None:
    wrapper = """
import os, subprocess, sys, pathlib
script = pathlib.Path(sys.argv[0]).with_name("train.py")
script.write_text(%r)
os.environ["FASTPROF"] = "1"
sys.exit(subprocess.run([sys.executable, str(script)]).returncode)
"""
    result = run_child(wrapper % SECTIONS).check()
    assert "=== Final Profiling Summary (7 steps) ===" in result.stderr


def test_s3_02_a_run_the_program_starts_takes_over() -> None:
    code = """
import fastprof, sys
with fastprof.start_training_profiling(1, stream=sys.stderr):
    with fastprof.profile_section("x"):
        pass
    fastprof.step()
"""
    result = run_child(code, env={"FASTPROF": "1"}).check()
    headers = re.findall(r"^=== (.*) ===$", result.stderr, re.MULTILINE)
    assert headers == ["Profiling Report (Step 1)", "Final Profiling Summary (1 step)"]


def test_s3_02_the_programs_own_function_profiler_gets_the_hook() -> None:
    code = """
import fastprof
profile = fastprof.Profile()
profile.enable()
with fastprof.profile_section("x"):
    sorted([2, 1])
profile.disable()
assert any("sorted" in str(entry.code) for entry in profile.getstats())
"""
    result = run_child(code, env={"FASTPROF": "1"}).check()
    assert "Recording of functions ended early" in result.stderr
    assert "x: count=1" in result.stderr


def test_s3_02_worker_processes_do_not_report() -> None:
    code = """
import multiprocessing as mp
import fastprof

def work(x):
    with fastprof.profile_section("in_worker"):
        return x + 1

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(2) as pool:
            assert pool.map(work, range(4)) == [1, 2, 3, 4]
    with fastprof.profile_section("in_parent"):
        pass
"""
    result = run_child(code, env={"FASTPROF": "1"}, timeout=120).check()
    assert result.stderr.count("=== Final Profiling Summary") == 1
    assert "in_parent: count=1" in result.stderr


@pytest.mark.parametrize(
    "junk",
    ["yes", "2", " 1", "../x", "x" * 100_000, "\udcff\udcfe", "1\n", "import os", "{}"],
    ids=lambda v: ascii(v)[:12],
)
def test_f48_junk_is_warned_about_once_and_ignored(junk) -> None:
    result = run_child(SECTIONS, env={"FASTPROF": junk}).check()
    assert result.stdout == "done\n"
    assert result.stderr.count("RuntimeWarning: FASTPROF=") == 1
    assert "===" not in result.stderr
    assert len(result.stderr) < 1000


@pytest.mark.parametrize("option", ["-I", "-E"])
@pytest.mark.parametrize("value", ["1", "0", "junk"])
def test_f48_ignored_when_the_environment_is_to_be_ignored(option, value) -> None:
    import fastprof

    where = str(fastprof.__path__[0]).rpartition("/")[0]
    code = f"import sys; sys.path.insert(0, {where!r})\n" + SECTIONS
    result = run_child(code, env={"FASTPROF": value}, options=[option], guard=False).check()
    assert (result.stdout, result.stderr) == ("done\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/environ semantics")
def test_f48_bytes_that_are_not_utf_8_are_ignored() -> None:
    code = """
import os, subprocess, sys
env = dict(os.environb)
env[b"FASTPROF"] = b"\\xff\\xfe1"
command = [sys.executable, "-c", "import fastprof; print('done')"]
sys.exit(subprocess.run(command, env=env).returncode)
"""
    result = run_child(code).check()
    assert "done" in result.stdout
    assert result.stderr.count("RuntimeWarning: FASTPROF=") == 1


def test_import_loads_only_what_it_needs() -> None:
    code = """
import sys
before = set(sys.modules)
import fastprof
print(*sorted(set(sys.modules) - before))
"""
    loaded = set(run_child(code, guard=False).check().stdout.split())
    assert {m for m in loaded if m.startswith("fastprof")} == {
        "fastprof", "fastprof._core", "fastprof._version", "fastprof.capture",
        "fastprof.capture.sections", "fastprof.session", "fastprof.session.environment",
        "fastprof.errors", "fastprof.own_builtins", "fastprof.own_imports",
            "fastprof.session.environment.switch",
    }  # fmt: skip
    assert loaded.isdisjoint(
        {"torch", "typing", "inspect", "dataclasses", "logging", "json", "functools"}
    )


def test_every_public_name_is_there_and_a_missing_one_is_an_attribute_error() -> None:
    import fastprof

    for name in fastprof.__all__:
        assert getattr(fastprof, name) is not None
        assert name in dir(fastprof)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fastprof.no_such_name
    assert re.match(r"\d+\.\d+", fastprof.__version__)


def test_s3_02_zero_also_keeps_a_profile_from_recording() -> None:
    result = run_child(
        "import fastprof\n"
        "p = fastprof.Profile(); p.enable(); len(()); p.disable(); p.create_stats()\n"
        "print(p.stats)\n",
        env={"FASTPROF": "0"},
    ).check()
    assert result.stdout == "{}\n"


def test_f48_junk_with_warnings_as_errors_does_not_end_the_import() -> None:
    result = run_child(
        "import fastprof; print('on')", env={"FASTPROF": "junk"}, options=["-W", "error"]
    ).check()
    assert result.stdout == "on\n"
    assert "is ignored" in result.stderr


def test_an_m_among_the_scripts_arguments_is_not_the_interpreters() -> None:
    from fastprof.own_imports import _module_run

    assert _module_run(["train.py", "-m", "fastprof.big"]) is None
    assert _module_run(["-X", "dev", "-um", "fastprof", "x.py"]) == "fastprof"
    assert _module_run(["-mfastprof.cli", "run"]) == "fastprof.cli"
    assert _module_run(["-c", "pass", "-m", "fastprof"]) is None
    assert _module_run([]) is None


def test_packages_are_there_after_a_plain_import() -> None:
    code = (
        "import sys, fastprof\n"
        "assert 'fastprof.loggers' not in sys.modules\n"
        "assert {'loggers', 'integrations'} <= set(dir(fastprof))\n"
        "fastprof.loggers.JSONLines, fastprof.integrations.torch_loop.attach\n"
        "assert 'torch' not in sys.modules\n"
    )
    run_child(code).check()
