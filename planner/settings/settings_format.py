"""The format of weights that settings of an engine state: in the name of the file, the repository or the tag that they
run, as in `llama-server -m Qwen3-8B-Q4_K_M.gguf`, `-hf owner/name:Q8_0` or `FROM qwen3:8b`."""

import re
from contextlib import suppress

from helmsman.hwdb.gguf_paths import stem_of
from helmsman.hwdb.load_model import entry_name, model_file
from helmsman.hwdb.model_names import stated_format
from helmsman.lowering.named_mixes import is_planned_by_name
from helmsman.schemas.errors import UsageError

_MODEL_REFERENCE = re.compile(
    r"""(?:(?<!\S)(?:-m|--model|-hf|-hfr|--hf-repo)(?:\s+|=)|^\s*FROM\s+|"model_path"\s*:\s*)["']?([^\s"',]+)""",
    re.MULTILINE | re.IGNORECASE,
)
"""Matches a reference to a model, whose file or repository is the first group: a flag of llama.cpp's command line, the
`FROM` line of an Ollama Modelfile, or the `model_path` that a llama-server reports."""


def settings_format(text: str, model: str) -> str | None:
    """Return the format that settings state, None where they state none that is planned by name, or where the name or
    the files of `model`, which the question is about, say it already."""
    with suppress(UsageError):
        if model_file(model) is not None or entry_name(model) is None or stated_format(model) is not None:
            return None
    for match in _MODEL_REFERENCE.finditer(text):
        file = match[1].replace("\\", "/").rpartition("/")[2]
        with suppress(UsageError):
            stated = stated_format(stem_of(file))
            if stated is not None and is_planned_by_name(stated):
                return stated
    return None
