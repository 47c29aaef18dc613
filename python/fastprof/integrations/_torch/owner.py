"""Decides who drives the automatic sections: a trainer's integration, or a bare loop's hooks.

An integration that knows the trainer (Lightning, transformers, Accelerate) reports phases
better than hooks on torch can.  While one has claimed the process, those hooks do
nothing, so that no phase is counted twice.
"""

#: Read at every event: empty means that the hooks of a bare loop are in charge.
claims: list[object] = []


def claim(owner: object) -> None:
    """Let ``owner`` make the sections from now on; the hooks of a bare loop do nothing."""
    if not any(claimed is owner for claimed in claims):
        claims.append(owner)


def release(owner: object) -> None:
    """End :func:`claim`; does nothing if ``owner`` has not claimed."""
    claims[:] = [claimed for claimed in claims if claimed is not owner]


def choose() -> object | None:
    """Return the integration whose sections count, or None: the hooks of a bare loop."""
    return claims[-1] if claims else None
