"""Where tasks run: bounded memory, operations, asynchronous copies."""
