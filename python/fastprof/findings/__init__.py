"""Findings: the largest costs, their fixes and savings, by rules over a report's measurements."""
