"""tools/tests_of.py: the tests of a file by the naming rule."""

from __future__ import annotations

from pathlib import Path

import pytest
import tests_of
from helpers import ROOT


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("python/fastprof/report/rows.py", ["unit/test_report_rows.py", "unit/test_rows.py"]),
        ("python/fastprof/session/_torch/loop.py", ["session/test_loop_data.py"]),
        ("python/fastprof/session/__init__.py", ["unit/test_session.py"]),
        ("csrc/core/tree.h", ["c/test_tree.c", "c/test_tree_full.c"]),
        ("python/fastprof/names.py", []),
    ],
)
def test_a_test_is_named_after_its_module_or_begins_with_it(tmp_path, source, expected):
    for name in (
        "unit/test_rows.py", "unit/test_report_rows.py", "unit/test_arrows.py",
        "unit/test_rowset.py", "session/test_loop_data.py", "unit/test_session.py",
        "c/test_tree.c", "c/test_tree_full.c", "c/test_trees.c", "unit/test_tree.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = tests_of.named_after(Path(source), tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == expected


def test_a_file_without_tests_is_named(capsys):
    assert tests_of.main([str(ROOT / "tools" / "tests_of.py")]) == 0
    assert capsys.readouterr().out == "tests/unit/test_tests_of.py\n"
    assert tests_of.main(["nothing.py"]) == 1
    assert "nothing.py: no test file" in capsys.readouterr().err
