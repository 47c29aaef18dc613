"""One module per case; each has ``run(options) -> CaseResult``."""
