"""A command of llama-server as the worker and llama-bench take it."""

from pathlib import Path

import pytest

from helmsman.engines.llama_command import LlamaCommand
from helmsman.schemas.errors import UsageError

COMMAND = (
    "llama-server -ngl 20 -c 4096 -np 1 -b 2048 -ub 512 -ctk q8_0 -ctv f16 -fa off -t 8 -tb 6 -sm layer -ts 3,1 "
    r"-ot 'blk\.1\.ffn_up\.=CPU,^output=CPU' --n-cpu-moe 1 --no-op-offload -m a.gguf"
)


def test_settings_of_the_worker() -> None:
    settings = LlamaCommand.of(COMMAND).worker_settings(Path("/b.gguf"), 128)
    assert settings == {
        "model": "/b.gguf", "context": 128, "threads": 8, "threads_batch": 6, "batch": 2048, "ubatch": 512,
        "type_k": "q8_0", "type_v": "f16", "flash": "off", "gpu_layers": 20, "split_mode": "layer",
        "tensor_split": [3.0, 1.0], "op_offload": False,
        "overrides": [r"blk\.1\.ffn_up\.", "^output", r"blk\.0\.ffn_(up|down|gate|gate_up)_(ch|)exps"],
    }  # fmt: skip


def test_what_is_left_out_is_the_engines() -> None:
    command = LlamaCommand.of("llama-server -c 4096")
    assert command.worker_settings(Path("/b.gguf"), 8) == {
        "model": "/b.gguf", "context": 8, "flash": "auto", "overrides": []
    }  # fmt: skip
    assert command.bench_words() == [] and command.server_words() == ["-c", "4096"]


def test_flags_of_llama_bench() -> None:
    words = " ".join(LlamaCommand.of(COMMAND).bench_words())
    assert words == (
        r"-ngl 20 -b 2048 -ub 512 -ctk q8_0 -ctv f16 -fa 0 -t 8 -sm layer -ts 3/1 -ot blk\.1\.ffn_up\.=CPU;^output=CPU"
        " -ncmoe 1 -nopo 1"
    )


def test_a_fit_has_a_margin() -> None:
    command = LlamaCommand.of("llama-server -c 4096 -np 1 --fit on -fitt 512")
    assert command.worker_settings(Path("/b.gguf"), 8)["fit"] == 512
    assert command.bench_words() == ["-fitt", "512", "-fitc", "4096"]
    assert [LlamaCommand.of(f"--fit {said}").fit_target for said in ("on", "off")] == [1024, None]


def test_a_buffer_that_the_package_cannot_name_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot put tensors into CUDA1"):
        LlamaCommand.of("-ot ^output=CUDA1").worker_settings(Path("b.gguf"), 8)
