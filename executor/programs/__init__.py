"""A plan's passes as submissions to queues and copy engines, loaded and run."""
