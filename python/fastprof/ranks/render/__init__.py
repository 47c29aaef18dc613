"""The ranks of a job as text and pages, whole or in a few lines."""
