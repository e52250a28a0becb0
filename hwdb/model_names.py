"""Models of the catalogue by the names that engines and hubs print, such as `qwen3:8b-q4_K_M`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import format_named

USUAL_FORMAT = "q4_k_m"
"""The format that Ollama's library has under a tag that states none, and that llama.cpp takes of a repository of GGUF
files (tools/server/README.md: `-hf <user>/<model>[:quant]`); but for models that are released in fewer bits."""
_RELEASED_SMALLER = ("gpt", "oss")
"""The first words of a family whose own files are quantised already."""
_HUBS = re.compile(r"^(?:https?://)?(?:hf\.co|huggingface\.co|ollama\.com/library|registry\.ollama\.ai/library)/")
_FORMAT = re.compile(
    r"(?:^|[-_.:])((?:ud-)?i?q\d+(?:_[a-z0-9]+)+|f16|fp16|bf16|f32|fp32|mxfp4|q\d+)(?:[-.]gguf)?$", re.IGNORECASE
)
_SIXTEEN_BITS = ("f16", "fp16", "bf16")
_VERSION = re.compile(r"^([a-z]{3,})(\d.*)$")
_NEUTRAL = frozenset({"instruct", "it", "chat", "base", "hf", "gguf", "latest", "meta", "text", "pt"})
"""Words that leave a model's structure as it is."""
_UNSAID = re.compile(r"a\d+(?:\.\d+)?b|v\d+\.\d+|\d+e")
"""Words of catalogue names that tags leave out: active parameters, releases, numbers of experts."""
_OLLAMA = {
    "deepseek-r1:671b": "DeepSeek-R1",
    "deepseek-v3:671b": "DeepSeek-V3",
    "deepseek-v2:16b": "DeepSeek-V2-Lite",
    "phi3:3.8b": "Phi-3-mini-4k-instruct",
    "phi3:mini": "Phi-3-mini-4k-instruct",
    "phi3.5:3.8b": "Phi-3.5-mini-instruct",
    "phi4:14b": "phi-4",
    "phi4-mini:3.8b": "Phi-4-mini-instruct",
}
"""Tags of Ollama's library that state what the names of models do not (its pages of 2026)."""
_LATEST = {
    "gemma3": "4b",
    "llama3.1": "8b",
    "llama3.2": "3b",
    "llama3.3": "70b",
    "mistral": "7b",
    "phi4": "14b",
    "phi4-mini": "3.8b",
}
"""By a model's name, the tag that Ollama resolves it to where none is given, or `latest` (table of models in
ollama/ollama's README.md, 2025)."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The catalogue entry that a name means, and the format that it states, if it does."""

    entry: str
    format: str | None


def find_model(name: str, entries: Iterable[str]) -> NamedModel | None:
    """Return what `name` means, None where it is none of the `entries`.

    Raises UsageError where it means several of them, with their names."""
    plain, fmt = _parts(name)
    known = {entry.lower(): entry for entry in entries}
    special = _OLLAMA.get(plain)
    if special is not None and special.lower() in known:
        return NamedModel(special, fmt)
    wanted = _words(plain)
    matches = [entry for entry in known.values() if _means(wanted, _words(entry.lower()))]
    exact = [entry for entry in matches if _kept(_words(entry.lower())) == _words(entry.lower())]
    matches = exact if len(exact) == 1 else matches
    if len(matches) > 1:
        remedy = f"write {' or '.join(sorted(matches)[:6])}"
        raise UsageError("more than one model is called so", field="model", value=name, remedy=remedy)
    return NamedModel(matches[0], fmt) if matches else None


def stated_format(name: str) -> str | None:
    """Return the format of weights that a model's name states, or that its tag or its repository of GGUF files means.
    Raises UsageError for a mixture that no rule tells."""
    stated = _parts(name)[1]
    return None if stated is None else format_named(stated)


def writes_format(name: str) -> bool:
    """Return whether a format of weights is written in a model's name, which a tag such as `qwen3:8b` only means."""
    return _FORMAT.search(name.strip()) is not None


def _parts(name: str) -> tuple[str, str | None]:
    """Return a name without hub, owner and format, and its format. Files of models that are released in fewer bits
    keep these whatever 16-bit format they state."""
    plain = _HUBS.sub("", name.strip().lower().replace(" ", "-"))
    in_library = "/" not in plain
    owned, _, tag = plain.rpartition("/")[2].partition(":")
    if in_library and tag in ("", "latest"):
        tag = _LATEST.get(owned, tag)
    whole = f"{owned}:{tag}" if tag else owned
    stated = _FORMAT.search(whole)
    plain = whole[: stated.start()] if stated else whole
    words = _words(plain)
    smaller, in_files = words[:2] == _RELEASED_SMALLER, "gguf" in words
    if stated:
        kept = smaller and in_files and stated[1] in _SIXTEEN_BITS
        return plain, "native" if kept else stated[1]
    if in_library and tag:
        return plain, "native" if smaller else USUAL_FORMAT
    return plain, ("mxfp4" if smaller else USUAL_FORMAT) if in_files else None


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case; a version is a word of its own, as in `qwen3` and `Llama-3.1`."""
    parts = [part for part in re.split(r"[-_:/\s]+", name) if part]
    split = [(match[1], match[2]) if (match := _VERSION.match(part)) else (part,) for part in parts]
    return tuple(word for words in split for word in words)


def _kept(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _NEUTRAL)


def _means(wanted: Sequence[str], entry: Sequence[str]) -> bool:
    """Whether the words of a name are those of an entry, but for those that change nothing and those that go
    unsaid."""
    left, rest = list(_kept(wanted)), []
    for word in _kept(entry):
        if left and left[0] == word:
            left.pop(0)
        else:
            rest.append(word)
    return bool(wanted) and not left and all(_UNSAID.fullmatch(word) for word in rest)
