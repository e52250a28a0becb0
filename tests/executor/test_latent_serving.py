"""Requests to models of latent attention: what each gets among others is what it gets alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from latent_models import COMMON, FAMILIES
from layer_machines import two_cpus
from plans import make_hardware, make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.request import RequestOptions
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.scheduler.decision import Chunk, SchedulingDecision
from helmsman.scheduler.limits import Limits
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

pytestmark = TWO_CPUS
LIMITS = Limits(gpu_tokens=256, cpu_tokens=0, batch_tokens=64, sequences=8)
CONTEXT, OUTPUT = 64, 8


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Write a random DeepSeek-V3."""
    from transformers import AutoConfig

    folder = tmp_path_factory.mktemp("latent")
    sizes: dict[str, Any] = {**COMMON, **FAMILIES["deepseek_v3"], "vocab_size": 512}
    AutoConfig.for_model("deepseek_v3", **sizes, eos_token_id=None).save_pretrained(folder / "config")
    write_checkpoint(load_model(str(folder / "config" / "config.json")), folder / "checkpoint", fmt="f32")
    return folder / "checkpoint", load_model(str(folder / "checkpoint" / "config.json"))


def plan_of(model: Model, kind: str = "loopback") -> Plan:
    workload = Workload(prompt_tokens=8, output_tokens=8, context=CONTEXT)
    return make_plan(model, 0, workload=workload, hardware=make_hardware(latency=5e-6, kind=kind))


def decisions(random: Random, prompts: list[list[int]], made: dict[int, list[int]]) -> Iterator[SchedulingDecision]:
    """Yield passes until all have their tokens: prompts in parts, requests that are ready, some that begin anew."""
    done = dict.fromkeys(range(len(prompts)), 0)
    while any(len(tokens) < OUTPUT for tokens in made.values()):
        running = [number for number in made if len(made[number]) < OUTPUT]
        dropped = tuple(n for n in running if done[n] and made[n] and random.random() < 0.05)
        for number in dropped:
            done[number] = 0
        chunks = list[Chunk]()
        for number in running:
            left = len(prompts[number]) + len(made[number]) - bool(made[number]) - done[number]
            if left > 0 and number not in dropped and random.random() < 0.5:
                tokens = min(random.randint(1, left), 64 - sum(chunk.tokens for chunk in chunks) - len(prompts))
                if tokens > 0:
                    chunks.append(Chunk(number, tokens, done[number], "gpu"))
        begun = {chunk.id for chunk in chunks}
        ready = [
            n for n in running
            if n not in begun and made[n] and done[n] == len(prompts[n]) + len(made[n]) - 1
        ]  # fmt: skip
        yield SchedulingDecision("gpu-only", tuple(chunks), tuple(ready), (), (), (), (), dropped)
        for chunk in chunks:
            done[chunk.id] += chunk.tokens
        for number in ready:
            done[number] += 1


def serve(engine: ServingEngine, seed: int) -> tuple[list[list[int]], dict[int, list[int]]]:
    random = Random(seed)
    prompts = [[random.randrange(512) for _ in range(random.choice([1, 5, 16, 23]))] for _ in range(5)]
    for number, prompt in enumerate(prompts):
        engine.add(number, RequestOptions(prompt, OUTPUT))
    made: dict[int, list[int]] = {number: [] for number in range(len(prompts))}
    for decision in decisions(random, prompts, made):
        for number, token in engine.step(decision).tokens.items():
            made[number].append(token)
        engine.check_integrity()
    return prompts, made


@pytest.mark.parametrize("kind", ["loopback", "cuda"])
def test_requests_get_what_they_get_alone(stored: tuple[Path, Model], kind: str) -> None:
    """On native devices, and on one that PyTorch drives; preempted ones compute their tokens again."""
    directory, model = stored
    machine = Machine.this() if kind == "loopback" else replace(two_cpus(), accelerators={"cuda": ("cpu",)})
    with ServingEngine.load(plan_of(model, kind), directory, machine, LIMITS) as engine:
        prompts, made = serve(engine, 3)
    with Engine.load(plan_of(model), directory, Machine.this(), prompt_tokens=32) as alone:
        for number, prompt in enumerate(prompts):
            expected = alone.generate(np.array([prompt], np.int32), OUTPUT, ignore_eos=True).tokens[0]
            assert made[number][:OUTPUT] == list(expected), number


def test_a_host_beside_the_accelerator_is_refused(stored: tuple[Path, Model]) -> None:
    directory, model = stored
    with pytest.raises(UsageError, match="serve with the policy gpu-only"):
        ServingEngine.load(plan_of(model), directory, Machine.this(), replace(LIMITS, cpu_tokens=256))
