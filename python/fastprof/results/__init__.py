"""What users get: the data of reports and comparisons, with their outputs as methods."""
