"""A pass of captured stages: run a stage, carry its activation, run the next one; nothing is decided on the way
(HELM-44, section 4.2)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from helmsman.executor.graph.tensors import DeviceTensors, LinkCrossing
from helmsman.executor.passes.pass_times import NOT_MOVED, PassTimes
from helmsman.executor.passes.phase_pass import PhasePass


@dataclass(frozen=True, slots=True)
class TaskTime:
    """When a task ran: between stamps `start` and `end`, or from share `first` to share `last` of that, where several
    operations are one product."""

    start: int
    end: int
    first: float = 0.0
    last: float = 1.0


@dataclass(frozen=True)
class StageWork:
    """One stage on its device. `call` takes the values of `inputs`; its marks fill stamps begin + 1, begin + 2, ..."""

    device: DeviceTensors
    call: Callable[..., Tensor]
    inputs: tuple[str, ...]
    caches: Mapping[str, Tensor]
    begin: int


@dataclass(frozen=True)
class ActivationMove:
    """One transfer of an activation or of the chosen tokens: stamps begin and begin + 1."""

    crossing: LinkCrossing
    begin: int
    task: int


@dataclass(frozen=True)
class PreparedPass:
    """A pass for one number of tokens. `stamps`: seconds, filled as it runs; `timed`: of every task of the pass, which
    of them; `returning`: moves of the chosen tokens."""

    steps: Sequence[StageWork | ActivationMove]
    returning: Sequence[ActivationMove]
    stamps: NDArray[np.float64]
    timed: Sequence[TaskTime]


class GraphProgram:
    """The passes of one phase. `prepare` captures and builds them for a number of tokens that is new."""

    def __init__(
        self, phase_pass: PhasePass, prepare: Callable[[int], PreparedPass], tokens: NDArray[np.int32]
    ) -> None:
        self._names = tuple(task.name for task in phase_pass.tasks)
        self._prepare, self._tokens = prepare, tokens
        self._batch = phase_pass.plan.workload.batch
        self._prepared: dict[int, PreparedPass] = {}
        self._logits = torch.empty(0)
        self._rows: list[int] = []
        self._taken: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]] = []
        self._latest: tuple[PreparedPass, NDArray[np.int64]] | None = None

    def prepare(self, tokens: int) -> PreparedPass:
        """The pass for `tokens` per sequence, made the first time it is asked for."""
        if tokens not in self._prepared:
            self._prepared[tokens] = self._prepare(tokens)
        return self._prepared[tokens]

    def run(self, tokens: int, past: int) -> None:
        """Every sequence advances by `tokens` on top of `past` cached ones; the choice replaces the first tokens."""
        ready = self.prepare(tokens)
        moved = np.full(len(self._names), NOT_MOVED, np.int64)
        count = self._batch * tokens
        ids = torch.from_numpy(self._tokens[:count].astype(np.int64)).view(self._batch, tokens)
        values = {"tokens": ids, "past": torch.tensor(past)}
        with torch.inference_mode():
            value = ids
            for step in ready.steps:
                value = _taken(step, value, values, ready.stamps, moved)
                values["hidden"] = value
            self._logits = value
            chosen = value.argmax(dim=-1).to(torch.int32)
            for move in ready.returning:
                chosen = _moved(move, chosen, ready.stamps, moved)
        self._tokens[: self._batch] = chosen.cpu().numpy()
        self._latest = ready, moved

    def logits(self) -> NDArray[np.float32]:
        """f32 (sequences, vocab) of the latest pass."""
        result: NDArray[np.float32] = self._logits.cpu().numpy()
        return result

    def record(self, number: int, tokens: int, past: int) -> None:
        """Keep the times of the latest pass as those of pass `number`."""
        assert self._latest is not None
        ready, moved = self._latest
        spans = [(ready.stamps[t.start], ready.stamps[t.end] - ready.stamps[t.start], t) for t in ready.timed]
        starts = np.array([begin + length * t.first for begin, length, t in spans])
        ends = np.array([begin + length * t.last for begin, length, t in spans])
        self._rows.append(number)
        self._taken.append((starts, ends, moved))

    def take(self) -> tuple[PassTimes, ...]:
        """Return the times recorded since the last call."""
        rows, taken = self._rows, self._taken
        self._rows, self._taken = [], []
        shape = len(rows), len(self._names)
        starts, ends, moved = (np.array([row[part] for row in taken]).reshape(shape) for part in range(3))
        return (PassTimes(np.array(rows, np.int64), self._names, starts, ends, moved.astype(np.int64)),)


def _taken(
    step: StageWork | ActivationMove,
    value: Tensor,
    values: Mapping[str, Tensor],
    stamps: NDArray[np.float64],
    moved: NDArray[np.int64],
) -> Tensor:
    if isinstance(step, ActivationMove):
        return _moved(step, value, stamps, moved)
    arguments = [values[name] if name in values else step.caches[name] for name in step.inputs]
    with step.device.computing():
        stamps[step.begin] = time.monotonic()
        return step.call(*(argument.to(step.device.device) for argument in arguments))


def _moved(move: ActivationMove, value: Tensor, stamps: NDArray[np.float64], moved: NDArray[np.int64]) -> Tensor:
    arrived, stamps[move.begin], stamps[move.begin + 1] = move.crossing.carry(value)
    moved[move.task] = value.numel() * value.element_size()
    return arrived
