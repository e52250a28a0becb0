"""Constants of engines fitted to others' measurements, and how well they predict what was left out."""
