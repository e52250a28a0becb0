"""Helm: plan, simulate and run large-language-model inference on machines whose GPU is too small."""

__version__ = "0.1.0"
