"""Where figures go during a run: metrics, printed reports, files."""
