"""The tensors and operations of what blocks are made of, a file for every kind of mixer and network."""
