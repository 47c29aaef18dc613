"""Builds the C core with its tests and runs them, without Python.h.

    python3 tools/ctest.py                     plain build
    python3 tools/ctest.py plain asan tsan     several
    python3 tools/ctest.py all                 every mode that this machine can run
    build/ctest/cc-plain/fp_tests NAME         one test, in a debugger

Modes: ``plain`` (-O2 -DNDEBUG, warnings are errors), ``asan`` (AddressSanitizer and
UndefinedBehaviorSanitizer), ``tsan`` (ThreadSanitizer) and ``valgrind`` (the plain build
under memcheck).  Needs Python >= 3.10 and a C compiler ($CC, or cc); nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "c"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
MODES = {
    # The tests' checks must work with NDEBUG, because the released core is built with it.
    "plain": ["-O2", "-DNDEBUG"],
    "asan": ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "tsan": ["-g", "-O1", "-fsanitize=thread"],
    "valgrind": ["-g", "-O1", "-DFP_TEST_UNDER_VALGRIND"],
}


def sources() -> list[Path]:
    layers = [path for layer in ("core", "gpu") for path in (ROOT / "csrc" / layer).glob("*.c")]
    return sorted(layers) + sorted(TESTS.glob("*.c"))


def unregistered(tests: Path = TESTS) -> list[str]:
    """Return a sentence for each difference between the tests and list.h."""
    defined: list[str] = []
    for path in sorted(tests.glob("test_*.c")):
        defined += re.findall(r"^FP_TEST\((\w+)\)", path.read_text(encoding="utf-8"), re.M)
    text = (tests / "list.h").read_text(encoding="utf-8")
    listed = re.findall(r"^X\((\w+)\)", text, re.M)
    if not defined:
        return ["tests/c has no test_*.c with a test in it"]
    once = set(listed)
    return [
        *(f"{n} is not in tests/c/list.h: it would never run" for n in defined if n not in once),
        *(f"{n} is in tests/c/list.h but no such test exists" for n in listed if n not in defined),
        *(f"{n} is in tests/c/list.h twice" for n in sorted(once) if listed.count(n) > 1),
    ]


def runner(mode: str) -> list[str] | None:
    """Return the command to put before the test program; None: the mode cannot run here."""
    if mode == "valgrind":
        if shutil.which("valgrind") is None:
            return None
        return ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=try"]
    if mode == "tsan" and shutil.which("setarch") is not None:
        # TSan's fixed shadow addresses collide with a highly randomised address space.
        command = ["setarch", platform.machine(), "-R"]
        if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
            return command
    return []


def is_current(product: Path, *inputs: Path) -> bool:
    """Return whether `product` is newer than all `inputs`."""
    if not product.exists():
        return False
    made = product.stat().st_mtime_ns
    return all(path.stat().st_mtime_ns < made for path in inputs)


def compile_objects(flags: list[str], build: Path) -> list[Path] | None:
    """Compile what changed, as many files at a time as there are processors; None: it failed.

    Any changed header recompiles everything.
    """
    headers = [*(ROOT / "csrc").rglob("*.h"), *TESTS.glob("*.h"), Path(__file__)]
    objects = {build / f"{path.parent.name}-{path.stem}.o": path for path in sources()}

    def compiles(target: Path, source: Path) -> bool:
        if is_current(target, source, *headers):
            return True
        # Another run may use the same folder.
        partial = target.with_suffix(f".{os.getpid()}")
        command = [*flags, "-c", str(source), "-o", str(partial)]
        if subprocess.run(command, check=False).returncode != 0:
            return False
        partial.replace(target)
        return True

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = list(pool.map(compiles, objects, objects.values()))
    return list(objects) if all(compiled) else None


def run_mode(mode: str, build: Path, compiler: list[str]) -> bool | None:
    """Build and run one mode.  Return True if it passed or cannot run here; None: not built."""
    command = runner(mode)
    if command is None:
        print(f"{mode}: skipped, no {mode} on this machine", flush=True)
        return True
    build.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c11", *WARNINGS, *MODES[mode], "-I", str(ROOT / "csrc"), "-I", str(TESTS)]
    objects = compile_objects([*compiler, *flags], build)
    program = build / f"fp_tests.{os.getpid()}"
    link = [*compiler, *MODES[mode], *map(str, objects or ()), "-o", str(program)]
    link += ["-pthread", "-ldl", "-lm"]
    if objects is None or subprocess.run(link, check=False).returncode != 0:
        print(f"{mode}: does not compile", flush=True)
        return None
    print(f"{mode}: ", end="", flush=True)
    program.replace(build / "fp_tests")
    return subprocess.run([*command, str(build / "fp_tests")], check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and run the C tests.")
    parser.add_argument(
        "modes", nargs="*", metavar="MODE", default=["plain"], help=", ".join([*MODES, "all"])
    )
    arguments = parser.parse_args()
    modes = list(MODES) if "all" in arguments.modes else arguments.modes
    for mode in modes:
        if mode not in MODES:
            parser.error(f"no mode {mode!r}; there are {', '.join([*MODES, 'all'])}")
    wrong = unregistered()
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    compiler = shlex.split(os.environ.get("CC", "cc"))
    failed: list[str] = []
    for mode in modes:
        name = re.sub(r"\W+", "-", " ".join([*compiler, mode]))
        passed = run_mode(mode, ROOT / "build" / "ctest" / name, compiler)
        if passed is False:
            failed.append(mode)
        elif passed is None:
            # The other modes would show the same errors again.
            return 1
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
