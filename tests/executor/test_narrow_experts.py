"""Experts with an input of their own, narrower than hidden states (Nemotron-3-Super), natively against transformers: on
one device, with layers on the host, with others on a PyTorch device, and served."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from hybrid_models import written_hybrid
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_hardware, make_plan
from test_latent_models import logits_of
from test_latent_serving import LIMITS, serve
from test_latent_serving import OUTPUT as SERVED
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
PROMPT, OUTPUT, LONG = 17, 64, 150
SHAPE = Workload(prompt_tokens=LONG, output_tokens=OUTPUT, context=256)


def test_experts_of_narrow_inputs_give_what_transformers_gives(tmp_path: Path) -> None:
    """A long prompt passes in chunks."""
    oracle = written_hybrid("nemotron_h", tmp_path, moe_latent_size=32, vocab_size=512)
    model = load_model(str(tmp_path / "config.json"))
    ids = np.random.default_rng(4).integers(0, model.vocab, LONG).tolist()
    expected, greedy = logits_of(oracle, ids), ids[:PROMPT]
    for _ in range(OUTPUT):
        greedy.append(int(logits_of(oracle, greedy)[-1].argmax()))
    whole, split = (make_plan(model, on_host, workload=SHAPE) for on_host in (0, 2))
    torch_machine = replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    for plan, machine in ((whole, Machine.this()), (split, Machine.this()), (on_torch(split), torch_machine)):
        with Engine.load(plan, tmp_path, machine) as engine:
            logits = engine.logits(np.array([ids], np.int32), prompt=LONG - 3)[0]
            made = engine.generate(np.array([ids[:PROMPT]], np.int32), OUTPUT, ignore_eos=True)
        assert np.abs(logits - expected[LONG - 4 :]).max() <= 1e-3 * np.abs(expected).max()
        assert list(made.tokens[0]) == greedy[PROMPT:]
    served = make_plan(model, 0, workload=SHAPE, hardware=make_hardware(latency=5e-6))
    with ServingEngine.load(served, tmp_path, Machine.this(), LIMITS) as serving:
        prompts, tokens = serve(serving, 3)
    with Engine.load(whole, tmp_path, Machine.this(), prompt_tokens=32) as engine:
        for number, prompt in enumerate(prompts):
            alone = engine.generate(np.array([prompt], np.int32), SERVED, ignore_eos=True).tokens[0]
            assert tokens[number][:SERVED] == list(alone)
