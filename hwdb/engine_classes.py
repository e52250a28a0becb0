"""Families of devices by which engines' constants are pooled: a GPU leans on its class, that on its kind, that on the
backend.

Classes of `hwdb.classes` are about memories and kernels of any software. What an engine reaches differs further: Pascal
with HBM has no int8 products, Volta neither, and every generation of Apple's chips has shares of its own."""

import re
from typing import Literal

Backend = Literal["cuda", "rocm", "vulkan", "metal", "sycl", "opencl", "cpu"]
BACKENDS: tuple[Backend, ...] = ("cuda", "rocm", "vulkan", "metal", "sycl", "opencl", "cpu")

_NAMED = (
    (r"P100", "pascal-hbm"),
    (r"V100", "volta"),
    (r"GTX 16", "turing-plain"),
    (r"Orin", "orin"),
    (r"(?:Apple )?M1\b", "apple-m1"),
    (r"(?:Apple )?M2\b", "apple-m2"),
    (r"(?:Apple )?M3\b", "apple-m3"),
    (r"(?:Apple )?M4\b", "apple-m4"),
    (r"(?:Apple )?M5\b", "apple-m5"),
    (r"Arc A\d", "arc-alchemist"),
    (r"Arc B\d", "arc-battlemage"),
    (r"Core Ultra|Iris|Ryzen .*Series|\d{3}[0M]M?\b Graphics|Radeon [78]\d\dM|8060S", "integrated"),
)
"""Names of products that are classes of their own here."""

_KINDS = {
    "pascal": "older", "pascal-hbm": "older", "volta": "older", "turing": "older", "turing-plain": "older",
    "geforce-ampere": "gddr", "workstation-ampere": "gddr",
    "geforce-ada": "gddr", "workstation-ada": "gddr", "geforce-blackwell": "gddr", "workstation-blackwell": "gddr",
    "datacenter-ampere": "hbm", "datacenter-hopper": "hbm",
    "datacenter-blackwell": "hbm", "orin": "integrated", "integrated": "integrated",
    "apple-m1": "apple", "apple-m2": "apple", "apple-m3": "apple", "apple-m4": "apple", "apple-m5": "apple",
    "rdna2": "rdna", "rdna3": "rdna", "rdna4": "rdna", "arc-alchemist": "arc", "arc-battlemage": "arc",
    "x86-desktop-ddr4": "x86", "x86-desktop-ddr5": "x86", "x86-laptop": "x86", "x86-server": "x86",
    "arm-server": "arm", "apple-cpu": "arm",
}  # fmt: skip
"""The kind of memory and chip that a class belongs to."""

_INT8 = {
    "pascal": 4.0, "pascal-hbm": 1.0, "volta": 0.56, "turing-plain": 2.0, "orin": 2.0,
    "geforce-ampere": 4.0, "geforce-ada": 4.0, "geforce-blackwell": 4.0,
    "workstation-ampere": 2.0, "workstation-ada": 2.0, "workstation-blackwell": 2.0,
    "datacenter-ampere": 2.0, "datacenter-hopper": 2.0, "datacenter-blackwell": 2.0,
    "turing": 2.0, "rdna2": 2.0, "rdna4": 2.0,
}  # fmt: skip
"""Dense int8 operations/s over the FP16 FLOP/s of data sheets with FP32 accumulation, which GeForce cards do at half
their rate; by dp4a where there are no matrix units."""


def engine_class(product: str, device_class: str | None) -> str:
    """Return the class of a device for engines, by its product's name before that of its class."""
    for pattern, name in _NAMED:
        if re.search(pattern, product) and device_class != "apple-cpu":
            return name
    return device_class or "unknown"


def kind_of(name: str) -> str:
    """Return the kind that a class belongs to; `other` for an unknown one."""
    return _KINDS.get(name, "other")


def int8_ratio(product: str, name: str) -> float:
    """Return how many int8 operations a device of that class does in the time of an FP16 one; 1 where products of codes
    run as FP16."""
    halved = _HALVED.search(product) or (name == "turing" and re.search(r"RTX 20", product))
    return 4.0 if halved else _INT8.get(name, 1.0)


_HALVED = re.compile(r"\b(?:A10G|L20|L40)$")
"""Cards beside GeForce whose data sheets state half of what their units do with FP16 accumulation: 1024 FLOP a clock of
each multiprocessor, 142 of them at 2.49 GHz in L40."""


WITHOUT_MATRICES = frozenset({"pascal", "pascal-hbm", "turing-plain", "rdna2", "integrated"})
"""Classes without units that multiply matrices: they reach a larger share of the little that they could do."""


def half_ratio(product: str, name: str) -> float:
    """Return how many FP16 operations a device does with FP16 accumulation, in which engines multiply prompts, in the
    time of one with FP32: 2 of GeForce cards with matrix units, else 1."""
    return 2.0 if int8_ratio(product, name) == 4.0 and name not in WITHOUT_MATRICES else 1.0


_CORES = re.compile(r" \d+-core$")


def lineage(product: str, device_class: str | None, backend: str) -> tuple[str, ...]:
    """Return the nodes that a device's constants come from, the nearest first: itself (a chip of several numbers of
    cores is one device), its class, its kind, the backend."""
    name = engine_class(product, device_class)
    kind, chip = f"{backend}/{kind_of(name)}", _CORES.sub("", product)
    return f"{kind}/{name}/{chip}", f"{kind}/{name}", kind, backend


HALF_ENERGY = 2.0
"""What an FP16 operation takes of a card's power over what an int8 one does: half as many bits."""

SCORE_BYTES = 20.0
"""Bytes that move for every score of attention that is no kernel of its own: written, masked and read for its softmax,
written again, read to weigh values, in 4 bytes each."""

_MICRO_BATCH = 512


def score_padding(tokens: int, before: int = 0) -> float:
    """Return scores that are computed of a prompt over those that count: micro-batches score all keys up to their end,
    those of tokens after a query too."""
    whole, done = 0, 0
    while done < tokens:
        taken = min(_MICRO_BATCH, tokens - done)
        done += taken
        whole += taken * (before + done)
    return whole / (tokens * before + tokens * (tokens + 1) / 2.0)


def expands_weights(era: str, backend: str, group: str) -> bool:
    """Whether builds of that year expand quantised weights to FP16 for prompts on a class of devices: llama.cpp's CUDA
    backend did so where units multiply matrices, until these multiplied codes themselves, from Turing on
    (ggml-org/llama.cpp#7676, #8062, June 2024; rows of 2024 are of May), and does so where nothing multiplies bytes."""
    if backend != "cuda" or group == "unknown":
        return False
    return group in _WITHOUT_BYTES or (group not in WITHOUT_MATRICES and era in ("2023", "2024"))


_WITHOUT_BYTES = frozenset({"pascal-hbm", "volta"})
