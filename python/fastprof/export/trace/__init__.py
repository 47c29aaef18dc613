"""Traces in the Chrome format, of fastprof and of torch.profiler joined."""
