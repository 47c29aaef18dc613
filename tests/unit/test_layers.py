"""Each check of the layers, which `make lint` runs, finds its violation."""

from __future__ import annotations

import os
from pathlib import Path

import ctest
import layers_c
import layers_python
import pytest
from helpers import ROOT


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("csrc/core/a.c", '#include "py/state.h"\n'),
        ("csrc/core/a.h", '#include "gpu/buffers.h"\n'),
        ("csrc/gpu/a.c", '#  include "py/state.h"\n'),
        ("csrc/core/a.c", '#include "tree.h"\n'),
        ("csrc/core/a.c", "#include <Python.h>\n"),
        ("csrc/gpu/a.h", "#include <internal/pycore_frame.h>\n"),
        ("csrc/other/a.c", "int f(void);\n"),
    ],
)
def test_an_include_against_the_direction_is_found(tmp_path, name, text):
    write(tmp_path, name, text)
    assert len(layers_c.include_violations(tmp_path)) == 1


def test_includes_in_the_direction_are_accepted(tmp_path):
    write(tmp_path, "csrc/core/a.c", '#include "core/a.h"\n#include <string.h>\n')
    write(tmp_path, "csrc/gpu/a.c", '#include "core/a.h"\n/* #include <Python.h> */\n')
    write(tmp_path, "csrc/py/a.c", '#include <Python.h>\n#include "gpu/a.h"\n')
    assert layers_c.include_violations(tmp_path) == []


CALLS_B = '#include "core/b.h"\nvoid\nfp_a(void)\n{\n    fp_b();\n}\n'


@pytest.mark.parametrize(
    ("header", "source"),
    [
        ('#include "core/a.h"\n', "void\nfp_b(void)\n{\n    fp_a();\n}\n"),
        ("", "void\nfp_a(void);\nvoid\nfp_b(void)\n{\n    fp_a();\n}\n"),
        ("static inline void\nfp_b(void)\n{\n    fp_a();\n}\n", ""),
        ("", "void\nfp_b(void)\n{\n}\nconst struct table fp_table = {fp_a};\n"),
    ],
    ids=["both", "call", "inline call", "table"],
)
def test_a_circle_of_includes_and_calls_is_found(tmp_path, header, source):
    write(tmp_path, "csrc/core/a.c", CALLS_B)
    write(tmp_path, "csrc/core/b.h", header)
    write(tmp_path, "csrc/core/b.c", source)
    (line,) = layers_c.circle_violations(tmp_path)
    assert line.startswith("a circle of ")
    assert "csrc/core/a.c -> csrc/core/b." in line


def test_declarations_statics_and_comments_make_no_circle(tmp_path):
    write(tmp_path, "csrc/core/a.c", CALLS_B)
    write(tmp_path, "csrc/core/b.h", "void\nfp_a(void); /* fp_a() */\n")
    text = '/* fp_a */\nstatic void\nhelp(void)\n{\n    say("fp_a");\n}\nvoid\nfp_b(void)\n{\n}\n'
    write(tmp_path, "csrc/core/b.c", text)
    write(tmp_path, "csrc/core/c.c", "static void\nhelp(void)\n{\n}\n")
    assert layers_c.circle_violations(tmp_path) == []


@pytest.mark.parametrize("test", ["PY_VERSION_HEX >= 0x030C0000", "defined(Py_GIL_DISABLED)"])
def test_a_version_test_is_found_everywhere_but_in_pycompat(tmp_path, test):
    for name in ("csrc/py/pycompat.h", "csrc/py/recorder.c"):
        write(tmp_path, name, f"#include <Python.h>\n#if {test}\n#endif\n")
    found = layers_c.version_violations(tmp_path)
    assert [line.split(":")[0] for line in found] == ["csrc/py/recorder.c"]


@pytest.mark.parametrize(
    "text",
    [
        "int counter;\n",
        "static uint64_t total = 0;\n",
        "static const char *last;\n",
        "static struct pool {int a;} pool;\n",
        "static void (*callback)(int);\n",
        "static int\nf(void)\n{\n    static int calls = 0;\n    return ++calls;\n}\n",
        "static int f(void) {return 1;}\nint after_a_function[3];\n",
    ],
)
def test_a_mutable_global_in_the_core_is_found(tmp_path, text):
    write(tmp_path, "csrc/core/a.c", text)
    assert len(layers_c.global_violations(tmp_path)) == 1


def test_constants_types_and_prototypes_are_no_mutable_globals(tmp_path):
    write(
        tmp_path,
        "csrc/core/a.c",
        "#include <stdint.h>\n#define N \\\n    3\n/* int gone; */\n// int gone;\n"
        "typedef struct fp_a {\n    int x;\n} fp_a;\nstruct fp_b;\nenum { A = 1 };\n"
        'static const char *const names[] = {"a;b", "{"};\nstatic const int table[] = {1, 2};\n'
        'extern int elsewhere;\n_Static_assert(sizeof(int) == 4, "int");\n'
        "static inline int\nf(int x, void (*g)(int));\n"
        "static int\nf(int x)\n{\n    static const int c = 1;\n    int y = x;\n    return y;\n}\n",
    )
    assert layers_c.global_violations(tmp_path) == []


PAGE = "| file | variable | why | guard |\n|---|---|---|---|\n| `a.c` | `x`, `y` (in `f`) | | |\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("static int x;\nvoid f(void)\n{\n    static atomic_int y;\n}\n", []),
        ("static _Atomic(fp_x *) x[4];\nstatic struct {\n    int a;\n} y;\nint z = 1;\n",
         ["csrc/py/a.c: z is not in docs/c-variables.md"]),
        ("static int x;\nstatic PyMethodDef methods[] = {{NULL}};\nstatic const int z;\n",
         ["docs/c-variables.md: a.c has no y"]),
    ],
)  # fmt: skip
def test_a_mutable_variable_of_the_extension_needs_a_row(tmp_path, text, found):
    write(tmp_path, "docs/c-variables.md", PAGE)
    write(tmp_path, "csrc/py/a.c", text)
    assert layers_c.page_violations(tmp_path) == found


def test_a_second_thread_local_is_found(tmp_path):
    write(tmp_path, "csrc/py/a.c", "_Thread_local int *one;\n")
    write(tmp_path, "csrc/py/a.h", "extern _Thread_local int *one;\n")
    assert layers_c.thread_local_violations(tmp_path) == []
    write(tmp_path, "csrc/py/b.c", "static __thread int two;\n")
    assert len(layers_c.thread_local_violations(tmp_path)) == 1


@pytest.mark.parametrize("call", ['printf("%d", 1)', "malloc(8)", "free(p)"])
def test_printing_and_a_foreign_allocation_in_the_core_are_found(tmp_path, call):
    text = f"void\nf(void *p)\n{{\n    {call};\n}}\n"
    write(tmp_path, "csrc/core/a.c", text)
    write(tmp_path, "csrc/py/a.c", text)
    found = layers_c.purity_violations(tmp_path)
    assert [line.split(":")[0] for line in found] == ["csrc/core/a.c"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("capture/a.py", "from fastprof.report import build\n"),
        ("capture/a.py", "from ..report import build\n"),
        ("report/a.py", "import fastprof.capture.sections\n"),
        ("report/a.py", "from fastprof import export\n"),
        ("report/__init__.py", "from ..export import text\n"),
        ("findings/a.py", "from fastprof.export import json_\n"),
        ("report/model.py", "def to_text():\n    from fastprof.render import formats\n"),
        ("report/a.py", "WRITERS = ('fastprof.render.text:write',)\n"),
        ("session/a.py", "def f():\n    import fastprof.cli\n"),
        ("session/a.py", "from fastprof import Profiler\n"),
        ("snapshot/a.py", "from ..report import build\n"),
        ("report/a.py", "import importlib\nimportlib.import_module('fastprof.session')\n"),
        ("report/a.py", "if TYPE_CHECKING:\n    from fastprof.session import x\n"),
        ("ranks/a.py", "from fastprof.ranks.exchange import live\n"),
        ("ranks/render/a.py", "from fastprof.session import run\n"),
        ("report/a.py", "from fastprof.ranks import model\n"),
        ("somewhere/a.py", "import json\n"),
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path, name, text):
    write(tmp_path, f"python/fastprof/{name}", text)
    assert len(layers_python.direction_violations(tmp_path)) == 1


def test_imports_in_the_direction_are_accepted(tmp_path):
    for name, text in {
        "capture/a.py": "from fastprof import _core\nfrom ..snapshot import Snapshot\n",
        "report/a.py": "from .b import x\nfrom fastprof.snapshot import Snapshot\n",
        "ranks/exchange/a.py": "from fastprof.session import part\nfrom .. import row\n",
        "session/a.py": "from fastprof.capture import sections\nfrom .. import export\n",
        "cli/a.py": "import fastprof\nfrom fastprof.session import profiler\n",
        "__init__.py": "from .session.profiler import Profiler\n",
    }.items():
        write(tmp_path, f"python/fastprof/{name}", text)
    assert layers_python.violations(tmp_path) == []


@pytest.mark.parametrize(
    "back",
    [
        "from fastprof.report import a\n",
        "from .a import x\n",
        "def f():\n    from fastprof.report.a import x\n",
        "import importlib\ndef f():\n    importlib.import_module('fastprof.report.a')\n",
        "if TYPE_CHECKING:\n    from fastprof.report.a import x\n",
    ],
    ids=["module", "name", "in a function", "by name", "for typing"],
)
def test_a_circle_of_imports_is_found(tmp_path, back):
    write(tmp_path, "python/fastprof/report/__init__.py", "")
    write(tmp_path, "python/fastprof/report/a.py", "from fastprof.report.b import y\n")
    write(tmp_path, "python/fastprof/report/b.py", "from fastprof.report.c import z\n")
    write(tmp_path, "python/fastprof/report/c.py", "import json\n")
    assert layers_python.circle_violations(tmp_path) == []
    write(tmp_path, "python/fastprof/report/c.py", back)
    (line,) = layers_python.circle_violations(tmp_path)
    assert line == (
        "a circle of 3 modules: report.a -> report.b, report.b -> report.c, report.c -> report.a"
    )


@pytest.mark.parametrize("layer", ["session", "report", "cli"])
def test_the_extension_is_imported_by_capture_only(tmp_path, layer):
    write(tmp_path, "python/fastprof/capture/a.py", "from fastprof._core import Recorder\n")
    write(tmp_path, f"python/fastprof/{layer}/a.py", "from fastprof._core import Recorder\n")
    found = layers_python.extension_violations(tmp_path)
    assert [line.split(":")[0] for line in found] == [f"python/fastprof/{layer}/a.py"]


def test_a_dependency_at_import_time_is_found(tmp_path):
    write(tmp_path, "python/fastprof/export/a.py", "try:\n    import rich.table\nfinally: ...\n")
    write(
        tmp_path,
        "python/fastprof/export/b.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
        "def f():\n    import rich\n",
    )
    write(tmp_path, "python/fastprof/cli/demo_torch.py", "import torch.nn\n")
    found = layers_python.dependency_violations(tmp_path)
    assert [line.split(":")[0] for line in found] == ["python/fastprof/export/a.py"]


def test_an_unregistered_c_test_is_found(tmp_path):
    write(tmp_path, "test_a.c", "FP_TEST(a_one)\n{\n}\nFP_TEST(a_two)\n{\n}\n")
    write(tmp_path, "list.h", "X(a_two)\nX(a_three)\nX(a_two)\n")
    found = ctest.unregistered(tmp_path)
    assert [line.split()[0] for line in found] == ["a_one", "a_three", "a_two"]


def gil_promise_is_backed(root: Path) -> bool:
    """Return False if the extension declares that it needs no GIL, but no CI job tests that."""
    declared = any(
        "Py_MOD_GIL_NOT_USED" in layers_c.without_comments(path.read_text(encoding="utf-8"))
        for path in (root / "csrc").rglob("*.[ch]")
    )
    return not declared or "job_free_threaded()" in (root / ".ci/run").read_text(encoding="utf-8")


def test_only_changed_c_files_are_compiled_again(tmp_path, monkeypatch):
    for name in ("csrc/core/a.h", "csrc/core/a.c", "csrc/gpu/a.c", "tests/c/test_a.c"):
        write(tmp_path, name, "int x;\n")
    monkeypatch.setattr(ctest, "ROOT", tmp_path)
    monkeypatch.setattr(ctest, "TESTS", tmp_path / "tests" / "c")
    # Writes its arguments into the object.
    write(tmp_path, "cc", "#!/bin/sh\nfor last; do :; done\necho $* >$last\n")
    (tmp_path / "cc").chmod(0o755)
    build = tmp_path / "build"
    build.mkdir()

    def compiled() -> list[str]:
        before = {path: path.stat().st_ino for path in build.iterdir()}
        objects = ctest.compile_objects([str(tmp_path / "cc")], build)
        assert sorted(objects) == sorted(build.iterdir())
        return sorted(path.name for path in objects if before.get(path) != path.stat().st_ino)

    everything = ["c-test_a.o", "core-a.o", "gpu-a.o"]
    assert compiled() == everything
    assert compiled() == []
    soon = (build / "core-a.o").stat().st_mtime_ns + 10**9
    os.utime(tmp_path / "csrc/gpu/a.c", ns=(soon, soon))
    assert compiled() == ["gpu-a.o"]
    os.utime(tmp_path / "csrc/core/a.h", ns=(soon, soon))
    assert compiled() == everything
    write(tmp_path, "cc", "#!/bin/sh\nfalse\n")
    assert ctest.compile_objects([str(tmp_path / "cc")], build) is None


def test_f39_no_promise_about_the_gil_without_its_job(tmp_path):
    assert gil_promise_is_backed(ROOT)
    write(tmp_path, ".ci/run", "job_pythons() {\n}\n")
    write(tmp_path, "csrc/py/module.c", "{Py_mod_gil, Py_MOD_GIL_NOT_USED},\n")
    assert not gil_promise_is_backed(tmp_path)
    write(tmp_path, ".ci/run", "job_free_threaded() {\n}\n")
    assert gil_promise_is_backed(tmp_path)
