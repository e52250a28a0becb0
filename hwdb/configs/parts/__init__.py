"""Holds what configs of many families have in common: dimensions, rotations, routers, patterns of layers."""
