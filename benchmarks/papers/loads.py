"""Requests of NEO's and APEX's runs: public traces where they are at hand, made-up lengths elsewhere (NEO-35)."""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.papers.figure import Traces
from helmsman.schemas.requests import Requests, take_requests
from helmsman.simulator.serving.requests.arrivals import Arrivals, arrive
from helmsman.simulator.serving.requests.read import read_requests
from helmsman.simulator.serving.requests.synthetic import Synthetic, make_synthetic

COUNT = 2000
"""Requests of a run: as many as OSC has."""
SEED = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Requests called `name`: those of `file`, else uniform lengths around its means."""

    name: str
    file: str
    prompt: int
    output: int

    def requests(self, traces: Traces) -> Requests:
        """The first of them, all at once."""
        path = traces.file(self.file)
        if path is None:
            return lengths(self.prompt, self.output)
        found = read_requests(str(path))
        first = take_requests(found, np.arange(min(COUNT, len(found))))
        return arrive(first, None, Arrivals("all-at-once"), SEED)

    def told(self, traces: Traces) -> str:
        """What they are, for the line below a title."""
        made_up = f"lengths around {self.prompt} + {self.output} tokens for {self.name}"
        return f"first {COUNT} requests of {self.name}" if traces.folder else made_up


AC = Load("AC", "AzureLLMInferenceTrace_code_2023.csv", 2048, 28)
CONVERSATION = Load("Azure conversation", "AzureLLMInferenceTrace_conv_2023.csv", 1155, 211)
OSC = Load("OSC", "neo_osc_llama2-7b.json", 373, 45)


def lengths(prompt: int, output: int, count: int = COUNT) -> Requests:
    """Lengths uniform within a tenth of both means, all requests at once."""
    return make_synthetic(Synthetic(n=count, input=prompt, output=output), SEED)


def with_output(requests: Requests, mean: int) -> Requests:
    """The same requests with outputs stretched to that mean."""
    factor = mean / float(requests.output_tokens.mean())
    stretched = np.maximum(1, np.rint(factor * requests.output_tokens)).astype(np.int64)
    return replace(requests, output_tokens=stretched)


def at_rate(requests: Requests, rate: float) -> Requests:
    """The same requests as a Poisson process; one seed has the same pattern at every rate (NEO-36)."""
    return arrive(requests, rate, Arrivals("poisson"), SEED)
