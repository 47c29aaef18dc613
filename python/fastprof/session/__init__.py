"""Runs: the profiler of a training loop, its loaders, metrics and text reports.

This file stays empty so that ``import fastprof`` loads only what it needs.
"""
