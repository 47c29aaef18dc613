"""Builds the one extension module, ``fastprof._core``; everything else is in pyproject.toml.

Switches: environment variables, all off by default:

``FASTPROF_WERROR=1``
    Compiler warnings are errors.  For development only: a newer compiler may have new warnings,
    which must not stop a user's installation. ``FASTPROF_DEBUG=1``
    ``-O0 -g3`` with assertions on.
``FASTPROF_SANITIZE=address`` or ``thread``
    AddressSanitizer with UndefinedBehaviorSanitizer, or ThreadSanitizer.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from glob import glob
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# By default UBSan only reports an error and continues, and the test would pass.
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}


def refusal() -> str | None:
    """Return the reason why a build would not work here, or None."""
    if sys.implementation.name != "cpython":
        return f"fastprof records CPython only, and this is {platform.python_implementation()}"
    if sys.version_info < (3, 10):  # noqa: UP036 - pip looks, who runs this file does not
        return f"fastprof needs CPython 3.10 or newer, and this is {platform.python_version()}"
    if sys.platform == "win32":
        return "fastprof does not record on Windows: its recorder needs POSIX threads and signals"
    return None


def compile_each(
    compile_: Callable[..., list[str]], sources: list[str], **options: Any
) -> list[str]:
    """Compile `sources`, as many at the same time as there are processors; return the objects."""
    pool = ThreadPoolExecutor(os.cpu_count())
    compiled = [pool.submit(compile_, [source], **options) for source in sources]
    try:
        return [path for future in compiled for path in future.result()]
    finally:
        # After an error the user sees its messages, not those of a hundred other files.
        pool.shutdown(cancel_futures=True)


class BuildExtension(build_ext):
    """The usual build, in parallel; its errors name the remedy."""

    def build_extension(self, ext: Extension) -> None:
        self.compiler.compile = partial(compile_each, self.compiler.compile)
        super().build_extension(ext)

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            raise SystemExit(
                f"fastprof: the extension was not built ({error}); building needs a C compiler and "
                "Python's headers (Debian: gcc python3-dev, Fedora: gcc python3-devel, Alpine: gcc "
                "musl-dev python3-dev); see its messages above"
            ) from None


def switch(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def flags() -> tuple[list[str], list[str]]:
    """Return the arguments of the compiler and of the linker."""
    compile_args = [
        "-std=c11",
        "-O2",
        # Python's own flags have -g, which makes a build a fifth longer and the wheel much larger.
        "-g0",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        # Tables of the C API end with partly filled entries, and functions need not use every
        # argument of its signatures.
        "-Wno-missing-field-initializers",
        "-Wno-unused-parameter",
    ]
    link_args: list[str] = []
    if platform.libc_ver()[0] == "glibc":
        # Every event reads one thread-local pointer; the general model would make that a function
        # call.  Other C libraries refuse to load a module with this model late.
        compile_args.append("-ftls-model=initial-exec")
    if switch("FASTPROF_WERROR"):
        compile_args.append("-Werror")
    if switch("FASTPROF_DEBUG"):
        compile_args += ["-O0", "-g3", "-UNDEBUG"]
    sanitizer = os.environ.get("FASTPROF_SANITIZE", "")
    if sanitizer:
        if sanitizer not in SANITIZERS:
            raise SystemExit(
                f"FASTPROF_SANITIZE must be one of {', '.join(SANITIZERS)}, not {sanitizer!r}"
            )
        compile_args += ["-g", "-O1", "-UNDEBUG", "-fno-omit-frame-pointer"]
        compile_args += SANITIZERS[sanitizer]
        link_args += SANITIZERS[sanitizer]
    return compile_args, link_args


if refusal() is not None:
    raise SystemExit(refusal())

COMPILE_ARGS, LINK_ARGS = flags()

setup(
    cmdclass={"build_ext": BuildExtension},
    ext_modules=[
        Extension(
            "fastprof._core",
            sources=sorted(glob("csrc/core/*.c") + glob("csrc/gpu/*.c") + glob("csrc/py/*.c")),
            include_dirs=["csrc"],
            # For dlopen and timer_create, which are part of libc only since glibc 2.34.
            libraries=["dl", "rt"] if platform.libc_ver()[0] == "glibc" else [],
            # Otherwise a changed header would recompile nothing.
            depends=sorted(glob("csrc/**/*.h", recursive=True)),
            extra_compile_args=COMPILE_ARGS,
            extra_link_args=LINK_ARGS,
        )
    ],
)
