"""What `vllm bench serve --save-result --save-detailed` wrote: lengths of requests, and when they were sent."""

from pathlib import Path
from typing import Any

import numpy as np

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.requests import Floats, Place, Requests, make_requests
from helmsman.simulator.serving.requests.objects import numbers, whole_numbers


def read_vllm_bench(content: dict[str, Any], path: Path) -> tuple[Requests, Place]:
    """Requests as they were sent, by `start_times`; all at once in older files, which lack them. Raises BadInputError.

    Failed requests (their output is 0 tokens long) are left out: nobody knows how long they would have been."""
    file = str(path)
    prompt, output = (whole_numbers(_list(content, name, file), file, name) for name in ("input_lens", "output_lens"))
    sent = numbers(content["start_times"], file, "start_times") if "start_times" in content else np.zeros(len(prompt))
    if not len(prompt) == len(output) == len(sent):
        lengths = f"{len(prompt)}, {len(output)}, {len(sent)}"
        message = f"input_lens, output_lens and start_times have {lengths} values"
        raise BadInputError(message, file=file, remedy="write as many of each")
    came = output > 0
    order = np.flatnonzero(came)[np.argsort(sent[came], kind="stable")]
    names = {"arrival_s": "start_times", "prompt_tokens": "input_lens", "output_tokens": "output_lens"}
    return make_requests(_from_first(sent[order]), prompt[order], output[order]), Place(file, names)


def _from_first(times: Floats) -> Floats:
    return times - times[:1]


def _list(content: dict[str, Any], name: str, file: str) -> Any:
    if name not in content:
        remedy = "run vllm bench serve with --save-result --save-detailed"
        raise BadInputError("missing: lengths of single requests", file=file, field=name, remedy=remedy)
    return content[name]
