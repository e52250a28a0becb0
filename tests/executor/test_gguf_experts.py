"""GGUF files of models with routed experts: every tensor as the Hugging Face checkpoint of the same seed has it, and
the same tokens."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.oracle import load_oracle, oracle_greedy
from expert_models import COMMON, FAMILIES
from gguf_bytes import gguf, info
from plans import make_plan
from two_cpus import TWO_CPUS

from helmsman.executor._kernels import Arena, packed_size
from helmsman.executor.checkpoint.blocks import quantise
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.agreement import check_agreement
from helmsman.executor.weights.conversion import STEP_BYTES, pack_rows
from helmsman.executor.weights.gguf_file import GgufTensors
from helmsman.executor.weights.group_rows import expert_rows
from helmsman.executor.weights.opening import open_weights
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

PROMPT, OUTPUT = 12, 24


def described(family: str, folder: Path, **changes: Any) -> Model:
    """Return the model of a family; names and sizes alone are of its config."""
    from transformers import AutoConfig

    sizes: dict[str, Any] = {**COMMON, **FAMILIES[family], "vocab_size": 512, **changes}
    AutoConfig.for_model(family, **sizes, eos_token_id=None).save_pretrained(folder / "config")
    return load_model(str(folder / "config" / "config.json"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_is_that_of_the_directory(family: str, tmp_path: Path) -> None:
    model = described(family, tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "f32")
    write_gguf(model, tmp_path / "model-q8.gguf", 1, "q8_0")
    write_checkpoint(model, tmp_path / "hf", 1, "f32")
    check_agreement(load_model(str(tmp_path / "model.gguf")), model, "f")
    places = tmp_path / "model.gguf", tmp_path / "hf", tmp_path / "model-q8.gguf"
    file, directory, small = (open_weights(place, model) for place in places)
    for tensor in tensors(model):
        (fmt, found), (_, expected) = file.tensor(tensor), directory.tensor(tensor)
        assert fmt == "f32" and np.array_equal(found, expected), tensor
        kept, blocks = small.tensor(tensor)
        assert kept == ("f32" if len(tensor.shape) == 1 or tensor.exact else "q8_0")
        exact = np.asarray(expected, np.float32)
        assert np.array_equal(blocks, exact if kept == "f32" else quantise(exact, "q8_0")), tensor


@TWO_CPUS
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_of_a_file_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """Queries and keys of a Mixtral's file lie in turns; experts are stacked."""
    model = described(family, tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "f32")
    write_checkpoint(model, tmp_path / "hf", 1, "f32")
    ids = np.random.default_rng(2).integers(0, model.vocab, PROMPT).tolist()
    expected = oracle_greedy(load_oracle(tmp_path / "hf"), ids, OUTPUT).tokens
    plan = make_plan(model, workload=Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=64))
    with Engine.load(plan, tmp_path / "model.gguf", Machine.this()) as engine:
        tokens = engine.generate(np.array([ids], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(tokens) == expected


def test_gate_and_up_may_be_one_tensor(tmp_path: Path) -> None:
    """Every expert's rows of gate, then those of up."""
    gate, up = (
        Tensor(f"experts_{name}.weight", f"experts_{name}", 0, (3, 2, 4), stacked=True) for name in ("gate", "up")
    )
    values = np.arange(3 * 4 * 4, dtype=np.float32).reshape(3, 4, 4)
    content = gguf(infos=[info("blk.0.ffn_gate_up_exps.weight", (3, 4, 4))], data=0)
    (tmp_path / "file.gguf").write_bytes(content + values.tobytes())
    rows = GgufTensors(tmp_path / "file.gguf").rows("blk.0.ffn_gate_up_exps.weight", (3, 4, 4))
    for tensor, part in ((gate, slice(0, 2)), (up, slice(2, 4))):
        found, expected = expert_rows((gate, up), tensor, rows), values[:, part].reshape(6, 4)
        assert np.array_equal(found, expected) and found.shape == (6, 4) and found.nbytes == expected.nbytes
        for first in range(6):
            for stop in range(first, 7):
                assert np.array_equal(found[first:stop], expected[first:stop])
                assert np.array_equal(found.part(first, stop)[:], expected[first:stop])


def test_an_expert_is_not_in_memory_twice(tmp_path: Path) -> None:
    """While its matrices are packed, rows are read a few at a time: of a file of any size as many."""
    model = described("qwen3_moe", tmp_path, hidden_size=512, num_hidden_layers=1, moe_intermediate_size=512)
    write_gguf(model, tmp_path / "model.gguf", 1, "q8_0")
    weights = open_weights(tmp_path / "model.gguf", model)
    tensor = next(tensor for tensor in tensors(model) if tensor.op == "experts_up")
    fmt, rows = weights.tensor(tensor)
    size = packed_size("q8_0", len(rows), 512)
    target = Arena(size).alloc(size, "experts")
    tracemalloc.start()
    pack_rows(rows, fmt, target, "q8_0", 512)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < STEP_BYTES + 2**18 < size


def test_experts_of_another_number_are_refused(tmp_path: Path) -> None:
    model = described("mixtral", tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "f32")
    other = described("mixtral", tmp_path, num_local_experts=4)
    with pytest.raises(BadInputError, match="the plan's model has layouts"):
        open_weights(tmp_path / "model.gguf", other)
