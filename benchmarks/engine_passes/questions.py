"""Passes that profiles tell the seconds of."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.engine_passes.profiles import Parts, PassShape, Profile
from benchmarks.engine_passes.work import PassTasks, model_of, tasks_of
from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.engine_classes import engine_class, half_ratio, lineage

BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (256, 1024, 4096, 16384)
PROMPT_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
NOISE, OLDER_NOISE = 0.04, 0.12
"""The standard deviation of the logarithm of a measurement beside what constants explain, and of one with kernels that
are older than vLLM's: they count where there are no others."""

_MOST_CACHED = 2**20
"""Tokens of all sequences' caches at most."""


@dataclass(frozen=True, slots=True)
class MeasuredPass:
    """A pass of a model on a GPU: its tasks, and seconds by part. `halved`: whether the GPU multiplies at half its rate
    where it adds up in FP32."""

    gpu: str
    source: str
    model: str
    shape: PassShape
    tasks: PassTasks
    parts: Parts
    nodes: tuple[str, ...]
    bandwidth: float
    flops: float
    halved: bool
    kernel: str
    noise: float = NOISE

    @property
    def seconds(self) -> float:
        """Return the seconds of all parts that were measured."""
        return sum(self.parts.values())


def all_passes() -> Iterator[PassShape]:
    """Yield steps and prompts."""
    for batch in BATCHES:
        for context in CONTEXTS:
            if batch * context <= _MOST_CACHED:
                yield PassShape("decode", batch, 1, context)
    for tokens in PROMPT_LENGTHS:
        yield PassShape("prefill", 1, tokens, tokens)


def measured_passes(profile: Profile) -> Iterator[MeasuredPass]:
    """Yield the passes that a profile tells."""
    gpu, _ = find_gpu(profile.gpu)
    nodes = lineage(gpu.name, gpu.device_class, "cuda")
    halved = half_ratio(gpu.name, engine_class(gpu.name, gpu.device_class)) > 1.0
    for name in profile.models():
        for shape in all_passes():
            parts = profile.parts(model_of(name), shape)
            if parts is not None:
                tasks = tasks_of(name, shape)
                noise = OLDER_NOISE if profile.older else NOISE
                sheet = nodes, gpu.bandwidth, gpu.flops, halved, profile.kernel, noise
                yield MeasuredPass(gpu.name, profile.source, name, shape, tasks, parts, *sheet)
