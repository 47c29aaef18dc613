"""Compares the ranks of a job while it runs, from the windows of steps that they publish."""
