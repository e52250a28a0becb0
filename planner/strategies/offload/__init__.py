"""Code shared by strategies that keep weights in several memories and compute everything on the accelerator: FlexGen's
layers, its allocators, and the rules that follow. A published placement of that kind is a file beside this folder."""
