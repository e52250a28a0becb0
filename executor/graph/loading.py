"""From a plan to an engine that runs a module's captured graphs (Alg 2: trace, annotate, cut, build, then run)."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from helmsman.executor.devices.opening import Devices, open_devices
from helmsman.executor.engine import Engine
from helmsman.executor.graph.annotate import annotate
from helmsman.executor.graph.capture import Shape, capture
from helmsman.executor.graph.decoder import Decoder, open_decoder
from helmsman.executor.graph.layout import GraphLayout, layout_of
from helmsman.executor.graph.names import operations_of
from helmsman.executor.graph.partition import GraphStage, cut
from helmsman.executor.graph.program import GraphProgram, PreparedPass
from helmsman.executor.graph.tensors import DeviceTensors
from helmsman.executor.graph.timeline import Timeline
from helmsman.executor.graph.weights import DecoderWeights
from helmsman.executor.homes.storage import open_storage
from helmsman.executor.passes.phase_pass import PhasePass, passes_of
from helmsman.executor.passes.phase_program import PhaseProgram
from helmsman.executor.passes.plan_check import check_executed, check_no_slots
from helmsman.executor.programs.loading import LoadedPlan
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.prompt import check_context
from helmsman.executor.weights.checkpoint import check_config
from helmsman.hwdb.gguf_paths import is_gguf
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan


def load_graphs(
    plan: Plan,
    checkpoint: Path,
    machine: Machine,
    *,
    prompt_tokens: int | None = None,
    storage: Sequence[Path] = (),
    on_bytes: Callable[[int], None] = lambda _: None,
    growing: bool = False,
) -> Engine:
    """An engine that runs `plan` through the graphs of the checkpoint's own module, as transformers has it.

    Captures the prompt's pass (`prompt_tokens`, the workload's if not given) and the decode step; prompts of other
    lengths are captured when they come. Raises what `Engine.load` does, and UsageError for a plan that does more than
    give whole units to devices, BadInputError for a module that cannot be captured or differs from the plan's model."""
    _check_asked(checkpoint, growing)
    check_executed(plan)
    check_no_slots(plan)
    check_context(plan)
    passes = passes_of(plan)
    layout = layout_of(plan, passes)
    check_config(checkpoint, plan.model)
    lanes = [lane for one_pass in passes for lane in one_pass.lanes]
    devices = open_devices(plan.hardware, lanes, machine, plan.schedule.threads)
    decoder = open_decoder(checkpoint, layout.weights)
    preparing = _Preparing(plan, layout, devices, decoder, DecoderWeights(decoder, checkpoint, on_bytes))
    tokens = np.zeros(plan.workload.batch * plan.workload.context, np.int32)
    programs: dict[Phase, PhaseProgram] = {}
    for one_pass, count in zip(passes, (prompt_tokens or plan.workload.prompt_tokens, 1), strict=True):
        program = programs[one_pass.phase] = GraphProgram(one_pass, partial(preparing.pass_of, one_pass), tokens)
        program.prepare(count)
    loaded = LoadedPlan(programs, rewinds=False, goes_on=False, tokens=(tokens,))
    return Engine(plan, devices, open_storage(plan, storage), loaded)


def _check_asked(checkpoint: Path, growing: bool) -> None:
    if growing:
        remedy = "leave `kv_cache` out, or run with the native backend"
        raise UsageError("caches of graphs are static", field="kv_cache", value="growing", remedy=remedy)
    if is_gguf(checkpoint):
        remedy = "name a Hugging Face directory, or leave `backend` out"
        raise UsageError("GGUF files have no module", file=str(checkpoint), field="backend", remedy=remedy)


class _Preparing:
    """Prepares passes; weights and caches are placed once, by the first that needs them."""

    def __init__(
        self, plan: Plan, layout: GraphLayout, devices: Devices, decoder: Decoder, weights: DecoderWeights
    ) -> None:
        self._plan, self._layout, self._open = plan, layout, devices
        self._decoder, self._weights = decoder, weights
        self._devices = {name: DeviceTensors(devices.by_name[name]) for name in layout.devices}
        self._caches: dict[str, Tensor] = {}

    def pass_of(self, phase_pass: PhasePass, tokens: int) -> PreparedPass:
        """Capture and build the pass of a phase for `tokens` per sequence."""
        model, shape, load = self._plan.model, self._plan.model.dense, self._plan.workload
        sizes = load.batch, tokens, load.context, shape.kv_heads, shape.head_dim
        captured = capture(self._decoder, Shape(*sizes, self._layout.kv, whole=phase_pass.phase == "prefill"))
        timeline = Timeline(phase_pass, annotate(captured), operations_of(model), self._open, self._decoder.file)
        for stage, name in zip(cut(captured, self._layout.bounds), self._layout.stages, strict=True):
            device = self._devices[name]
            placed = self._weights.place(stage, device, dict(captured.constants))
            timeline.add(stage, device, placed, self._caches_of(stage, device, captured.shape))
        return timeline.prepared(load.batch)

    def _caches_of(self, stage: GraphStage, device: DeviceTensors, shape: Shape) -> dict[str, Tensor]:
        names = [name for name in stage.inputs if name.startswith(("keys_", "values_"))]
        for name in names:
            if name not in self._caches:
                self._caches[name] = device.empty(shape.cache, shape.kv, f"{name.replace('_', ' of block ')}")
        return {name: self._caches[name] for name in names}
