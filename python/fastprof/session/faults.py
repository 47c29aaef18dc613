"""Faults that a run survives: reported once, counted, never raised."""

from collections import Counter, deque

from fastprof.guards import is_near_limit, own_errors
from fastprof.own_imports import Protected

#: Number of sentences that are kept for `fastprof watch`.
_SAID = 6


class Faults:
    """Collects faults around the recorder, for the log and for the report.

    The first fault of a kind is logged through ``logging.getLogger("fastprof")`` and
    becomes a note of the report; the others of that kind are only counted.
    """

    __slots__ = ("_logged", "counts", "notes")

    def __init__(self) -> None:
        #: Number of faults by kind, as in the counters of a snapshot.
        self.counts: Counter[str] = Counter()
        #: Sentences for the reader of the report.
        self.notes: list[str] = []
        self._logged: deque[str] = deque(maxlen=_SAID)

    @property
    def said(self) -> list[str]:
        """The latest sentences that were logged, the newest last."""
        return list(self._logged)

    def add(self, kind: str, what: str, error: BaseException) -> None:
        """Count a fault of ``kind``; report ``what`` happened if it is the first."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            self.tell(f"{what}: {_describe(error)}")

    def is_gap(self, kind: str, error: BaseException) -> bool:
        """Return whether a part that met ``error`` can go on later; then only count it.

        See :func:`fastprof.guards.is_near_limit`.
        """
        if not is_near_limit(error):
            return False
        self.counts[kind] += 1
        return True

    def tell(self, sentence: str) -> None:
        """Log ``sentence`` and make it a note of the report."""
        self.notes.append(sentence)
        self.log(sentence)

    def log(self, sentence: str) -> None:
        """Log ``sentence`` as a warning."""
        self._logged.append(sentence)
        try:
            with Protected():
                import logging

            logging.getLogger("fastprof").warning("%s", sentence)
        except own_errors():  # a broken log handler; the note remains
            self.counts["log_errors"] += 1


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except own_errors():  # an exception whose __str__ raises
        text = ""
    return f"{type(error).__name__}: {text:.200}" if text else type(error).__name__
