"""Finds the trainer of a run: its own hooks tell it, or its files are among the functions."""

from collections.abc import Collection

from fastprof.report.model import Report

FRAMEWORKS = ("torch", "lightning", "transformers", "accelerate")


def framework_of(report: Report) -> str:
    """Return the trainer: torch, lightning, transformers or accelerate."""
    told = report.meta.get("framework")
    if told in FRAMEWORKS:
        return str(told)
    rows = report.view.keys if report.has_tree else report.functions
    trainers = _trainers_in({row.file for row in rows})
    if trainers and report.has_tree:
        trainers = _trainers_in(_files(report))
    return next((name for _, name in _TRAINERS if name in trainers), "torch")


#: A part of the paths of a trainer's files, and its name.
_TRAINERS = (
    ("/lightning/pytorch/trainer/", "lightning"),
    ("/pytorch_lightning/trainer/", "lightning"),
    ("/transformers/trainer.py", "transformers"),
    ("/accelerate/accelerator.py", "accelerate"),
)


def _trainers_in(files: Collection[str]) -> set[str]:
    """Return the trainers of which source files are a part."""
    paths = [file.replace("\\", "/") for file in files]
    return {name for part, name in _TRAINERS if any(part in path for path in paths)}


def _files(report: Report) -> set[str]:
    """Return the files of the functions that ran; an import alone shows no trainer."""
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
