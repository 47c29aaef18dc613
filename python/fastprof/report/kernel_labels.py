"""Short names of kernels for tables: what a kernel does, on which type, in a few words.

A C++ kernel's full name has its return type, namespaces, every template argument and the types of
its parameters, 300 characters and more.  A short one has the function, the operations among its
template arguments and the type of its data: ``elementwise add<float>``, ``reduce sum<bf16>``.
Names that are no C++ (cuBLAS, cuDNN, Triton) stay as they are.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

#: No more is read of a name, of nested types and of the operations of a type.
_MOST_READ, _DEEPEST, _MOST_OPERATIONS = 4000, 8, 2
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\})::")
_OPEN, _CLOSE = "<({[", ">)}]"

#: Types of data, by the last part of their name.
_TYPES = {
    "float": "float", "double": "double", "Half": "half", "__half": "half", "half": "half",
    "half_t": "half", "BFloat16": "bf16", "__nv_bfloat16": "bf16", "bfloat16_t": "bf16",
    "tfloat32_t": "tf32", "complex": "complex", "bool": "bool", "char": "char", "short": "short",
    "int": "int", "long": "long", "long long": "long", "signed char": "int8",
    "unsigned char": "uint8", "unsigned short": "uint16", "unsigned int": "uint",
    "unsigned long": "ulong", "unsigned long long": "ulong", "unsigned": "uint",
}  # fmt: skip
_REAL = ("float", "double", "half", "bf16", "tf32", "complex")
#: How a kernel reads its data, not what it does.
_NOISE = re.compile(
    r"array|OffsetCalculator|LoadWith|StoreWith|LoadWithoutCast|Metadata|Params|params$|Opaque"
    r"|[Tt]raits|Policy\d*$|policy|TileState|InputValue|iterator|decomposer|Tensor(?:Info|Lists)"
    r"|nullptr|NullType|^Array$|SizeStride|^[Tt]ype$|^void$|_constant$|VSMem|params_"
)
#: The length before an identifier in a mangled name; after ``L`` and a letter it is a value.
_LENGTH = re.compile(r"(?<!L[a-z])(?<!\d)\d{1,3}(?=[A-Za-z_])")
#: Functions whose names say only that they are a kernel.
_GENERIC = re.compile(r"[Kk]ernel\d*|device_kernel|cutlass_kernel")
_ELEMENTWISE = re.compile(
    r"(?:\w+_)?elementwise_kernel(?:_with_index|_for_multi_outputs|_manual_unroll\w*)?"
)
#: What the names of operations say besides the operation.
_BESIDE = re.compile(
    r"^CUDAFunctor_?(?=.)|(?<=.)(?:_?kernel_(?:cuda|impl)|_cuda_out|_?kernel|_?functor"
    r"|(?:CUDA)?KernelImpl|Kernel|Functor|Epilogue|(?<=[a-z])Ops?)$"
)


@lru_cache(maxsize=1 << 15)  # twice the kernels of a recording
def short_kernel(name: str, *, whole_function: bool = False) -> str:
    """Return the short name of one kernel; others may have the same.

    Args:
        whole_function: distinguish the variants of elementwise kernels: vectorized, unrolled.
    """
    text = _UNNAMED.sub("", name[:_MOST_READ])
    if text.startswith("_Z"):
        return _mangled(text) or name
    path, arguments = _call(text[_result_ends(text) :])
    if not path or path == text:
        return name
    function = _last(path)
    if arguments and _GENERIC.fullmatch(function):
        main, inner = _call(next(iter(_arguments(arguments)), ""))
        if _type(main):  # its types only: the namespace says what it does
            return _last(path.rpartition("::")[0]) + _of(_parts(arguments)[1]) or name
        return _last(main) + _of(_parts(inner)[1]) or name
    operations, types = _parts(arguments)
    if operations:
        is_plain = _ELEMENTWISE.fullmatch(function) and not whole_function
        function = "elementwise" if is_plain else _BESIDE.sub("", function)
    if not any("<" in operation for operation in operations):
        function += _of(types)
    return " ".join([function, *operations]).strip() or name


def short_kernels(names: Iterable[str]) -> Mapping[str, str]:
    """Return the short name of each kernel; those of different kernels differ.

    What is still the same with the variants has a number.
    """
    known = sorted(set(names))
    by_label = _by_label({name: short_kernel(name) for name in known})
    made: dict[str, str] = {}
    for label, alike in by_label.items():
        if len(alike) == 1:
            made[alike[0]] = label
        else:
            made |= {name: short_kernel(name, whole_function=True) for name in alike}
    taken: set[str] = set()
    for label, alike in _by_label(made).items():
        for number, name in enumerate(alike, 1):
            mine = label if number == 1 else f"{label} #{number}"
            while mine in taken:  # another kernel has this very name
                mine += "'"
            taken.add(mine)
            made[name] = mine
    return made


def _by_label(labels: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, label in labels.items():
        found.setdefault(label, []).append(name)
    return found


def _result_ends(text: str) -> int:
    """Return where the function begins: behind the type of the result."""
    depth = start = 0
    for i, char in enumerate(text):
        if char == "(" and not depth:
            break
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth = max(0, depth - 1)
        elif char == " " and not depth:
            start = i + 1
    return start


def _call(text: str) -> tuple[str, str]:
    """Return what is before the first bracket, and what is in it if it is ``<``."""
    for i, char in enumerate(text):
        if char == "(":
            # A member: `f<int>::operator()(...)`, or a cast.
            return text[:i], ""
        if char == "<":
            return text[:i], text[i + 1 : _end(text, i)]
    return text, ""


def _end(text: str, start: int) -> int:
    """Return the place of the bracket that closes the one at ``start``; a cut text has none."""
    depth = 0
    for i in range(start, len(text)):
        char = text[i]
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE and text[i - 1 : i + 1] != "->":
            depth -= 1
            if not depth:
                return i
    return len(text)


def _arguments(text: str) -> list[str]:
    """Return the arguments of a template, split at the commas between them."""
    parts: list[str] = []
    start = depth = 0
    for i, char in enumerate(text):
        if char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _parts(arguments: str, depth: int = 0) -> tuple[list[str], list[str]]:
    """Return the operations and the types of data among the arguments of a template.

    A whole number that is not the first argument counts something, and is no type of data.
    """
    operations: list[str] = []
    types: list[str] = []
    if depth > _DEEPEST:
        return operations, types
    for i, argument in enumerate(_arguments(arguments)):
        known = _type(argument)
        if known and (i == 0 or known in _REAL):
            types.append(known)
        elif not known and argument[0].isidentifier() and argument not in ("true", "false"):
            operations += _operation(argument, depth)
    told = [o.partition("<") for o in dict.fromkeys(operations)][:_MOST_OPERATIONS]
    # The second has mostly the first one's type.
    return [
        name if i and (less, of) == told[0][1:] else name + less + of
        for i, (name, less, of) in enumerate(told)
    ], types


def _operation(argument: str, depth: int) -> list[str]:
    """Return the operations of a template's argument that is a class or a lambda."""
    function, inner = _call(argument)
    name = _last(function)
    if not name or _NOISE.search(name):
        return []
    within, types = _parts(inner, depth + 1)
    if within:  # the argument only applies another one
        return within
    end = argument.rfind("{lambda(")
    if end >= 0 and not types:
        taken = _arguments(argument[end + 8 : _end(argument, end + 7)])
        types = [known for known in map(_type, taken) if known]
    return [(_BESIDE.sub("", name) or name) + _of(types)]


def _type(text: str) -> str:
    """Return the short name of a type of data; empty if it is none."""
    text = re.sub(r"\b(?:const|volatile)\b|[*&]", "", text).strip()
    return _TYPES.get(text) or _TYPES.get(_last(text.partition("<")[0]), "")


def _of(types: list[str]) -> str:
    """Return the type of the data in brackets: the first real one, else the first."""
    found = next((t for t in types if t in _REAL), types[0] if types else "")
    return f"<{found}>" if found else ""


def _last(name: str) -> str:
    return name.rsplit("::", 1)[-1].strip()


def _mangled(text: str) -> str:
    """Return the function of a name that CUPTI gave as the compiler wrote it.

    In it each identifier follows its length.
    """
    found: list[str] = []
    place = 0
    while match := _LENGTH.search(text, place):
        size = int(match[0])
        word = text[match.end() : match.end() + size]
        place = match.end() + (size if len(word) == size else 0)
        if re.fullmatch(r"[A-Za-z_]\w*", word):
            found.append(word)
    classes = [word for word in found if word[0].isupper() and not _GENERIC.fullmatch(word)]
    return (classes or found or [""])[0]
