"""What fastprof may cost: the environment variable ``FASTPROF_OVERHEAD``, and its default."""

import os

from fastprof.capture.options import check_float
from fastprof.report.figures import chosen_percent
from fastprof.session.environment.switch import warn_ignored

VARIABLE = "FASTPROF_OVERHEAD"
DEFAULT = 0.01


def overhead_or_default(value: float | None) -> float:
    """Return the cost that a run may have, as a part of the program's time; 0: any.

    Args:
        value: what the program wants; None: the environment variable, or the default.  Another
            value of the variable causes a warning and is ignored.

    Raises:
        TypeError, ValueError: ``value`` is not a number from 0 to below 1.
    """
    if value is None:
        text = os.environ.get(VARIABLE, "")
        try:
            return overhead_from(text, VARIABLE) if text else DEFAULT
        except ValueError as error:
            warn_ignored(f"{error}; the default of {chosen_percent(DEFAULT)} counts")
            return DEFAULT
    share = check_float("overhead", value)
    if not 0.0 <= share < 1.0:
        raise ValueError(f"overhead is {share}, expected a part from 0 to below 1; 0.01 is 1 %")
    return share


def overhead_from(text: str, name: str) -> float:
    """Return the number in ``"0.01"``, ``"1%"`` or ``"none"``.

    Raises:
        ValueError: it is none of these; the message begins with ``name``.
    """
    if text == "none":
        return 0.0
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise ValueError(f"{name} is {text!r:.80}, expected a part such as 1% or 0.01, or none")
    return share
