"""What f16 weights lose as bf16 (PARK-69): perplexity through the executor, on this machine, random weights.

The paper reports 13.3 -> 13.37 on WikiText. There is no text here that random weights know, so the tokens to predict
are those that the f16 model itself would draw: its perplexity is the exponential of its mean entropy, and that of the
bf16 model the exponential of the mean cross-entropy, in expectation over the next token, without drawing any. The
weights of the checkpoint are f16, and the executor converts them while loading, as it would a real one; everything
else (activations, caches) is f32 in both."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.park_egger.answer import Row
from benchmarks.park_egger.study import Study
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_search import decide
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

MODELS = (("opt-125m", 12), ("Qwen3-0.6B", 6))
"""Catalogue name, and how many of its layers."""
SEQUENCES, TOKENS = 4, 48
SEED = 1
_MACHINE = "ryzen7950x-cpu"
"""Only its shape matters: a CPU; nothing is timed."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Perplexity with f16 and with bf16 weights, and the share of positions whose likeliest token is the same."""

    f16: float
    bf16: float
    agreement: float


def study() -> Study:
    """The models of the paper's family and of ours."""
    rows: list[Row] = []
    for name, layers in MODELS:
        model = load_model(name).with_layers(layers)
        loss = measured(model)
        changed = loss.bf16 / loss.f16 - 1
        head: Row = {"model": name, "layers": layers, "perplexity f16": loss.f16, "perplexity bf16": loss.bf16}
        rows.append({**head, "change": changed, "same likeliest token": loss.agreement})
    notes = (
        "The paper: 13.3 to 13.37 on WikiText, +0.5 %. Random weights and tokens as the f16 model would draw them: "
        "neither level nor change can be compared with that, only that the change is marginal.",
    )
    return Study("numerics", "perplexity, f16 to bf16 weights", tuple(rows), (), notes)


def measured(model: Model, sequences: int = SEQUENCES, tokens: int = TOKENS) -> Loss:
    """Both perplexities of random weights over random contexts of 1 to `tokens` tokens."""
    given = np.random.default_rng(SEED).integers(0, model.vocab, (sequences, tokens), dtype=np.int32)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkpoint"
        write_checkpoint(model, place, seed=SEED, fmt="f16")
        f16, bf16 = (_log_shares(model, fmt, place, given) for fmt in ("f16", "bf16"))
    shares = np.exp(f16)
    return Loss(
        f16=_perplexity(shares, f16),
        bf16=_perplexity(shares, bf16),
        agreement=float(np.mean(f16.argmax(-1) == bf16.argmax(-1))),
    )


def _log_shares(model: Model, fmt: Format, checkpoint: Path, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """(positions, vocab): logarithms of the probabilities of the next token."""
    plan = _plan(model, fmt, *tokens.shape)
    with Engine.load(plan, checkpoint, Machine.this()) as engine:
        logits = engine.logits(tokens).astype(np.float64).reshape(-1, model.vocab)
    logits -= logits.max(-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))


def _plan(model: Model, weights: Format, sequences: int, tokens: int) -> Plan:
    """Everything on the processors of this machine."""
    known = load_hardware(_MACHINE, None)
    devices = tuple(device.model_copy(update={"cores": None}) for device in known.devices)
    hardware = known.model_copy(update={"devices": devices})
    work = Workload(prompt_tokens=1, output_tokens=tokens, batch=sequences, context=tokens + 1)
    options = SplitQuestion(weights, "f32", False, "latency")
    return decide(LayerSplit(model, roles(hardware), work, options, CostModel(hardware, CostOptions())), {}).plan


def _perplexity(shares: NDArray[np.float64], logs: NDArray[np.float64]) -> float:
    return float(np.exp(-(shares * logs).sum(-1).mean()))
