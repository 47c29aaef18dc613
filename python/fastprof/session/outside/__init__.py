"""Reaches a running process from another terminal: who runs, requests and answers."""
