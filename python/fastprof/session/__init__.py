"""Runs: the profiler of a training loop, its loaders, metrics and text reports.

Kept empty so that ``import fastprof`` loads only what it needs.
"""
