"""Writing random-weight Hugging Face checkpoints, so that everything runs without a model hub."""
