"""A plan as a strip of letters and bars."""

import re

import pytest

import helmsman
from helmsman.planner.words.explain import explain
from helmsman.planner.words.plan_picture import _letters, picture
from helmsman.schemas.plan import Plan

LENGTHS = {"prompt_tokens": 64, "output_tokens": 16}


def planned(model: str, machine: str, **question: object) -> helmsman.Decision:
    return helmsman.plan({"model": model, "hardware": machine, "strategy": "layer-split", **LENGTHS, **question})


def strip(plan: Plan) -> str:
    return next(iter(picture(plan))).split()[-1]


def test_a_letter_for_every_block_says_where_it_computes() -> None:
    plan = planned("Qwen3-8B", "rtx4060-laptop").plan
    first, second = map(int, re.findall(r"\d+", plan.label))  # of which the embedding and the head are one each
    assert strip(plan) == "C" * (first - 1) + "G" * (second - 1)
    assert f"C {first - 1} on the CPU, G {second - 1} on the GPU" in "\n".join(picture(plan))


@pytest.mark.parametrize(
    ("strategy", "machine", "letters"),
    [
        ("accelerate", "rtx4060-laptop", "G~"),
        ("weights-on-host", "rtx3090-5950x", "~"),
        ("cpu-only", "rtx3090-5950x", "C"),
        ("llama-cpp", "rtx4060-laptop", "CG"),
    ],
)
def test_streamed_blocks_and_those_of_one_device_differ(strategy: str, machine: str, letters: str) -> None:
    assert set(strip(planned("Qwen3-8B", machine, strategy=strategy).plan)) == set(letters)


def test_shared_blocks_are_named_after_the_devices() -> None:
    plan = planned("Qwen3-8B", "rtx4060-laptop", strategy="optimal", prompt_tokens=16, output_tokens=4).plan
    assert "x" in strip(plan) and "shared by CPU and GPU" in "\n".join(picture(plan))


def test_several_gpus_are_numbered() -> None:
    plan = planned("Llama-3.1-70B", "h100x2-hgx", strategy="optimal", output_tokens=4).plan
    text = "\n".join(picture(plan))
    assert set("".join(text.splitlines()[0].split()[1:])) == {"0", "1"}
    assert "on the GPU cuda1" in text


def test_as_many_gpus_as_a_machine_may_have_differ_in_one_letter() -> None:
    machine = helmsman.load_hardware("h100x2-hgx")
    cpu, gpu, _ = machine.devices
    many = (cpu, *(gpu.model_copy(update={"name": f"cuda{number}"}) for number in range(63)))
    letters = _letters(machine.model_copy(update={"devices": many}))
    assert len(set(letters.values()) - {"x", "~"}) == len(many)
    assert {len(letter) for letter in letters.values()} == {1} and letters[cpu.name] == "C"


def test_bars_are_of_what_is_available_and_told_apart() -> None:
    plan = planned("Qwen3-8B", "rtx4060-laptop", batch=8, context=2048).plan
    bars = [line for line in picture(plan) if "[" in line]
    for use, bar in zip([use for use in plan.predicted.memory if use.used], bars, strict=True):
        drawn = re.search(r"\[(.*)\]", bar)[1]
        assert drawn.count("#") / len(drawn) == pytest.approx(use.weights / use.available, abs=1 / len(drawn))
        assert drawn.count("=") / len(drawn) == pytest.approx(use.kv / use.available, abs=1 / len(drawn))
        assert f" of {use.available / 1e9:.3g} GB: weights {use.weights / 1e9:.2g}" in bar


@pytest.mark.parametrize(
    ("model", "machine"),
    [("Qwen3-8B", "rtx4060-laptop"), ("Llama-3.1-405B", "epyc9554-cpu"), ("Llama-3.1-70B", "h100x2-hgx")],
)
def test_lines_are_ascii_and_within_a_hundred_columns(model: str, machine: str) -> None:
    text = explain(planned(model, machine, format="q4_k"))
    assert text.isascii() and max(map(len, text.splitlines())) <= 100


def test_paint_changes_nothing_but_colours() -> None:
    plan = planned("Qwen3-8B", "rtx4060-laptop").plan
    painted = "\n".join(picture(plan, lambda what, text: f"<{what}>{text}</>"))
    assert re.sub(r"<[^>]*>", "", painted) == "\n".join(picture(plan))
    assert {"gpu", "cpu", "weights", "kv", "buffers"} <= set(re.findall(r"<(\w+)>", painted))
