"""PyTorch: phases, loaders and modules found without a line in the program."""
