"""Runs the tests on a machine that has only a C compiler and Python.

    python3 tools/run_tests.py [PYTEST ARGUMENT...]
    python3 tools/run_tests.py -m ''                   the tests marked slow, too

Creates the virtual environment .venv (or $VENV) if there is none, installs fastprof with its test
requirements into it, then runs the C tests and pytest.  You may run it repeatedly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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
    else:
        run(*install, ".[test]")
    run(python, "tools/ctest.py", "plain")
    # pytest obeys the last -m.
    run(python, "-m", "pytest", "-m", "not slow", *pytest_arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
