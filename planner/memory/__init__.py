"""Memory usage: the bytes of weights, KV caches and buffers that a placement needs in each memory of a machine."""
