"""The environment of a run: rank, versions, CPUs, variables."""
