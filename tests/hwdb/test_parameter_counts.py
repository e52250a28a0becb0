"""Parameters and layer patterns of released models: text models, tied heads once, without draft heads and buffers."""

from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import parameters

PARAMETERS = {
    "Mixtral-8x7B-v0.1": 46_702_792_704,
    "Mixtral-8x22B-v0.1": 140_620_634_112,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b-it": 999_885_952,
    "gemma-3-4b-it": 3_880_263_168,
    "gemma-3-12b-it": 11_766_034_176,
    "gemma-3-27b-it": 27_009_346_304,
    "gemma-4-26B-A4B": 25_233_141_760,
    "gemma-4-31B-it-NVFP4": 30_697_345_280,
    "gemma-4-E2B-it": 4_628_569_344,
    "gemma-4-E4B-it": 7_463_013_376,
    "Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,
    "Qwen3.5-35B-A3B": 34_660_610_688,
    "Qwen3.5-27B": 26_895_998_464,
    "Qwen3.5-122B-A10B": 122_111_526_912,
    "Qwen3.5-397B-A17B": 396_346_350_336,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V3": 671_026_404_352,
    "DeepSeek-V3.2": 671_877_929_216,
    "DeepSeek-V4-Flash": 284_332_230_231,
    "GLM-4.5-Air": 106_852_245_504,
    "GLM-4.7-Flash": 29_943_390_976,
    "GLM-5.2": 743_377_000_704,
    "Kimi-K2-Instruct": 1_026_408_209_408,
    "Kimi-Linear-48B-A3B-Instruct": 49_122_675_072,
    "MiniMax-M2.5": 228_689_748_992,
    "Llama-4-Scout-17B-16E-Instruct": 107_769_861_120,
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31_577_937_344,
    "NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": 120_668_687_360,
    "Nemotron-H-56B-Base-8K": 56_324_350_464,
    "granite-3.1-1b-a400m-instruct": 1_334_628_352,
    "granite-4.0-h-tiny": 6_939_037_248,
    "granite-4.0-h-1b": 1_461_538_368,
    "LFM2-1.2B": 1_170_340_608,
    "LFM2-8B-A1B": 8_339_929_856,
    "Phi-3.5-MoE-instruct": 41_873_153_344,
    "OLMoE-1B-7B-0924": 6_919_161_856,
    "Falcon-H1-0.5B": 521_411_104,
    "Falcon-H1-7B-Instruct": 7_585_513_568,
    "opt-350m": 331_196_416,
    "DeepSeek-V4-Pro": 1_572_997_179_491,
}
"""Counted in models that transformers builds without storage."""

PATTERNS = {
    "opt-350m": "A" * 24,
    "Mixtral-8x7B-v0.1": "a" * 32,
    "Mixtral-8x22B-v0.1": "a" * 56,
    "Qwen3-30B-A3B": "a" * 48,
    "Qwen3-235B-A22B": "a" * 94,
    "Qwen3-Coder-480B-A35B-Instruct": "a" * 62,
    "OLMoE-1B-7B-0924": "a" * 16,
    "MiniMax-M2.5": "a" * 62,
    "Phi-3.5-MoE-instruct": "a" * 32,
    "gpt-oss-20b": "wa" * 12,
    "gpt-oss-120b": "wa" * 18,
    "gemma-2-2b": "WA" * 13,
    "gemma-2-9b": "WA" * 21,
    "gemma-2-27b": "WA" * 23,
    "gemma-3-1b-it": "WWWWWA" * 4 + "WW",
    "gemma-3-4b-it": "WWWWWA" * 5 + "WWWW",
    "gemma-3-12b-it": "WWWWWA" * 8,
    "gemma-3-27b-it": "WWWWWA" * 10 + "WW",
    "gemma-4-26B-A4B": "wwwwwa" * 5,
    "gemma-4-31B-it-NVFP4": "WWWWWA" * 10,
    "gemma-4-E2B-it": "WWWWA" * 3 + "VVVVB" * 4,
    "gemma-4-E4B-it": "WWWWWA" * 4 + "VVVVVB" * 3,
    "Qwen3-Next-80B-A3B-Instruct": "ggga" * 12,
    "Qwen3.5-27B": "GGGA" * 16,
    "Qwen3.5-35B-A3B": "ggga" * 10,
    "Qwen3.5-122B-A10B": "ggga" * 12,
    "Qwen3.5-397B-A17B": "ggga" * 15,
    "Qwen3.6-27B-NVFP4": "GGGA" * 16,
    "Qwen3.6-35B-A3B-NVFP4": "ggga" * 10,
    "DeepSeek-V2-Lite": "L" + "l" * 26,
    "DeepSeek-V3": "LLL" + "l" * 58,
    "DeepSeek-R1": "LLL" + "l" * 58,
    "DeepSeek-V3.2": "LLL" + "l" * 58,
    "DeepSeek-V4-Flash": "xxy" + "hs" * 20,
    "DeepSeek-V4-Pro": "zzy" + "hs" * 29,
    "GLM-4.5-Air": "A" + "a" * 45,
    "GLM-4.7-Flash": "L" + "l" * 46,
    "GLM-5.2": "LLL" + "sssl" * 18 + "sss",
    "Kimi-K2-Instruct": "L" + "l" * 60,
    "Kimi-K2.5": "L" + "l" * 60,
    "Kimi-Linear-48B-A3B-Instruct": "Gggl" + "gggl" * 5 + "ggl",
    "Llama-4-Scout-17B-16E-Instruct": "kkkn" * 12,
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "MeMeMAeMeMeMAeMeMeMAeMeMeMAeMeMeMAeMeMeMeMAeMeMeMeMe",
    "granite-4.0-h-tiny": "mmmmmammmmmmmmmammmmmmmmmammmmmmmmmammmm",
    "granite-4.0-h-1b": "MMMMMAMMMMMMMMMAMMMMMMMMMAMMMMMMMMMAMMMM",
    "LFM2-1.2B": "CCACCACCACACACAC",
    "LFM2-8B-A1B": "CCacccacccacccacccaccacc",
    "Falcon-H1-0.5B": "H" * 36,
    "Falcon-H1-7B-Instruct": "H" * 44,
}
"""Letters of layers: capitals have a dense network, small ones experts."""


@together("name", sorted(PARAMETERS))
def test_every_parameter_is_counted(name: str) -> None:
    assert parameters(load_model(name)) == PARAMETERS[name]


@together("name", sorted(PATTERNS))
def test_layers_are_those_of_the_released_model(name: str) -> None:
    assert load_model(name).pattern == PATTERNS[name]
