"""Loader names as one path component of a metric key, each a different one."""

import re

from fastprof.names import short_hash

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 100


def component(name: str) -> str:
    """Return ``name`` as a component of ``[A-Za-z0-9._-]``, at most 100 characters.

    Other characters become ``_``.  A name consisting of dots becomes as many ``_``, because ``.``
    and ``..`` are not valid names.  A longer name is cut and ends in a hash of the whole.
    """
    clean = _NOT_ALLOWED.sub("_", name[: _LONGEST + 1])
    if not clean.strip("."):
        clean = "_" * len(clean)
    return clean if len(clean) <= _LONGEST else _marked(clean, f"_{short_hash(name)}")


def component_among(name: str, taken: set[str]) -> str:
    """Return :func:`component` of ``name``, changed if it is in ``taken``.

    Loaders appear one by one, and a name in use cannot change any more; so if two would become the
    same, the later one gets a short hash of its name.
    """
    stem = clean = component(name)
    mark, count = f"_{short_hash(name)}", 1
    while clean in taken:
        clean = _marked(stem, mark)
        count += 1
        mark = f"_{short_hash(name)}-{count}"
    return clean


def _marked(stem: str, mark: str) -> str:
    return stem[: _LONGEST - len(mark)] + mark
