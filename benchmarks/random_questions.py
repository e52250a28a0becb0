"""Random questions of helm-plan: models of the catalogue on machines of hwdb and on profiled ones, with less memory, of
any format."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

from benchmarks.dense_models import dense_names
from helmsman.executor.checkpoint.gguf_write import write_outline
from helmsman.hwdb.load_hardware import load_hardware, system_names
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import parameters
from helmsman.planner.checks.format_check import cache_misfit, weights_misfit
from helmsman.planner.machine import roles
from helmsman.schemas.errors import HelmError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import digest, read_document

PROMPTS, OUTPUTS = (32, 128, 512, 2048), (1, 32, 128, 512)
SHAPES = ((1, 1), (1, 1), (1, 1), (1, 4), (1, 16), (2, 8), (4, 4))
"""Batches, and sequences of each."""

WEIGHTS = ("f16", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "native", "native")
CACHES = ("f16", "f16", "f16", "f32", "q8_0")
MEMORY = (1.0, 1.0, 0.8, 0.5, 0.3, 0.15)
"""Shares of the accelerator's memory that a plan may use."""

COMPOSED = (("RTX 3090", "pcie4x16"), ("RTX 4060 Ti 16GB", "pcie4x8"), ("RTX 3060 12GB", "pcie3x16"))
"""Graphics cards that a machine has one or two of, and their links."""

CUTS = {"LESS": 0.7, "NEARLY": 0.9, "BARELY": 0.98}
"""The part of a memory that a narrower question has, by its word."""

PROFILED = 0.3
"""The part of the questions that are of profiled machines, where there are any."""
ROOM = {"dram": 64 * 10**9, "loopback": 12 * 10**9}
"""Bytes that the memories of a profiled machine are given, by their kind: models of the catalogue are to fit."""

OBJECTIVES = ("request", "latency", "throughput", "ttft")


@dataclass(frozen=True)
class Question:
    """A planning question that every strategy is asked. `words`: model, machine, work and formats, as on the command
    line; `objective`: of the strategies; `traits`: what a widening may need."""

    words: str
    objective: str
    traits: frozenset[str]
    sizes: tuple[tuple[str, int], ...]

    def line(self, strategy: str, options: str, objective: str | None = None) -> str:
        """The arguments of helm-plan; an empty strategy or objective is the default."""
        options, words = self._filled(options), self.words
        for flag in re.findall(r"--\S+", options):
            if flag in ("--vram-avail", "--ram-avail", "--batch"):
                words = re.sub(rf"{flag} \S+ ?", "", words)
        if "--gpu" in options:
            words = re.sub(r"--gpu '[^']*' ?", "", words)
        aim = f"--objective {self.objective if objective is None else objective}" if objective != "" else ""
        chosen = f"--strategy {strategy}" if strategy else ""
        return " ".join(f"{words} {chosen} {aim} {options}".split())

    def _filled(self, options: str) -> str:
        gpu = next(iter(re.findall(r"--gpu '([^']*)'", self.words)), "")
        options = options.replace("ONE", f"'{gpu}'").replace("TWO", f"'2x {gpu}'")
        sizes = dict(self.sizes)
        for flag in ("--vram-avail", "--ram-avail"):
            for word, share in CUTS.items():
                options = options.replace(f"{flag} {word}", f"{flag} {int(share * sizes.get(flag, 0))}")
        return options


def drawn(chance: random.Random, folder: Path, largest: float = inf, records: Sequence[Path] = ()) -> Question:
    """A question that fits the model's context, in formats that its matrices have; `records`: profiled machines that
    it may be of."""
    while True:
        name, weights, kv = chance.choice(_models(largest)), chance.choice(WEIGHTS), chance.choice(CACHES)
        model, path = load_model(name), name
        if weights == "native":
            outline = _outline(folder, name)
            if outline is None:
                continue
            path = str(outline)
        elif weights_misfit(model, weights) is not None:
            continue
        if cache_misfit(model, kv) is not None:
            continue
        output = chance.choice(OUTPUTS)
        prompt = min(chance.choice(PROMPTS), model.max_context - output)
        (batches, batch), objective = chance.choice(SHAPES), chance.choice(OBJECTIVES)
        machine, traits, sizes = _machine(chance, records)
        work = f"--prompt-tokens {prompt} --output-tokens {output} --batch {batch}"
        work += f" --batches {batches}" if batches > 1 else ""
        words = f"--model {path} {machine} {work} --format {weights} --kv-format {kv}"
        traits |= {"plain"} if weights in ("f16", "bf16") and kv in ("f16", "f32") else set()
        traits |= {"one"} if batches == 1 else set()
        return Question(words, objective, frozenset({*traits, objective}), tuple(sizes.items()))


def roomy(record: Path, folder: Path) -> Path:
    """Write the profiled machine into `folder`, with memories of `ROOM` bytes; return the path there."""
    hardware = read_document(Hardware, record)
    memories = (
        memory.model_copy(update={"capacity": ROOM[memory.kind], "available": ROOM[memory.kind]})
        if memory.kind in ROOM
        else memory
        for memory in hardware.memories
    )
    path = folder / f"{digest(hardware)}.json"
    path.write_text(hardware.model_copy(update={"memories": tuple(memories)}).to_json())
    return path


def _machine(chance: random.Random, records: Sequence[Path]) -> tuple[str, set[str], dict[str, int]]:
    """Words, traits, and the sizes of memories."""
    profiled = records and chance.random() < PROFILED
    if not profiled and chance.random() < 0.1:
        gpu, link = chance.choice(COMPOSED)
        return f"--gpu '{gpu}' --cpu 'AMD Ryzen 9 5950X' --ram 64GB --link {link}", {"composed"}, {}
    name = str(chance.choice(records)) if profiled else chance.choice(system_names())
    hardware = load_hardware(name, None)
    parts, words, traits, sizes = roles(hardware), f"--hw {name}", {"ram"}, {}
    sizes["--ram-avail"] = hardware.memory(parts.host.memory).available
    if parts.separate and parts.accelerator is not None:
        share = chance.choice(MEMORY)
        sizes["--vram-avail"] = int(share * hardware.memory(parts.accelerator.memory).available)
        words += f" --vram-avail {sizes['--vram-avail']}" if share < 1 else ""
        traits |= {"vram"}
    if any(memory.kind == "nvme" for memory in hardware.memories):
        traits |= {"nvme"}
    return words, traits, sizes


@cache
def _models(largest: float) -> tuple[str, ...]:
    return tuple(name for name in dense_names() if parameters(load_model(name)) <= largest)


def _outline(folder: Path, name: str) -> Path | None:
    """A GGUF file of the model that mixes formats; None for a family without one."""
    path = folder / f"{name}.gguf"
    try:
        if not path.exists():
            write_outline(load_model(name), path, "q4_k_m")
        return path
    except HelmError:
        return None
