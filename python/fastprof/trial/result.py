"""The result of a trial as users get it: the data with its outputs."""

import json
from dataclasses import asdict

from fastprof.results.result import Result, as_result
from fastprof.trial import model, text


class TrialResult(Result, model.TrialData):
    """The data of :class:`fastprof.trial.model.TrialData`, and its outputs."""

    __slots__ = ()

    @classmethod
    def of(cls, data: model.TrialData) -> "TrialResult":
        """Return the data with its outputs."""
        return as_result(cls, data)

    def to_text(self, *, width: int = 80) -> str:
        """Return one screen as plain text, of lines of at most ``width`` columns."""
        return text.to_text(self, width)

    def to_json(self) -> str:
        """Return it as JSON: the fields of the data."""
        return json.dumps({"schema": 1, **asdict(self)}, indent=1) + "\n"
