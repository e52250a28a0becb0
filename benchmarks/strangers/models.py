"""Names the model of the catalogue, and the format of its weights, that a row is about."""

import re

from benchmarks.engine_rows.models import model_named
from benchmarks.strangers.rows import OpenRow, UnansweredError
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import parameters
from helmsman.planner.checks.format_check import weights_misfit
from helmsman.schemas.formats import FORMAT_FACTS, StoredFormat, is_plain
from helmsman.schemas.model import Model

_NAMES = (
    (r"DeepSeek-(Coder-)?V2-Lite", "DeepSeek-V2-Lite"),
    (r"DeepSeek-R1", "DeepSeek-R1"),
    (r"DeepSeek-V3", "DeepSeek-V3"),
    (r"Qwen3-30B-A3B|Qwen3-(Coder|VL)-30B-A3B", "Qwen3-30B-A3B"),
    (r"Qwen3-235B-A22B", "Qwen3-235B-A22B"),
    (r"Qwen3-Coder-480B", "Qwen3-Coder-480B-A35B-Instruct"),
    (r"Qwen3-(Coder-)?Next", "Qwen3-Next-80B-A3B-Instruct"),
    (r"Qwen3\.[56]-35B-A3B", "Qwen3.5-35B-A3B"),
    (r"Qwen3\.5-122B", "Qwen3.5-122B-A10B"),
    (r"Qwen3\.5-397B", "Qwen3.5-397B-A17B"),
    (r"Qwen3-32B", "Qwen3-32B"),
    (r"Llama-4-Scout", "Llama-4-Scout-17B-16E-Instruct"),
    (r"Llama-3\.3-70B", "Llama-3.3-70B-Instruct"),
    (r"Nemotron-3-Nano-30B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    (r"GLM-4\.7-Flash", "GLM-4.7-Flash"),
    (r"GLM-4\.5-Air", "GLM-4.5-Air"),
    (r"gpt-oss-120b", "gpt-oss-120b"),
    (r"Gemma-4-26B-A4B", "gemma-4-26B-A4B"),
    (r"Kimi-K2", "Kimi-K2-Instruct"),
    (r"DeepSeek-V4-(Flash|Pro)", r"DeepSeek-V4-\1"),
    (r"GLM-5\.[12]", "GLM-5.2"),
    (r"gemma-3-12b", "gemma-3-12b-it"),
    (r"gemma-2-9b", "gemma-2-9b"),
    (r"Qwen2\.5-(Coder-)?14B", "Qwen2.5-14B"),
    (r"Qwen3-14B", "Qwen3-14B"),
    (r"phi-4\b", "phi-4"),
)
"""Models of the catalogue by what sources call them: what was trained further has the shapes of its first version."""

_QUANTS: tuple[tuple[str, StoredFormat], ...] = (
    (r"\bBF16\b", "bf16"),
    (r"\bFP8\b", "fp8_block"),
    (r"MXFP4", "mxfp4"),
    (r"NVFP4", "nvfp4"),
    (r"Q8_0|Q8_K_XL|\bQ8\b", "q8_0"),
    (r"IQ6_K", "iq6_k"),
    (r"Q6_K", "q6_k"),
    (r"IQ5_K", "iq5_k"),
    (r"Q5_K", "q5_k"),
    (r"IQ4_KS", "iq4_ks"),
    (r"IQ4_K", "iq4_k"),
    (r"IQ4_XS", "iq4_xs"),
    (r"Q4_K|\bQ4\b", "q4_k"),
    (r"Q4_0|RAWINT4", "q4_0"),
    (r"IQ3_KS", "iq3_ks"),
    (r"IQ3_K", "iq3_k"),
    (r"IQ3_S", "iq3_s"),
    (r"IQ3_XXS", "iq3_xxs"),
    (r"IQ2_K", "iq2_k"),
    (r"IQ2_XS", "iq2_xs"),
    (r"Q2_K", "q2_k"),
)
"""Formats of most values by what sources call files; kt-kernel's RAWINT4 has 32 of them under 16 bits as well."""

_SIZE = re.compile(r"~?([\d.]+) ?(GiB|GB)\b")
_UNITS = {"GiB": 2**30, "GB": 10**9}

_STATED_APART = 1.25
"""The largest ratio, either way, of the stated bytes of a file to those of its format: beyond it the file is a mixture,
and the format nearest to its bytes stands for that."""


def model_of(row: OpenRow) -> Model:
    """Return the model. Raises UnansweredError where the catalogue does not have it."""
    for pattern, name in _NAMES:
        matched = re.search(pattern, row.model, re.IGNORECASE)
        if matched:
            return load_model(matched.expand(name))
    other = model_named(row.model)
    if other is None:
        raise UnansweredError(f"no shapes of {row.model} are known", "model")
    return other


def format_of(row: OpenRow, model: Model) -> StoredFormat:
    """Return the format that most weights are in: the named one, or that whose bytes are nearest where a file is stated
    to be clearly larger or smaller; of one that rows do not divide into its nearest. Raises UnansweredError where
    neither is stated."""
    fmt = _meant(row, model)
    misfit = weights_misfit(model, fmt)
    return fmt if misfit is None else misfit.remedy


def _meant(row: OpenRow, model: Model) -> StoredFormat:
    named = next((fmt for pattern, fmt in _QUANTS if re.search(pattern, row.quant, re.IGNORECASE)), None)
    size = _SIZE.search(row.quant)
    if size is None:
        if named is None:
            raise UnansweredError(f"no format of weights is stated ({row.quant or 'nothing'})")
        return named
    bits = 8 * float(size[1]) * _UNITS[size[2]] / parameters(model)
    if named is not None and 1 / _STATED_APART < bits / _bits(named) < _STATED_APART:
        return named
    blocks = [fmt for fmt, facts in FORMAT_FACTS.items() if facts.gguf_file is not None and not is_plain(fmt)]
    return min(blocks, key=lambda fmt: abs(_bits(fmt) - bits))


def _bits(fmt: StoredFormat) -> float:
    facts = FORMAT_FACTS[fmt]
    return 8 * facts.size / facts.values
