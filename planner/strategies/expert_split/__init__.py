"""`expert-split`: a model's routed experts where they are fastest: on the accelerator, the processors, or on both."""
