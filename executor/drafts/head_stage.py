"""The stage of a draft head: its block, its norm and the model's head, beside the passes of the plan."""

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.cache.kv import allocate_caches
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.staging import Staging
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.generation import Tokens
from helmsman.executor.passes.phase_pass import PhasePass, passes_of
from helmsman.executor.stages.seats import hidden_rows
from helmsman.executor.stages.stage import StageBuilder
from helmsman.lowering.activations import TOKEN_BYTES
from helmsman.schemas.plan import Plan


class HeadStage:
    """Runs all operations of a plan of one block, but its embedding, on one device that no queue uses meanwhile.

    `tokens`: of every sequence that pass at a time at most."""

    def __init__(self, plan: Plan, device: CpuDevice, store: WeightLoader, tokens: int) -> None:
        decode, memory = passes_of(plan)[1], device.memory
        part = PhasePass(plan, decode.phase, tuple(task for task in decode.tasks if task.operation != "embedding"))
        builder = StageBuilder(plan, store, allocate_caches(plan, {memory.name: memory}, False), False)
        spec = builder.spec(part, Staging({}), device, 0, tokens)
        self._batch = plan.workload.batch
        self._workspace = memory.alloc(device.workspace_size(spec), "workspace of the draft head")
        self._stage = device.stage(spec, self._workspace, 0)
        size = F32_BYTES * self._batch * tokens * plan.model.hidden
        self._source = memory.alloc(size, "hidden states of the draft head")
        self._chosen = memory.alloc(TOKEN_BYTES * self._batch, "drafted tokens")
        self._stamps = np.zeros(len(self._stage.ops) + 1)

    def run(self, hidden: NDArray[np.float32], past: int) -> Tokens:
        """Return int32 (sequences,): the tokens that follow the last of f32 `hidden` (sequences, tokens, hidden), which
        are at positions past, past + 1, ..."""
        source = self._source.part(0, hidden.nbytes)
        view(source, np.float32)[:] = hidden.ravel()
        self._stage.run(source, self._chosen, hidden.shape[1], past, self._stamps.data)
        return view(self._chosen, np.int32).copy()

    def states(self, tokens: int) -> NDArray[np.float32]:
        """Return f32 (sequences, tokens, hidden): the states behind the block of the latest run, of so many tokens."""
        rows = hidden_rows(self._stage, self._workspace, self._batch * tokens)
        return rows.reshape(self._batch, tokens, -1)

    def logits(self) -> NDArray[np.float32]:
        """Return f32 (sequences, vocab) of the latest run."""
        return np.asarray(self._stage.logits())
