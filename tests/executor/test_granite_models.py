"""Granite models whose layers all attend, dense and with experts, natively against transformers: on one device, with
layers on the host, and with others on a PyTorch device."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, oracle_greedy, oracle_logits
from hybrid_models import COMMON
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_plan
from small_configs import read_small
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.agreement import check_agreement
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT = 70, 64
"""Enough tokens for threads to divide products as they get on, factors of residual streams among them."""
SHAPE = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=136)
MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.0,
}
ROUTED = {"intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 3}
MODELS: dict[str, dict[str, Any]] = {
    "granite": {"intermediate_size": 96, "attention_bias": True, "mlp_bias": True},
    "granitemoe": {**ROUTED, "tie_word_embeddings": True},
    "granitemoeshared": {**ROUTED, "shared_intermediate_size": 48},
}


def written_granite(family: str, directory: Path) -> None:
    """Write a random model of a family, whose logits tell multipliers and routers apart."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {**COMMON, **MULTIPLIERS, **MODELS[family], "num_hidden_layers": 3}
    config = AutoConfig.for_model(family, **sizes, dtype="float32")
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            plain = value.dim() == 1 and not name.endswith("bias")
            value.normal_(0, 0.3 if value.dim() > 1 else 0.1).add_(float(plain))
    model.save_pretrained(directory)


@pytest.mark.parametrize("family", MODELS)
def test_granite_gives_what_transformers_gives(tmp_path: Path, family: str) -> None:
    written_granite(family, tmp_path)
    model, oracle = load_model(str(tmp_path / "config.json")), load_oracle(tmp_path)
    torch.set_num_threads(1)
    ids = np.random.default_rng(4).integers(0, model.vocab, PROMPT).tolist()
    expected, greedy = oracle_logits(oracle, ids), list(oracle_greedy(oracle, ids, OUTPUT).tokens)
    whole, split = (make_plan(model, on_host, workload=SHAPE) for on_host in (model.layers, 1))
    torch_machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    for plan, machine in ((whole, Machine.this()), (split, Machine.this()), (on_torch(split), torch_machine)):
        with Engine.load(plan, tmp_path, machine) as engine:
            logits = engine.logits(np.array([ids], np.int32), prompt=PROMPT - 3)[0]
            made = engine.generate(np.array([ids], np.int32), OUTPUT, ignore_eos=True)
        assert np.abs(logits - expected[PROMPT - 4 :]).max() <= 1e-3 * np.abs(expected).max()
        assert list(made.tokens[0]) == greedy


def test_a_file_of_granite_is_that_of_its_config() -> None:
    """GGUF files are read as hybrids without state spaces; another multiplier is another model."""
    plain = {"attention_bias": ..., "mlp_bias": ...}
    attending = {"layer_types": ["attention"] * 4, "position_embedding_type": "rope", "rope_theta": 1e6}
    dense = {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 48}
    stored = read_small("granitemoehybrid", **attending, **dense, tie_word_embeddings=False)
    check_agreement(stored, read_small("granite", **plain), "granite.gguf")
    with pytest.raises(BadInputError, match=r"granite\.gguf: layouts"):
        check_agreement(stored, read_small("granite", **plain, residual_multiplier=0.5), "granite.gguf")
