"""The run over time: its segments, and the changes among them."""
