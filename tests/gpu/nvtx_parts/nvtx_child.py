"""Shared by the child processes of the NVTX tests; pytest does not import it."""

from __future__ import annotations

import ctypes

from fastprof.session.output.periodic import timings

NONE, ASCII, WIDE, REGISTERED, TOO_SMALL = range(5)

_HANDLE = ctypes.c_void_p
_SIGNATURES = {
    "push_a": (ctypes.c_int, ctypes.c_char_p),
    "push_w": (ctypes.c_int, ctypes.c_wchar_p),
    "push_ex": (ctypes.c_int, ctypes.c_int, _HANDLE),
    "pop": (ctypes.c_int,),
    "start_a": (ctypes.c_uint64, ctypes.c_char_p),
    "start_w": (ctypes.c_uint64, ctypes.c_wchar_p),
    "start_ex": (ctypes.c_uint64, ctypes.c_int, _HANDLE),
    "end": (None, ctypes.c_uint64),
    "domain_a": (_HANDLE, ctypes.c_char_p),
    "domain_w": (_HANDLE, ctypes.c_wchar_p),
    "destroy": (None, _HANDLE),
    "register_a": (_HANDLE, _HANDLE, ctypes.c_char_p),
    "register_w": (_HANDLE, _HANDLE, ctypes.c_wchar_p),
    "domain_push": (ctypes.c_int, _HANDLE, ctypes.c_int, _HANDLE),
    "domain_pop": (ctypes.c_int, _HANDLE),
    "domain_start": (ctypes.c_uint64, _HANDLE, ctypes.c_int, _HANDLE),
    "domain_end": (None, _HANDLE, ctypes.c_uint64),
    "native_thread": (ctypes.c_int, ctypes.c_int),
}


def client(path: str, *, gil: bool = True):
    """Return the client library, called with the GIL or without."""
    library = (ctypes.PyDLL if gil else ctypes.CDLL)(path)
    for name, (result, *arguments) in _SIGNATURES.items():
        getattr(library, name).restype = result
        getattr(library, name).argtypes = arguments
    return library


def listener(path: str):
    library = ctypes.CDLL(path)
    library.heard.restype = ctypes.c_char_p
    return library


def heard(library) -> list[str]:
    return library.heard().decode().splitlines()


def counts(prof) -> dict[str, int]:
    return {row.name: row.count for row in timings(prof.snapshot())}


def paths(prof) -> list[str]:
    """Return every context of sections with time or entries, of all threads."""
    snapshot = prof.snapshot()
    found = set()
    for thread in snapshot.threads:
        nodes = thread.nodes
        names: list[str] = []
        for i in range(len(nodes.key)):
            key = nodes.key[i]
            name = snapshot.keys[key].name if key >= 0 else ""
            if snapshot.keys[key].kind != "section" or nodes.parent[i] < 0:
                name = ""
            above = names[nodes.parent[i]] if nodes.parent[i] >= 0 else ""
            names.append("/".join(filter(None, (above, name))))
            if nodes.calls[i] and names[-1]:
                found.add(names[-1])
    return sorted(found)


def still_open(prof) -> int:
    return sum(section.open for section in prof.snapshot().sections)
