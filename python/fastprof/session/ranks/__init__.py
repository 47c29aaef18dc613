"""Ranks of a job tell each other how they fare while it runs."""
