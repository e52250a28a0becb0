"""Weight storage: the memory or file that each weight lives in, and the staging buffers of streamed weights."""
