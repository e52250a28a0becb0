"""The machine that this process runs on: its memory, its processors, what others take of them."""
