"""A decision for people: a sentence, a picture in letters, tables."""
