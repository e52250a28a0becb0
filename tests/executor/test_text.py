"""Tokenizers of checkpoints: a GGUF file's own, a tokenizer.json, and what is refused."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from family_models import family_model
from gguf_bytes import array, gguf, string, text, u32
from tokenizers import Tokenizer

from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.tokenizer import byte_symbols, tokenizer_json
from helmsman.executor.text.tokenizer import Text, open_text
from helmsman.schemas.errors import BadInputError

MODEL = family_model("qwen3")
MERGES = ["1 2", "12 3", "123 4", "h e", "he y", "\u0120 hey"]


def vocabulary(merges: list[str]) -> list[str]:
    return [*byte_symbols(), *(merge.replace(" ", "") for merge in merges), "<|begin|>", "<|end|>", "<note>"]


def write(place: Path, pre: str = "qwen2", **changes: bytes) -> Path:
    """A file with nothing but a tokenizer; `changes` replace its values by key."""
    tokens = vocabulary(MERGES)
    kinds = [1] * (len(tokens) - 3) + [3, 3, 4]
    values = {
        "model": string("gpt2"),
        "pre": string(pre),
        "tokens": array(8, len(tokens), b"".join(map(text, tokens))),
        "token_type": array(5, len(tokens), struct.pack(f"<{len(kinds)}i", *kinds)),
        "merges": array(8, len(MERGES), b"".join(map(text, MERGES))),
        "bos_token_id": u32(len(tokens) - 3),
        "eos_token_id": u32(len(tokens) - 2),
        **changes,
    }
    place.write_bytes(gguf({f"tokenizer.ggml.{key}": value for key, value in values.items()}))
    return place


def opened(place: Path, vocab: int = 512) -> Text:
    found = open_text(place, vocab)
    assert found is not None
    return found


def pieces(place: Path, prompt: str) -> list[str]:
    tokens = vocabulary(MERGES)
    return [tokens[index] for index in opened(place).encode(prompt)]


def test_merges_happen_within_what_the_pattern_cuts(tmp_path: Path) -> None:
    """Qwen's pattern keeps digits apart, Llama 3's takes three together and begins with BOS."""
    assert pieces(write(tmp_path / "a.gguf"), "hey hey1234") == ["hey", "\u0120hey", "1", "2", "3", "4"]
    cut = ["<|begin|>", "hey", "\u0120hey", "123", "4"]
    assert pieces(write(tmp_path / "b.gguf", "llama-bpe"), "hey hey1234") == cut
    assert pieces(write(tmp_path / "c.gguf", "gpt-2"), "hey hey1234") == ["hey", "\u0120hey", "1234"]


def test_bos_is_what_the_file_says(tmp_path: Path) -> None:
    asked = write(tmp_path / "a.gguf", add_bos_token=struct.pack("<IB", 7, 1))
    assert pieces(asked, "hey") == ["<|begin|>", "hey"]
    assert opened(asked).encode("hey", special=False) == opened(write(tmp_path / "b.gguf")).encode("hey")


def test_special_tokens_are_found_in_text_and_not_shown(tmp_path: Path) -> None:
    place = write(tmp_path / "a.gguf")
    assert pieces(place, "he<|end|><note>") == ["he", "<|end|>", "<note>"]
    found = opened(place)
    assert (
        found.decode(found.encode("he<|end|>y\N{GREEK SMALL LETTER PI}<note>")) == "hey\N{GREEK SMALL LETTER PI}<note>"
    )


@pytest.mark.parametrize("begin", ["a b", "$A", "$B:1", "a:0", "a:b", " "])
def test_the_bos_token_may_have_any_text(tmp_path: Path, begin: str) -> None:
    tokens = [begin if token == "<|begin|>" else token for token in vocabulary(MERGES)]
    changed = array(8, len(tokens), b"".join(map(text, tokens)))
    place = write(tmp_path / "a.gguf", tokens=changed, add_bos_token=struct.pack("<IB", 7, 1))
    found = opened(place).encode("hey")
    assert found == [len(tokens) - 3, tokens.index("hey")]


def changed_tokenizer(place: Path, **steps: Any) -> Path:
    """A directory whose tokenizer.json has other steps."""
    content = {**json.loads(tokenizer_json(MODEL)), **steps}
    (place / "tokenizer.json").write_text(json.dumps(content))
    return place


CUT = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
FILLED = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
          "pad_type_id": 0, "pad_token": "a"}  # fmt: skip


@pytest.mark.parametrize("steps", [{"truncation": CUT}, {"padding": FILLED}, {"truncation": {**CUT, "stride": 9}}])
def test_no_text_is_cut_off_or_filled_up(tmp_path: Path, steps: Any) -> None:
    prompt = "what is as long as this"
    assert opened(changed_tokenizer(tmp_path, **steps)).encode(prompt) == Text(
        Tokenizer.from_str(tokenizer_json(MODEL))
    ).encode(prompt)


def replacing(pattern: Any, content: str) -> Any:
    return {"type": "Replace", "pattern": pattern, "content": content}


def beside(single: list[Any], ids: int) -> Any:
    token = {"id": "x", "ids": [0] * ids, "tokens": ["a"] * ids}
    pair = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {"x": token}}


SELF, TOKEN = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}
GROWING = [replacing({"String": "a"}, "aaaaaaaa")] * 12


@pytest.mark.parametrize(
    ("field", "step"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": GROWING}),
        ("normalizer", replacing({"Regex": "x*"}, "y" * 10**6)),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "ab"}] * 60}),
        ("decoder", {"type": "Sequence", "decoders": GROWING}),
        ("post_processor", beside([SELF] * 10**5, 1)),
        ("post_processor", beside([SELF, *[TOKEN] * 65], 1)),
        ("post_processor", beside([SELF, TOKEN], 65)),
        ("post_processor", {"type": "Sequence", "processors": [beside([SELF, SELF], 1)] * 20}),
    ],
)
def test_a_tokenizer_that_makes_too_much_of_a_text_is_refused(tmp_path: Path, field: str, step: Any) -> None:
    with pytest.raises(BadInputError) as error:
        open_text(changed_tokenizer(tmp_path, **{field: step}), 512)
    assert error.value.field == field and "the most" in error.value.message


def test_steps_of_published_tokenizers_are_not_too_much(tmp_path: Path) -> None:
    """Llama 2's, with a word before each text, and Gemma's; SentencePiece's table of compatible characters."""
    chain = [{"type": "Prepend", "prepend": "\u2581"}, replacing({"String": " "}, "\u2581"), {"type": "NFKC"}]
    normalizer, framed = {"type": "Sequence", "normalizers": chain}, beside([TOKEN, SELF, TOKEN], 1)
    assert opened(changed_tokenizer(tmp_path, normalizer=normalizer, post_processor=framed)).encode("hey")


def test_what_the_library_raises_is_bad_input() -> None:
    class PanicException(BaseException):
        """As pyo3 names it."""

    class Failing:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def encode(self, *_: Any, **__: Any) -> None:
            raise self.error

        decode = encode

        def no_truncation(self) -> None: ...
        def no_padding(self) -> None: ...

    for error in (PanicException("at the disco"), MemoryError(), RuntimeError("x" * 9999)):
        for act in (Text(Failing(error)).encode, lambda _, failing=error: Text(Failing(failing)).decode([1])):
            with pytest.raises(BadInputError, match="the tokenizer fails") as caught:
                act("a")
            assert len(str(caught.value)) < 500
    with pytest.raises(KeyboardInterrupt):
        Text(Failing(KeyboardInterrupt())).encode("a")


def test_a_written_file_has_the_directorys_tokenizer(tmp_path: Path) -> None:
    write_gguf(MODEL, tmp_path / "m.gguf", fmt="q4_0")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "tokenizer.json").write_text(tokenizer_json(MODEL))
    one, other = opened(tmp_path / "m.gguf", MODEL.vocab), opened(tmp_path / "hf", MODEL.vocab)
    for prompt in ("Call me Ishmael.\n\tSome years", "\N{GREEK SMALL LETTER PI} \N{GRINNING FACE}", "a<|end-2|>b"):
        assert one.encode(prompt) == other.encode(prompt)
        assert one.decode(one.encode(prompt)) == other.decode(other.encode(prompt))


REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "sentencepiece": ({"model": string("llama")}, "tokenizer.ggml.model: not covered: only gpt2"),
    "pattern": ({"pre": string("falcon")}, "tokenizer.ggml.pre: not covered: gpt-2, qwen2"),
    "no tokens": ({"tokens": u32(3)}, "tokenizer.ggml.tokens: missing"),
    "numbers": ({"tokens": array(5, 1, bytes(4))}, "an array of texts is expected"),
    "twice": ({"tokens": array(8, 2, text("a") * 2)}, "two tokens have one text"),
    "kinds": ({"token_type": array(5, 1, bytes(4))}, "tokenizer.ggml.token_type: 265 kinds of tokens"),
    "merges": ({"merges": array(8, 1, text("q q"))}, "tokenizer.ggml.merges: a pair of tokens"),
    "not a pair": ({"merges": array(8, 1, text("he"))}, "tokenizer.ggml.merges: a pair of tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_covered_is_refused_unless_a_file_lies_beside(case: str, tmp_path: Path) -> None:
    changes, says = REFUSED[case]
    place = write(tmp_path / "a.gguf", **changes)
    with pytest.raises(BadInputError, match=says) as error:
        open_text(place, 512)
    assert "tokenizer.json beside the file" in str(error.value) or case == "numbers"
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(MODEL))
    assert opened(place, MODEL.vocab).encode("abc") == [ord(letter) + 1 for letter in "abc"]  # token 2 ends a text


def test_a_tokenizer_of_a_larger_vocabulary_is_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "a.gguf")
    assert opened(place, 265).largest == 264
    with pytest.raises(BadInputError, match=r"another model: token ids end at 263 in this one \(got 264\)"):
        open_text(place, 264)
    (tmp_path / "hf").mkdir()
    shutil.copy(write_json(tmp_path), tmp_path / "hf" / "tokenizer.json")
    with pytest.raises(BadInputError, match="token ids end at 199"):
        open_text(tmp_path / "hf", 200)


def write_json(folder: Path) -> Any:
    (folder / "t.json").write_text(tokenizer_json(MODEL))
    return folder / "t.json"


def test_a_directory_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert open_text(tmp_path, 512) is None


def test_what_is_not_utf_8_is_bad_input(tmp_path: Path) -> None:
    """Python keeps such bytes of arguments and of standard input as surrogates."""
    with pytest.raises(BadInputError, match="bytes that are not UTF-8; write UTF-8"):
        opened(write(tmp_path / "a.gguf")).encode("a\udcff")
