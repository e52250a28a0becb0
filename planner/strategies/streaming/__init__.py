"""Code shared by strategies whose accelerator computes from streamed data: units of a layer, the rules that place them,
storage devices. A published method of that kind is a file or a folder beside this one, and imports from here only."""
