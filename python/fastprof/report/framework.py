"""Finds the trainer of a run: its own hooks tell it, or its files are among the functions."""

from fastprof.report.model import Report

FRAMEWORKS = ("torch", "lightning", "transformers", "accelerate")


def framework_of(report: Report) -> str:
    """Return the trainer: torch, lightning, transformers or accelerate."""
    told = report.meta.get("framework")
    if told in FRAMEWORKS:
        return str(told)
    rows = report.snapshot.keys if report.has_tree else report.functions
    files = {file.replace("\\", "/") for file in {row.file for row in rows}}
    for name, part in (
        ("lightning", "/lightning/pytorch/trainer/"),
        ("lightning", "/pytorch_lightning/trainer/"),
        ("transformers", "/transformers/trainer.py"),
        ("accelerate", "/accelerate/accelerator.py"),
    ):
        if any(part in file for file in files):
            return name
    return "torch"
