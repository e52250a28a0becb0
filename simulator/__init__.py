"""Replaying plans: an event engine with shared resources, and the replay of a task graph."""
