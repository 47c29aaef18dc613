"""Imported by every child interpreter that tests/helpers.py starts; see network.py."""

import network

network.forbid()
