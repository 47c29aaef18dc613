"""Shared parts of the integrations."""
