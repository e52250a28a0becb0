"""The op-split strategy: which contiguous units of every decoder layer the accelerator computes (Park & Egger)."""
