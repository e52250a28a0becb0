"""The evaluation of Park & Egger (2026), section 5, planned and simulated: `python -m benchmarks.park_egger`."""
