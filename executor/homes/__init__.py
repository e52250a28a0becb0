"""Where weights live and where they arrive: memories, files, sets of buffers."""
