"""The regression gate: cases that are measured again, compared with what was accepted, and judged."""
