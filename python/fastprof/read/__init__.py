"""Finds, reads and joins saved runs, with limits on the files."""
