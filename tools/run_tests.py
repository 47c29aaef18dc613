"""Runs the tests on a machine that has only a C compiler and Python.

    python3 tools/run_tests.py [PYTEST ARGUMENT...]
    python3 tools/run_tests.py -m ''                   the tests marked slow, too
    python3 tools/run_tests.py tests/native -k threads some of the tests

Creates the virtual environment .venv (or $VENV) if there is none, installs fastprof with its test
requirements into it, then runs the C tests and pytest: three processes on two processors, because
tests wait a third of their time.  You may run it repeatedly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Test files of a pytest: few, so that the processes end at about the same time; of one folder,
#: whose files share fixtures.
FILES = 20
#: Folders whose tests start programs and wait for them, the longest first.  They begin before the
#: shards of the others, which are short, so that all processes end at about the same time.
LONG = ("cli", "gpu", "session", "native", "threads")
#: What pytest returns if a shard has no test that -k or -m selects.
NO_TESTS = 5
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed)\b")


def run(*command: str | Path) -> None:
    """Run a command in the repository's root; end with its status if it fails."""
    print("+", *command, flush=True)
    status = subprocess.run([str(part) for part in command], check=False, cwd=ROOT).returncode
    if status != 0:
        sys.exit(status)


def is_editable(python: Path) -> bool:
    """Return whether ``python`` has an editable install of fastprof (PEP 610)."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "try: text = m.distribution('fastprof').read_text('direct_url.json')\n"
        "except m.PackageNotFoundError: text = None\n"
        "sys.exit(not json.loads(text or '{}').get('dir_info', {}).get('editable'))\n"
    )
    # -I: in the folder of the sources, Python would find the build's egg-info instead.
    return subprocess.run([str(python), "-I", "-c", code], check=False).returncode == 0


def shards(tests: Path = ROOT / "tests") -> list[list[Path]]:
    """Return the test files in groups, the folders of `LONG` first."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        folders.setdefault(path.parent, []).append(path)
    result = []
    order = {name: place for place, name in enumerate(LONG)}
    for _, files in sorted(folders.items(), key=lambda one: order.get(one[0].name, len(order))):
        number = -(-len(files) // FILES)
        # Neighbours in the alphabet are often about one subject, and equally long.
        result += [files[start::number] for start in range(number)]
    return result


def run_together(commands: Sequence[Sequence[str | Path]]) -> bool:
    """Run commands at the same time, show the output of each at its end; return success."""
    began = time.monotonic()
    counts: Counter[str] = Counter()
    succeeded = True

    def run_one(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            check=False,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
        )

    with ThreadPoolExecutor(max(2, (os.cpu_count() or 1) * 3 // 2)) as pool:
        for future in as_completed([pool.submit(run_one, command) for command in commands]):
            done = future.result()
            print(done.stdout, end="", flush=True)
            if done.returncode not in (0, NO_TESTS):
                print("+ FAILED:", *done.args, flush=True)
                succeeded = False
            _, _, summary = done.stdout.rstrip().rpartition("\n")
            for count, what in _COUNT.findall(summary):
                counts[what] += int(count)
    total = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"all: {total or 'no tests'} in {time.monotonic() - began:.0f} s", flush=True)
    return succeeded


def main(pytest_arguments: list[str]) -> None:
    venv = ROOT / os.environ.get("VENV", ".venv")
    python = venv / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", venv)
    # pip builds in the tree, and would install modules from there that were deleted since.
    for stale in (ROOT / "build").glob("lib*"):
        shutil.rmtree(stale)
    # Some versions of hypothesis lack a wheel for some Pythons, and would need Rust.
    install = [python, "-m", "pip", "install", "--prefer-binary"]
    install += ["--quiet", "--disable-pip-version-check"]
    # In an environment of `make dev` a plain install would replace the link to the sources by a
    # copy, and later runs of pytest would test that copy.
    if is_editable(python):
        run(*install, "--editable", ".[test]")
        # As pip compiles what it copies: where PYTHONDONTWRITEBYTECODE is set, each program that a
        # test starts would compile all of it.
        run(python, "-m", "compileall", "-q", "python")
    else:
        run(*install, ".[test]")
    # pytest obeys the last -m.  Its cache is for one pytest at a time.
    pytest = [python, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", *pytest_arguments]
    if any(a and (ROOT / a.partition("::")[0]).exists() for a in pytest_arguments):
        run(*pytest)
        return
    commands = [[*pytest, *files] for files in shards()]
    if not run_together([[python, "tools/ctest.py", "plain"], *commands]):
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
