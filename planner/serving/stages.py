"""The stages of a pass on a replica's accelerators: sums of operations where all is there, else passes as predicted."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from helmsman.lowering.common_attention import attending_layers
from helmsman.lowering.graph import Task
from helmsman.lowering.layer_cache import keeps_states
from helmsman.lowering.lower import lower
from helmsman.lowering.operation import Formats
from helmsman.lowering.ops import block_ops
from helmsman.lowering.placement import Placement
from helmsman.lowering.rules import kv_rule
from helmsman.planner.cost.model import CostModel
from helmsman.planner.memory.alike_blocks import alike
from helmsman.planner.prediction.predict import pass_seconds
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model

_TOGETHER = 8
"""Sequences of a usual decode step, at which the states of one more are priced."""


class Stages(Protocol):
    """Seconds of one layer's stages, and of both ends of a pass."""

    @property
    def looks(self) -> int:
        """At how many points between two knots a line through them is worth comparing with them."""

    @property
    def request(self) -> float:
        """The seconds that each request adds to one layer's decode attention, beside those of its KV tokens."""

    def linear(self, tokens: int) -> float:
        """All but attention, of a pass of so many tokens."""

    def decode(self, kv: int) -> float:
        """Decode attention to so many KV tokens."""

    def prompt_compute(self, tokens: int) -> float:
        """The arithmetic of attention of a whole prompt."""

    def prompt_read(self, kv: int) -> float:
        """Return what attention of prompts takes to read so many KV tokens."""

    def ends(self, sequences: int) -> float:
        """Embedding, final norm and head for so many sequences."""


DECODE_ROWS = 128
"""Rows of a served pass up to which its products are priced as those of decode steps: engines capture these as graphs,
and constants of their kernels were fitted so."""


def rows(tokens: int) -> Iteration:
    """A pass of so many tokens of as many sequences; more than `DECODE_ROWS` are prompts'."""
    return Iteration(0, "decode" if tokens <= DECODE_ROWS else "prefill", tokens, 1, 1)


def attention(model: Model, fmt: KvFormat, device: Device, iteration: Iteration) -> Task:
    """The attention of a pass on `device`, of the first layer that attends: bytes are those of KV heads,
    FLOPs of all heads (E-NEO-09)."""
    layer = attending_layers(model)[0]
    op = next(op for op in block_ops(model, layer, iteration, Formats(kv=fmt)) if op.kind == "attention")
    work = op.tokens, op.kv_read, op.activation_bytes, op.flops
    place = op.name, iteration.phase, device.name
    return Task("attention", *place, *work, fmt, (device.memory,), layer=layer, operation=op.name)


def decode_attention(model: Model, fmt: KvFormat, device: Device, kv: int) -> Task:
    """One layer's decode attention to `kv` tokens: as one sequence's, since a step's rows have nothing in common that
    would make more of them faster."""
    return attention(model, fmt, device, Iteration(0, "decode", 1, 1, kv))


def stages_of(plan: Placement, costs: CostModel) -> Stages:
    """Those of a plan: resident if one accelerator does everything with what lives there, whole attention after
    attention."""
    tasks = lower(plan, rows(1)).tasks
    lanes, kinds = {task.resource for task in tasks}, {task.kind for task in tasks}
    if len(lanes) > 1 or not kinds <= {"lookup", "norm", "linear", "append", "attention"} or len(alike(plan)) > 1:
        return PredictedStages(plan, costs)
    one = replace(plan, model=plan.model.with_layers(1))
    return ResidentStages(one, costs, plan.hardware.device(lanes.pop()))


@dataclass(frozen=True)
class ResidentStages:
    """Everything lives and happens on one device: stages are sums of operations, those of a plan of one layer."""

    plan: Placement
    costs: CostModel
    device: Device

    @property
    def looks(self) -> int:
        """Operations are priced fast."""
        return 3

    @property
    def request(self) -> float:
        """See `Stages`."""
        seconds = self.costs.requests(self.device, 1)
        return 0.0 if seconds is None else seconds.mid

    def linear(self, tokens: int) -> float:
        """See `Stages`."""
        tasks = lower(self.plan, rows(tokens)).tasks
        return self._sum(task for task in tasks if task.layer is not None and task.kind != "attention")

    def decode(self, kv: int) -> float:
        """See `Stages`."""
        return self._sum([decode_attention(self.plan.model, self._kept, self.device, kv)])

    def prompt_compute(self, tokens: int) -> float:
        """See `Stages`."""
        return self._sum([self._prompt(tokens)._replace(bytes=0)])

    def prompt_read(self, kv: int) -> float:
        """See `Stages`."""
        return self._sum([self._prompt(kv)._replace(flops=0)])

    def ends(self, sequences: int) -> float:
        """See `Stages`."""
        return self._sum(task for task in lower(self.plan, rows(sequences)).tasks if task.layer is None)

    @property
    def _kept(self) -> KvFormat:
        return kv_rule(self.plan, 0).used

    def _prompt(self, tokens: int) -> Task:
        return attention(self.plan.model, self._kept, self.device, Iteration(0, "prefill", 1, tokens, tokens))

    def _sum(self, tasks: Iterable[Task]) -> float:
        return sum(self.costs.price(task).mid for task in tasks)


class _Passed(NamedTuple):
    """Seconds of a pass: the whole, what no layer has, and the operations with states."""

    whole: float
    ends: float
    recurring: float


@dataclass(frozen=True)
class PredictedStages:
    """Work on several devices, or data on its way: stages are differences of whole passes as they are predicted, a
    layer's share of them."""

    plan: Placement
    costs: CostModel
    passes: dict[Iteration, _Passed] = field(default_factory=dict)

    @property
    def looks(self) -> int:
        """Every pass is lowered whole."""
        return 1

    @property
    def request(self) -> float:
        """Return the seconds in which mixers read and write the states of one more sequence; 0 for models without
        states, since `decode` counts what each sequence's cache adds."""
        return self._layer(self._states(_TOGETHER) / (_TOGETHER - 1))

    def linear(self, tokens: int) -> float:
        """See `Stages`: without the states of sequences, which prompts read once and not for each token."""
        return self._layer(self._stateless(tokens))

    def decode(self, kv: int) -> float:
        """See `Stages`: of sequences as long as the plan's."""
        longest = self.plan.workload.context
        batch = -(-kv // longest)
        context = -(-kv // batch)
        long, short = (self._within(Iteration(0, "decode", batch, 1, past)) for past in (context, 1))
        return self._layer((long - short) * kv / (batch * context))

    def prompt_compute(self, tokens: int) -> float:
        """See `Stages`: what a prompt takes longer than as many tokens that see nothing."""
        return self._layer(self._within(Iteration(0, "prefill", 1, tokens, tokens)) - self._stateless(tokens))

    def prompt_read(self, kv: int) -> float:
        """See `Stages`: as decoding does."""
        return self.decode(kv)

    def ends(self, sequences: int) -> float:
        """See `Stages`."""
        return self._passed(rows(sequences)).ends

    def _within(self, iteration: Iteration) -> float:
        """Seconds of a pass but for its ends."""
        passed = self._passed(iteration)
        return passed.whole - passed.ends

    def _stateless(self, tokens: int) -> float:
        """Seconds of so many tokens of all layers but for states of sequences."""
        return self._within(rows(tokens)) - self._states(tokens) - self.plan.model.layers * self.request

    def _states(self, tokens: int) -> float:
        """Seconds by which mixers with states take longer for tokens of as many sequences than for those of one."""
        if not keeps_states(self.plan.model):
            return 0.0
        apart = rows(tokens)
        together = Iteration(0, apart.phase, 1, tokens, 1)
        return self._passed(apart).recurring - self._passed(together).recurring

    def _passed(self, iteration: Iteration) -> _Passed:
        """Seconds of a pass and of its parts, priced once."""
        if iteration not in self.passes:
            graph = lower(self.plan, iteration)
            ends = recurring = 0.0
            for task in graph.tasks:
                if task.layer is None:
                    ends += self.costs.price(task).mid
                elif task.kind in ("convolution", "recurrence"):
                    recurring += self.costs.price(task).mid
            self.passes[iteration] = _Passed(pass_seconds(graph, self.costs), ends, recurring)
        return self.passes[iteration]

    def _layer(self, seconds: float) -> float:
        return max(0.0, seconds) / self.plan.model.layers
