"""Saved runs: found, read and joined, with limits on what is read."""
