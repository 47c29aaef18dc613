"""Names of any script reach each output as its encoding can carry them."""

import csv
import html
import json
import re
import sys
from pathlib import Path

import pytest
from fastprof.results.saved import load
from fastprof.tables.columns import TABLES
from helpers import run_command

PROGRAM = """\
import fastprof

class 前向:
    def 计算(self):
        for _ in range(9):
            self.tâche()
    def tâche(self):
        sum(range(5_000))

def hidden():
    前向().计算()

code, name = hidden.__code__, "a\\u202eb\\x1b[31m"
names = {field: name for field in ("co_name", "co_qualname") if hasattr(code, field)}
hidden.__code__ = code.replace(**names)
for _ in range(30):
    with fastprof.profile_section("前向 section"):
        hidden()
    fastprof.step()
"""
#: An object with what Python itself needs of it, in front of the standard output.
TEE = """\
import sys
class Tee:
    def __init__(self, stream):
        self.write, self.flush = stream.write, stream.flush
sys.stdout = Tee(sys.stdout)
"""
COMMAND = "from fastprof.cli import main; import sys; sys.exit(main(['run', *sys.argv[1:]]))"
OUTPUTS = {
    "utf-8": {"PYTHONIOENCODING": "utf-8"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C locale": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
}


def recorded(folder: Path, *options: str, program: str = PROGRAM, **env: str) -> bytes:
    """Return what ``fastprof run`` wrote to its standard output."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-X", "utf8=0", "-c", COMMAND, *options, "train.py"]
    env = {"LC_ALL": "C.UTF-8", "FASTPROF_DIR": str(folder / "runs"), **env}
    redirected = ["sh", "-c", 'exec "$@" > out', "sh", *command]
    run_command(redirected, cwd=folder, env=env).check()
    return (folder / "out").read_bytes()


@pytest.mark.parametrize(
    ("full", "tee"),
    [
        pytest.param(False, False, id="screen-stdout"),
        pytest.param(True, True, id="full-tee"),
        # Each encoding has either text and either stream in the first two.
        pytest.param(False, True, id="screen-tee", marks=pytest.mark.slow),
        pytest.param(True, False, id="full-stdout", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("output", OUTPUTS)
def test_names_are_shown_as_they_are_where_the_output_can_carry_them(
    tmp_path: Path, output: str, full: bool, tee: bool
) -> None:
    encoding = "ascii" if output == "C locale" else output
    program = (TEE if tee else "") + PROGRAM
    options = ["--full"] if full else []
    text = recorded(tmp_path, *options, program=program, **OUTPUTS[output]).decode(encoding)
    for name in ("前向.计算", "前向.tâche", "前向 section"):
        if not (name.startswith("前向.") and sys.version_info < (3, 11)):  # no qualified names
            assert name.encode(encoding, "backslashreplace").decode(encoding) in text
    # What may do something to a terminal stays escaped everywhere.
    assert r"a\u202eb\x1b[31m" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_names_are_shown_as_they_are_in_every_file(tmp_path: Path) -> None:
    recorded(tmp_path)
    report = load(next(tmp_path.rglob("*.fprof")))
    for suffix in (".txt", ".html", ".json", ".csv", ".md", ".collapsed", ".callgrind"):
        report.save(path := tmp_path / f"run{suffix}")
        text = path.read_text(encoding="utf-8")
        if suffix == ".html":
            text = html.unescape(text)
        elif suffix == ".json":
            text = json.dumps(json.loads(text), ensure_ascii=False)
        assert re.search("前向|计算", text), suffix  # 3.10 has no qualified names
        assert "\x1b" not in text
        assert "\u202e" not in text or suffix == ".json"
    for table in TABLES:
        rows = [*csv.reader(report.to_csv(table).splitlines())]
        named = table not in ("kernels", "loaders")
        assert any(re.search("前向|计算", cell) for row in rows for cell in row) == named, table
