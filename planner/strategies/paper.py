"""HELM's cost model as printed (eq 4.7 to 4.15), per stage: the option `paper`.

Kept as printed: P_dec = M (valid at batch 1 only, E-HELM-08), F_proj with H^2 (E-HELM-09), the L3 blend with the
stage's KV (E-HELM-27), 2-byte activations. Corrected, because the printed text cannot be run: KV bytes (E-HELM-01),
units 0..L+1 with T_comm = 0 at both ends (E-HELM-03), the embedding is a lookup and not streamed (E-HELM-05)."""

from dataclasses import dataclass
from math import prod

from helmsman.lowering.lower import lower
from helmsman.lowering.ops import BLOCK_OPS
from helmsman.lowering.tensors import block_tensors, output_tensors
from helmsman.planner.cost.device_rates import blended, least_seconds
from helmsman.planner.cost.estimate import Bound
from helmsman.planner.prediction.bound import lower_bound
from helmsman.planner.prediction.phase_document import bottleneck, gap
from helmsman.planner.prediction.predict import assemble, mean_step, predict
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat, StoredFormat, size_of
from helmsman.schemas.hardware import Device, Link
from helmsman.schemas.model import Model
from helmsman.schemas.predicted import Interval, PhasePrediction, Predicted, Term


@dataclass(frozen=True, slots=True)
class PaperStage:
    """Consecutive units of one device: blocks, and whether the output unit is among them."""

    device: Device
    blocks: int
    output: bool


@dataclass(frozen=True, slots=True)
class StageRates:
    """P_dec (FLOP/s), eta_c and eta_m of a stage; `fast`, `slow`: the spread of M eta_m, relative to its median."""

    p_dec: float
    eta_c: float = 1.0
    eta_m: float = 1.0
    fast: float = 1.0
    slow: float = 1.0


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of a stage: T_proj and T_attn."""

    projections: float
    attention: float


def decode_stage(
    model: Model, stage: PaperStage, iteration: Iteration, formats: tuple[StoredFormat, KvFormat], rates: StageRates
) -> StageTimes:
    """Eq 4.8 to 4.14 for one stage; `formats` of weights and KV."""
    batch, context, (weights, kv) = iteration.batch, iteration.context, formats
    flops, size = projection_flops(model, stage, batch), projection_bytes(model, stage, weights)
    attention = 4 * batch * model.dense.q_width * context * stage.blocks
    cache = size_of(2 * batch * stage.blocks * context * model.dense.kv_width, kv)
    peak = rates.p_dec * rates.eta_c
    return StageTimes(
        max(flops / peak, size / (stage.device.read.value * rates.eta_m)),
        max(attention / peak, cache / (blended(stage.device, cache).value * rates.eta_m)),
    )


def printed_rates(device: Device, batch: int, corrections: bool) -> StageRates:
    """P_dec = M as printed; it is a bandwidth there, so eta_c is eta_m.

    Raises UsageError for batch > 1 (E-HELM-08)."""
    if batch > 1:
        raise UsageError("the printed P_dec = M holds for one sequence only", field="batch", value=batch)
    curves = [c for c in device.efficiency if c.bound == "memory" and c.op in ("*", "linear")]
    eta = curves[0].share[-1] if corrections and curves else None
    figures = [device.read] if eta is None else [device.read, eta]
    share = eta.value if eta else 1.0
    fast, slow = prod(f.p90 / f.value for f in figures), prod(f.p10 / f.value for f in figures)
    return StageRates(device.read.value, share, share, fast, slow)


def launch_overhead(model: Model, stage: PaperStage) -> float:
    """N delta (HELM-42): the stage's blocks times a block's launches."""
    operations = len(BLOCK_OPS) if model.dense.gated else len(BLOCK_OPS) - 1
    least = least_seconds(stage.device) or stage.device.prompt_launch
    return stage.blocks * operations * (least.value if least else 0.0)


def projection_flops(model: Model, stage: PaperStage, batch: int) -> int:
    """F_proj = 2B(2H^2 + 2H d_kv + 3HI) n (eq 4.9); the output unit adds its 2BHV."""
    shape, h = model.dense, model.hidden
    block = 2 * h * h + 2 * h * shape.kv_width + (3 if shape.gated else 2) * h * shape.ffn
    return 2 * batch * (block * stage.blocks + h * model.vocab * stage.output)


def projection_bytes(model: Model, stage: PaperStage, weights: StoredFormat) -> int:
    """W_param of the stage (eq 4.1 to 4.3); a stage with the output unit streams the head too."""
    block = sum(tensor.size(weights) for tensor in block_tensors(model, 0))
    return block * stage.blocks + stage.output * sum(tensor.size(weights) for tensor in output_tensors(model))


def communication(model: Model, link: Link, batch: int) -> float:
    """T_comm = l_link + W_act / B_link (eq 4.15), W_act = 2BH (eq 4.4)."""
    return link.latency.value + 2 * batch * model.hidden / link.bandwidth.value


@dataclass(frozen=True)
class PrintedLayerSplit(LayerSplit):
    """Layer splits whose decode step is priced by the printed per-stage formulas."""

    def seconds(self, k: int, iteration: Iteration) -> float:
        """T_plan (eq 4.7) for decode; prefill has no printed formula and is priced per task (HELM-89)."""
        if iteration.phase == "prefill":
            return super().seconds(k, iteration)
        return sum(term.seconds.mid for term in self.terms(k, iteration))

    def terms(self, k: int, iteration: Iteration) -> tuple[Term, ...]:
        """T_proj and T_attn of both stages, N delta with corrections, and T_comm between the stages."""
        result = [term for stage in self.stages(k) for term in self._stage_terms(stage, iteration)]
        link = self._crossed(k)
        if link is not None:
            seconds = communication(self.model, link, iteration.batch)
            result.append(_term("hidden", link.name, seconds, "link"))
        return tuple(result)

    def _stage_terms(self, stage: PaperStage, iteration: Iteration) -> list[Term]:
        corrections, device = self.costs.options.corrections, stage.device.name
        rates = printed_rates(stage.device, iteration.batch, corrections)
        times = decode_stage(self.model, stage, iteration, (self.options.weights, self.options.kv), rates)
        terms = [_term("projections", device, times.projections, "memory", rates)]
        if stage.blocks:
            terms.append(_term("attention", device, times.attention, "compute", rates))
        overhead = launch_overhead(self.model, stage) if corrections else 0.0
        return [*terms, _term("overhead", device, overhead, "launch")] if overhead else terms

    def stages(self, k: int) -> tuple[PaperStage, ...]:
        """The CPU and the accelerator stage of split `k`, without empty ones."""
        blocks, accelerator = self.model.layers, self.roles.accelerator
        if k == self.model.units or accelerator is None:
            return (PaperStage(self.roles.solo, blocks, True),)
        on_host = max(k - 1, 0)
        stages = (PaperStage(self.roles.host, on_host, False), PaperStage(accelerator, blocks - on_host, True))
        return tuple(stage for stage in stages if stage.blocks or stage.output)

    def _predict(self, k: int) -> Predicted:
        """Predict with the printed decode step."""
        placement, step = self.placement(k), mean_step(self.workload)
        usual, terms = predict(placement, self.costs), self.terms(k, step)
        seconds = Interval(
            low=sum(term.seconds.low for term in terms),
            mid=sum(term.seconds.mid for term in terms),
            high=sum(term.seconds.high for term in terms),
        )
        least = lower_bound(lower(placement, step), self.roles.hardware, cached=True)
        bound = min(least, seconds.mid)  # the printed formulas leave out norms and the embedding
        decode = PhasePrediction(
            context=step.context,
            seconds=seconds,
            terms=terms,
            bottleneck=bottleneck(terms, self.roles.hardware, seconds.mid),
            lower_bound=bound,
            gap=gap(seconds.mid, bound),
        )
        return assemble(placement, usual.prefill, decode)

    def _crossed(self, k: int) -> Link | None:
        accelerator = self.roles.accelerator
        if accelerator is None or k in (0, self.model.units):
            return None
        return self.roles.hardware.link(self.roles.host.memory, accelerator.memory)


def _term(op: str, resource: str, seconds: float, bound: Bound, rates: StageRates | None = None) -> Term:
    fast, slow = (rates.fast, rates.slow) if rates else (1.0, 1.0)
    interval = Interval(low=seconds / fast, mid=seconds, high=seconds / slow)
    return Term(op=op, resource=resource, tasks=1, seconds=interval, bytes=0, flops=0.0, bound=bound, source="paper")
