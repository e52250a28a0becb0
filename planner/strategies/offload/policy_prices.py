"""Prices that FlexGen's cost model needs of a question: seconds of a block's work and transfers, bytes of what is
kept."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement, batches_together
from helmsman.lowering.streams import hops
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, output_tensors
from helmsman.planner.cost.footprint import at_footprint
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.table_prices import table_prices
from helmsman.planner.memory.cache_bytes import kv_block_bytes
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.offload.allocation import Tier
from helmsman.planner.strategies.offload.caches import CacheRule
from helmsman.planner.strategies.offload.place import Keeping, Tiers, place
from helmsman.planner.strategies.offload.policy import SHARES, Form, Kind, Policies, PolicyRoom, form
from helmsman.planner.strategies.offload.sublayers import sublayers
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Phase, prefill
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Link
from helmsman.schemas.plan import Path

_AWAY: tuple[Tier, ...] = ("host", "storage")
_PROBE = 1 << 30
"""Bytes of a transfer that tells a link's seconds per byte."""


@dataclass(frozen=True)
class Prices:
    """Prices of one question. `keeping`: what the tiers are; its `delegate`: decode steps attend where caches are."""

    frame: Frame
    keeping: Keeping
    cost_options: CostOptions

    def policies(self) -> Policies:
        """All policies: shares of weights in every tier there is, of caches in the accelerator's and the host's.

        Hidden states stay with the accelerator, as a plan has no rule for them."""
        tiers: tuple[Tier, ...] = (
            ("host", "accelerator") if self.keeping.storage is None else ("storage", "host", "accelerator")
        )
        weights = {("weights", tier) for tier in tiers}
        allowed = {*weights, ("cache", "host"), ("cache", "accelerator"), ("hidden", "accelerator")}
        return Policies(
            self._terms("prefill"),
            self._terms("decode"),
            self.frame.model.layers,
            self.frame.workload.decode_steps,
            tuple(self._rooms()),
            frozenset(share for share in SHARES if share in allowed),
            self.frame.workload.batch * self.frame.workload.batches,
        )

    @property
    def may_fit(self) -> bool:
        """Whether all tiers together hold the weights and caches: no policy does where they do not."""
        frame, tiers = self.frame, ("host", "accelerator", *(("storage",) if self.keeping.storage else ()))
        names = {self.keeping.memory(frame, tier) for tier in tiers}
        free = sum(frame.roles.hardware.memory(name).available for name in names)
        blocks = frame.model.layers * (self._block + self._cached(frame.workload.context))
        return blocks + self._ends <= free

    def _terms(self, phase: Phase) -> tuple[Form, ...]:
        """Seconds per block of every link, and of the work."""
        lanes: dict[str, list[tuple[Kind, tuple[Tier, ...], float]]] = {}
        for kind, tier, coming, size in self._moves(phase):
            away = self.keeping.memory(self.frame, tier)
            ends = (away, self._memory) if coming else (self._memory, away)
            path: Path = self.keeping.path if tier == "storage" and coming else "pinned"
            for hop in hops(self._apart, *ends, _PROBE, path):
                lanes.setdefault(hop.link.name, []).append((kind, (tier,), size * self._per_byte(hop.link, path)))
        return (*(form(0.0, *parts) for parts in lanes.values()), self._work(phase))

    def _moves(self, phase: Phase) -> Iterator[tuple[Kind, Tier, bool, float]]:
        """(what, where it lives, whether it comes to the accelerator or leaves, bytes) of one block."""
        model, decoding = self.frame.model, phase == "decode"
        for tier in _AWAY if self.keeping.storage else _AWAY[:1]:
            yield "weights", tier, True, self._block + self._output / model.layers
        tokens = 1 if decoding else self.frame.workload.new_tokens
        yield "cache", "host", False, float(self._cached(tokens))
        if self.keeping.delegate and decoding:
            outcomes = float(self._states(1, model.dense.q_width))
            yield from (("cache", "host", coming, outcomes) for coming in (False, True))
        elif past := self.frame.workload.mean_context - 1 if decoding else self.frame.workload.prefix_tokens:
            yield "cache", "host", True, float(self._cached(past))

    def _work(self, phase: Phase) -> Form:
        """Seconds of the operations of a block; attention where the caches are, if that is delegated."""
        here = self._seconds(self._together, phase)
        attention = self._seconds(self._together, phase, "attention")
        away = self._seconds(self._apart, phase, "attention") if self.keeping.delegate else attention
        return form(here - attention, ("cache", ("accelerator",), attention), ("cache", ("host",), away))

    def _seconds(self, placed: Placement, phase: Phase, op: str | None = None) -> float:
        """Of the work on the only block of a model, or of one of its operations, for all batches."""
        batches = batches_together(placed)
        graph = lower(
            placed, prefill(placed.workload, batches) if phase == "prefill" else mean_step(placed.workload, batches)
        )
        work = (t for t in graph.tasks if t.layer is not None and t.kind != "transfer" and op in (None, t.op))
        return sum(self._costs.price(task).mid for task in work)

    def _per_byte(self, link: Link, path: Path) -> float:
        task = Task(
            kind="transfer",
            op="weights",
            phase="decode",
            resource=link.name,
            tokens=0,
            bytes=_PROBE,
            activation_bytes=0,
            flops=0,
            format=self.frame.weights,
            memories=(link.source_memory, link.target_memory),
            path=path,
            layer=0,
        )
        return self._costs.price(task).mid / _PROBE

    def _rooms(self) -> Iterator[PolicyRoom]:
        """Yield what each tier's memory has, and what it holds: of every block, and while one is worked on."""
        model, frame = self.frame.model, self.frame
        weights = model.layers * self._block + self._ends
        cache = float(model.layers * self._cached(frame.workload.context))
        hidden = float(self._states(frame.workload.new_tokens, model.hidden))
        buffers = {use.memory: use.buffers for use in memory_use(self._whole)}
        depth = 1 + (frame.prefetch if frame.overlap == "next-layer" else 0)
        coming = depth * max(self._stored(layer.tensors) for layer in sublayers(model) if layer.kind != "embedding")
        for tier in ("accelerator", *_AWAY) if self.keeping.storage else ("accelerator", "host"):
            name = self.keeping.memory(frame, tier)
            parts: list[tuple[Kind, tuple[Tier, ...], float]] = [
                ("weights", (tier,), weights), ("cache", (tier,), cache), ("hidden", (tier,), hidden)
            ]  # fmt: skip
            if tier == "accelerator":
                batch = depth * cache / model.layers / frame.workload.batches
                parts += [("weights", _AWAY, coming), ("cache", () if self.keeping.delegate else ("host",), batch)]
            yield PolicyRoom(frame.roles.hardware.memory(name).available, form(buffers.get(name, 0), *parts))

    def _states(self, tokens: int, width: int) -> int:
        """Bytes of activations of all sequences."""
        work = self.frame.workload
        return size_of(work.batch * work.batches * tokens * width, self.frame.roles.activations)

    def _cached(self, tokens: int) -> int:
        """Bytes of a block's keys and values of so many tokens of all sequences."""
        work = self.frame.workload
        return kv_block_bytes(self.frame.model, work, self.frame.kv) * tokens // work.context

    def _stored(self, tensors: tuple[Tensor, ...]) -> float:
        """Bytes of weights as they are kept."""
        quarter = [self.keeping.compress and len(tensor.shape) > 1 and tensor.op != "embedding" for tensor in tensors]
        return float(sum(t.size("q4" if q else self.frame.weights) for t, q in zip(tensors, quarter, strict=True)))

    @property
    def _block(self) -> float:
        return self._stored(block_tensors(self.frame.model, 0))

    @property
    def _output(self) -> float:
        return self._stored(output_tensors(self.frame.model))

    @property
    def _ends(self) -> float:
        """Bytes of embedding and output; a tied one counts once."""
        ends = (*embedding_tensors(self.frame.model), *output_tensors(self.frame.model))
        return self._stored(tuple(tensor for tensor in ends if tensor.tied_to is None))

    @property
    def _memory(self) -> str:
        return self.frame.accelerator.memory

    @cached_property
    def _costs(self) -> CostModel:
        """Rates are those of links behind which everything is kept."""
        everything = place(self.frame, _all(self.frame, "host"), replace(self.keeping, cache="host", delegate=False))
        return CostModel(at_footprint(everything), self.cost_options, table_prices(everything))

    @cached_property
    def _whole(self) -> Placement:
        return place(self.frame, _all(self.frame, "accelerator"), replace(self.keeping, cache="accelerator"))

    @cached_property
    def _together(self) -> Placement:
        return self._one("accelerator", "accelerator")

    @cached_property
    def _apart(self) -> Placement:
        return self._one("host", "host")

    def _one(self, tier: Tier, cache: CacheRule) -> Placement:
        """One block, wholly in a tier, with its cache."""
        frame = replace(self.frame, model=self.frame.model.with_layers(1))
        return place(frame, _all(frame, tier), replace(self.keeping, cache=cache))


def _all(frame: Frame, tier: Tier) -> Tiers:
    return {layer.kind: tuple(tier for _ in layer.tensors) for layer in sublayers(frame.model)}
