"""Derive from a plan what its iterations cost and what its memories hold: tables of the cost model (NEO-17)."""

from collections.abc import Callable
from dataclasses import dataclass

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import kv_rule
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.state_copies import copy_seconds
from helmsman.planner.serving.knots import NOTHING, KnotTable, straight
from helmsman.planner.serving.kv_budget import LEAST_TOKENS, limits_of
from helmsman.planner.serving.layer_facts import layer_bytes, query_width, state_bytes
from helmsman.planner.serving.pipeline_parallel import Hops, in_rounds
from helmsman.planner.serving.replica import Replica, ReplicaOptions, replica_of
from helmsman.planner.serving.stages import Stages, decode_attention, rows, stages_of
from helmsman.planner.serving.tensor_parallel import DividedStages, Exchange, transfer
from helmsman.scheduler.cost import IterationCost, Line
from helmsman.scheduler.limits import Limits
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Device, Hardware, Link

_LONGEST = 2**15
"""Tokens of a prompt up to which attention has knots, however few a cache holds; it goes on with their last slope."""


@dataclass(frozen=True, slots=True)
class ReplicaCost:
    """The costs of a replica's iterations, and what it holds."""

    cost: IterationCost
    limits: Limits


def replica_cost(placed: Placed, options: ReplicaOptions | None = None) -> ReplicaCost:
    """The costs and limits of a replica that serves `placed`.

    Raises UsageError where machine or model do not divide as asked, InfeasibleError where caches have no room."""
    options = options or ReplicaOptions()
    replica = replica_of(placed, options)
    limits = limits_of(replica, options)
    cost = _cost(replica, limits)
    return ReplicaCost(cost if len(replica.layers) == 1 else _rounds(replica, cost), limits)


def _costs(replica: Replica) -> CostModel:
    """Return the prices of what a replica's online passes do."""
    return CostModel(_launching(replica.hardware), CostOptions(chunked=False))


def _launching(hardware: Hardware) -> Hardware:
    """The machine as online passes find it, which are never captured and go through in one piece: each operation takes
    at least what launching one takes, with whatever tokens."""

    def launched(device: Device) -> Device:
        known = [figure for figure in (device.launch, device.prompt_launch) if figure is not None]
        least = max(known, key=lambda figure: figure.value)
        return device.model_copy(update={"launch": least, "prompt_launch": None})

    devices = tuple(launched(device) if device.prompt_launch is not None else device for device in hardware.devices)
    return hardware.model_copy(update={"devices": devices})


def _rounds(replica: Replica, cost: IterationCost) -> IterationCost:
    """Of all stages, from what one micro-batch costs on one."""
    first = replica.accelerators[:: replica.parts]
    return in_rounds(cost, replica.layers, Hops(_costs(replica), first, replica.plan))


def _cost(replica: Replica, limits: Limits) -> IterationCost:
    costs = _costs(replica)
    stages, moves, request = _stages(replica, costs), _Moves(replica, costs), costs.requests(replica.host, 1)
    looks, longest = stages.looks, min(replica.model.max_context, _LONGEST)
    shared_device, shared_host = _shared(replica, costs, longest)
    join_device, join_host = _joins(replica, costs)
    state, computing = state_bytes(replica.model, 1), next(iter(replica.accelerators), replica.host)
    return IterationCost(
        layers=replica.model.layers,
        linear=KnotTable(stages.linear, looks=looks).fitted(max(limits.batch_tokens, LEAST_TOKENS)),
        gpu_attention=KnotTable(stages.decode, looks=looks).fitted(max(limits.gpu_tokens, longest)),
        prefill_compute=KnotTable(stages.prompt_compute, _pairs, looks).fitted(longest),
        prefill_read=KnotTable(stages.prompt_read, looks=looks).fitted(longest),
        cpu_attention=KnotTable(_on_host(replica, costs)).fitted(max(limits.cpu_tokens, longest)),
        cpu_request=0.0 if request is None else request.mid,
        to_host=moves.to_host(),
        to_device=moves.to_device(),
        swap_out=moves.out(moves.cached),
        swap_in=moves.back(moves.cached),
        ends=KnotTable(stages.ends, looks=looks).fitted(limits.sequences),
        gpu_request=stages.request,
        shared_device=shared_device,
        shared_host=shared_host,
        join_device=join_device,
        join_host=join_host,
        state_copy=copy_seconds(costs, {computing.name: state}),
        state_out=moves.out(lambda _: state)(1) if state else 0.0,
        state_in=moves.back(lambda _: state)(1) if state else 0.0,
    )


def _joins(replica: Replica, costs: CostModel) -> tuple[float, float]:
    """Seconds between two stages of an accelerator, and of the host, of which the second waits for the other side."""
    if replica.away is None:
        return 0.0, 0.0
    between, host, accelerator = costs.between(), replica.host.name, replica.away.name
    return between.join(accelerator), between.join(host)


def _shared(replica: Replica, costs: CostModel, tokens: int) -> tuple[float, float]:
    """By how much longer, as shares, weights take the accelerator and caches the host while both read at once; 0 where
    nothing that they read is in one memory. `tokens`: of the caches that the host reads one after the other."""
    model, fmt, host = replica.model, kv_rule(replica.plan, 0).used, replica.host
    accelerators = [device.name for device in replica.accelerators]
    weights = [t for t in lower(replica.plan, rows(1)).tasks if t.kind == "linear" and t.resource in accelerators]
    caches = decode_attention(model, fmt, host, tokens)
    pools, seconds = costs.pools, sum(costs.price(task).mid for task in weights)
    uses = pools.uses(weights[0]) if weights else {}
    if not uses.keys() & pools.uses(caches).keys():
        return 0.0, 0.0
    rate = min(sum(map(pools.drawn, weights)) / seconds, pools.most(uses))
    reads, attends = pools.fair_speeds([(rate, uses), pools.asked(caches, costs.price(caches).mid)])
    return 1.0 / reads - 1.0, 1.0 / attends - 1.0


def _stages(replica: Replica, costs: CostModel) -> Stages:
    stages = stages_of(replica.plan, costs)
    if replica.parts == 1:
        return stages
    return DividedStages(stages, Exchange(costs, replica.accelerators[: replica.parts]), replica.plan)


def _pairs(tokens: int) -> int:
    """Query-key pairs of a whole prompt: each token sees those before it and itself."""
    return tokens * (tokens + 1) // 2


def _on_host(replica: Replica, costs: CostModel) -> Callable[[int], float]:
    """Seconds of a layer's decode attention on the host, all heads of it: of what all accelerators gave there."""
    model, fmt, host = replica.model, kv_rule(replica.plan, 0).used, replica.host
    return lambda kv: costs.price(decode_attention(model, fmt, host, kv)).mid


@dataclass(frozen=True)
class _Moves:
    """What a layer's requests and caches take over the link of one accelerator: its heads, as others move theirs
    over links of their own meanwhile."""

    replica: Replica
    costs: CostModel

    def queries_keys_values(self, requests: int) -> int:
        """Bytes to the host for decodes there: keys and values as they are cached."""
        plan = self.replica.plan
        return size_of(requests * query_width(plan.model), plan.activations) + self.cached(requests)

    def attended(self, requests: int) -> int:
        """Bytes of attention's outputs."""
        return size_of(requests * query_width(self.replica.plan.model), self.replica.plan.activations)

    def cached(self, tokens: int) -> int:
        """Bytes of keys and values."""
        return layer_bytes(self.replica.plan.model, tokens, kv_rule(self.replica.plan, 0).used)

    def out(self, size: Callable[[int], int]) -> Line:
        """`size` of so many things over the link to the host."""
        away, hardware = self.replica.away, self.replica.hardware
        return NOTHING if away is None else self._over(hardware.link(away.memory, self.replica.host.memory), size)

    def back(self, size: Callable[[int], int]) -> Line:
        """`size` of so many things over the link from the host."""
        away, hardware = self.replica.away, self.replica.hardware
        return NOTHING if away is None else self._over(hardware.link(self.replica.host.memory, away.memory), size)

    def to_host(self) -> Line:
        """Seconds from the linear stage of so many requests on the accelerator to their attention on the host."""
        return self._handed_over(self.out(self.queries_keys_values), self.replica.away, self.replica.host)

    def to_device(self) -> Line:
        """Seconds from the attention of so many requests on the host to their linear stage on the accelerator."""
        return self._handed_over(self.back(self.attended), self.replica.host, self.replica.away)

    def _handed_over(self, moved: Line, here: Device | None, there: Device | None) -> Line:
        if here is None or there is None:
            return moved
        link = self.replica.hardware.link(here.memory, there.memory)
        after = 0.0 if link is None else self.costs.between().after(link.name, there.name)
        return Line(moved.x, (moved.y[0], *(seconds + after for seconds in moved.y[1:])))

    def _over(self, link: Link | None, size: Callable[[int], int]) -> Line:
        assert link is not None, "accelerators within reach have links both ways"
        return straight(lambda things: self.costs.price(transfer(link.name, size(things))).mid)
