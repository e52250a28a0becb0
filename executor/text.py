"""Text to tokens and back, through a checkpoint's own tokenizer.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helmsman.schemas.errors import BadInputError

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Text:
    """The tokenizer of a checkpoint."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids, with the special tokens that the tokenizer adds."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens` without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


def open_text(checkpoint: Path) -> Text | None:
    """The tokenizer of `checkpoint`, None when it has none. Raises BadInputError when it cannot be read."""
    from tokenizers import Tokenizer

    path = checkpoint / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        return Text(Tokenizer.from_file(str(path)))
    except Exception as error:  # tokenizers raises plain Exception for whatever its Rust side refuses
        raise BadInputError(f"not a tokenizer: {error}", file=str(path)) from None


class Stream:
    """Text as it grows token by token; a character that spans tokens appears once it is complete."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._tokens: list[int] = []
        self._settled = 0
        self._read = 0

    def push(self, token: int) -> str:
        """The text that `token` adds.

        Decodes only from the last settled token on: a tokenizer may join a token to the one before it."""
        self._tokens.append(token)
        before = self._text.decode(self._tokens[self._settled : self._read])
        now = self._text.decode(self._tokens[self._settled :])
        if now.endswith(_UNFINISHED) or len(now) <= len(before):
            return ""
        self._settled, self._read = self._read, len(self._tokens)
        return now[len(before) :]
