"""What one device computes of a pass, as a stage of its own with weights, caches and buffers."""
