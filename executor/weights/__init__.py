"""Reading checkpoints: safetensors files, one tensor at a time."""
