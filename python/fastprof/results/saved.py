"""``fastprof.load``."""

from fastprof.read import load as reader
from fastprof.results.report import Report
from fastprof.results.result import returning

load = returning(Report, reader.load, __name__)
