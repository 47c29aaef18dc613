"""Traces in the Chrome format, of ours and of torch.profiler joined."""
