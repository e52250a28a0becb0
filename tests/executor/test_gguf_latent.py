"""GGUF files of models of latent attention: every tensor as the Hugging Face checkpoint of the same seed has it, and
the same tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.oracle import load_oracle, oracle_greedy
from gguf_bytes import gguf, info
from latent_models import COMMON, FAMILIES
from plans import make_plan
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.blocks import quantise
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.weights.gguf_file import GgufTensors
from helmsman.executor.weights.group_rows import latent_rows
from helmsman.executor.weights.opening import open_weights
from helmsman.hwdb.gguf_header import read_header
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.schemas.model import Model
from helmsman.schemas.workload import Workload

PROMPT, OUTPUT = 12, 24


def described(family: str, folder: Path, **changes: Any) -> Model:
    """Return the model of a family; names and sizes alone are of its config."""
    from transformers import AutoConfig

    sizes: dict[str, Any] = {**COMMON, **FAMILIES[family], "vocab_size": 512, **changes}
    AutoConfig.for_model(family, **sizes, eos_token_id=None).save_pretrained(folder / "config")
    return load_model(str(folder / "config" / "config.json"))


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_every_tensor_is_that_of_the_directory(family: str, tmp_path: Path) -> None:
    """What every head has for itself lies head by head in both, in files apart and the other way round."""
    model = described(family, tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "f32")
    write_checkpoint(model, tmp_path / "hf", 1, "f32")
    header = read_header((tmp_path / "model.gguf").read_bytes(), "f")
    assert header.tensors["blk.0.attn_k_b.weight"].shape == (4, 32, 16)
    assert header.tensors["blk.0.attn_v_b.weight"].shape == (4, 16, 32)
    file, directory = open_weights(tmp_path / "model.gguf", model), open_weights(tmp_path / "hf", model)
    for tensor in tensors(model):
        (fmt, rows_read), (_, expected) = file.tensor(tensor), directory.tensor(tensor)
        assert fmt == "f32" and np.array_equal(rows_read, expected), tensor


def test_blocks_come_as_they_are_row_by_row(tmp_path: Path) -> None:
    model = described("deepseek_v3", tmp_path, qk_nope_head_dim=32, q_lora_rank=64)
    write_gguf(model, tmp_path / "model.gguf", 1, "q8_0")
    write_checkpoint(model, tmp_path / "hf", 1, "f32")
    file, directory = open_weights(tmp_path / "model.gguf", model), open_weights(tmp_path / "hf", model)
    for tensor in tensors(model):
        (fmt, blocks), exact = file.tensor(tensor), np.asarray(directory.tensor(tensor)[1], np.float32)
        assert fmt == ("f32" if len(tensor.shape) == 1 or tensor.exact else "q8_0")
        assert np.array_equal(blocks, exact if fmt == "f32" else quantise(exact, "q8_0")), tensor


@TWO_CPUS
def test_greedy_tokens_of_a_file_are_those_of_transformers(tmp_path: Path) -> None:
    model = described("deepseek_v3", tmp_path)
    write_gguf(model, tmp_path / "model.gguf", 1, "f32")
    write_checkpoint(model, tmp_path / "hf", 1, "f32")
    ids = np.random.default_rng(2).integers(0, model.vocab, PROMPT).tolist()
    expected = oracle_greedy(load_oracle(tmp_path / "hf"), ids, OUTPUT).tokens
    plan = make_plan(model, 2, workload=Workload(prompt_tokens=PROMPT, output_tokens=OUTPUT, context=64))
    with Engine.load(plan, tmp_path / "model.gguf", Machine.this()) as engine:
        tokens = engine.generate(np.array([ids], np.int32), OUTPUT, ignore_eos=True).tokens[0]
    assert list(tokens) == expected


def test_older_files_have_both_matrices_of_a_head_in_one(tmp_path: Path) -> None:
    """Of every head rows that expand keys, which are read by columns, then those that expand values."""
    heads, nope, value, latent = 3, 2, 4, 5
    values = np.random.default_rng(1).standard_normal((heads, nope + value, latent)).astype(np.float32)
    content = gguf(infos=[info("blk.0.attn_kv_b.weight", (heads * (nope + value), latent))], data=0)
    (tmp_path / "file.gguf").write_bytes(content + values.tobytes() + bytes(64))
    rows = GgufTensors(tmp_path / "file.gguf").rows("blk.0.attn_kv_b.weight", (heads * (nope + value), latent))
    keys = Tensor("k_b.weight", "k_b", 0, (heads * latent, nope))
    sums = Tensor("v_b.weight", "v_b", 0, (heads * value, latent))
    expected = {keys: values[:, :nope].swapaxes(1, 2).reshape(-1, nope), sums: values[:, nope:].reshape(-1, latent)}
    for tensor, exact in expected.items():
        rows_read = latent_rows((keys, sums), tensor, rows)
        assert np.array_equal(rows_read, exact) and rows_read.nbytes == exact.nbytes
        for first in range(len(exact)):
            for stop in (first, first + 1, min(first + 7, len(exact))):
                assert np.array_equal(rows_read[first:stop], exact[first:stop])
                assert np.array_equal(rows_read.part(first, stop)[:], exact[first:stop])
