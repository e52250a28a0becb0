"""Finds the chat template that turns a conversation into a prompt: the checkpoint's own, or a plain one.

`template_process` renders it."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helmsman.executor.text.gguf_tokenizer import special_token
from helmsman.hwdb.gguf_files import GgufFile
from helmsman.hwdb.gguf_paths import gguf_files, is_gguf
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import JSON_LIMIT, parse_json, read_bytes

Message = Mapping[str, str]
"""`role` (system, user, assistant) and `content`."""

_TEMPLATE_LIMIT = 2**20
_PLAIN = (
    "{% for message in messages %}{% if message.role == 'system' %}{{ message.content }}\n\n{% elif message.role =="
    " 'user' %}User: {{ message.content }}\n{% else %}Assistant: {{ message.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
PLAIN_STOPS = ("\nUser:",)
"""The texts that end a reply where no token does."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template in Jinja, the texts of the tokens that it may name, and the file that it is from.

    `own`: whether it is the checkpoint's; the plain one leaves special tokens to the tokenizer."""

    source: str
    tokens: Mapping[str, str]
    file: str
    own: bool


def open_template(checkpoint: Path) -> ChatTemplate:
    """The chat template of a checkpoint: of a GGUF file its own, of a directory chat_template.jinja or that of
    tokenizer_config.json; the plain one where it has none.

    Raises BadInputError for files that cannot be read."""
    template = _of_gguf(gguf_files(checkpoint)[0]) if is_gguf(checkpoint) else _of_directory(checkpoint)
    return template or ChatTemplate(_PLAIN, {}, str(checkpoint), own=False)


def _of_gguf(path: Path) -> ChatTemplate | None:
    with closing(GgufFile(path)) as file:
        source = file.header.metadata.get("tokenizer.chat_template")
        if not isinstance(source, str):
            return None
        tokens = {f"{name}_token": token for name in ("bos", "eos") if (token := special_token(file, name)) is not None}
        return ChatTemplate(source, tokens, str(path), own=True)


def _of_directory(folder: Path) -> ChatTemplate | None:
    path = folder / "tokenizer_config.json"
    config = parse_json(read_bytes(path, JSON_LIMIT), str(path)) if path.is_file() else {}
    if not isinstance(config, dict):
        raise BadInputError("a JSON object is expected", file=str(path), remedy="download it again")
    tokens = {name: text for name in ("bos_token", "eos_token") if (text := _content(config.get(name))) is not None}
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return ChatTemplate(read_bytes(alone, _TEMPLATE_LIMIT).decode("utf-8", "replace"), tokens, str(alone), own=True)
    source = _chosen(config.get("chat_template"))
    return None if source is None else ChatTemplate(source, tokens, str(path), own=True)


def _content(token: Any) -> str | None:
    """Tokens are texts, or objects with one."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _chosen(templates: Any) -> str | None:
    """Several templates are a list of names and templates."""
    if isinstance(templates, list):
        named = {template.get("name"): template.get("template") for template in templates if isinstance(template, dict)}
        templates = named.get("default")
    return templates if isinstance(templates, str) else None
