"""Written checkpoints: what transformers, safetensors and tokenizers make of them; complete or nothing."""

import errno
import json
from pathlib import Path

import numpy as np
import pytest
from family_models import FAMILIES, family_model
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from helmsman.executor.checkpoint.tokenizer import byte_ids
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.weights.checkpoint import Checkpoint, check_config
from helmsman.lowering.tensors import parameters, tensors
from helmsman.schemas.errors import HardwareUnavailableError, UsageError


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_loads_every_tensor_and_no_other(family: str, tmp_path: Path) -> None:
    model = family_model(family)
    written = write_checkpoint(model, tmp_path / "c", seed=1)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path / "c", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert sum(weight.numel() for weight in loaded.parameters()) == parameters(model) == written.parameters
    check_config(tmp_path / "c", model)


@pytest.mark.parametrize("family", ["phi3", "opt"])
def test_values_are_independent_of_the_shard_size(family: str, tmp_path: Path) -> None:
    model = family_model(family)
    one = write_checkpoint(model, tmp_path / "one", seed=5)
    many = write_checkpoint(model, tmp_path / "many", seed=5, shard_size=200_000)
    assert "model.safetensors" in one.files
    assert sum(name.endswith(".safetensors") for name in many.files) > 3
    whole, parts = Checkpoint.open(tmp_path / "one", model), Checkpoint.open(tmp_path / "many", model)
    for tensor in tensors(model):
        assert np.array_equal(whole.tensor(tensor)[1], parts.tensor(tensor)[1])


def test_shards_respect_their_limit_and_the_index_names_every_tensor(tmp_path: Path) -> None:
    write_checkpoint(family_model("llama"), tmp_path / "c", shard_size=300_000)
    index = json.loads((tmp_path / "c" / "model.safetensors.index.json").read_text())
    found = {}
    for path in (tmp_path / "c").glob("*.safetensors"):
        with safe_open(path, "np") as shard:
            found |= dict.fromkeys(shard.keys(), path.name)
            assert path.stat().st_size < 310_000 or len(list(shard.keys())) == 1
    assert found == index["weight_map"]
    total = 2 * parameters(family_model("llama"))
    assert index["metadata"]["total_size"] == total


def test_a_shallower_copy_has_the_same_first_blocks(tmp_path: Path) -> None:
    model = family_model("qwen3")
    shallow = model.with_layers(1)
    write_checkpoint(model, tmp_path / "deep", seed=2)
    write_checkpoint(shallow, tmp_path / "shallow", seed=2)
    deep, first = Checkpoint.open(tmp_path / "deep", model), Checkpoint.open(tmp_path / "shallow", shallow)
    assert all(np.array_equal(deep.tensor(item)[1], first.tensor(item)[1]) for item in tensors(shallow))


@pytest.mark.parametrize("family", ["opt", "qwen3"])
def test_the_tokenizer_is_byte_level_and_inside_the_vocabulary(family: str, tmp_path: Path) -> None:
    model = family_model(family)
    write_checkpoint(model, tmp_path / "c")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "c")
    text = "Grüße, 世界 😀\t\n\x00 <|end|>  two  spaces"
    ids = tokenizer(text).input_ids
    assert ids == [byte_ids(model)[byte] for byte in text.encode()]
    assert tokenizer.decode(ids) == text
    assert max(tokenizer.get_vocab().values()) < model.vocab
    assert tokenizer.eos_token_id == model.eos[0]
    assert model.eos[0] not in byte_ids(model)


def test_a_vocabulary_without_room_for_bytes_is_refused(tmp_path: Path) -> None:
    model = family_model("opt").model_copy(update={"vocab": 256})
    with pytest.raises(UsageError, match="vocab: too small for a byte-level tokenizer"):
        write_checkpoint(model, tmp_path / "c")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("failure", "expected", "message"),
    [
        (OSError(errno.ENOSPC, "no space"), HardwareUnavailableError, "no room on the disk"),
        (OSError(errno.EIO, "input/output error"), UsageError, "cannot be written"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
    ],
)
def test_a_failure_half_way_leaves_nothing(
    failure: BaseException, expected: type[BaseException], message: str | None, tmp_path: Path
) -> None:
    seen = []

    def fail(size: int) -> None:
        seen.append(size)
        if len(seen) == 20:
            raise failure

    with pytest.raises(expected, match=message):
        write_checkpoint(family_model("llama"), tmp_path / "deep" / "c", progress=fail)
    assert not any((tmp_path / "deep").iterdir())


def test_more_than_the_disk_holds_is_refused_before_writing(tmp_path: Path) -> None:
    huge = family_model("llama").model_copy(update={"vocab": 2**24, "hidden": 2**24})
    with pytest.raises(HardwareUnavailableError, match="no room on the disk"):
        write_checkpoint(huge, tmp_path / "c")
    assert not any(tmp_path.iterdir())


def test_an_existing_directory_is_kept(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    write_checkpoint(family_model("llama"), tmp_path / "c", seed=1)
    before = (tmp_path / "c" / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="not an empty directory"):
        write_checkpoint(family_model("llama"), tmp_path / "c", seed=2)
    assert (tmp_path / "c" / "model.safetensors").read_bytes() == before
    with pytest.raises(UsageError, match="not an empty directory"):
        write_checkpoint(family_model("llama"), tmp_path / "c" / "config.json")


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    sizes: list[int] = []
    written = write_checkpoint(family_model("opt"), tmp_path / "c", progress=sizes.append)
    assert sum(sizes) == written.weight_bytes
