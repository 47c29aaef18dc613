"""PyTorch: finds phases, loaders and modules without a change of the program."""
