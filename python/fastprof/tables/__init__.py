"""The tables of a report, as text blocks that every renderer shares."""
