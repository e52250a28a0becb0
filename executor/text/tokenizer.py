"""Text to tokens and back, through a checkpoint's own tokenizer."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from helmsman.executor.text.gguf_tokenizer import gguf_tokenizer
from helmsman.executor.text.tokenizer_bounds import too_much
from helmsman.hwdb.gguf_files import GgufFile
from helmsman.hwdb.gguf_paths import gguf_files, is_gguf
from helmsman.schemas.errors import BadInputError

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
_CHARACTER = 3
"""Tokens of a character that is not yet complete, at most: UTF-8 takes up to four bytes."""
_MAX_HELD_TOKENS = 8
"""With more tokens held the first are not of a character to come. A model that makes bytes which are no characters, or
tokens without text, would have all of them decoded again with each."""

_SHOWN = 300
"""Characters of what the library says that an error shows."""


class Text:
    """The tokenizer of a checkpoint.

    `tokenizer`: a `tokenizers.Tokenizer`. What its file says of cutting texts off and filling them up is for batches of
    training, and left out, as transformers does."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids, with the special tokens that the tokenizer adds, unless not `special`.

        Raises BadInputError for what came as bytes that are not UTF-8, which Python keeps as surrogates."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInputError("not text: bytes that are not UTF-8", remedy="write UTF-8") from None
        with _library():
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens` without special tokens."""
        with _library():
            return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    @property
    def largest(self) -> int:
        """The largest token id; -1 where there are no tokens."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def open_text(checkpoint: Path, vocab: int) -> Text | None:
    """The tokenizer of `checkpoint`, whose model knows token ids below `vocab`; None when it has none.

    A directory has a tokenizer.json. A GGUF file has its own; where that is of a kind that is not covered, a
    tokenizer.json beside the file is taken. Raises BadInputError when it cannot be read or is another model's."""
    if is_gguf(checkpoint):
        return _in_gguf(gguf_files(checkpoint)[0], vocab)
    path = checkpoint / "tokenizer.json"
    return _from_file(path, vocab) if path.is_file() else None


def _in_gguf(path: Path, vocab: int) -> Text:
    beside = path.with_name("tokenizer.json")
    with closing(GgufFile(path)) as file:
        try:
            return _of_model(Text(gguf_tokenizer(file)), vocab, path)
        except BadInputError:
            if not beside.is_file():
                raise
    return _from_file(beside, vocab)


def _from_file(path: Path, vocab: int) -> Text:
    from tokenizers import Tokenizer

    with _library("not a tokenizer", str(path)):
        tokenizer = Tokenizer.from_file(str(path))
        beyond = too_much(tokenizer)
    if beyond is not None:
        field, why = beyond
        remedy = "use the tokenizer that the model was published with"
        raise BadInputError(why, file=str(path), field=field, remedy=remedy)
    return _of_model(Text(tokenizer), vocab, path)


@contextmanager
def _library(what: str = "the tokenizer fails", file: str | None = None) -> Iterator[None]:
    """Raise BadInputError for whatever tokenizers raises: plain Exception for what its Rust side refuses, and a panic
    of it, which is no Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        remedy = "use the tokenizer that the model was published with"
        raise BadInputError(f"{what}: {error!s:.{_SHOWN}}", file=file, remedy=remedy) from None


def _of_model(text: Text, vocab: int, path: Path) -> Text:
    if text.largest >= vocab:
        message = f"a tokenizer of another model: token ids end at {vocab - 1} in this one"
        remedy = "use the tokenizer that belongs to the checkpoint"
        raise BadInputError(message, file=str(path), value=text.largest, remedy=remedy)
    return text


class TextStream:
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
        many = len(self._tokens) - self._read > _MAX_HELD_TOKENS
        end = len(self._tokens) - (_CHARACTER if many else 0)
        before = self._text.decode(self._tokens[self._settled : self._read])
        now = self._text.decode(self._tokens[self._settled : end])
        if not many and (now.endswith(_UNFINISHED) or len(now) <= len(before)):
            return ""
        self._settled, self._read = self._read, end
        return now[len(before) :]
