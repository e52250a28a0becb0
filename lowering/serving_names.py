"""Names of the attention of requests that are served, by where it is computed."""

HOST_ATTENTION = "attention.host"
"""Attention of decodes on the host."""
DECODE_ATTENTION = "attention.decode"
"""Attention of decodes on the accelerator to caches of requests: these are short and far apart, so that each costs
something beside its bytes."""
