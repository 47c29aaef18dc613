"""Every child interpreter that tests/helpers.py starts imports this file; see network.py."""

import network

network.forbid()
