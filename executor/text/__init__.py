"""Text processing: tokenizers, chat templates, sampling of the next token, and detection of stop texts."""
