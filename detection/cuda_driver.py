"""Whether programs can use NVIDIA's driver, and what links do while data moves: asked of the driver's library in a
process of its own (`cuda_child.py`), which a broken library may end."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from helmsman.detection.pcie import generation_of
from helmsman.detection.system import ObservedSystem, ProgramOutput
from helmsman.schemas.detected import DetectedGpu, DetectedProblem

_CHILD = Path(__file__).with_name("cuda_child.py")
_REMEDY = (
    "install the driver's own libcuda.so.1, of the version that nvidia-smi shows; start a container with --gpus all"
)


def with_driver(system: ObservedSystem, gpus: Sequence[DetectedGpu]) -> tuple[list[DetectedGpu], list[DetectedProblem]]:
    """Return NVIDIA's GPUs with their links as they are under load, where they are slower while idle, and what is wrong
    with the library through which programs compute on them."""
    answer = system.output(system.python, "-I", "-S", str(_CHILD), "load" if any(map(_is_idle, gpus)) else "open")
    if answer is None:
        return list(gpus), []
    if answer.code != 0:
        return list(gpus), [_problem(answer)]
    links = _links(answer.text)
    return [_loaded(gpu, links) for gpu in gpus], []


def _is_idle(gpu: DetectedGpu) -> bool:
    return gpu.link is not None and gpu.link.now is not None and gpu.link.now < gpu.link.generation


def _problem(answer: ProgramOutput) -> DetectedProblem:
    told = "does not answer" if answer.code is None else f"cannot be used: {answer.first_line}"
    if answer.code is not None and answer.code < 0:
        told = f"ends programs that load it, by signal {-answer.code}"
    problem = f"programs cannot compute on the GPU: libcuda.so.1 {told}"
    return DetectedProblem(what="NVIDIA driver", problem=problem, remedy=_REMEDY)


def _links(text: str) -> Mapping[str, tuple[int | None, int]]:
    """Return the generation and the lanes of links under load, by address."""
    rows = [line.split("\t") for line in text.splitlines()]
    return {
        row[0].lower(): (generation_of(row[1]), int(row[2]) if row[2].isdecimal() else 0)
        for row in rows
        if len(row) == 3
    }


def _loaded(gpu: DetectedGpu, links: Mapping[str, tuple[int | None, int]]) -> DetectedGpu:
    """Return a GPU with what its link does under load."""
    if gpu.link is None or gpu.where is None or gpu.where not in links:
        return gpu
    generation, lanes = links[gpu.where]
    changed = {"loaded": generation, "lanes": min(gpu.link.lanes, lanes) if lanes else gpu.link.lanes}
    return gpu.model_copy(update={"link": gpu.link.model_copy(update=changed)})
