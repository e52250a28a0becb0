"""The host system: its processors and memory, the share that other processes use, and helper processes."""
