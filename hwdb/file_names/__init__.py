"""What files call tensors: a table for every architecture, of Hugging Face's checkpoints and of GGUF files."""
