"""Constants of vLLM's kernels fitted to profiles of single operators, and how well they predict passes left out."""
