"""Lengths as NEO's artifact keeps them (OSC): a JSON list of {"prompt", "max_tokens"} without arrival times."""

from pathlib import Path
from typing import Any

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.requests import Place, Requests, make_requests
from helmsman.simulator.serving.requests.objects import whole_numbers


def read_osc(content: list[Any], path: Path) -> tuple[Requests, Place]:
    """Return requests that come all at once. Raises BadInputError."""
    file = str(path)
    wrong = next((place for place, row in enumerate(content) if not isinstance(row, dict)), None)
    if wrong is not None:
        remedy = 'write {"prompt": .., "max_tokens": ..}'
        raise BadInputError(
            "a JSON object is expected", file=file, field=f"{wrong}", value=content[wrong], remedy=remedy
        )
    prompt, output = ([row.get(name) for row in content] for name in ("prompt", "max_tokens"))
    lengths = whole_numbers(prompt, file, "prompt"), whole_numbers(output, file, "max_tokens")
    names = {"prompt_tokens": "prompt", "output_tokens": "max_tokens"}
    return make_requests(np.zeros(len(content)), *lengths), Place(file, names)
