"""The tokenizer that a GGUF file holds, built for the `tokenizers` library: byte-level BPE (`gpt2`)."""

from dataclasses import dataclass
from typing import Any

from helmsman.hwdb.gguf_files import GgufFile
from helmsman.hwdb.gguf_header import Array, integers, strings
from helmsman.schemas.errors import BadInputError

_ROOT = "tokenizer.ggml."
_CONTROL = 3
_USER_DEFINED = 4
"""Types of tokens, by the numbers that GGUF gives them."""
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How a text is cut before its pieces are merged: `pattern` (None: GPT-2's own), normalised to NFC or not,
    `whole_words` found in the vocabulary before any merge, and whether a text begins with the BOS token."""

    pattern: str | None
    nfc: bool = False
    whole_words: bool = False
    bos: bool = False


_QWEN2 = SplitRule(rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}", nfc=True)
_LLAMA3 = SplitRule(
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}", whole_words=True, bos=True
)
SPLITTINGS = {
    "gpt-2": SplitRule(None),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}
"""By `tokenizer.ggml.pre`; patterns are those of the models' own tokenizer.json."""


def gguf_tokenizer(file: GgufFile) -> Any:
    """A `tokenizers.Tokenizer`. Raises BadInputError for a kind that is not covered and for what does not fit."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    how = _splitting(file)
    tokens = _texts(file, "tokens")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise _wrong(file, "tokens", "two tokens have one text", None)
    merges = [_pair(file, merge, vocabulary) for merge in _texts(file, "merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=how.whole_words))
    tokenizer.decoder = decoders.ByteLevel()
    _cut(tokenizer, how)
    kinds = _kinds(file, len(tokens))
    tokenizer.add_special_tokens(
        [_added(AddedToken, t) for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    )
    tokenizer.add_tokens(
        [_added(AddedToken, t) for t, kind in zip(tokens, kinds, strict=True) if kind == _USER_DEFINED]
    )
    _begin(tokenizer, file, how, tokens)
    return tokenizer


def special_token(file: GgufFile, name: str) -> str | None:
    """The text of the token whose id the file keeps under `name` (`bos`, `eos`); None where it has none."""
    index = file.header.metadata.get(f"{_ROOT}{name}_token_id")
    if type(index) is not int:
        return None
    tokens = _texts(file, "tokens")
    return tokens[index] if 0 <= index < len(tokens) else None


def _splitting(file: GgufFile) -> SplitRule:
    kind, cut = (file.header.metadata.get(_ROOT + key) for key in ("model", "pre"))
    if kind != "gpt2":
        raise _wrong(file, "model", "not covered: only gpt2 (byte-level BPE) is read from GGUF files", kind)
    if cut not in SPLITTINGS:
        raise _wrong(file, "pre", f"not covered: {', '.join(SPLITTINGS)} are read from GGUF files", cut)
    return SPLITTINGS[str(cut)]


def _cut(tokenizer: Any, how: SplitRule) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    if how.nfc:
        tokenizer.normalizer = normalizers.NFC()
    if how.pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return
    split = pre_tokenizers.Split(Regex(how.pattern), behavior="isolated", invert=False)
    by_byte = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, by_byte])


def _begin(tokenizer: Any, file: GgufFile, how: SplitRule, tokens: list[str]) -> None:
    """A text begins with BOS where the file says so, or says nothing and its kind does."""
    from tokenizers.processors import TemplateProcessing

    adds_begin = file.header.metadata.get(f"{_ROOT}add_bos_token", how.bos)
    index = file.header.metadata.get(f"{_ROOT}bos_token_id")
    if adds_begin is True and type(index) is int and 0 <= index < len(tokens):
        begin = tokens[index]
        named = {
            "id": "begin",
            "ids": [index],
            "tokens": [begin],
        }  # the template language cannot write a text with spaces or `$`
        tokenizer.post_processor = TemplateProcessing(single="begin:0 $A:0", special_tokens=[named])


def _texts(file: GgufFile, key: str) -> list[str]:
    array = file.header.metadata.get(_ROOT + key)
    if not isinstance(array, Array):
        raise _wrong(file, key, "missing", None)
    return list(strings(file.data, array, str(file.path), _ROOT + key))


def _kinds(file: GgufFile, count: int) -> tuple[int, ...]:
    array = file.header.metadata.get(f"{_ROOT}token_type")
    if not isinstance(array, Array) or array.count != count:
        raise _wrong(file, "token_type", f"{count} kinds of tokens are expected", None)
    return integers(file.data, array, str(file.path), f"{_ROOT}token_type")


def _pair(file: GgufFile, merge: str, vocabulary: dict[str, int]) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not {left, right, left + right} <= vocabulary.keys():
        raise _wrong(file, "merges", "a pair of tokens that make a token is expected", merge)
    return left, right


def _added(kind: Any, token: str) -> Any:
    return kind(token, normalized=False, special=False)


def _wrong(file: GgufFile, key: str, message: str, value: object) -> BadInputError:
    shown = None if isinstance(value, Array) else value
    remedy = "put the model's tokenizer.json beside the file, or give token ids instead of texts"
    return BadInputError(message, file=str(file.path), field=_ROOT + key, value=shown, remedy=remedy)
