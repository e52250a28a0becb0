"""Stages: the part of a pass that one device computes without waiting for others, with its weights and buffers."""
