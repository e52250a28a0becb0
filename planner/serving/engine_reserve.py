"""The memory that vLLM keeps beside weights and caches, and how much it lets through a pass when nobody says otherwise.

Its worker profiles the largest pass before it sizes the cache (`determine_available_memory`): what PyTorch held at most
and what libraries took beside is subtracted from the share of the card. At most is held either in the network, for as
many tokens as a pass may have, or in sampling, whose sorted logits and indices are of as many sequences as may run.

Constants are those of vLLM 0.19.0 on an RTX 4090 with Llama-3.1-8B, 2,048 tokens and 256 sequences a pass:
casys-kaist/LLMServingSim@da26736, bench/results/llama-3.1-8b-rtx4090/meta.json, 2,588 blocks of 16 tokens within 0.9 of
25,250,627,584 bytes, so 1.153 GiB beside weights and cache."""

import re
from dataclasses import dataclass

from helmsman.hwdb.driver_memory import GIB, reported_bytes
from helmsman.planner.serving.layer_facts import held_values
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model

LOGIT_BYTES = 30
"""Of a logit while tokens are drawn from sorted ones: 2 as it is computed, 4 in f32, 12 sorted with its index, 12 of a
second buffer."""

LIBRARIES = round(0.235 * GIB)
"""Of libraries and buffers that stay: what those 1.153 GiB leave beside the logits."""

GRAPHS = GIB // 2
"""Of CUDA graphs (vLLM's logs say 0.5 GiB for models of 8 billion parameters): beside the share up to 0.20, within it
from 0.21 on (`VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`)."""

_LARGE = 70 * GIB
"""Cards that report so much get larger passes, A100 excepted (`EngineArgs.get_batch_defaults`)."""


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Most tokens and sequences of a pass."""

    tokens: int
    sequences: int


def cards_of(product: str) -> tuple[int, str]:
    """Return how many equal cards a device is (`2x NAME`), and which."""
    several = re.match(r"(\d+)x ", product)
    return (int(several[1]), product[several.end() :]) if several else (1, product)


def card_count(device: Device) -> int:
    """Return how many equal cards a device is."""
    return cards_of(device.product or "")[0]


def usual_passes(product: str, capacity: int) -> PassLimits:
    """Return vLLM's limits of its server on a card, or on equal ones that are one device."""
    cards, name = cards_of(product)
    large = reported_bytes(name, capacity // cards) >= _LARGE and "A100" not in name
    return PassLimits(8192, 1024) if large else PassLimits(2048, 256)


def reserved_bytes(
    model: Model, passes: PassLimits, fmt: Format, vocab: int | None = None, graphs: bool = False
) -> int:
    """Return bytes kept on each card. `vocab`: of the whole model, where this one is a part of it; `graphs`: they are
    within the share."""
    network = size_of(passes.tokens * held_values(model), fmt)
    sampling = LOGIT_BYTES * min(passes.sequences, passes.tokens) * (vocab or model.vocab)
    return LIBRARIES + max(network, sampling) + (GRAPHS if graphs else 0)
