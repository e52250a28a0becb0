"""The format of weights that settings of an engine state: in the name of the file, the repository or the tag that they
run, as in `llama-server -m Qwen3-8B-Q4_K_M.gguf`, `-hf owner/name:Q8_0` or `FROM qwen3:8b`."""

import re
from contextlib import suppress

from helmsman.hwdb.load_model import entry_name, model_file
from helmsman.hwdb.model_names import stated_format
from helmsman.lowering.mix_rules import MIXES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import STORED_FORMATS

_RUN = re.compile(
    r"""(?:(?<!\S)(?:-m|--model|-hf|-hfr|--hf-repo)(?:\s+|=)|^\s*FROM\s+|"model_path"\s*:\s*)["']?([^\s"',]+)""",
    re.MULTILINE | re.IGNORECASE,
)
"""What names the model in commands of llama.cpp, in Ollama's files and in what a llama-server says of itself."""
_PART = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)", re.IGNORECASE)
"""What the name of a file in several parts has before its end."""


def settings_format(text: str, model: str) -> str | None:
    """Return the format that settings state, None where they state none that is planned by name, or where the name or
    the files of `model`, which the question is about, say it already."""
    with suppress(UsageError):
        if model_file(model) is not None or entry_name(model) is None or stated_format(model) is not None:
            return None
    for match in _RUN.finditer(text):
        name = _PART.sub("", match[1].replace("\\", "/").rpartition("/")[2])
        with suppress(UsageError):
            stated = stated_format(name)
            if stated in MIXES or stated in STORED_FORMATS:
                return stated
    return None
