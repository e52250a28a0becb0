"""Reads a Model from the content of a Hugging Face `config.json`: no AutoConfig, no remote code."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import check_keys
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.registry import AROUND_TEXT, NOT_DESCRIBED, READERS, ConfigReader
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.near_names import close_names

_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of the names of classes that give logits."""


def model_from_config(config: Mapping[str, Any], name: str, file: str) -> Model:
    """Return the model that `config` describes; `file` names the config in errors.

    Raises BadInputError for a dimension that is missing or out of range, for what is not covered, and for a key that is
    neither used nor known to be without effect on inference."""
    whole = Fields(config, file)
    reader, entered = _entered(whole, name)
    _check_architecture(whole)
    try:
        model = reader.read(entered)
    except ValidationError as error:
        raise _inconsistent(error, file) from None
    check_keys(entered, reader.keys)
    return model


def _entered(whole: Fields, name: str) -> tuple[ConfigReader, Config]:
    """Return the reader of the text model and the config as it sees it."""
    family = whole.text("model_type")
    if family not in AROUND_TEXT:
        return _reader(whole, family), Config(whole, whole, family, name)
    if not whole.has("text_config"):
        remedy = "add it, as the model's original config.json has it"
        raise whole.wrong("text_config", f"missing: a {family} has its text model there", remedy)
    text = whole.inner("text_config")
    expected = AROUND_TEXT[family]
    stated = text.text("model_type", expected)
    # The one text model whose class has become another's.
    if stated not in (expected, "deepseek_v3" if expected == "kimi_k2" else expected):
        raise text.wrong("model_type", f"a {family} has a {expected}", "correct one of the two")
    return READERS[expected], Config(text, whole, family, name)


def _reader(fields: Fields, family: str) -> ConfigReader:
    if family in READERS:
        return READERS[family]
    reason = NOT_DESCRIBED.get(family)
    message = f"not covered: model type {family[:60]!r}{f' ({reason})' if reason else ''}"
    known = sorted({*READERS, *AROUND_TEXT})
    near = close_names(family[:60], known)
    raise fields.wrong("model_type", message, f"covered: {', '.join(near or known)}")


def _check_architecture(whole: Fields) -> None:
    names = whole.texts("architectures")
    if names and not any(name.endswith(_HEADS) for name in names):
        message = f"not covered: architecture {names[0][:60]} (no language-model head)"
        raise whole.wrong("architectures", message, "choose a model that gives logits")


def _inconsistent(error: ValidationError, file: str) -> BadInputError:
    """Return the error of a description whose parts contradict each other, which no reader looked for."""
    problem = error.errors(include_url=False)[0]
    context = problem.get("ctx", {})
    place = [str(part) for part in (*problem["loc"], context.get("field")) if part is not None]
    remedy = str(context.get("remedy") or "correct the values that it follows from")
    return BadInputError(str(problem["msg"]), file=file, field=".".join(place) or "config", remedy=remedy)
