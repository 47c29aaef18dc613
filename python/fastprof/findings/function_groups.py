"""The functions and sections that the rules look for; each test is on one key.

Names come from Python, PyTorch, Lightning, transformers and Accelerate.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

from fastprof.findings.group_times import Match
from fastprof.report.phase_names import PHASES
from fastprof.snapshot import Key

DATA, FORWARD, BACKWARD, OPTIMIZER, H2D, LOGGING, CHECKPOINT, COMMUNICATION = PHASES.values()

#: Calls that read a tensor's value, which waits for the GPU.
_READS = "item|tolist|__bool__|__float__|__int__|__index__|is_nonzero"

#: The files of torch's optimizers; schedulers, which are in other files there, have a `step`, too.
OPTIMIZER_FILES = r"torch/optim/(?!lr_scheduler|swa_utils)"


def _path(file: str) -> str:
    return file.replace("\\", "/")


#: No name in the groups is longer; a path may be.
_LONGEST, _LONGEST_PATH = 300, 4096

#: All patterns of the groups below, to skip most keys at once: of labels of C functions, and of
#: (file, qualified name) of Python functions.
_C_PATTERNS: list[str] = []
_PYTHON_PATTERNS: list[tuple[re.Pattern[str], str]] = []


def _c(*patterns: str) -> Match:
    """Match C functions by the patterns of their labels."""
    any_of = re.compile("|".join(patterns))
    _C_PATTERNS.extend(patterns)
    return lambda key: key.kind == "c" and any_of.search(key.name) is not None


def _python(files: str, qualnames: str) -> Match:
    """Match Python functions by the end of their file and by qualified name, or by bare name.

    A ``.stats`` file has bare names only.
    """
    in_file, named = re.compile(files), re.compile(qualnames)
    _PYTHON_PATTERNS.append((in_file, qualnames))

    def match(key: Key) -> bool:
        return (
            key.kind == "python"
            and (named.fullmatch(key.qualname) or named.fullmatch(key.name)) is not None
            and in_file.search(_path(key.file)) is not None
        )

    return match


def _section(names: frozenset[str]) -> Match:
    return lambda key: key.kind == "section" and key.name in names


def _either(*matches: Match) -> Match:
    return lambda key: any(match(key) for match in matches)


_SAVES = _either(
    _section(CHECKPOINT),
    _python(r"torch/serialization\.py$", "save"),
    _python(r"safetensors/torch\.py$", "save_file|save_model"),
    _python(r"", r"(?:.*\.)?(?:save_checkpoint|_save_checkpoint|save_pretrained)"),
    _python(r"torch/distributed/checkpoint/", "save|async_save"),
)
_LOG_CALLS = _either(
    _python(r"logging/__init__\.py$", r"Logger\._log|Logger\.handle|_log"),
    _python(r"json/__init__\.py$", "dump"),  # encodes and writes piece by piece
    _python(r"tensorboard", r"(?:.*\.)?(?:add_\w+|flush)"),
    _python(r"lightning/(?:pytorch/)?core/module\.py$", r"(?:LightningModule\.)?log(?:_dict)?"),
    _python(r"(?:wandb|mlflow|comet_ml|trackio)/", r"(?:.*\.)?(?:log|log_metrics?|log_artifact)"),
    _c(
        r"builtins\.print>",
        r"'(?:write|flush|writelines)' of '_io\.(?!BytesIO|StringIO)",
        r"posix\.(?:fsync|fdatasync|write)>",
    ),
    _python(r"", r"print"),
)
_LOGS = _either(_section(LOGGING), _LOG_CALLS)

#: Groups that the rules measure; :func:`fastprof.findings.group_times.walk` gives their times.
GROUPS: Mapping[str, Match] = {
    "data": _either(
        _section(DATA),
        _python(r"torch/utils/data/dataloader\.py$", r"_BaseDataLoaderIter\.__next__|__next__"),
    ),
    "connect": _python(r"torch/multiprocessing/reductions\.py$", r"rebuild_storage_fd"),
    "forward": _section(FORWARD),
    "backward": _section(BACKWARD),
    "optimizer": _either(
        _section(OPTIMIZER),
        _python(
            OPTIMIZER_FILES,
            r"(?:\w+\.)?step|.*profile_hook_step.*",
        ),
    ),
    "tensor-calls": _c(r"(?:of 'torch\._C\.TensorBase|method torch\.)"),
    # Not "elements": a loop over the rows of a matrix reads no value.
    "item": _c(rf"'(?:{_READS})' of 'torch", r"torch\._local_scalar_dense>"),
    "elements": _python(r"torch/_tensor\.py$", r"(?:Tensor\.)?__iter__"),
    "shutdown": _python(r"", r"(?:.*\.)?_shutdown_workers"),
    "poll": _c(r"'poll' of 'select\."),
    "cells": _python(r"torch/nn/modules/rnn\.py$", r"(?:GRU|LSTM|RNN)Cell\.forward"),
    # Where asyncio's event loop waits if no coroutine can go on.
    "event-loop": _python(r"(?:^|/)selectors\.py$", r"(?:\w*Selector\.)?select"),
    "loader-workers": _python(
        r"torch/utils/data/dataloader\.py$",
        r"_MultiProcessingDataLoaderIter\..*|_try_put_index|_try_get_data|_process_data",
    ),
    # Batches, and messages to processes, are written to pipes.
    "pipes": _python(r"multiprocessing/(?:connection|queues|reduction|pool|managers)\.py$", r".*"),
    "handover": _python(
        r"(?:^|/)(?:queue|threading|concurrent/futures/_base)\.py$",
        r"(?:Queue\.)?get|(?:Condition\.|Event\.)?wait|(?:Thread\.)?join|(?:Future\.)?result",
    ),
    "loader-start": _either(
        _python(
            r"torch/utils/data/dataloader\.py$",
            r"DataLoader\.__init__|(?:_\w+)?DataLoaderIter\.__init__|DataLoader\.__iter__",
        ),
    ),
    "tokens": _python(r"", r"(?:.*\.)?(?:num_tokens|_?count_tokens|get_num_tokens)"),
    "sampler": _either(
        _python(r"", r"(?:.*\.)?\w*Sampler\w*\.__iter__"),
        _python(r"torch/utils/data/dataloader\.py$", r"(?:_BaseDataLoaderIter\.)?_next_index"),
        _python(r"", r"(?:.*\.)?\w*Bucket\w*\.__iter__"),
    ),
    "copies": _c(
        r"'(?:to|copy_|float|half|double|bfloat16|type|contiguous|clone)' of 'torch",
        r"torch\.clone>",
    ),
    "transfers": _c(r"'(?:cpu|cuda|pin_memory)' of 'torch"),
    "scaler": _python(
        r"torch/(?:amp|cuda/amp)/", r"(?:GradScaler\.)?(?:scale|unscale_|update|_unscale_grads_)"
    ),
    "checkpoint": _SAVES,
    "logging": _LOGS,
    "log-calls": _LOG_CALLS,
    "gc": _c(r"gc\.collect>"),
    "lock": _c(
        r"'(?:acquire|__enter__|acquire_lock)' of '_(?:thread|multiprocessing)\.\w*[lL]ock",
        r"'acquire' of '_multiprocessing\.SemLock", r"'__enter__' of '_multiprocessing\.SemLock",
        r"'join' of '_thread\._ThreadHandle", r"'get' of '_queue\.SimpleQueue",
    ),
    # A profiler does not see the __enter__ of `with lock:`, only its __exit__.
    "unlock": _c(r"'__exit__' of '_thread\.(?:lock|RLock)"),
    "communication": _either(
        _section(COMMUNICATION),
        _python(
            r"torch/distributed/distributed_c10d\.py$",
            r"all_reduce|all_gather\w*|reduce_scatter\w*|broadcast|barrier|reduce",
        ),
    ),
    "argument-checks": _python(
        r"torch/distributions/distribution\.py$",
        r"(?:Distribution\.)?(?:__init__|_validate_sample)",
    ),
    "recompute": _python(
        r"torch/utils/checkpoint\.py$", r"(?:.*\.)?\w*[cC]heckpoint\w*(?:\..*)?"
    ),
    "autograd": _python(r"torch/autograd/__init__\.py$", r"backward"),
    "gradients": _python(r"torch/autograd/__init__\.py$", r"grad"),
    "autocast": _python(r"torch/amp/autocast_mode\.py$", r"(?:autocast\.)?__enter__"),
    # In an optimizer: a fused version takes no sparse gradients and no complex parameters.
    "unfusable": _either(
        _c(r"'(?:coalesce|sparse_mask)' of 'torch", r"torch\.(?:sparse_coo_tensor|view_as_real)>"),
        _python(r"torch/optim/", r"(?:.*\.)?_?make_sparse"),
    ),
    "gradients-off": _python(
        r"torch/autograd/grad_mode\.py$", r"(?:no_grad|inference_mode)\.__enter__"
    ),
    "embeddings": _c(r"torch\.embedding(?:_bag)?>"),
    "bmm": _c(r"torch\.(?:bmm|baddbmm)>", r"'(?:bmm|baddbmm)' of 'torch"),
}  # fmt: skip

_ANY_C = re.compile("|".join(_C_PATTERNS))


# There are far more functions than files, and in most files few names belong to a group.
@lru_cache(4096)
def _names_sought(file: str) -> Callable[[str], object]:
    """Return the test for the names in a file that may belong to a group."""
    path = _path(file)
    if len(path) > _LONGEST_PATH:
        return lambda name: None
    return _any_of(frozenset(n for files, n in _PYTHON_PATTERNS if files.search(path))).fullmatch


#: A name in any class or function.
_ANYWHERE = r"(?:.*\.)?"


@cache
def _any_of(patterns: frozenset[str]) -> re.Pattern[str]:
    # The beginning of any name is sought once, not for each pattern: that takes most of the time.
    begun = [p.removeprefix(_ANYWHERE) for p in sorted(patterns) if p.startswith(_ANYWHERE)]
    whole = [f"(?:{p})" for p in sorted(patterns) if not p.startswith(_ANYWHERE)]
    return re.compile("|".join([*whole, f"{_ANYWHERE}(?:{'|'.join(begun)})"]))


def is_of_modules(key: Key) -> bool:
    """Return whether a function is in the file of ``Module.__call__``, which runs hooks, too."""
    return _path(key.file).endswith("torch/nn/modules/module.py")


def sought(keys: Sequence[Key]) -> list[int]:
    """Return the numbers of the keys that may belong to any group; most do not.

    There may be a million, and a file may hold any name.
    """
    tests = {file: _names_sought(file) for file in {key.file for key in keys}}
    found = []
    for i, key in enumerate(keys):
        kind, name = key.kind, key.name
        if kind == "python":
            qualname, matches = key.qualname, tests[key.file]
            if len(name) > _LONGEST or len(qualname) > _LONGEST:
                continue
            if matches(name) or (name != qualname and matches(qualname)):
                found.append(i)
        elif kind == "section" or (
            kind == "c" and len(name) <= _LONGEST and _ANY_C.search(name) is not None
        ):
            found.append(i)
    return found


#: Writing a batch's descriptor, or a checkpoint, is not logging.
NEVER_IN: Mapping[str, Sequence[str]] = dict.fromkeys(
    ("logging", "log-calls"), ("data", "checkpoint", "pipes")
)

#: Groups for which the walk also records their contents.
OPENED = ("data", "forward", "optimizer", "copies", "item")

#: C functions that wait rather than compute.
WAITS = _c(
    r"time\.sleep>", r"'(?:poll|select)' of 'select", r"select\.(?:select|poll)",
    r"posix\.(?:read|waitpid)>",
    r"'(?:read|readinto|recv\w*|readline)' of '_?(?:io|socket)", r"'acquire' of '_thread",
)  # fmt: skip
