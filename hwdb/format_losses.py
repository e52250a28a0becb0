"""The losses of formats, as engines' own documents publish them: for one model, which every figure names."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from helmsman.schemas.fit_report import PublishedLoss

_TABLE = Path(__file__).with_name("format_losses.json")


@cache
def published_losses() -> Mapping[str, PublishedLoss]:
    """Return the published loss of every format that has one: with an importance matrix where that was published, as
    most files have it."""
    table = json.loads(_TABLE.read_bytes())
    losses = (PublishedLoss(**table["sources"][row.pop("of")], **row) for row in table["losses"])
    return {loss.format: loss for loss in losses}
