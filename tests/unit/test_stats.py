"""Percentiles and the like, against numpy."""

from __future__ import annotations

import math

import pytest
from fastprof.report.stats import (
    coefficient_of_variation,
    exact_quantiles,
    histogram_quantiles,
    merge_histograms,
)
from fastprof.snapshot import Histogram
from hypothesis import given
from hypothesis import strategies as st
from unit.snapshots import histogram

numpy = pytest.importorskip("numpy")

QUANTILES = (0.0, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0)
durations = st.lists(
    st.one_of(st.integers(0, 200), st.integers(1, 2**50), st.integers(10**6, 10**7)),
    min_size=1,
    max_size=300,
)


def truth(values):
    return numpy.percentile(numpy.array(values, dtype=float), [100 * q for q in QUANTILES])


@given(durations)
def test_histogram_percentiles_are_within_one_percent_of_numpy(values):
    found = histogram_quantiles(histogram(values), QUANTILES, low=min(values), high=max(values))
    assert found == pytest.approx(truth(values), rel=0.01, abs=1e-9)


@given(durations)
def test_exact_percentiles_are_those_of_numpy(values):
    assert exact_quantiles(values, QUANTILES) == pytest.approx(truth(values), rel=1e-12)


@given(durations, durations)
def test_merged_histograms_are_the_histogram_of_both(first, second):
    assert merge_histograms([histogram(first), histogram(second)]) == histogram(first + second)


def test_percentiles_of_nothing_are_unknown():
    assert histogram_quantiles(Histogram(), (0.5,), low=0, high=0) == (None,)
    assert exact_quantiles((), (0.5, 0.9)) == (None, None)


@given(st.lists(st.integers(1000, 10**10), min_size=2, max_size=50))
def test_variation_is_that_of_numpy(values):
    squares = math.fsum((v / 1e9) ** 2 for v in values)
    expected = numpy.std(values) / numpy.mean(values)
    found = coefficient_of_variation(len(values), sum(values), squares)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_variation_of_too_little_is_unknown():
    assert coefficient_of_variation(1, 5, 25e-18) is None
    assert coefficient_of_variation(3, 0, 0.0) is None
