"""Checks of the documents: links, tables of packages and of variables, names."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import fastprof
import pytest
from cprofile_programs import PROGRAMS
from helpers import ROOT

PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = ROOT / "python" / "fastprof"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    own = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in own if not (page.parent / link).exists()] == []


def test_the_index_names_every_page():
    index = text("docs/README.md")
    pages = {
        p.relative_to(ROOT / "docs").as_posix()
        for p in PAGES
        if "docs" in p.relative_to(ROOT).parts and p.name != "README.md"
    } - {p.relative_to(ROOT / "docs").as_posix() for p in ROOT.glob("docs/decisions/*.md")}
    assert sorted(page for page in pages if f"({page})" not in index) == []


def test_the_table_of_places_names_every_package_and_every_folder_of_tests():
    table = text("CONTRIBUTING.md")
    packages = {f"python/fastprof/{p.parent.name}/" for p in SOURCES.glob("*/__init__.py")}
    layers = {f"csrc/{p.name}/" for p in (ROOT / "csrc").iterdir() if p.is_dir()}
    tests = {
        f"tests/{p.name}/"
        for p in (ROOT / "tests").iterdir()
        if p.is_dir() and any(p.glob("test_*")) and p.name != "guard"
    }
    assert sorted(p for p in packages | layers | tests if f"`{p}`" not in table) == []


def test_p6_security_names_every_variable_of_ours():
    used = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used |= set(re.findall(r"^FASTPROF(?:_[A-Z]+)*$", node.value))
    assert used >= {"FASTPROF", "FASTPROF_CUPTI"}
    promises = text("SECURITY.md")
    assert sorted(name for name in used if f"`{name}`" not in promises) == []
    assert len(used) == 11
    assert "fastprof has eleven environment variables" in promises


def test_p1_security_says_the_threat_model_and_which_releases_get_fixes():
    page = " ".join(text("SECURITY.md").split())
    for said in (
        "Threat model: the profiled program is trusted; the names in it are not; files given",
        "Only the latest release gets fixes.",
        "Report a vulnerability privately",
    ):
        assert said in page


def test_the_compatibility_page_names_tests_that_exist():
    page = text("docs/cprofile-compat.md")
    names = set(re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)`", page))
    assert names
    assert names <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert f" on {len(PROGRAMS)} programs" in page


def test_the_page_of_the_interface_names_every_public_name():
    page = text("docs/api.md")
    public = [name for name in fastprof.__all__ if name != "__version__"]
    assert [name for name in public if f"`{name}" not in page] == []
    mentioned = re.findall(r"^\| `([\w.]+)", page, flags=re.MULTILINE)
    assert {name for name in mentioned if "." not in name} <= set(fastprof.__all__)
    errors = {f"errors.{name}" for name in vars(fastprof.errors) if name.endswith("Error")}
    assert {name for name in mentioned if "." in name} | {"errors.FastprofError"} == errors


def test_what_the_tests_need_is_in_a_source_distribution():
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    grafted = set(re.findall(r"^graft (\S+)$", text("MANIFEST.in"), flags=re.MULTILINE))
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if not tracked:
        pytest.skip("not a checkout of git")
    folders = {name.split("/")[0] for name in tracked if "/" in name} - {"python"}
    assert folders <= grafted


def test_the_page_of_limits_has_the_numbers_of_the_code():
    page = text("docs/limits.md")
    rows = re.findall(
        r"\| ([0-9.,]+)(?: ([KMG])iB)? \| `([a-z_.]+)\.([\w.]+)` \|$", page, re.MULTILINE
    )
    assert len(rows) == sum(line.endswith("` |") for line in page.splitlines())
    said, found = {}, {}
    for number, unit, module, name in rows:
        value: object = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
            value = value() if isinstance(value, type) else value  # fields have defaults
        found[name] = value
        said[name] = float(number.replace(",", "")) * 1024 ** " KMG".index(unit or " ")
    assert said == found


def test_the_part_and_the_rule_that_the_architecture_shows_are_those_of_the_code():
    shown = [
        block.strip("\n")
        for block in re.findall(r"(?:^    .*\n|^\n)+", text("ARCHITECTURE.md"), re.MULTILINE)
    ]
    (part,) = (block for block in shown if "class CpuUse(Part)" in block)
    code = (SOURCES / "session/environment/cpu_use.py").read_text(encoding="utf-8")
    for paragraph in part.split("\n\n"):
        assert "\n".join(line[4:] for line in paragraph.splitlines()) in code
    assert "CpuUse(),\n" in (SOURCES / "session/parts.py").read_text(encoding="utf-8")
    (rule,) = (block.strip() for block in shown if block.strip().startswith("Rule("))
    code = (SOURCES / "findings/rules/steps.py").read_text(encoding="utf-8")
    assert rule.removesuffix(")") in re.sub(r"\s+", " ", code).replace("Rule( ", "Rule(")
