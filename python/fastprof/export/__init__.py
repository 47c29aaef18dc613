"""A report as files for other programs: one format per module."""
