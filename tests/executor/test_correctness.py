"""The executor against transformers on the same weights, and against itself on other devices."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.oracle import Greedy, load_oracle, margins, mean_kl, oracle_greedy, oracle_logits
from plans import GIB, make_hardware, make_plan
from safetensors.numpy import load_file, save_file
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights import checkpoint as checkpoint_module
from helmsman.schemas.described import reshaped
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

FAMILIES = ("qwen3", "llama", "opt", "phi3")
SPLITS = (None, 0, 1, 2, 3, 4)
PROMPT, OUTPUT = 17, 64
TOLERANCE = 1e-4
"""Against a bar of 1e-3: both sides compute in f32, so what remains is the order of additions."""
KL_TOLERANCE, KL_FAULT = 1e-3, 1e-2
LONG = 512

pytestmark = TWO_CPUS

Directory = Callable[[str, Format], Path]


class Reference:
    """A checkpoint, its prompt, and what transformers makes of it."""

    def __init__(self, directory: Path, model: Model) -> None:
        self.directory, self.model = directory, model
        self.oracle = load_oracle(directory)
        self.prompt = random_tokens(model, PROMPT)
        self.greedy: Greedy = oracle_greedy(self.oracle, self.prompt, OUTPUT)
        self.tokens = self.prompt + self.greedy.tokens[:-1]
        self.logits = oracle_logits(self.oracle, self.tokens)[PROMPT - 1 :]


def random_tokens(model: Model, count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, model.vocab, count).tolist()


def batch(*sequences: list[int]) -> Any:
    return np.array(sequences, np.int32)


def workload(**changes: int) -> Workload:
    return Workload(**{"prompt_tokens": PROMPT, "output_tokens": OUTPUT, "context": 128} | changes)


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Toy models are far below what a parallel region of torch is worth."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Checkpoints of small models, each written once."""
    root = tmp_path_factory.mktemp("checkpoints")

    def written(family: str, fmt: Format) -> Path:
        place = root / f"{family}-{fmt}"
        if not place.exists():
            write_checkpoint(small_model(family), place, seed=3, fmt=fmt)
        return place

    return written


@pytest.fixture(scope="module")
def references(directory: Directory) -> dict[str, Reference]:
    return {family: Reference(directory(family, "f32"), small_model(family)) for family in FAMILIES}


def engine(directory: Path, model: Model, split: int | None = None, **plan: Any) -> Engine:
    plan.setdefault("workload", workload())
    return Engine.load(make_plan(model, split, **plan), directory, Machine.this())


@pytest.mark.parametrize(
    ("family", "split"),
    [
        pytest.param(family, split, marks=() if (row + column) % 2 == 0 else pytest.mark.nightly)
        for row, family in enumerate(FAMILIES)
        for column, split in enumerate(SPLITS)
    ],
)
def test_logits_and_greedy_tokens_equal_the_oracle(
    references: dict[str, Reference], family: str, split: int | None
) -> None:
    check_exact(references[family], split)


def check_exact(reference: Reference, split: int | None, **plan: Any) -> None:
    with engine(reference.directory, reference.model, split, **plan) as running:
        found = running.logits(batch(reference.tokens), prompt=PROMPT)[0]
        free = running.generate(batch(reference.prompt), OUTPUT, ignore_eos=True).tokens[0]
    scale = np.abs(reference.logits).max()
    assert np.abs(found - reference.logits).max() < TOLERANCE * scale
    undecided = margins(reference.logits) < 2 * TOLERANCE
    assert undecided.mean() < 0.02
    assert [int(row.argmax()) for row in found[~undecided]] == list(np.array(reference.greedy.tokens)[~undecided])
    determined = int(undecided.argmax()) if undecided.any() else OUTPUT
    assert list(free[:determined]) == reference.greedy.tokens[:determined]


@pytest.mark.parametrize(
    ("family", "fmt"),
    [
        *(("qwen3", "bf16"), ("opt", "f16")),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("qwen3", "f16"), ("opt", "bf16"))),
    ],
)
def test_rounded_weights_keep_the_distribution(directory: Directory, family: str, fmt: Format) -> None:
    place, model = directory(family, fmt), small_model(family)
    tokens = random_tokens(model, LONG)
    reference = oracle_logits(load_oracle(place), tokens)
    assert divergence(place, model, tokens, reference, weights=fmt, kv="f16") < KL_TOLERANCE


def divergence(place: Path, model: Model, tokens: list[int], reference: Any, **plan: Any) -> float:
    shape = workload(prompt_tokens=1, output_tokens=LONG - 1, context=LONG)
    with engine(place, model, 2, workload=shape, **plan) as running:
        return mean_kl(reference, running.logits(batch(tokens))[0])


def test_weights_are_converted_to_the_plans_format(directory: Directory) -> None:
    model = small_model("qwen3")
    tokens = batch(random_tokens(model, 40))
    with engine(directory("qwen3", "bf16"), model, weights="f32") as exact:
        same = exact.logits(tokens)
    with engine(directory("qwen3", "f32"), model, weights="bf16") as rounded:
        assert np.array_equal(rounded.logits(tokens).argmax(-1), same.argmax(-1))


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_equals_decode(references: dict[str, Reference], family: str) -> None:
    reference = references[family]
    with engine(reference.directory, reference.model, 2) as running:
        stepped = running.logits(batch(reference.prompt))[:, -1]
        at_once = running.logits(batch(reference.prompt), prompt=PROMPT)[:, -1]
    assert np.abs(stepped - at_once).max() < TOLERANCE * np.abs(stepped).max()


@pytest.mark.parametrize("split", [None, 2])
def test_a_batch_equals_its_sequences(references: dict[str, Reference], split: int | None) -> None:
    reference = references["qwen3"]
    prompts = [random_tokens(reference.model, PROMPT, seed) for seed in range(3)]
    with engine(reference.directory, reference.model, split, workload=workload(batch=3)) as running:
        logits = running.logits(batch(*prompts), prompt=PROMPT - 3)
        together = running.generate(batch(*prompts), 16, ignore_eos=True).tokens
    for row, prompt in enumerate(prompts):
        expected = oracle_logits(reference.oracle, prompt)[PROMPT - 4 :]
        assert np.abs(logits[row] - expected).max() < TOLERANCE * np.abs(expected).max()
        assert list(together[row]) == oracle_greedy(reference.oracle, prompt, 16).tokens


@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_a_split_makes_the_same_tokens(directory: Directory, fmt: Format) -> None:
    model = small_model("llama")
    prompt = batch(random_tokens(model, PROMPT))
    made = []
    for split in (None, 2):
        with engine(directory("llama", fmt), model, split, weights=fmt, kv="f16") as running:
            made.append(running.generate(prompt, OUTPUT, ignore_eos=True).tokens)
    assert made[0] == made[1]


def wrong_rope_base(model: Model, place: Path) -> Model:
    return reshaped(model, position=model.dense.position.model_copy(update={"theta": 1_000.0}))


def swapped_kv_heads(model: Model, place: Path) -> Model:
    def swap(weights: Any) -> Any:
        return np.concatenate(np.split(weights, model.dense.kv_heads)[::-1])

    edit(place, "model.layers.1.self_attn.k_proj.weight", swap)
    return model


def transposed_shard(model: Model, place: Path) -> Model:
    edit(place, "model.layers.1.self_attn.o_proj.weight", np.transpose)
    return model


def edit(place: Path, name: str, change: Callable[[Any], Any]) -> None:
    tensors = load_file(place / "model.safetensors")
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    save_file(tensors, place / "model.safetensors")


@pytest.fixture
def any_config(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a model be run on a checkpoint that says otherwise: the fault to plant."""
    monkeypatch.setattr(checkpoint_module, "check_config", lambda directory, model: None)
    yield


@pytest.fixture(scope="module")
def long_run(directory: Directory) -> tuple[list[int], Any]:
    """A long prompt and the logits that the sound Qwen3 checkpoint gives."""
    tokens = random_tokens(small_model("qwen3"), LONG)
    return tokens, oracle_logits(load_oracle(directory("qwen3", "f32")), tokens)


def test_a_sound_checkpoint_has_the_oracles_distribution(directory: Directory, long_run: tuple[list[int], Any]) -> None:
    assert divergence(directory("qwen3", "f32"), small_model("qwen3"), *long_run) < 1e-6


@pytest.mark.usefixtures("any_config")
@pytest.mark.parametrize("plant", [wrong_rope_base, swapped_kv_heads, transposed_shard])
def test_planted_faults_show(
    directory: Directory, long_run: tuple[list[int], Any], tmp_path: Path, plant: Callable[[Model, Path], Model]
) -> None:
    shutil.copytree(directory("qwen3", "f32"), tmp_path / "faulty")
    faulty = plant(small_model("qwen3"), tmp_path / "faulty")
    assert divergence(tmp_path / "faulty", faulty, *long_run) > KL_FAULT


@pytest.fixture(scope="module")
def real_size(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Qwen3-0.6B at full size in f32."""
    from helmsman.hwdb.load_model import load_model

    model = load_model("Qwen3-0.6B")
    place = tmp_path_factory.mktemp("real") / "qwen3"
    write_checkpoint(model, place, seed=1, fmt="f32")
    assert json.loads((place / "config.json").read_text())["vocab_size"] == model.vocab
    return Reference(place, model)


@pytest.mark.nightly
@pytest.mark.parametrize("split", [None, 1, 8, 15, 22, 29])
def test_qwen3_0_6b_equals_the_oracle(real_size: Reference, split: int | None) -> None:
    check_exact(real_size, split, hardware=make_hardware(vram=8 * GIB))


@pytest.mark.nightly
@pytest.mark.parametrize("fmt", ["f16", "bf16"])
def test_qwen3_0_6b_keeps_the_distribution(tmp_path: Path, fmt: Format) -> None:
    from helmsman.hwdb.load_model import load_model

    model = load_model("Qwen3-0.6B")
    write_checkpoint(model, tmp_path / "qwen3", seed=1, fmt=fmt)
    tokens = random_tokens(model, LONG)
    reference = oracle_logits(load_oracle(tmp_path / "qwen3"), tokens)
    hardware = make_hardware(vram=8 * GIB)
    found = divergence(tmp_path / "qwen3", model, tokens, reference, weights=fmt, kv="f16", hardware=hardware)
    assert found < KL_TOLERANCE
