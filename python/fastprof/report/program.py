"""The fold of a tree to the program's functions: libraries count to the function that led to them.

A function is the program's if its file is neither the standard library's nor an installed
package's. The first library function with a public name that it leads to stands for all below that
one, until the next function of the program.
"""

from collections.abc import Mapping, Sequence

from fastprof.report.origin import (
    begins_import,
    is_own,
    is_private,
    is_users,
    is_users_file,
    shown_name,
)
from fastprof.report.run_phases import IMPORTS
from fastprof.snapshot import Key

_FOLDED = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"))
#: ``eval`` and ``exec`` by name run or import a module.
_PLUMBING = ("builtins.exec", "builtins.eval", "_call_with_frames_removed")


def kind_of(key: Key) -> str:
    """Return ``user``, ``library``, ``import`` (a library's, too), or ``inner``: of its caller."""
    if is_users(key):
        return "inner" if key.name in _FOLDED else "user"
    if key.kind in ("root", "section", "truncated") or is_own(key):
        return "inner"
    if begins_import(key.file, key.name):
        return "import"
    return "inner" if (key.qualname or key.name) in _PLUMBING else "library"


def kinds_of(keys: Sequence[Key]) -> list[str]:
    """Return the kind of each key, for a tree with many functions in few files."""
    files = frozenset(filter(is_users_file, {key.file for key in keys}))
    return [
        "user"
        if key.file in files and key.kind == "python" and key.name[:1] not in "<("
        else kind_of(key)
        for key in keys
    ]


def library_name(key: Key) -> str:
    """Return the name of a library function that stands for what it calls."""
    return IMPORTS if begins_import(key.file, key.name) else shown_name(key)


def led_to(
    parent: Sequence[int],
    node_key: Sequence[int],
    keys: Sequence[Key],
    kinds: Mapping[int, str] | Sequence[str],
) -> list[int]:
    """Return per node the node of the library function that stands for it; 0: none does.

    Args:
        parent, node_key: columns of the tree; parents come first.
        kinds: per key, the result of :func:`kind_of`.
    """
    called = [0] * len(parent)
    settled = [False] * len(parent)
    for i in range(1, len(parent)):
        above, key = parent[i], node_key[i]
        kind = kinds[key]
        if kind == "user":
            continue
        called[i], settled[i] = called[above], settled[above]
        if kind == "import":
            called[i], settled[i] = i, True
        elif kind == "library" and not settled[i]:
            private = is_private(keys[key])
            if not (private and called[i]):
                called[i] = i
            settled[i] = not private
    return called
