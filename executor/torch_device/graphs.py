"""CUDA graphs of decode steps: a range of operations captured once per bucket of positions, and replayed."""

import torch

from helmsman.executor.torch_device.positions import BUCKET
from helmsman.executor.torch_device.stage import TorchStage

Key = tuple[int, int, int, int]


class Graphs:
    """The graphs of one lane's stages. A step reads its position and token from the device, so that they may change.

    All of them take what they need on the way from one pool, so that a long context does not hold it once a bucket:
    they run one after the other, and leave nothing there."""

    def __init__(self, device: torch.device) -> None:
        self.available = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self.available else None
        self._found: dict[Key, torch.cuda.CUDAGraph] = {}
        self._kept: list[TorchStage] = []

    def run(self, stage: TorchStage, first: int, last: int, past: int) -> None:
        """Operations [first, last) for one token of each sequence after `past` others."""
        key = id(stage), first, last, past // BUCKET
        if key not in self._found:
            self._found[key] = self._captured(stage, first, last, past)
        else:
            self._found[key].replay()

    def _captured(self, stage: TorchStage, first: int, last: int, past: int) -> torch.cuda.CUDAGraph:
        """The graph of a range, which has run once: the run that warms up libraries is the step itself.

        Capturing computes nothing, so what operations add to is added to once."""
        stage.compute(first, last, 1, past, ends=True)
        torch.cuda.current_stream().synchronize()
        self._kept.append(stage)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            stage.compute(first, last, 1, past, ends=True)
        return graph
