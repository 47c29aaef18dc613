"""A saved run is read where the extension cannot be loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import fastprof
from fastprof import profile_section
from fastprof.report import build_report
from helpers import run_child


def package_without_extension(folder: Path) -> Path:
    source = Path(fastprof.__file__).parent
    shutil.copytree(
        source, folder / "fastprof", ignore=shutil.ignore_patterns("_core*.so", "__pycache__")
    )
    return folder


def test_a_report_is_built_on_a_machine_without_the_extension(tmp_path: Path) -> None:
    saved = tmp_path / "run.fprof"
    with fastprof.Profiler(functions=True) as profiler:
        for batch in profiler.loader([[1], [2]], name="main"):
            with profile_section("forward"):
                sorted(batch)
            profiler.step()
    report = build_report(profiler.snapshot())
    report.save(saved)
    where = package_without_extension(tmp_path / "elsewhere")
    result = run_child(
        """
import sys
sys.path.insert(0, sys.argv[1])
import fastprof
assert fastprof.__file__.startswith(sys.argv[1])
print(fastprof.load(sys.argv[2]).to_text(), end="")
try:
    fastprof.profile_section
except ImportError as error:
    assert "_core" in str(error), error
else:
    raise AssertionError("there is an extension after all")
""",
        str(where),
        str(saved),
        options=["-S"],
    ).check()
    assert result.stdout == report.to_text()
