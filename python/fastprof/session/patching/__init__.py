"""Wraps other packages' functions, and restores them."""
