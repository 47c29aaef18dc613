"""No text says "1 workers": counts and their nouns go through ``plural``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastprof.report.figures import plural
from helpers import ROOT

PACKAGE = ROOT / "python" / "fastprof"
#: Text behind a value: a noun in the plural, perhaps with an adjective or "of the" before it.
_NOUN = re.compile(
    r" (?:(?:more|other|measured|failed|worker|single|of the) )?"
    r"((?!(?:adds|as|blocks|bytes|compares|divides|does|draws|has|is|items|leaves|multiplies|ms|"
    r"needs|ns|names|runs at|saves|sees|stands|starts|takes|this|us|was|writes)\b)[a-z]+s)\b"
)
#: A file, and the noun after a value that is never 1, or is no count.
_NEVER_ONE = frozenset({
    ("gpu_find.py", "copies"),  # two and more of them
    ("split.py", "steps"),  # "3 of 40 steps", longer than a warm-up
    ("doctor_gpu.py", "multiprocessors"),  # of a device
    ("build.py", "runs"),  # the number of given files, which is not two
    ("conditions.py", "points"),  # with a sign
    ("expressions.py", "characters"),  # too many of them
    ("figures.py", "functions"), ("figures.py", "times"),
    ("notes.py", "measured steps"),  # more than are kept
    ("watch_sources.py", "ranks"),  # more than 128
    ("heat.py", "steps"),  # more than one: the line above tests that
    ("steps_chart.py", "steps"),  # more than one: the line above tests that
    ("loading_remedies.py", "tensors"), ("data.py", "tensors"),  # 1.5 and more
    ("data.py", "times"),  # two and more starts
    ("kernels.py", "samples"),  # a list of sizes
    ("host.py", "steps"), ("memory.py", "samples"), ("steps.py", "steps"), ("steps.py", "times"),
    ("merge.py", "processes"), ("pstats.py", "digits"),
    ("tables.py", "steps"), ("tables.py", "times"),
    ("ranks.py", "waits"),  # "waits" is a verb here
    ("groups/summary.py", "ranks"),  # of jobs of more than 128
    ("render/report.py", "hosts"), ("ranks/model.py", "ranks"),
    ("watch.py", "ranks"), ("store.py", "files"),
    ("outliers.py", "steps"), ("outlier_text.py", "steps"),  # more than one, as tested there
    ("ranks/build.py", "ranks"), ("ranks/notes.py", "groups"),
    ("windows.py", "operators"),  # too many of them
    ("run_phases.py", "times"),  # more than one: the line above tests that
    ("progress.py", "steps"),  # per second
    ("explain.py", "steps"), ("causes.py", "grows"),  # no counts: a moment, a name
    ("stalls.py", "steps"),  # at least 64 of them, as tested there
    ("live/heard.py", "others"),  # more than one: the line itself tests that
    ("chapters.py", "times"),  # a ratio
    ("codec.py", "rows"), ("kinds.py", "rows"), ("gpu_health.py", "samples"),
    ("gpu.py", "integers"), ("gpu.py", "values"), ("model.py", "rows"), ("operators.py", "values"),
    ("steps.py", "rows"), ("trace.py", "calls"), ("trace.py", "rows"),  # formats of files
})  # fmt: skip


def templates(source: str) -> Iterator[tuple[ast.expr, str, int]]:
    """Yield each value in a template of a text, the text after it, and its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    yield value.value, str(text.value), value.lineno


def counts_one(value: ast.expr) -> bool:
    """Return whether a value may be a count of one: no constant, and no text of a share."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return not value.func.id.endswith(("percent", "plural"))
    name = value.id if isinstance(value, ast.Name) else (
        value.attr if isinstance(value, ast.Attribute) else ""
    )  # fmt: skip
    return not (name and name.isupper())


def found(path: Path) -> list[str]:
    out = []
    for value, text, line in templates(path.read_text(encoding="utf-8")):
        noun = _NOUN.match(text)
        if noun is None or not counts_one(value):
            continue
        words = {noun[1], noun[0].strip()}
        if not any(path.match(name) and word in words for name, word in _NEVER_ONE):
            out.append(f"{path.name}:{line}: {{{ast.unparse(value)}}}{text[:40]}")
    return out


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_no_count_of_one_has_a_noun_in_the_plural(path: Path) -> None:
    assert not found(path)


def test_a_planted_template_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text('text = f"{n} workers were started {often} times in {w.more} more passes"\n')
    assert len(found(planted)) == 3


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (1, "worker", "1 worker"), (0, "step", "0 steps"), (2, "batch", "2 batches"),
        (1.0, "pass", "1 pass"), (2, "pass", "2 passes"), (3, "copy", "3 copies"),
        (1.5, "call", "1.50 calls"), (12, "worker process", "12 worker processes"),
        (None, "step", "n/a steps"),
        (1.9985, "tensor", "2 tensors"), (0.9996, "tensor", "1 tensor"),
    ],
)  # fmt: skip
def test_a_count_and_its_noun(count: float | None, noun: str, said: str) -> None:
    assert plural(count, noun) == said
