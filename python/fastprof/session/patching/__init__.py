"""Other packages' functions wrapped, and undone."""
