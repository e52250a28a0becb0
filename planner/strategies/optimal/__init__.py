"""`optimal`: the union of what published methods choose from, composed block by block, with a proven bound."""
