"""CUDA graphs of decode steps: a range of operations captured once per bucket of positions, and replayed."""

from collections.abc import Callable

import torch

from helmsman.executor.devices.torch.marks import Mark
from helmsman.executor.devices.torch.operation_times import Range
from helmsman.executor.devices.torch.stage import TorchStage


class Graphs:
    """The graphs of one lane's stages. A step reads its position and token from the device, so that they may change.

    All of them take what they need on the way from one pool, so that a long context does not hold it once a bucket:
    they run one after the other, and leave nothing there."""

    def __init__(self, device: torch.device) -> None:
        self.available = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self.available else None
        self._device = device
        self._graphs: dict[Range, torch.cuda.CUDAGraph] = {}
        self._marked: dict[Range, tuple[torch.cuda.CUDAGraph, list[Mark]]] = {}
        self._kept: list[TorchStage] = []

    def run(self, key: Range, stage: TorchStage, past: int) -> None:
        """Operations of the range `key` for one token of each sequence after `past` others."""
        self._marked.pop(key, None)
        if key in self._graphs:
            self._graphs[key].replay()
            return
        stage.compute(key[1], key[2], 1, past, ends=True)
        torch.cuda.current_stream().synchronize()
        self._kept.append(stage)
        self._graphs[key] = self._captured(key, stage, past)

    def run_marked(self, key: Range, stage: TorchStage, past: int) -> list[Mark]:
        """Run the range as a graph that has a mark before the first operation and after each; no marks where the range
        runs for the first time."""
        if key not in self._graphs:
            self.run(key, stage, past)
            return []
        if key not in self._marked:
            marks: list[Mark] = []

            def mark() -> None:
                marks.append(Mark(self._device, captured=True))

            self._marked[key] = self._captured(key, stage, past, mark), marks
        graph, marks = self._marked[key]
        graph.replay()
        torch.cuda.current_stream().synchronize()
        return marks

    def _captured(
        self, key: Range, stage: TorchStage, past: int, mark: Callable[[], None] = lambda: None
    ) -> torch.cuda.CUDAGraph:
        """The graph of a range that has run once: the run that warms up libraries is the step itself.

        Capturing computes nothing, so what operations add to is added to once."""
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            mark()
            stage.compute(key[1], key[2], 1, past, ends=True, after=mark)
        return graph
