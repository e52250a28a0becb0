"""Where routed experts are, in lines below a plan's strip."""

import helmsman
from helmsman.lowering.placement import known
from helmsman.planner.words.block_places import block_places
from helmsman.planner.words.expert_places import ExpertPlace
from helmsman.planner.words.plan_picture import picture
from helmsman.schemas.plan import Plan

QUESTION = {"model": "Qwen3-30B-A3B", "hardware": "rtx4060-laptop", "format": "q4_k", "output_tokens": 16}


def planned(strategy: str) -> Plan:
    return helmsman.plan({**QUESTION, "strategy": strategy}).plan


def divided(plan: Plan) -> tuple[int, int]:
    """Return a plan's experts of a layer on its accelerator and on the host, by its rules."""
    [part] = {rule.select.part.start for rule in plan.residence if rule.select.part is not None}
    return part, 128 - part


def test_divided_experts_are_counted_by_place() -> None:
    plan = planned("ktransformers")
    kept, away = divided(plan)
    gpu = next(device.name for device in plan.hardware.devices if device.kind == "cuda")
    cpu = next(device.name for device in plan.hardware.devices if device.kind == "cpu")
    place = block_places(known(plan), "decode")[-1]
    assert place.experts == (ExpertPlace(kept, gpu, False), ExpertPlace(away, cpu, False)) and place.beside == (gpu,)
    text = "\n".join(picture(plan))
    assert f"of blocks 1-48 {kept} on the GPU, {away} on the CPU" in text and "e 48 with experts elsewhere" in text


def test_experts_that_come_to_prompts_have_a_line_of_their_own() -> None:
    question = {**QUESTION, "hardware": "rtx4080-14700k", "strategy": "llama-cpp", "options": {"n_cpu_moe": 48}}
    plan = helmsman.plan(question).plan
    gpu = next(device.name for device in plan.hardware.devices if device.kind == "cuda")
    assert block_places(known(plan), "prefill")[-1].experts == (ExpertPlace(128, gpu, True),)
    text = "\n".join(picture(plan))
    assert "of blocks 1-48 128 on the CPU" in text and "in prompts of blocks 1-48 128 streamed to the GPU" in text


def test_experts_with_their_blocks_need_no_line() -> None:
    plan = planned("layer-split")
    assert {len(place.experts) for place in block_places(known(plan), "decode")} == {1}
    assert not any(line.startswith("experts") for line in picture(plan))


def test_dense_blocks_have_no_experts() -> None:
    plan = helmsman.plan({**QUESTION, "model": "Qwen3-8B", "strategy": "layer-split"}).plan
    assert all(place.experts == place.beside == () for place in block_places(known(plan), "decode"))
