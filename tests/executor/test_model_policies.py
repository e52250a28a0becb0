"""Models with experts and with states under policies, as plans say what they cost and hold: each request gets what it
gets alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expert_layouts import divided_plan
from expert_models import written
from hybrid_models import written_hybrid
from layer_machines import two_cpus
from on_torch import on_torch
from plans import make_hardware, make_plan
from test_serving_policies import Client, serve_all
from two_cpus import TWO_CPUS

from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, SlotRule
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
CONTEXT, OUTPUT = 96, 10
MODELS: dict[str, Callable[[Path], Any]] = {
    "qwen3_moe": lambda folder: written("qwen3_moe", folder, vocab_size=523, eos_token_id=None),
    "qwen3_5_moe_text": lambda folder: written_hybrid("qwen3_5_moe_text", folder, vocab_size=523),
}
FETCHED, AWAY = "qwen3_moe in slots, others fetched", "qwen3_moe in slots, others on the host"
HALVED = "qwen3_moe in slots, others divided"
SLOTTED = {
    FETCHED: SlotRule("least-recent", "fetched"),
    AWAY: SlotRule("least-recent", "host"),
    HALVED: SlotRule("least-recent", "divided", 0.5),
}
"""The same model, of whose experts three of eight have slots."""
PROMPTS = [[(7 * place + number) % 523 for place in range(length)] for number, length in enumerate((5, 33, 17, 48, 1))]


OFTEN = [("qwen3_moe", "neo"), ("qwen3_5_moe_text", "gpu-only"), (HALVED, "neo")]
POLICIES = ("gpu-only", "neo", "adaptive")
ON_TORCH = " on a PyTorch device"
SELDOM = [case for name in (*MODELS, *SLOTTED) for policy in POLICIES if (case := (name, policy)) not in OFTEN]
SELDOM += [(name + ON_TORCH, policy) for name in (FETCHED, HALVED) for policy in POLICIES]


@pytest.mark.parametrize(
    ("name", "policy"), [*OFTEN, *(pytest.param(*case, marks=pytest.mark.nightly) for case in SELDOM)]
)
def test_each_request_gets_what_it_gets_alone(tmp_path: Path, name: str, policy: str) -> None:
    """A host attends for the model that attends in every layer; of the other it has no cache."""
    MODELS[name.partition(" ")[0]](tmp_path)
    model = load_model(str(tmp_path / "config.json"))
    workload = Workload(prompt_tokens=8, output_tokens=8, context=CONTEXT)
    plan = make_plan(model, 0, workload=workload, hardware=make_hardware(latency=5e-6))
    machine, placed = Machine.this(), name.removesuffix(ON_TORCH)
    if placed in SLOTTED:
        slots = ExpertLayout(0, model.layers, rule=SLOTTED[placed], slots=3)
        plan = divided_plan(model, slots, workload, plan.hardware)
    if name.endswith(ON_TORCH):
        plan, machine = on_torch(plan), replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    options = ReplicaOptions(gpu_tokens=96, batch_tokens=CONTEXT, sequences=8, cpu_tokens=448)
    replica = replica_cost(plan, options)
    limits = replica.limits
    assert limits.cpu_tokens == (0 if name == "qwen3_5_moe_text" else 448)
    scheduler = Scheduler(replica.cost, limits, policy, checked_options(policy, {}), limits.block)
    clients = [Client(prompt) for prompt in PROMPTS]
    with ServingEngine.load(plan, tmp_path, machine, limits) as engine:
        serve_all(engine, scheduler, clients, limits.block)
        engine.check_integrity()
        scheduler.check()
    assert [client.ends[0].error for client in clients] == [None] * len(clients)
    with Engine.load(plan, tmp_path, machine, prompt_tokens=CONTEXT) as alone:
        for client in clients:
            tokens = np.array([client.prompt], np.int32)
            assert client.made == list(alone.generate(tokens, OUTPUT, ignore_eos=True).tokens[0])
