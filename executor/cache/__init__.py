"""KV caches: their layout in memory, the buffers that attention reads, and the pager for those that do not fit."""
