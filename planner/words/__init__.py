"""Explanations of a decision for readers: a summary sentence, a picture in letters, and tables of terms."""
