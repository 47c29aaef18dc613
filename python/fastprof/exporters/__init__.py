"""Outputs of a report, one module per format; each has ``write(report, stream)``."""
