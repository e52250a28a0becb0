"""Uses of a model: how long prompts and outputs are, and below which speed it is of no use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.schemas.fit_report import PurposeName

_WORDS_A_MINUTE = 238
_TOKENS_A_WORD = 4 / 3
READING = _WORDS_A_MINUTE * _TOKENS_A_WORD / 60
"""Tokens a second that people read."""

_NIGHT_S = 12 * 3600
_MILLION = 1e6
MOST_FLOOR = 1e6
"""Tokens a second of the largest floor."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """A use: tokens of a typical request, sequences that advance together, and tokens a second of all of them that it
    takes at least, with where that comes from."""

    name: "PurposeName"
    prompt_tokens: int
    output_tokens: int
    batch: int
    floor: float
    floor_source: str


PURPOSES: "Mapping[PurposeName, Purpose]" = {
    purpose.name: purpose
    for purpose in (
        Purpose("chat", 1024, 256, 1, round(READING, 1),
                "people read 238 words a minute (Brysbaert, Journal of Memory and Language 109, 2019), "
                "75 words are 100 tokens (OpenAI's rule of thumb)"),
        Purpose("code", 8192, 512, 1, 25.0,
                "MLPerf Inference, llama2-70b-interactive: 40 ms a token (mlcommons/inference, loadgen/mlperf.conf)"),
        Purpose("batch", 1024, 256, 8, round(_MILLION / _NIGHT_S, 1),
                "a million tokens in twelve hours, all sequences together: Helm's own"),
    )
}  # fmt: skip
"""Every use by its name; lengths are Helm's own."""


def purpose_named(name: str) -> Purpose:
    """Return a use. Raises UsageError for one that there is not."""
    purpose = next((purpose for purpose in PURPOSES.values() if purpose.name == name), None)
    if purpose is None:
        raise UsageError("no such purpose", field="purpose", value=name, remedy=f"use {', '.join(PURPOSES)}")
    return purpose


def floor_of(purpose: Purpose, floor: float | None) -> tuple[float, str]:
    """Return tokens a second that are needed, and why. Raises UsageError for what is no speed."""
    if floor is None:
        return purpose.floor, purpose.floor_source
    if isinstance(floor, bool) or not 0.0 <= floor <= MOST_FLOOR:
        remedy = "write tokens a second, 0 for any speed"
        raise UsageError("not a speed", field="floor", value=floor, remedy=remedy)
    return float(floor), "as asked"
