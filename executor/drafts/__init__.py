"""Drafts: tokens that something cheap proposes, and the model verifies in one pass."""
