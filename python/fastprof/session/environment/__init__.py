"""The process that a run is made in: rank, versions, CPUs, variables."""
