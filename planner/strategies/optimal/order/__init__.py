"""How long blocks take one after the other, in numbers alone, and in which order they take least."""
