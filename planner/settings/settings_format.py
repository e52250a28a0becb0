"""The format of weights that settings of an engine state: in the name of the file, the repository or the tag that they
run, as in `llama-server -m Qwen3-8B-Q4_K_M.gguf`, `-hf owner/name:Q8_0` or `FROM qwen3:8b`."""

import re
from contextlib import suppress

from helmsman.hwdb.gguf_paths import stem_of
from helmsman.hwdb.load_model import entry_name, model_file
from helmsman.hwdb.model_names import USUAL_FORMAT, stated_format, writes_format
from helmsman.lowering.named_mixes import is_planned_by_name
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import NATIVE

_MODEL_REFERENCE = re.compile(
    r"""(?:(?<!\S)(?:-m|--model|-hff|--hf-file|(?P<repository>-hf|-hfr|--hf-repo))(?:\s+|=)"""
    r"""|^\s*FROM\s+|"model_path"\s*:\s*)"""
    r"""["']?(?P<name>[^\s"',]+)""",
    re.MULTILINE | re.IGNORECASE,
)
"""Matches a reference to a model, whose file or repository is `name`: a flag of llama.cpp's command line, the `FROM`
line of an Ollama Modelfile, or the `model_path` that a llama-server reports."""


def settings_format(text: str, model: str) -> str | None:
    """Return the format that settings state, or that llama.cpp takes of a repository they name without a file or a tag;
    None where they state none, or where `model`, which the question is about, is files, is none of the catalogue, or
    has a format written in its name.

    Raises UsageError for a format that is not planned by name."""
    with suppress(UsageError):
        if model_file(model) is not None or entry_name(model) is None or writes_format(model):
            return None
    references = list(_MODEL_REFERENCE.finditer(text))
    names = (match["name"].replace("\\", "/").rpartition("/")[2] for match in references)
    stated = next((fmt for fmt in map(_planned, sorted(names, key=writes_format, reverse=True)) if fmt), None)
    return stated or (USUAL_FORMAT if any(match["repository"] for match in references) else None)


def _planned(file: str) -> str | None:
    """Return the format that the name of a file or repository states. Raises UsageError for one that is not planned by
    its name."""
    try:
        stated = stated_format(stem_of(file))
    except UsageError:
        raise _not_planned(file) from None
    if stated is None or stated == NATIVE or is_planned_by_name(stated):
        return stated
    raise _not_planned(file)


def _not_planned(file: str) -> UsageError:
    written = re.search(r"i?q\d_[k0-9]", file.lower())
    begun = (f"{written[0]}_m", written[0]) if written else ()
    near = next((name for name in begun if is_planned_by_name(name)), USUAL_FORMAT)
    remedy = f"name a `format` near it, as {near}, or give the file as `model`"
    message = "the name of what settings run states a format that is not planned by name"
    return UsageError(message, field="settings", value=file, remedy=remedy)
