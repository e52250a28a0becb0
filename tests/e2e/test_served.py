"""A plan served for real over HTTP: what many requests at once get is what each gets alone, under several policies,
and what of them has been computed before is not computed again."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession
from http_service import OPTIONS
from on_torch import on_torch
from plans import make_hardware, make_plan
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.cli.serve import build_parser
from helmsman.cli.serving_setup import setting_of
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.schemas.plan import LayerRange, Plan, Residence, Schedule, Select
from helmsman.schemas.workload import Workload
from helmsman.service.http.listening import address, listen
from helmsman.service.inference.generation import Generator
from helmsman.service.inference.jobs import ServedModel
from helmsman.service.inference.open_generator import open_generator
from helmsman.service.inference.server import serving

MODEL = small_model("qwen3")
PLAN = make_plan(
    MODEL, 0, workload=Workload(prompt_tokens=8, output_tokens=8, context=96), hardware=make_hardware(vram=64 << 20)
)
PROMPTS = [[7 * row + place % 5 + 16 for place in range(5 + 4 * row)] for row in range(8)]

pytestmark = TWO_CPUS


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(MODEL, folder, seed=1)
    return folder


async def answers(generator: Generator) -> tuple[list[list[int]], list[list[int]], str]:
    """(tokens of requests one by one, of all at once, metrics)."""
    listener = listen("127.0.0.1", 0)
    url = address(listener)
    async with (
        serving(listener, generator, ServedModel(MODEL.name, MODEL.vocab), OPTIONS) as service,
        ClientSession() as client,
    ):

        async def ask(prompt: list[int]) -> list[int]:
            body = {"prompt": prompt, "max_tokens": 10, "temperature": 0, "return_token_ids": True}
            async with client.post(url + "/v1/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                found: list[int] = (await answer.json())["choices"][0]["token_ids"]
                return found

        alone = [await ask(prompt) for prompt in PROMPTS]
        together = await asyncio.gather(*map(ask, PROMPTS))
        assert service.health.state == "ok"
        async with client.get(url + "/metrics") as answer:
            return alone, list(together), await answer.text()


def test_weights_come_in_every_pass(checkpoint: Path) -> None:
    """Two of three blocks live in host memory, a stage ahead of which they come."""
    away = Residence(select=Select(layers=LayerRange(start=0, stop=2)), memory="dram", format="f32")
    schedule = Schedule(overlap="next-layer", prefetch=1)
    check(PLAN.model_copy(update={"residence": (away, *PLAN.residence), "schedule": schedule}), "neo", checkpoint)


@pytest.mark.parametrize("policy", ["gpu-only", "neo", "apex"])
def test_together_as_alone(policy: str, checkpoint: Path) -> None:
    check(PLAN, policy, checkpoint)


def test_a_pytorch_device_serves(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan says which device it is; processors stand for the GPU."""
    monkeypatch.setattr("helmsman.executor.system.machine._accelerators", lambda: {"cuda": ("cpu",)})
    check(on_torch(PLAN), "neo", checkpoint)


def check(plan: Plan, policy: str, checkpoint: Path) -> None:
    args = build_parser().parse_args(
        ["plan", "--checkpoint", str(checkpoint), "--policy", policy, "--batch-tokens", "128", "--cpu-tokens", "4096"]
    )
    generator = open_generator(plan, checkpoint, setting_of(args), prefix_cache=args.prefix_cache)
    try:
        alone, together, metrics = asyncio.run(answers(generator))
    finally:
        generator.close()
    assert together == alone and all(len(tokens) == 10 for tokens in alone)
    labels = f'{{engine="0",model_name="{MODEL.name}"}}'
    cached = sum((len(prompt) - 1) // 16 * 16 for prompt in PROMPTS)
    assert f"vllm:generation_tokens_total{labels} 160.0" in metrics
    assert f"vllm:prefix_cache_queries_total{labels} {2.0 * sum(map(len, PROMPTS))}" in metrics
    assert f"vllm:prefix_cache_hits_total{labels} {float(cached)}" in metrics, "when they come again"
