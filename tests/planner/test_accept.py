"""A plan that breaks an invariant is refused with the rule, the place and the numbers."""

from pathlib import Path

import pytest
from random_cases import random_split

from helmsman.lowering.rules import homes
from helmsman.lowering.tensors import tensors
from helmsman.planner.checks.accept import accept
from helmsman.planner.search import exhaustive
from helmsman.planner.strategies.layer_search import build_plan
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, InfeasibleError
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Plan, Residence, Select
from helmsman.schemas.read import digest, parse_document


@pytest.fixture(scope="module")
def plan():
    """A split plan with at least one block on each side."""
    for seed in range(300):
        split = random_split(seed)
        ranking = exhaustive(split.candidates(), split.evaluate)
        inner = [k for k, _ in ranking.feasible if 2 <= k <= split.model.layers]
        if inner:
            return build_plan(split, inner[0], {})
    raise AssertionError("no split plan among the seeds")


def refused(plan, **changes):
    with pytest.raises(BadInputError) as caught:
        accept(plan.model_copy(update=changes))
    return caught.value


def with_hardware(plan, hardware):
    return plan.model_copy(update={"hardware": hardware, "hardware_sha256": digest(hardware)})


def test_a_good_plan_is_accepted(plan):
    assert accept(plan) is plan


def test_edited_documents_are_noticed(plan):
    edited = reshaped(plan.model, ffn=plan.model.dense.ffn + 1)
    assert refused(plan, model=edited).field == "model_sha256"


def test_plans_are_accepted_after_documents_got_new_fields():
    """Written when hardware had no operation tables and workloads no batches: its digests were of less."""
    content = (Path(__file__).parents[1] / "cases" / "plan_before_operation_tables.json").read_bytes()
    found = parse_document(Plan, content, "old")
    assert digest(found.hardware) != found.hardware_sha256
    assert accept(found) is found
    for change in (b'"capacity":', b'"cores":'):
        at = content.index(change) + len(change)
        edited = parse_document(Plan, content[:at] + b"1" + content[at:], "edited")
        with pytest.raises(BadInputError, match="does not match the embedded hardware"):
            accept(edited)


@pytest.mark.parametrize("name", ["residence", "kv", "compute"])
def test_everything_must_be_covered(plan, name):
    rules = getattr(plan, name)[:-1]
    assert "no rule covers" in str(refused(plan, **{name: rules}))


def test_unknown_memory_device_and_layer_are_named(plan):
    everything = Select()
    moon = Residence(select=everything, memory="moon", format="f16")
    assert refused(plan, residence=(moon,)).value == "moon"
    assert refused(plan, kv=(KvRule(select=everything, memory="moon", format="f16"),)).value == "moon"
    assert refused(plan, compute=(ComputeRule(select=everything, device="tpu"),)).value == "tpu"
    for bad in (LayerRange(start=3, stop=3), LayerRange(start=0, stop=plan.model.layers + 1)):
        rule = plan.residence[0].model_copy(update={"select": Select(layers=bad)})
        assert refused(plan, residence=(rule, *plan.residence)).field == "residence.0.select.layers"


def test_a_missing_link_is_named(plan):
    unlinked = plan.hardware.model_copy(update={"links": ()})
    with pytest.raises(BadInputError, match="no link from memory dram to memory vram"):
        accept(with_hardware(plan, unlinked))


def test_devices_made_of_the_same_cores_exclude_each_other(plan):
    cpu, *others = plan.hardware.devices
    devices = (cpu.model_copy(update={"excludes": ("cuda",)}), *others)
    with pytest.raises(BadInputError, match="made of the same cores"):
        accept(with_hardware(plan, plan.hardware.model_copy(update={"devices": devices})))


def test_a_plan_that_does_not_fit_says_by_how_much(plan):
    small = tuple(
        m.model_copy(update={"available": 1000, "capacity": 1000}) if m.name == "vram" else m
        for m in plan.hardware.memories
    )
    with pytest.raises(InfeasibleError, match="on the GPU, where there are 1.00 kB") as caught:
        accept(with_hardware(plan, plan.hardware.model_copy(update={"memories": small})))
    assert caught.value.exit_code == 3


def test_a_context_beyond_an_attention_window_is_accepted_and_one_beyond_the_positions_is_not(plan):
    def changed(**shape):
        model = reshaped(plan.model, **shape)
        return plan.model_copy(update={"model": model, "model_sha256": digest(model)})

    short = plan.workload.context - 1
    assert accept(changed(sliding_window=short)).model.dense.sliding_window == short
    with pytest.raises(BadInputError, match=f"workload.context: exceeds the model's {short} positions"):
        accept(changed(max_context=short))


def test_streamed_weights_need_room_where_they_are_used(plan):
    """All weights at home, all work on the accelerator: its memory must hold what streams in."""
    from helmsman.planner.memory.usage import memory_use

    streamed = plan.model_copy(
        update={
            "residence": (Residence(select=Select(), memory="dram", format="f16"),),
            "kv": (KvRule(select=Select(), memory="vram", format="f16"),),
            "compute": (ComputeRule(select=Select(), device="cuda"),),
        }
    )
    use = {u.memory: u for u in memory_use(streamed)}["vram"]
    assert use.weights == 0
    assert use.buffers >= 2 * plan.model.vocab * plan.model.hidden


def test_each_tensor_is_read_in_its_own_format(plan):
    from helmsman.lowering.lower import lower
    from helmsman.scheduler.iteration import decode

    wide = Residence(select=Select(names="down.*"), memory="dram", format="f32")
    mixed = plan.model_copy(update={"residence": (wide, *plan.residence)})
    for task in lower(mixed, decode(plan.workload, 1)).tasks:
        if task.op == "down" and task.kind == "linear" and task.layer == 0:
            elements = plan.model.hidden * plan.model.dense.ffn + plan.model.dense.ffn_bias * plan.model.hidden
            assert (task.format, task.bytes) == ("f32", 4 * elements)


def edited(rule, **select):
    return rule.model_copy(update={"select": Select(**select)})


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("residence", "nothing_like_this"),
        ("residence", "q"),
        ("kv", "keyz"),
        ("kv", "q.weight"),
        ("compute", "attentoin"),
        ("compute", "up.weight"),
    ],
)
def test_a_rule_that_names_nothing_is_refused(plan, where, names):
    rules = getattr(plan, where)
    error = refused(plan, **{where: (edited(rules[0], names=names), *rules)})
    assert (error.field, error.value, error.exit_code) == (f"{where}.0.select.names", names, 5)
    assert "name one of" in error.remedy


def test_a_range_of_blocks_has_no_embedding(plan):
    blocks = LayerRange(start=0, stop=1)
    rule = edited(plan.compute[0], names="embedding", layers=blocks)
    assert "in a block" in str(refused(plan, compute=(rule, *plan.compute)))


@pytest.mark.parametrize("names", ["positions*", "*.bias", "gate.weight", "q_norm*", "*"])
def test_rules_for_what_only_some_models_have_pass(plan, names):
    rule = edited(plan.residence[-1], names=names)
    changed = plan.model_copy(update={"residence": (*plan.residence, rule)})
    assert accept(changed) is changed


@pytest.mark.parametrize("path", ["direct", "bounce"])
def test_only_storage_has_paths_from_storage(plan, path):
    for where in ("residence", "kv"):
        rules = getattr(plan, where)
        wrong = rules[-1].model_copy(update={"memory": "dram", "path": path})
        error = refused(plan, **{where: (*rules, wrong)})
        assert (error.field, error.value) == (f"{where}.{len(rules)}.path", path)
        assert "dram is of kind dram" in str(error)


def test_replicas_are_other_copies(plan):
    for replicas in (("dram",), ("vram", "vram")):
        wrong = plan.residence[0].model_copy(update={"memory": "dram", "replicas": replicas})
        error = refused(plan, residence=(wrong, *plan.residence))
        assert (error.field, error.value) == ("residence.0.replicas", replicas[-1])


def test_vectors_are_never_quantised(plan):
    """A rule for everything keeps norms, biases and positions in f32."""
    everything = Residence(select=Select(), memory="dram", format="q4")
    kept = accept(plan.model_copy(update={"residence": (everything,)}))
    formats = {tensor.name: piece.rule.format for tensor in tensors(kept.model) for piece in homes(kept, tensor)}
    assert {name for name, fmt in formats.items() if fmt == "f32"} == {
        name for name in formats if "norm" in name or name.endswith(".bias") or name.startswith("positions")
    }
    assert formats["q.weight"] == formats["embedding.weight"] == formats["head.weight"] == "q4"


def test_overlap_needs_room_ahead(plan):
    schedule = plan.schedule.model_copy(update={"overlap": "next-layer", "prefetch": 0})
    error = refused(plan, schedule=schedule)
    assert (error.field, error.value) == ("schedule.prefetch", 0)


@pytest.mark.parametrize("name", ["norm1*", "final_norm.weight", "*norm*"])
def test_vectors_of_norms_are_not_divided(plan, name):
    """helm-run ended with an internal error: nothing moves for the device that has none of a norm."""
    part = Select(names=name, part=Part(axis="rows", start=0, stop=16))
    error = refused(plan, residence=(plan.residence[-1].model_copy(update={"select": part}), *plan.residence))
    assert error.field == "residence.0.select.part" and "norm" in error.message


def test_one_device_makes_all_logits(plan):
    part = ComputeRule(select=Select(names="head", part=Part(axis="rows", start=0, stop=16)), device="cpu")
    others = [rule.model_copy(update={"device": "cuda"}) for rule in plan.compute]
    assert refused(plan, compute=(part, *others)).field == "compute.0.select.part"
