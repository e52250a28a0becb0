"""Names of the engines whose settings are written and read."""

from typing import Literal, get_args

EngineName = Literal[
    "llama.cpp", "ollama", "lm-studio", "vllm", "sglang", "accelerate", "deepspeed", "ktransformers", "freetoken",
    "exllamav3",
]  # fmt: skip
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
