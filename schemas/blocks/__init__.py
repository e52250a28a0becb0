"""Of what the blocks of a model are made: norms, positions, mixers of tokens, feed-forward networks, residuals."""
