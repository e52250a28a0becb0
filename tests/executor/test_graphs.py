"""Captured graphs: costs against lowering, stages against the whole, runs against transformers, and what is refused."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import load_oracle, margins, mean_kl, oracle_logits
from daily import one_in
from graph_configs import GRAPH_CONFIGS
from paged import make_paged_plan
from plans import make_hardware, make_plan
from quick_probes import quick_probes
from transformers import AutoConfig, AutoModelForCausalLM
from two_cpus import TWO_CPUS

from helmsman.cli.run import main
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.graph import loading
from helmsman.executor.graph.annotate import annotate
from helmsman.executor.graph.build import build
from helmsman.executor.graph.capture import CapturedGraph, Shape, capture
from helmsman.executor.graph.decoder import build_decoder
from helmsman.executor.graph.ir import HelmGraph, Node, mistakes
from helmsman.executor.graph.names import operations_of
from helmsman.executor.graph.operations import costs
from helmsman.executor.graph.partition import cut
from helmsman.executor.measuring.measure import spans_of
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import operations
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, Plan, Select
from helmsman.schemas.read import digest
from helmsman.schemas.trace import read_trace
from helmsman.schemas.workload import Workload

FAMILIES = [
    "gpt_neox",
    "qwen3",
    *(pytest.param(each, marks=pytest.mark.nightly) for each in ("gpt2", "llama", "mistral", "opt", "phi3", "qwen2")),
]
BATCH, PROMPT, OUTPUT, CONTEXT = 2, 9, 40, 80
SPLIT = 2

pytestmark = TWO_CPUS

Loader = Callable[[str], "Case"]


@dataclass(frozen=True)
class Case:
    """A checkpoint, its engine on a split, the graphs it captured on the way, and transformers' own module."""

    directory: Path
    model: Model
    plan: Plan
    engine: Engine
    captured: dict[bool, CapturedGraph]
    oracle: Any
    prompts: Any
    tokens: Any

    def values(self, captured: CapturedGraph) -> dict[str, torch.Tensor]:
        """Weights and constants of a graph."""
        found = dict(self.oracle.named_parameters(remove_duplicate=False))
        return {**{name: found[name].detach() for name in captured.weights}, **captured.constants}


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def saved(family: str, place: Path) -> Path:
    """A checkpoint with random weights, as transformers writes it."""
    torch.manual_seed(7)
    module = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **GRAPH_CONFIGS[family]))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    module.save_pretrained(place)
    return place


def split_plan(model: Model, split: int | None = SPLIT, **changes: Any) -> Plan:
    changes.setdefault("workload", Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=CONTEXT, batch=BATCH))
    return make_plan(model, split, **changes)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """A `Case` of a family, made once."""
    root, made = tmp_path_factory.mktemp("graphs"), dict[str, Case]()

    def load(family: str) -> Case:
        if family not in made:
            made[family] = _load(saved(family, root / family))
        return made[family]

    yield load
    for each in made.values():
        each.engine.close()


def _load(directory: Path) -> Case:
    model = load_model(str(directory))
    plan, captured = split_plan(model), dict[bool, CapturedGraph]()

    def keep(decoder: Any, shape: Shape) -> CapturedGraph:
        captured[shape.whole] = capture(decoder, shape)
        return captured[shape.whole]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "capture", keep)
        engine = loading.load_graphs(plan, directory, Machine.this())
    oracle = load_oracle(directory)
    prompts = np.random.default_rng(0).integers(3, model.vocab, (BATCH, PROMPT)).astype(np.int32)
    tokens = oracle.generate(
        torch.from_numpy(prompts).long(), max_new_tokens=OUTPUT, do_sample=False, eos_token_id=None
    )
    return Case(directory, model, plan, engine, captured, oracle, prompts, tokens.numpy())


def capture_again(found: Case, patch: pytest.MonkeyPatch) -> None:
    """Let engines of other plans of a case run the graphs that were captured for its first one."""

    def captured(decoder: Any, shape: Shape) -> CapturedGraph:
        assert found.captured[shape.whole].shape == shape
        return found.captured[shape.whole]

    patch.setattr(loading, "capture", captured)


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["prefill", "decode"])
@pytest.mark.parametrize("family", one_in(2, FAMILIES))
def test_costs_are_those_of_lowering(case: Loader, family: str, whole: bool) -> None:
    """Every operation's FLOPs, weight bytes, cache bytes and result. A prompt's final norm of GPT-2 is the one
    exception: its module reshapes what the blocks hand on, so it cannot be left with the last position only."""
    found = case(family)
    graph = annotate(found.captured[whole])
    it = Iteration(0, "prefill" if whole else "decode", BATCH, graph.tokens, graph.context)
    expected = {(op.unit, op.name): op for op in operations(found.model, it, Formats("f32", "f32", "f32"))}
    for cost in costs(graph, operations_of(found.model)):
        ops = [expected.pop((cost.unit, name)) for name in cost.ops]
        if (family, whole, cost.ops) == ("gpt2", True, ("final_norm",)):
            continue
        for field in ("flops", "weight_bytes", "kv_read", "kv_write"):
            assert getattr(cost, field) == sum(getattr(op, field) for op in ops), (cost, field)
        assert cost.ops == ("append",) or cost.out_bytes == sum(op.out_bytes for op in ops)
    assert not expected


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_are_sound(case: Loader, family: str) -> None:
    found = case(family)
    for captured in found.captured.values():
        graph = annotate(captured)
        assert mistakes(graph) == ()
        assert {node.unit for node in graph.nodes} == set(range(found.model.units))
        weights = {node.target for node in graph.nodes if node.kind == "weight"}
        assert weights <= {name for name, _ in found.oracle.named_parameters(remove_duplicate=False)}


def test_mistakes_of_a_graph_are_found() -> None:
    def node(name: str, unit: int, *inputs: str) -> Node:
        facts = {"name": name, "kind": "other", "target": name, "module": "", "unit": unit, "shape": (1,)}
        return Node(inputs=inputs, dtype="float32", **facts)

    def told(*nodes: Node) -> str:
        return "; ".join(mistakes(HelmGraph(nodes=nodes, units=3, batch=1, tokens=1, context=1)))

    start = node("tokens", 0), node("a", 0, "tokens")
    assert told(*start, node("b", 1, "a"), node("c", 2, "b")) == ""
    assert "2 activations enter unit 2" in told(*start, node("b", 1, "a"), node("c", 2, "b", "a"))
    assert "cycle" in told(*start, node("b", 1, "a", "c"), node("c", 2, "b"))
    assert "not all joined" in told(*start, node("b", 1, "a"), node("c", 2, "b"), node("x", 2, "y"), node("y", 2, "x"))


def composed(found: Case, whole: bool, bounds: tuple[int, ...], device: str = "cpu") -> torch.Tensor:
    """The pass as stages cut at `bounds`, on random tokens and caches."""
    captured = found.captured[whole]
    tensors = {name: value.to(device) for name, value in found.values(captured).items()}
    made = torch.Generator().manual_seed(1)
    values = {"tokens": torch.from_numpy(found.prompts[:, : captured.shape.tokens]).long(), "past": torch.tensor(5)}
    names = [f"{what}_{layer}" for layer in range(found.model.layers) for what in ("keys", "values")]
    values |= {name: torch.randn(captured.shape.cache, generator=made) for name in names}
    values = {name: value.to(device) for name, value in values.items()}
    for stage in cut(captured, bounds):
        module = build(stage, tensors, torch.device(device))
        with torch.inference_mode():
            values["hidden"] = module(*(values[name] for name in stage.inputs))
        assert values["hidden"].shape == stage.output.shape
    return values["hidden"]


@pytest.mark.parametrize("whole", [True, False], ids=["prefill", "decode"])
@pytest.mark.parametrize("family", FAMILIES)
def test_stages_compose_to_the_whole_bit_for_bit(case: Loader, family: str, whole: bool) -> None:
    found = case(family)
    uncut = composed(found, whole, ())
    for bounds in ((1,), (2,), (3,), (1, 2, 3)):
        assert torch.equal(composed(found, whole, bounds), uncut)


def test_a_stage_takes_one_activation_and_its_own_caches(case: Loader) -> None:
    first, second = cut(case("qwen3").captured[False], (2,))
    assert first.inputs == ("tokens", "past", "keys_0", "values_0")
    assert second.inputs == ("hidden", "past", "keys_1", "values_1")
    assert not set(first.attributes) & {name for name in second.attributes if ".layers." in name}
    assert first.output.shape == (BATCH, 1, 48)


def test_stages_follow_their_device(case: Loader) -> None:
    """Nothing but torch.device names where a stage runs; "meta" computes shapes alone."""
    assert composed(case("qwen3"), False, (2,), "meta").shape == (BATCH, 259)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_generate(case: Loader, family: str) -> None:
    """Greedy tokens of two sequences; where the reference hardly prefers one, what follows may differ."""
    found = case(family)
    made = found.engine.generate(found.prompts, OUTPUT, ignore_eos=True)
    logits = found.engine.logits(found.tokens[:, :-1].astype(np.int32), prompt=PROMPT)
    for row, sequence in enumerate(found.tokens):
        reference = oracle_logits(found.oracle, sequence[:-1].tolist())[PROMPT - 1 :]
        assert mean_kl(reference, logits[row]) < 1e-6
        undecided = np.flatnonzero(margins(reference) < 1e-5)
        decided = undecided[0] if len(undecided) else OUTPUT
        assert decided > OUTPUT // 2
        assert list(made.tokens[row][:decided]) == sequence[PROMPT:][:decided].tolist()


def test_spans_are_the_tasks_of_lowering(case: Loader) -> None:
    """Projections that are one matrix share its span; stages and moves follow each other."""
    found = case("gpt_neox")
    made = found.engine.generate(found.prompts, 3, ignore_eos=True)
    spans = spans_of(found.plan, 0, made)
    tasks = [task for iteration in made.iterations for task in lower(found.plan, iteration).tasks]
    assert [(span.task, span.resource) for span in spans] == [(task.id, task.resource) for task in tasks]
    of = {span.task: span for span in spans}
    for task, span in zip(tasks, spans, strict=True):
        assert 0 <= span.start_s <= span.end_s
        assert all(of[tasks[dep].id].end_s <= span.end_s for dep in task.deps if tasks[dep].id in of)
    assert of["1/0.q"].end_s == of["1/0.k"].start_s and of["1/0.v"].end_s > of["1/0.k"].end_s
    assert of["1/1.hidden@h2d"].bytes == BATCH * 48 * 4
    assert of["1/1.norm1"].start_s >= of["1/1.hidden@h2d"].end_s


def test_the_link_throttles_what_crosses(case: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = case("gpt_neox")
    capture_again(found, monkeypatch)
    slow = split_plan(found.model, hardware=make_hardware(latency=5e-3))
    with loading.load_graphs(slow, found.directory, Machine.this()) as engine:
        made = engine.generate(found.prompts, 2, ignore_eos=True)
    seconds = [span.end_s - span.start_s for span in spans_of(slow, 0, made) if "@" in span.task]
    assert len(seconds) == 4 and min(seconds) >= 5e-3


def test_a_memory_that_is_too_small(case: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = case("gpt_neox")
    capture_again(found, monkeypatch)
    with pytest.raises(InfeasibleError, match=r"memory vram: out of memory: gpt_neox\."):
        loading.load_graphs(
            split_plan(found.model, hardware=make_hardware(vram=1 << 14)), found.directory, Machine.this()
        )


def refused(found: Case, plan: Plan, kind: type[HelmError], says: str, directory: Path | None = None) -> None:
    with pytest.raises(kind, match=says) as caught:
        loading.load_graphs(plan, directory or found.directory, Machine.this())
    assert caught.value.remedy


def test_plans_that_divide_units_are_refused(case: Loader) -> None:
    found = case("gpt_neox")
    plan = split_plan(found.model)
    on_host = ComputeRule(select=Select(names="down"), device="cpu")
    refused(found, plan.model_copy(update={"compute": (on_host, *plan.compute)}), UsageError, "unit 2 runs on")
    host = plan.residence[0].model_copy(update={"select": Select()})
    refused(found, plan.model_copy(update={"residence": (host,)}), UsageError, "of block 1 would have to be moved")
    mixed = tuple(rule.model_copy(update={"format": fmt}) for rule, fmt in zip(plan.kv, ("f32", "f16"), strict=True))
    refused(found, plan.model_copy(update={"kv": mixed}), UsageError, "one of the formats")


def test_windows_of_caches_are_refused(case: Loader) -> None:
    """Their prompts go through in parts that follow each other, and a captured prompt is a whole one."""
    found = case("gpt_neox")
    load = Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=CONTEXT, batch=BATCH)
    plan = make_paged_plan(found.model, SPLIT, workload=load)
    refused(found, plan, UsageError, "captured graphs run whole units .*windows of caches")


def test_gguf_files_are_refused(case: Loader, tmp_path: Path) -> None:
    found = case("gpt_neox")
    refused(found, split_plan(found.model), UsageError, "backend: GGUF files have no module", tmp_path / "a.gguf")


def test_prompts_and_steps_on_different_devices_are_refused(case: Loader) -> None:
    found = case("gpt_neox")
    plan = split_plan(found.model)
    prompts = ComputeRule(select=Select(names="embedding*"), device="loopback", phase="prefill")
    copied = plan.residence[0].model_copy(update={"replicas": ("vram",)})
    changes = {"compute": (prompts, *plan.compute), "residence": (copied, *plan.residence[1:])}
    refused(found, plan.model_copy(update=changes), UsageError, "different devices")


def test_checkpoints_that_do_not_fit_the_plan(case: Loader, tmp_path: Path) -> None:
    found = case("gpt_neox")
    plan = split_plan(found.model)
    other = shutil.copytree(found.directory, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    refused(found, plan, BadInputError, "the plan's model has ffn 80", other)
    wider = reshaped(found.model, ffn=96)
    refused(found, split_plan(wider), BadInputError, r"dense_h_to_4h.weight: shape \[96, 48\] expected", other)
    (other / "config.json").write_text(json.dumps(config))
    (other / "model.safetensors").unlink()
    refused(found, plan, BadInputError, "neither model.safetensors nor", other)


def test_modules_that_cannot_be_captured() -> None:
    """MPT's attention takes a Python number from a tensor: its shapes depend on values."""
    config = AutoConfig.for_model("mpt", vocab_size=64, d_model=16, n_heads=2, n_layers=1, max_seq_len=32)
    decoder = build_decoder(config, torch.float32)
    with pytest.raises(BadInputError, match="MptForCausalLM cannot be captured as a static graph") as caught:
        capture(decoder, Shape(1, 1, 16, 2, 8, torch.float32, whole=False))
    assert caught.value.remedy and caught.value.file == "config.json"


def test_kernels_refuse_what_only_graphs_run(case: Loader, tmp_path: Path) -> None:
    found = case("gpt_neox")
    with pytest.raises(UsageError, match="no kernels for the family gpt_neox .*choose a model of the families .*llama"):
        write_checkpoint(found.model, tmp_path / "new")
    with pytest.raises(UsageError, match="no kernels for the family gpt_neox .*--backend torch"):
        Engine.load(found.plan, found.directory, Machine.this())


def test_helm_run_through_graphs(
    case: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = case("gpt_neox")
    capture_again(found, monkeypatch)
    quick_probes(monkeypatch.setattr)
    plan, prompts, traced = (tmp_path / name for name in ("plan.json", "prompts.json", "run.parquet"))
    plan.write_text(found.plan.to_json())
    prompts.write_text(json.dumps(found.prompts.tolist()))
    argv = [str(plan), "--checkpoint", str(found.directory), "--tokens", str(prompts), "--output-tokens", "6"]
    assert main(argv) == 2
    assert "--backend torch" in capsys.readouterr().err
    assert main([*argv, "--backend", "torch", "--json", "--ignore-eos", "--trace", str(traced)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tokens"] == found.tokens[:, PROMPT : PROMPT + 6].tolist()
    measured = read_trace(traced)
    assert measured.info.plan_sha256 == digest(found.plan)
    assert {probe.what for probe in measured.info.probes} == {"read", "compute", "link"}
    assert {span.resource for span in measured.spans} == {"cpu", "loopback", "h2d", "d2h"}


def test_bf16_weights_and_f16_caches(case: Loader) -> None:
    """The module computes in the weights' type; caches may have another."""
    found = case("qwen3")
    plan = split_plan(found.model, weights="bf16", kv="f16")
    with loading.load_graphs(plan, found.directory, Machine.this()) as engine:
        logits = engine.logits(found.tokens[:, : PROMPT + 4].astype(np.int32), prompt=PROMPT)
    module = load_oracle(found.directory).bfloat16()
    expected = oracle_logits(module, found.tokens[0, : PROMPT + 4].tolist())[PROMPT - 1 :]
    assert np.abs(logits[0] - expected).max() < 0.05 * np.abs(expected).max()
