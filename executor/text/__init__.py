"""Text to tokens and back, conversations to prompts, the choice of the next token, and where texts end."""
