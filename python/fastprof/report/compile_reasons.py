"""Why a compiler compiled a function again, or left it: its words, as variable and values."""

import re
from dataclasses import dataclass

from fastprof.names import readable
from fastprof.snapshot.compilations import NOT_KNOWN

#: What changed: the size of a tensor, a value, the attribute of a module, a global variable, the
#: type of an object, another property of a tensor, torch's modes, shapes or types (in jax, which
#: does not name them), nothing that this version of the compiler tells, anything else.
REASONS = (
    "size", "value", "attribute", "global", "type", "tensor", "mode", "shapes", "unknown", "other",
)  # fmt: skip
#: What torch calls ``___stack0``: a value with which code goes on after a graph break.
FROM_BREAK = "the value from the graph break"
#: Why captured code ends.
BREAKS = ("control flow", "print", "item", "call", "other")

_NUMBER = re.compile(r"^\[?!?[\d/]+\]?:\s*")
_SIZE = re.compile(r"tensor '(.+?)' size mismatch at index (\d+)\. expected (\d+), actual (\d+)")
_TENSOR = re.compile(r"tensor '(.+?)' (.+?) mismatch\. expected (.+?), actual (.+?)\.?\s*$", re.M)
_OF_SIZE = re.compile(r"([\w.\[\]']+?)\.(?:size\(\)|shape)\[(\d+)\]")
_MODE = re.compile(r"GLOBAL_STATE changed: ?(.*)")
_TYPE = re.compile(r"check_type_id\((.+?), \d+\)(?:, type=<class '(.+?)'>)?")
_EQUAL = re.compile(r"^(?:not )?(.+?) (?:==|is) (.+?)(?:\s+#|\s*$)", re.M)
_KEYED = re.compile(r"\b[LG]\['(\w+)'\]")
_KEYWORD = re.compile(r"\bkwargs\['(\w+)'\]")
_NAME = re.compile(rf"[A-Za-z_][\w.\[\]'\"]*$|{FROM_BREAK}$")
_STACK = re.compile(r"___stack\d+$")
_FLOAT = re.compile(r"-?\d+\.\d{6,}(e-?\d+)?$")
_FLAG = re.compile(r"^(?:not )?(\S+)\s+#")
_SKIPPED = re.compile(
    r"builtin `([\w.]+?)\.?`|unsupported builtin ([\w.]+?)\.?\s|"
    r"module: ([\w.]+), qualname: ([\w.]+)"
)
_PRINTS = re.compile(r"builtin:? (?:operator )?`?print\b|name: print\b|`print`")
_ITEM = re.compile(r"Tensor\.(item|tolist|numpy)\b|method (item|tolist|numpy)\b|\.(item|tolist)\(")
_OF_NUMPY = re.compile(r"numpy function:? <.*?function (\w+)")

#: torch's words for its modes, in ours.
_MODES = {
    "grad_mode": "whether gradients are enabled (torch.no_grad)",
    "autocast": "autocast",
    "training": "training",
    "torch_function": "a torch function mode",
    "deterministic_algorithms": "deterministic algorithms",
    "num_threads": "torch.set_num_threads",
    "default_dtype": "the default dtype",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a function was compiled again.

    ``kind`` is one of ``REASONS``, ``what`` the variable (empty: unknown), ``dim`` the dimension of
    a tensor whose size changed (-1: none), ``values`` those that the compiler named.
    """

    kind: str
    what: str
    dim: int
    values: tuple[str, ...]


def reason_of(text: str) -> Reason:
    """Return the reason in the compiler's ``text``."""
    text = _NUMBER.sub("", text.strip())
    if text == "new shapes or types":
        return Reason("shapes", "", -1, ())
    if text == NOT_KNOWN:
        return Reason("unknown", "", -1, ())
    if found := _SIZE.search(text):
        return Reason("size", _plain(found[1]), int(found[2]), (found[3], found[4]))
    if found := _TENSOR.search(text):
        what = f"the {found[2]} of {_plain(found[1])}"
        return Reason("tensor", what, -1, (_short(found[3]), _short(found[4])))
    if found := _MODE.search(text):
        modes = [_MODES.get(name, name) for name in found[1].split() if name]
        return Reason("mode", " and ".join(modes) or "a mode of torch", -1, ())
    if found := _TYPE.search(text):
        values = (found[2],) if found[2] else ()
        return Reason("type", _plain(found[1]), -1, values)
    if found := _OF_SIZE.search(text.split("  #")[0]):
        return Reason("size", _plain(found[1]), int(found[2]), ())
    if found := _EQUAL.search(text):
        what = _plain(found[1])
        if found[1].startswith("G["):
            return Reason("global", what, -1, (_short(found[2]),))
        if _NAME.match(what):
            kind = "attribute" if "." in what else "value"
            return Reason(kind, what, -1, (_short(found[2]),))
    if found := _FLAG.search(text):
        what = _plain(found[1])
        if _NAME.match(what):
            kind = "global" if text.startswith(("G[", "not G[")) else (
                "attribute" if "." in what else "value"
            )  # fmt: skip
            return Reason(kind, what, -1, ("False" if text.startswith("not ") else "True",))
    return Reason("other", readable(text.split("\n")[0].split("  #")[0].strip(), 100), -1, ())


def break_of(text: str) -> tuple[str, str]:
    """Return the kind of a graph break, one of ``BREAKS``, and the call or the words for it."""
    head = text.split("\n")[0]
    if "generic_jump" in head or head.lower().startswith("data-dependent"):
        return "control flow", "a branch on a tensor's value"
    if _PRINTS.search(text):
        return "print", "print"
    if found := _ITEM.search(text):
        return "item", f".{found[1] or found[2] or found[3]}()"
    if found := _SKIPPED.search(text):
        return "call", found[1] or found[2] or f"{found[3]}.{found[4]}"
    if found := _OF_NUMPY.search(text):
        return "call", f"numpy's {found[1]}"
    return "other", readable(head, 80)


def why_again(reason: Reason) -> str:
    """Return a reason in words: ``the size of dimension 1 of x changed (128, 129, ...)``."""
    values = f" ({', '.join(reason.values)}{', ...' if len(reason.values) > 2 else ''})"
    if len(reason.values) == 1 and reason.kind != "type":
        values = f" (it was {reason.values[0]})"
    values = values if reason.values else ""
    if reason.kind == "size":
        dim = f"dimension {reason.dim} of " if reason.dim >= 0 else ""
        return f"the size of {dim}{reason.what} changed{values}"
    if reason.kind == "global":
        return f"the global {reason.what} changed{values}"
    if reason.kind == "type":
        return f"the type of {reason.what} changed{values}"
    if reason.kind == "mode":
        return f"{reason.what} changed"
    if reason.kind == "shapes":
        return "it was called with new shapes or types"
    if reason.kind == "unknown":
        return f"the reason is {NOT_KNOWN} of the compiler"
    if reason.kind == "other":
        return f"this no longer held: {reason.what}"
    return f"{reason.what} changed{values}"


def _plain(name: str) -> str:
    name = _KEYWORD.sub(r"\1", _KEYED.sub(r"\1", name.strip()))
    return FROM_BREAK if _STACK.match(name) else readable(name, 60)


def _short(value: str) -> str:
    value = value.strip()
    if _FLOAT.match(value):
        value = f"{float(value):.6g}"
    return readable(value, 30)
