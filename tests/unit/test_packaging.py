"""The installed package, and its import."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import check_stub
import fastprof
import pytest
from helpers import ROOT, run_child, run_command


def test_the_version_stands_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", fastprof.__version__)
    for name in ("pyproject.toml", "setup.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert fastprof.__version__ not in text


def test_the_metadata_name_every_python_that_has_a_wheel():
    tomllib = pytest.importorskip("tomllib")
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    prefix = "Programming Language :: Python :: 3."
    named = {c.removeprefix(prefix) for c in data["project"]["classifiers"] if c.startswith(prefix)}
    oldest, newest = min(named, key=int), max(named, key=int)
    assert data["project"]["requires-python"] == f">=3.{oldest}"
    assert named == {str(minor) for minor in range(int(oldest), int(newest) + 1)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"CPython 3.{oldest} to 3.{newest}" in readme
    selectors = data["tool"]["cibuildwheel"]["build"].split()
    for minor in named:
        for libc in ("manylinux", "musllinux"):
            name = f"cp3{minor}-{libc}_x86_64"
            assert any(fnmatch.fnmatchcase(name, selector) for selector in selectors)
    # cibuildwheel builds these for 3.14 and later; 3.13's were experimental.
    assert any(fnmatch.fnmatchcase("cp314t-manylinux_x86_64", s) for s in selectors)
    assert any(fnmatch.fnmatchcase("cp315t-musllinux_x86_64", s) for s in selectors)
    threads = "Programming Language :: Python :: Free Threading :: "
    assert any(c.startswith(threads) for c in data["project"]["classifiers"])


@pytest.mark.parametrize(("function", "library"), [("dlopen", "dl"), ("timer_create", "rt")])
def test_what_old_libcs_have_in_libraries_of_their_own_is_linked(function, library):
    """An extension without them builds with glibc 2.28, and its import fails."""
    assert any(f"{function}(" in path.read_text() for path in ROOT.glob("csrc/**/*.c"))
    (linked,) = re.findall(r"libraries=(\[.+?\])", (ROOT / "setup.py").read_text())
    assert f'"{library}"' in linked


def installed() -> importlib.metadata.Distribution:
    """Return the installed distribution; in-place builds have none."""
    try:
        return importlib.metadata.distribution("fastprof")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("fastprof is built in place, not installed")


def test_the_metadata_agree_with_the_package():
    distribution = installed()
    assert distribution.version == fastprof.__version__
    assert distribution.metadata["Requires-Python"] == ">=3.10"
    scripts = {e.name: e.value for e in distribution.entry_points if e.group == "console_scripts"}
    assert scripts == {"fastprof": "fastprof.cli:main"}


def test_nothing_is_required_beyond_the_standard_library():
    required = [r for r in installed().requires or [] if "extra ==" not in r]
    assert required == []


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi"])
def test_type_information_is_beside_the_package(name):
    assert (Path(fastprof.__file__).parent / name).is_file()


def test_the_stub_names_what_the_extension_has():
    assert fastprof.profile_section("packaging").name == "packaging"
    stub = ast.parse(check_stub.STUB.read_text(encoding="utf-8"))
    assert check_stub.differences(stub, sys.modules["fastprof._core"]) == []


def test_a_difference_between_stub_and_extension_is_found():
    module = type(sys)("module")
    module.both = module.extension = 1
    module.Class = type("Class", (), {"both": 1, "extension": 1})
    stub = ast.parse("both: int\nstub: int\nclass Class:\n    both: int\n    def stub(self): ...\n")
    assert check_stub.differences(stub, module) == [
        "stub: in the stub only",
        "extension: in the extension only",
        "Class.stub: in the stub only",
        "Class.extension: in the extension only",
    ]


def test_importing_loads_only_the_standard_library_and_leaves_nothing_behind():
    code = (
        "import sys, threading\n"
        "before = set(sys.modules)\n"
        "import fastprof\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'fastprof'}))\n"
        "print(threading.active_count(), sys.getprofile(), sys.gettrace())\n"
    )
    assert run_child(code).check().stdout == "[]\n1 None None\n"


def test_importing_prints_nothing_and_warns_of_nothing():
    result = run_child("import fastprof\n", options=("-W", "error")).check()
    assert (result.stdout, result.stderr) == ("", "")


def test_the_installation_holds_the_package_and_nothing_else():
    names = {str(path) for path in installed().files or [] if ".." not in path.parts}
    names = {name for name in names if "__pycache__" not in name}
    if any("__editable__" in name for name in names):
        pytest.skip("fastprof is installed editable: a link, not files")
    assert any(name.endswith("/LICENSE") for name in names)
    assert {"fastprof/py.typed", "fastprof/_core.pyi", "fastprof/__init__.py"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fastprof"}


HTML = "python/fastprof/render/html"


def test_the_parts_of_html_reports_are_installed(tmp_path):
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "python", source / "python", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copyfile(ROOT / name, source / name)
    built = tmp_path / "built"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", built],
        cwd=source,
        check=True,
        capture_output=True,
    )
    here, there = (
        {p.relative_to(root).as_posix() for p in root.glob("[!_]*/*") if p.is_file()}
        for root in (ROOT / HTML, built / "fastprof/render/html")
    )
    assert here == there
    assert {"templates/page.html", "css/page.css", "js/page.js"} <= here


def test_a_source_distribution_is_complete(tmp_path):
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    expected = set()
    for pattern in (
        *("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "*.md", "tests/*.py"),
        *("csrc/**/*.[ch]", "tests/c/*", "tools/*.py", "python/fastprof/**/*.py"),
        *("python/fastprof/_core.pyi", "python/fastprof/py.typed"),
        *(f"{HTML}/templates/*.html", f"{HTML}/css/*.css", f"{HTML}/js/*.js"),
    ):
        for path in ROOT.glob(pattern):
            name = path.relative_to(ROOT)
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, source / name)
            expected.add(name.as_posix())
    subprocess.run(
        [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", tmp_path],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("fastprof-*.tar.gz")
    with tarfile.open(archive) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    assert expected - packed == set()


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ("sys.implementation.name = 'pypy'", "fastprof records CPython only"),
        ("sys.version_info = (3, 9, 18, 'final', 0)", "fastprof needs CPython 3.10 or newer"),
        ("sys.platform = 'win32'", "fastprof does not record on Windows"),
    ],
)
def test_a_build_that_could_not_work_is_refused_in_one_line(lie, text):
    pytest.importorskip("setuptools")
    code = (
        "import runpy, sys\nimport setuptools.command.build_ext\n"
        f"{lie}\nsys.argv = ['setup.py', '--version']\nrunpy.run_path('setup.py')\n"
    )
    result = run_child(code, cwd=ROOT).check(returncode=1)
    (line,) = result.stderr.splitlines()
    assert line.startswith(text)


def test_a_build_without_a_compiler_ends_with_the_remedy(tmp_path):
    pytest.importorskip("setuptools")
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in ("csrc", "python"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    result = run_command(
        [sys.executable, "setup.py", "-q", "build_ext"],
        cwd=tmp_path,
        env={"CC": str(tmp_path / "no-such-compiler")},
    ).check(returncode=1)
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("fastprof: the extension was not built (")
    assert "Debian: gcc python3-dev" in last
