"""The questions of a study: read from files and options, laid out as a grid, with the documents that they name."""
