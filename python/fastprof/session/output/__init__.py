"""Output during a run: metrics, printed reports, files."""
