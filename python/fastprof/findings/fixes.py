"""Fixes per rule and trainer: real options of today's releases.

Fixes that depend on the run are in :mod:`fastprof.findings.remedies`.  The options are those of
PyTorch 2.13, Lightning 2.6, transformers 5 and Accelerate 1.15.  A rule without an entry for a
trainer uses PyTorch's text.
"""

from collections.abc import Mapping

HF = "TrainingArguments"

#: By trainer; one without an entry uses PyTorch's.
Fixes = Mapping[str, tuple[str, ...]]

_FLOAT16 = (("bf16-mixed", "16-mixed"), ("bf16", "fp16"), ("bfloat16", "float16"))


def in_float16(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return fixes for a GPU without bfloat16."""
    for name, instead in _FLOAT16:
        texts = tuple(text.replace(name, instead) for text in texts)
    return texts


def fixes(table: Fixes, framework: str) -> tuple[str, ...]:
    """Return the sentences of a table under a trainer; none if the table is empty."""
    return table.get(framework, table.get("torch", ()))
