"""The command line without what may be a secret.

A secret may stand behind any option, so a value is kept only if it cannot be one: a number, a
boolean, the name of a file, or the value of an option that training programs are known to have.
"""

import os
import re
import signal
from collections.abc import Sequence

MOST_CHARACTERS = 1000

HIDDEN = "***"

#: Names of secrets; not tokenizers, numbers of tokens, or pinned memory.
_SECRET = re.compile(
    r"token(?!i[sz]|s)|secret|passw|passphrase|pwd|credential|auth|private|cookie"
    r"|(?:^|[-_./;&,?])(?:key|pass|pw|pin(?![-_]?mem)|otp|sig|signature|salt|dsn)s?(?=$|[-_./=:])"
    r"|(?:api|access|account|ssh|wandb|license)[-_]?key",
    re.IGNORECASE,
)
#: A secret's name in a word, up to its value.
_NAMED = re.compile(rf"(?:{_SECRET.pattern})[^=:\s/]*[=:]", re.IGNORECASE)

#: Options of which any value is kept: the last part of their names, with "_" for "-".
_HARMLESS = frozenset((
    "accelerator", "activation", "amp", "arch", "architecture", "attn_implementation",
    "backbone", "backend", "cfg", "checkpoint", "compile_mode", "config", "config_file",
    "config_name", "data", "data_dir", "data_path", "dataset", "dataset_name", "deepspeed",
    "device", "dtype", "eval_strategy", "fsdp", "loss", "lr_scheduler", "lr_scheduler_type",
    "mixed_precision", "mode", "model", "model_name", "model_name_or_path", "model_type",
    "optim", "optimizer", "out", "output", "output_dir", "padding", "precision", "profile",
    "resume", "save_strategy", "scheduler", "split", "strategy", "task", "tokenizer",
    "tokenizer_name",
))  # fmt: skip

_ONE_NUMBER = r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?[a-zA-Z%]{0,2}"
_NUMBERS = re.compile(rf"[\[(]?{_ONE_NUMBER}(?:[,x:/]{_ONE_NUMBER})*[\])]?", re.IGNORECASE)
_MOST_DIGITS = 40
_WORDS = frozenset(["true", "false", "yes", "no", "on", "off", "none", "null", "auto"])
#: A file's name, and a word of small letters, such as a subcommand, or a signal's name; a random
#: mixture is neither.
_FILE = re.compile(r"[\w./\\+-]*\.(?:py|ya?ml|jsonl?|toml|cfg|ini|txt|csv|parquet|pt|npy|npz|bin)")
_PART = rf"(?:[a-z]+|{'|'.join(signal.Signals.__members__)})"
_PLAIN = re.compile(rf"{_PART}(?:[-_]{_PART})*")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]{0,60}")
_SETTING = re.compile(
    r"(--?[A-Za-z][\w.-]{0,60}|[+~]{0,2}[A-Za-z_]+(?:[./][A-Za-z_]+){0,9})=(.*)", re.DOTALL
)
#: No name or path of a model has these: a command or a setting, which may hold anything.
_COMPOUND = re.compile(r"[\s{}\"']")
#: User and password in an address, and its query.
_LOGIN = re.compile(r"^((?:[\w+.-]+://)?).*@", re.DOTALL)
_QUERY = re.compile(r"[?#;&].*", re.DOTALL)


def is_secret(name: str) -> bool:
    """Return whether an option or a variable has a name like a secret's."""
    return _SECRET.search(name) is not None


def command_line(argv: Sequence[str]) -> str:
    """Return the arguments as one line, without the program's directory and without secrets."""
    words = [os.path.basename(argv[0])] if argv else []
    option = ""  # it may have any number of values
    for word in (word[:MOST_CHARACTERS] for word in argv[1:]):
        if option and not _begins_option(word):
            words.append(_value(option, word))
            continue
        words.append(_word(word))
        if word.startswith("-"):
            option = "" if "=" in word else word
    return " ".join(words)[:MOST_CHARACTERS]


def without_logins(value: str) -> str:
    """Return a value without user, password and query of an address, and after a secret's name."""
    value = _QUERY.sub(HIDDEN, _LOGIN.sub(rf"\1{HIDDEN}@", value))
    named = _NAMED.search(value)
    return value if named is None else value[: named.end()] + HIDDEN


def _begins_option(word: str) -> bool:
    if word.startswith("--"):
        return True
    # After one dash the word may be the secret: some tokens begin so.
    return re.fullmatch(r"-[A-Za-z]", word) is not None


def _word(word: str) -> str:
    """Return a word that is no value of the option before it."""
    setting = _SETTING.fullmatch(word)
    if setting is not None:
        return f"{setting[1]}={_value(setting[1], setting[2])}"
    if word.startswith("--"):
        return word if word == "--" or _OPTION.fullmatch(word) else HIDDEN
    if word.startswith("-") and not _is_number(word):
        # A short option and its value: -j4, -psecret.
        return word if len(word) <= 2 or _is_number(word[2:]) else f"{word[:2]}{HIDDEN}"
    return word if _is_open(word) or _PLAIN.fullmatch(word) else HIDDEN


def _value(option: str, value: str) -> str:
    name = option.lstrip("-+~")
    if is_secret(name):
        return HIDDEN
    if re.split(r"[./]", name)[-1].replace("-", "_").lower() in _HARMLESS:
        return HIDDEN if _COMPOUND.search(value) else without_logins(value)
    return value if _is_open(value) else HIDDEN


def _is_open(value: str) -> bool:
    """Return whether a value tells what it is: a number, a boolean, a file's name."""
    return _is_number(value) or value.lower() in _WORDS or _FILE.fullmatch(value) is not None


def _is_number(value: str) -> bool:
    return len(value) <= _MOST_DIGITS and _NUMBERS.fullmatch(value) is not None
