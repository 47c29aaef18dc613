"""Compilations by real jax."""

from __future__ import annotations

import fastprof
import pytest

jax = pytest.importorskip("jax")


def test_a_function_that_gets_new_shapes_is_compiled_again_in_those_steps() -> None:
    @jax.jit
    def grown_sequence(x):
        return (x * 2).sum()

    arrays = [jax.numpy.ones(length) for length in (4, 4, 5, 5, 6)]
    with fastprof.Profiler(skip_first=0, gpu=False) as profiler:
        for x in arrays:
            jax.block_until_ready(grown_sequence(x))
            profiler.step()
    found = profiler.report().compilations
    assert found is not None
    (row,) = (row for row in found.rows if row.name.endswith("grown_sequence"))
    assert (row.times, row.again, row.steps) == (3, 2, (0, 2, 4))
    assert [reason.kind for reason in row.reasons] == ["shapes"]
    assert row.file == __file__
    assert row.capture_ms + row.backend_ms == pytest.approx(row.ms)
    assert found.compiler == "jax.jit"
