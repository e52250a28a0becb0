"""A device that PyTorch drives: CUDA, or any other that PyTorch knows, behind the protocol of the native ones."""
