"""The statistics of series of steps."""
