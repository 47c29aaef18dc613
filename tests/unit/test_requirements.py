"""Every requirement has a test."""

from __future__ import annotations

import requirements


def test_every_requirement_is_shown_by_a_test() -> None:
    without = [row for row, names in requirements.tests_of_rows().items() if not names]
    assert without == list(requirements.WITHOUT)


def test_ids_are_read_from_names() -> None:
    assert requirements.rows_of("test_s3_05_layout") == ["S3-05"]
    assert requirements.rows_of("test_s4_05_f14_both") == ["S4-05", "F14"]
    assert requirements.rows_of("phases_e13_waits") == ["E13"]
    assert requirements.rows_of("test_fast_and_s3_only") == []


def test_every_row_has_a_title_and_every_test_a_known_row() -> None:
    assert all(requirements.ROWS.values())
    for file, name in requirements.tests():
        for row in requirements.rows_of(name):
            assert row in requirements.ROWS, f"{file}::{name}"
