"""Windows of torch.profiler."""
