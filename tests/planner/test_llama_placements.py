"""Where llama.cpp puts experts, hybrids and latent attention: by its flags, by patterns, and by itself."""

import re
from typing import Any

import pytest
from daily import one_in

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.library import plan
from helmsman.lowering.lower import lower
from helmsman.lowering.tensors import tensors
from helmsman.planner.cost.curves import interpolate
from helmsman.planner.cost.device_rates import efficiency_curve
from helmsman.planner.machine import roles
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.engines.heads_apart import with_heads_apart
from helmsman.planner.strategies.engines.overrides import overrides_of
from helmsman.planner.strategies.engines.slots import slot_counts
from helmsman.planner.words.engine_command import engine_command
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.units import format_bytes

ONE = "a4000-7950x"
TWO = {"gpu": "2x RTX 4080", "cpu": "AMD EPYC 9355", "ram": 384 * 2**30}


def planned(
    model: str = "Qwen3-30B-A3B", hardware: Any = ONE, prompt: int = 64, kept: str = "q4_0", **options: Any
) -> Plan:
    """Return llama.cpp's plan."""
    question = {"model": model, "hardware": hardware, "format": kept, "prompt_tokens": prompt, "output_tokens": 8}
    return plan({**question, "strategy": "llama-cpp", "options": options}).plan


def in_memory(made: Plan, memory: str) -> int:
    return next(use.weights for use in made.predicted.memory if use.memory == memory)


def expert_bytes(model: str, layers: int) -> int:
    """Return bytes of the experts of the first layers, in q4_0."""
    return sum(t.size("q4_0") for t in tensors(load_model(model)) if t.stacked and (t.layer or 0) < layers)


def computes(made: Plan, phase: str, kind: str = "experts") -> dict[int, set[str]]:
    """Return the devices of operations of a kind by layer."""
    iteration = prefill(made.workload) if phase == "prefill" else mean_step(made.workload)
    places: dict[int, set[str]] = {}
    for task in lower(made, iteration).tasks:
        if task.kind == kind and task.layer is not None:
            places.setdefault(task.layer, set()).add(task.resource)
    return places


@pytest.mark.parametrize(
    ("model", "count", "layers"),
    one_in(
        2, [("Qwen3-30B-A3B", 20, 20), ("gpt-oss-20b", 5, 5), ("Qwen3.5-35B-A3B", 30, 30), ("DeepSeek-V2-Lite", 16, 16)]
    ),
)
def test_experts_of_the_first_layers_stay_with_the_processors(model: str, count: int, layers: int) -> None:
    """Layers count whether or not they have experts: the first of DeepSeek-V2 has none."""
    made, whole = planned(model, n_cpu_moe=count), planned(model, cpu_moe=True)
    moved = expert_bytes(model, count)
    assert moved < in_memory(made, "dram") <= moved + 2**30
    with_experts = len({t.layer for t in tensors(load_model(model)) if t.stacked and (t.layer or 0) < layers})
    on_cpu = [layer for layer, devices in computes(made, "decode").items() if devices == {"cpu"}]
    assert len(on_cpu) == with_experts and all(layer < layers for layer in on_cpu)
    assert in_memory(whole, "dram") - in_memory(made, "dram") == expert_bytes(model, 10**4) - moved
    start = f"llama-server -ngl {load_model(model).layers + 1}"
    assert (engine_command(made) or "").startswith(f"{start} --n-cpu-moe {count} -c 72 ")
    assert (engine_command(whole) or "").startswith(f"{start} --cpu-moe -c 72 ")


def test_a_pattern_for_all_experts_is_the_flag() -> None:
    for model in ("gpt-oss-20b", "gemma-4-26B-A4B"):
        by_name, by_flag = planned(model, override_tensor="exps=CPU"), planned(model, cpu_moe=True)
        assert abs(in_memory(by_name, "dram") - in_memory(by_flag, "dram")) < 2**20, model
        assert by_name.predicted.decode.seconds.mid == pytest.approx(by_flag.predicted.decode.seconds.mid, rel=0.01)


def test_prompts_compute_experts_on_the_accelerator_and_bring_what_tokens_choose() -> None:
    """From 32 tokens on, unless that is switched off; of 128 experts, 40 tokens of 8 choose fewer than all."""
    for prompt, options, device in ((40, {}, "cuda"), (31, {}, "cpu"), (40, {"no_op_offload": True}, "cpu")):
        made = planned(prompt=prompt, cpu_moe=True, **options)
        assert computes(made, "prefill")[3] == {device}
        brought = sum(
            task.bytes
            for task in lower(made, prefill(made.workload)).tasks
            if task.kind == "transfer" and task.payload == "weights"
        )
        whole = expert_bytes("Qwen3-30B-A3B", 48)
        assert (0.85 * whole < brought < 0.97 * whole) if device == "cuda" else brought == 0, format_bytes(brought)


def test_patterns_name_tensors_of_every_kind_of_block() -> None:
    moved = r"ssm_out=CPU,blk\.3\.attn_q=CPU,shexp=CPU"
    made = planned("Qwen3.5-35B-A3B", override_tensor=moved, cpu_moe=True)
    tasks = [task for task in lower(made, mean_step(made.workload)).tasks if task.kind != "transfer"]
    places = {(task.layer, task.op): task.resource for task in tasks}
    assert places[0, "delta_out"] == places[38, "delta_out"] == "cpu" and places[0, "delta_in"] == "cuda"
    assert places[3, "q"] == "cpu" and places[7, "q"] == "cuda"
    assert places[0, "shared_up"] == places[3, "shared_up"] == "cpu" and places[3, "router"] == "cuda"


def test_older_names_of_a_file_are_known_where_nothing_else_has_them() -> None:
    model = load_model("DeepSeek-V2-Lite")
    rule = overrides_of("attn_kv_b=CPU", model, roles(load_hardware(ONE, None)))[0]
    assert {name for name, _ in rule.tensors} == {"k_b.weight", "v_b.weight"}
    model = load_model("Qwen3-30B-A3B")
    rule = overrides_of(r"ffn_(gate|gate_up|down)_exps=CPU", model, roles(load_hardware(ONE, None)))[0]
    assert {name for name, _ in rule.tensors} == {"experts_gate.weight", "experts_down.weight"}


@pytest.mark.parametrize(
    ("model", "options", "field", "words"),
    [
        ("Qwen3-30B-A3B", {"n_cpu_moe": 49}, "n_cpu_moe", "0 to 48"),
        ("Qwen3-30B-A3B", {"n_cpu_moe": -1}, "n_cpu_moe", "0 to 48"),
        ("Qwen3-8B", {"cpu_moe": True}, "cpu_moe", "no routed experts"),
        ("Qwen3-30B-A3B", {"cpu_moe": True, "n_cpu_moe": 3}, "cpu_moe", "all layers"),
        ("Qwen3-30B-A3B", {"override_tensor": "ffn_up_shexp=CPU"}, "override_tensor", "no tensor"),
        ("Qwen3-30B-A3B", {"override_tensor": "exps=CUDA1"}, "override_tensor", "no memory"),
        ("Qwen3-30B-A3B", {"override_tensor": "exps"}, "override_tensor", "not a rule"),
        ("Kimi-Linear-48B-A3B-Instruct", {"override_tensor": "attn_q=CPU"}, "override_tensor", "one tensor"),
        ("Qwen3-30B-A3B", {"tensor_split": "3,1"}, "tensor_split", "has 1"),
        ("Qwen3-30B-A3B", {"tensor_split": "x"}, "tensor_split", "not a share"),
        ("Qwen3-30B-A3B", {"tensor_split": "0"}, "tensor_split", "nobody"),
        ("Qwen3-30B-A3B", {"tensor_split": "1", "split_mode": "none"}, "tensor_split", "among"),
        ("Qwen3-30B-A3B", {"split_mode": "row"}, "split_mode", "none, layer"),
        ("Qwen3-30B-A3B", {"fit": True, "ngl": 3}, "ngl", "`fit`"),
        ("Qwen3-30B-A3B", {"fit": True, "cpu_moe": True}, "cpu_moe", "`fit`"),
        ("Qwen3-30B-A3B", {"fit_target": 3}, "fit_target", "`fit`"),
        ("Qwen3-30B-A3B", {"fit": True, "fit_target": -3}, "fit_target", "not a size"),
    ],
)
def test_flags_that_say_nothing_are_refused(model: str, options: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(model, **options)
    assert caught.value.field == field and words in str(caught.value), str(caught.value)


@pytest.mark.parametrize("hardware", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("model", ["Qwen3-30B-A3B", "Qwen3.5-35B-A3B", "Qwen3-32B"])
def test_what_llama_cpp_places_itself_is_what_its_flags_say(model: str, hardware: Any) -> None:
    made = planned(model, hardware, fit=True)
    flags = str(made.strategy.options["flags"])
    ngl, split, moved = (
        re.search(pattern, flags) for pattern in (r"-ngl (\d+)", r"-ts ([\d,]+)", r"-ot '(.+)'")
    )  # fmt: skip
    options: dict[str, Any] = {"ngl": int(ngl[1])} if ngl else {}
    options |= {"tensor_split": split[1]} if split else {}
    options |= {"override_tensor": moved[1]} if moved else {}
    again = planned(model, hardware, **options)
    assert (again.residence, again.compute, again.kv) == (made.residence, made.compute, made.kv)
    assert ngl is not None and ngl[0] in (engine_command(made) or "")


def test_the_first_layers_get_their_experts_and_little_stays_free() -> None:
    """Experts of the last layers stay in RAM; one layer more would leave less free than the margin."""
    made = planned(fit=True)
    on_cpu = {layer for layer, devices in computes(made, "decode").items() if devices & {"cpu"}}
    assert on_cpu == set(range(min(on_cpu), 48)) and 0 < len(on_cpu) < 48
    use = next(use for use in made.predicted.memory if use.memory == "vram")
    layer = expert_bytes("Qwen3-30B-A3B", 1)
    assert 2**30 <= use.available - use.used < 2**30 + layer
    roomier = planned(fit=True, fit_target=0)
    assert in_memory(roomier, "vram") > in_memory(made, "vram")
    assert roomier.predicted.decode.seconds.mid < made.predicted.decode.seconds.mid


def test_a_model_without_experts_is_fitted_by_whole_layers_from_the_last() -> None:
    made = planned("Qwen3-32B", fit=True)
    slots = int(made.label.split()[3])
    assert 0 < slots < 65 and "-ot" not in made.label
    assert planned("Qwen3-32B", ngl=slots).residence == made.residence


@pytest.mark.parametrize(
    ("model", "label"), [("Mixtral-8x7B-v0.1", "-ngl 33"), ("Kimi-Linear-48B-A3B-Instruct", "-ngl 28 -ot 1")]
)
def test_what_the_host_of_a_chip_computes_takes_nothing_of_its_gpu(model: str, label: str) -> None:
    """They share a memory: no number of layers fitted where all of them left less free than the margin."""
    made = planned(model, {"gpu": "Apple M3 Pro 18-core", "ram": 36 * 10**9}, kept="iq4_xs", fit=True)
    assert made.label == f"llama-cpp --fit {label}"
    alone = planned(model, made.hardware, kept="iq4_xs", ngl=0)
    assert made.predicted.decode.seconds.mid < alone.predicted.decode.seconds.mid / 2


def test_layers_are_divided_by_shares_and_experts_stay_in_ram() -> None:
    made = planned("Qwen3-235B-A22B", TWO, split_mode="layer", cpu_moe=True)
    assert made.label == "llama-cpp -ngl 95 -sm layer -ts 48,47 --cpu-moe"
    homes = {rule.memory for rule in made.kv}
    assert homes == {"vram", "vram1"} and in_memory(made, "vram") > 0 < in_memory(made, "vram1")
    assert all(devices == {"cpu"} for devices in computes(made, "decode").values())
    attention = computes(made, "decode", "attention")
    assert attention[0] == attention[47] == {"cuda"} and attention[48] == attention[93] == {"cuda1"}


def test_shares_of_slots_add_up() -> None:
    """llama.cpp's rule: slot i of n goes to the first accelerator whose shares, added up, exceed i / n."""
    assert slot_counts(49, (3.0, 1.0)) == (37, 12)
    assert slot_counts(0, (3.0, 1.0)) == (0, 0)
    assert slot_counts(5, (0.0, 1.0)) == (0, 5)
    assert slot_counts(87, (7.0, 80.0)) == (7, 80)
    for slots in range(1, 60):
        assert sum(slot_counts(slots, (0.3, 0.6, 0.1))) == slots


def test_processors_attend_head_by_head_where_keys_outgrow_a_cores_cache() -> None:
    """Eight heads of Qwen3-30B-A3B share keys: of a long context the cache is read eight times, of a short one once."""
    model = load_model("Qwen3-30B-A3B")
    machine = load_hardware(ONE, None)
    assert with_heads_apart(machine, model, 2048) is machine
    apart = with_heads_apart(machine, model, 32768)
    whole, shares = 2 * 32768 * 1024, {}
    for name, hardware in (("once", machine), ("apart", apart)):
        curve = efficiency_curve(hardware.device("cpu"), "memory", "attention", "f16")
        assert curve is not None
        shares[name] = [interpolate(curve, size).value for size in (2**20, whole)]
    assert shares["once"][0] == shares["apart"][0] and shares["once"][1] == pytest.approx(8 * shares["apart"][1])


def test_what_fits_is_found_by_the_formats_that_tensors_have() -> None:
    """Experts of some layers of q4_k_m take more bytes: as many fit as with them, not as with most layers' bytes."""
    mixed = planned(kept="q4_k_m", fit=True)
    use = next(use for use in mixed.predicted.memory if use.memory == "vram")
    largest = max(t.size("q6_k") for t in tensors(mixed.model) if t.stacked)
    assert {"q4_k", "q6_k"} == {rule.format for rule in mixed.residence}
    assert 2**30 <= use.available - use.used < 2**30 + 3 * largest


def test_what_does_not_fit_says_of_how_many_layers_experts_would_have_to_stay() -> None:
    with pytest.raises(InfeasibleError, match="`n_cpu_moe` ") as caught:
        planned("Qwen3-30B-A3B", ngl=49)
    count = int(caught.value.remedy.rpartition("`n_cpu_moe` ")[2])
    assert planned(ngl=49, n_cpu_moe=count).label == f"llama-cpp -ngl 49 --n-cpu-moe {count}"
    with pytest.raises(InfeasibleError):
        planned(ngl=49, n_cpu_moe=count - 1)
