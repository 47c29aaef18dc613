"""Without the extension saved runs can be read, and recording raises an error with the reason."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import fastprof
import pytest
from fastprof import profile_section
from helpers import ChildResult, run_child

#: The arguments after the first are the command's arguments.
COMMAND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from fastprof.cli import main
sys.exit(main())
"""
CPROFILES = COMMAND.replace("import main", "import main_of_module as main")


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """Return a folder with the package and no extension."""
    shutil.copytree(
        Path(fastprof.__file__).parent,
        tmp_path / "elsewhere" / "fastprof",
        ignore=shutil.ignore_patterns("_core*.so"),
    )
    return tmp_path / "elsewhere"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two runs, ranks 0 and 1 of a job."""
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        with fastprof.Profiler(functions=True) as profiler:
            for batch in profiler.loader([[1], [2]] * 8, name="main"):
                with profile_section("forward"):
                    sorted(batch)
                profiler.step()
        profiler.report().save(tmp_path / f"{rank}.fprof")
    return tmp_path


def child(code: str, package: Path, *arguments: object, **options: object) -> ChildResult:
    # -S hides another installed fastprof, with all other packages.
    return run_child(code, str(package), *map(str, arguments), options=["-S"], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        "report 0.fprof --full",
        "report 0.fprof --findings",
        "report 0.fprof --format json",
        "report 0.fprof --format speedscope -o -",
        "compare 0.fprof 1.fprof",
        "merge 0.fprof 1.fprof",
        "targets",
        "--version",
        "--help",
    ],
)
def test_what_reads_does_the_same_without_the_extension(
    without: Path, saved: Path, arguments: str
) -> None:
    there = child(COMMAND, without, *arguments.split(), cwd=saved).check()
    here = child(COMMAND, Path(fastprof.__file__).parent.parent, *arguments.split(), cwd=saved)
    assert there.stdout == here.check().stdout != ""
    assert there.stderr == here.stderr


def test_a_loaded_run_is_the_same_report(without: Path, saved: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import fastprof
assert fastprof.__file__.startswith(sys.argv[1])
print(fastprof.load(sys.argv[2]).to_text(), end="")
"""
    result = child(code, without, saved / "0.fprof").check()
    assert result.stdout == fastprof.load(saved / "0.fprof").to_text()


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (COMMAND, ["run", "script.py"]),
        (COMMAND, ["demo"]),
        (COMMAND, ["quickcheck"]),
        (CPROFILES, ["script.py"]),
    ],
)
def test_what_records_says_in_one_line_that_it_cannot(
    without: Path, tmp_path: Path, code: str, arguments: list[str]
) -> None:
    (tmp_path / "script.py").write_text("print('ran')\n")
    result = child(code, without, *arguments, cwd=tmp_path).check(returncode=2)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("fastprof: fastprof cannot record here: ")


def test_a_program_goes_on_under_fastprof_1(without: Path) -> None:
    code = "import sys\nsys.path.insert(0, sys.argv[1])\nimport fastprof\nprint('ran')\n"
    result = child(code, without, env={"FASTPROF": "1"}).check()
    assert result.stdout == "ran\n"
    assert result.stderr.count("FASTPROF=1 did not work: fastprof cannot record here") == 1


USE = """
try:
    fastprof.profile_section
except ImportError as error:
    print(error)
"""


def why(package: Path, before: str = "") -> str:
    """Return the error message for using a name of the recorder."""
    code = f"import sys\nsys.path.insert(0, sys.argv[1])\n{before}\nimport fastprof\n{USE}"
    (line,) = child(code, package).check().stdout.splitlines()
    return line


def test_the_reason_names_the_interpreter_what_is_there_and_the_remedy(without: Path) -> None:
    other = without / "fastprof" / "_core.cpython-39-x86_64-linux-gnu.so"
    other.write_bytes(b"")
    line = why(without)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert f"is not built for CPython {sys.version.split()[0]}" in line
    assert f"(_core{suffix})" in line
    assert f"{os.fspath(without / 'fastprof')} has {other.name};" in line
    assert f"install fastprof with {sys.executable} -m pip" in line
    assert "saved runs can still be read" in line


@pytest.mark.parametrize(
    ("variable", "text"), [("Py_DEBUG", "debug build"), ("Py_GIL_DISABLED", "free-threaded build")]
)
def test_the_reason_names_debug_and_free_threaded_builds(
    without: Path, variable: str, text: str
) -> None:
    before = f"import sysconfig\nsysconfig.get_config_vars()['{variable}'] = 1"
    kind = why(without, before).partition(" (_core.")[0]
    assert text in kind.split(", ")


def test_the_reason_names_an_interpreter_that_is_not_cpython(without: Path) -> None:
    line = why(without, "sys.implementation.name = 'pypy'")
    assert line.startswith("fastprof records CPython only, and this is ")


def test_the_reason_is_the_extensions_own_where_it_refuses(without: Path) -> None:
    (without / "fastprof" / "_core.py").write_text("raise ImportError('fastprof needs the GIL')\n")
    assert why(without).startswith("fastprof cannot record here: fastprof needs the GIL; ")


def test_an_old_python_gets_one_clear_error(without: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
sys.version_info = (3, 9, 18, "final", 0)
import fastprof
"""
    result = child(code, without).check(returncode=1)
    assert result.stderr.splitlines()[-1].startswith(
        "ImportError: fastprof needs Python 3.10 or newer, and this is "
    )
