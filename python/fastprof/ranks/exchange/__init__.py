"""Compares the ranks of a job while it runs."""
