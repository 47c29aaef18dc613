"""Finds the trainer of a run: its own hooks tell it, or its files are among the functions."""

from fastprof.report.model import Report

FRAMEWORKS = ("torch", "lightning", "transformers", "accelerate")


def framework_of(report: Report) -> str:
    """Return the trainer: torch, lightning, transformers or accelerate."""
    told = report.meta.get("framework")
    if told in FRAMEWORKS:
        return str(told)
    files = {file.replace("\\", "/") for file in _files(report)}
    for name, part in (
        ("lightning", "/lightning/pytorch/trainer/"),
        ("lightning", "/pytorch_lightning/trainer/"),
        ("transformers", "/transformers/trainer.py"),
        ("accelerate", "/accelerate/accelerator.py"),
    ):
        if any(part in file for file in files):
            return name
    return "torch"


def _files(report: Report) -> set[str]:
    """Return the files of the functions that ran; an import alone shows no trainer."""
    if not report.has_tree:
        return {row.file for row in report.functions}
    view = report.view
    ran = set()
    for thread in view.threads:
        nodes = thread.nodes
        columns = zip(nodes.calls, nodes.resumes, nodes.self_ns, strict=True)
        seen = [any(row) for row in columns]
        for i in range(len(nodes) - 1, 0, -1):
            if seen[i]:
                seen[nodes.parent[i]] = True
                ran.add(nodes.key[i])
    return {view.keys[key].file for key in ran}
