"""The GPU layer of a run."""
