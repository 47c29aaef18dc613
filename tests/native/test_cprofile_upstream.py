"""CPython's own tests of cProfile and pstats, with fastprof in place of cProfile.

They come from the running interpreter's ``test`` package and run in a child process in which
``import cProfile`` imports fastprof.  Left out, because they test cProfile itself or a choice that
differs in fastprof:

* ``test_profile_enable_disable``, ``test_profile_as_context_manager``: up to 3.11 they expect the
  profiler object itself in ``sys.getprofile()``, from 3.12 on a tool named "cProfile".
  ``test_cprofile_counts.py`` tests the same behaviour.
* ``test_second_profiler``: fastprof raises its BusyError (F7).
* ``test_bad_counter_during_dealloc``, ``test_evil_external_timer``: they test the module
  ``_lsprof``, and expect it to print a timer's fault.  fastprof counts and reports it (F14).
* ``test_crash_with_not_enough_args``: it calls cProfile's private callbacks.

The comparison ignores the number of spaces in tables, which depends on the name of the profiler's
``disable`` method.
"""

from __future__ import annotations

import re

import pytest
from helpers import run_child

pytest.importorskip("test.test_profile", reason="this interpreter has no test package")

SHIM = """
import os, re, sys, unittest
import fastprof
sys.modules["cProfile"] = fastprof
backend = sys.argv[1]

# The tests make Profile(timer, unit) and Profile(): choose the backend for them.
class Profile(fastprof.Profile):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, backend=backend, **kwargs)
fastprof.Profile = Profile

from test.support import script_helper

def with_fastprof(real):
    def call(*args, **env):
        args = ["fastprof" if arg == "cProfile" else arg for arg in args]
        # With a variable of its own the child is not isolated and finds fastprof.
        return real(*args, PYTHONPATH=os.environ["PYTHONPATH"], **env)
    return call

for name in ("assert_python_ok", "assert_python_failure"):
    setattr(script_helper, name, with_fastprof(getattr(script_helper, name)))

from test import test_pstats
try:
    from test import test_cprofile
except ImportError:  # 3.15 has the module elsewhere, and its tests
    import profiling
    profiling.tracing = sys.modules["profiling.tracing"] = fastprof
    from test.test_profiling import test_tracing_profiler as test_cprofile

def squeezed(text):
    return re.sub(" +", " ", text)

class Tests(test_cprofile.CProfileTest):
    def get_expected_output(self):
        return {k: squeezed(v) for k, v in super().get_expected_output().items()}

    @classmethod
    def do_profiling(cls):
        first, *rest = super().do_profiling()
        return [first, *map(squeezed, rest)]

LEFT_OUT = (
    "test_profile_enable_disable", "test_profile_as_context_manager", "test_second_profiler",
    "test_bad_counter_during_dealloc", "test_evil_external_timer",
    "test_crash_with_not_enough_args",
)

def keep(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from keep(test)
        elif test.id().split(".")[-1] not in LEFT_OUT:
            yield test

loader = unittest.defaultTestLoader
suites = [loader.loadTestsFromTestCase(Tests),
          loader.loadTestsFromTestCase(test_cprofile.TestCommandLine),
          loader.loadTestsFromModule(test_pstats)]
result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(
    unittest.TestSuite(keep(suites)))
sys.exit(not result.wasSuccessful())
"""


def test_cpythons_own_tests_pass(backend: str, tmp_path: object) -> None:
    pytest.importorskip("fastprof.export.pstats_")
    import os
    from pathlib import Path

    import fastprof

    path = str(Path(fastprof.__file__).parent.parent)
    result = run_child(
        SHIM,
        backend,
        env={"PYTHONPATH": os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))},
        cwd=tmp_path,  # they write files
        timeout=240,
    ).check()
    passed = set(re.findall(r"^(test_\w+) .*ok$", result.stdout, re.MULTILINE))
    assert {
        "test_cprofile",
        "test_calling_conventions",
        "test_run",
        "test_runctx",
        "test_run_profile_as_module",
        "test_output_file_when_changing_directory",
        "test_sort",
        "test_get_stats_profile",
    } <= passed
