"""Block orders: the seconds of a sequence of blocks, and local search for the sequence that takes least."""
