"""Code shared by strategies that stand for engines people already have: how such an engine's rules become a plan, what
its own software costs on the host. An engine is a file beside this folder."""
