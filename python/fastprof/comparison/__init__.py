"""Compares saved runs: what changed, and whether that is more than chance."""
