"""The closed form of a layer's experts in a pass: what each side computes, and what crosses between them.

Experts on both sides take max(here, message + there + message back), one message each way (`lowering.bodies`). Where
some are in slots the host looks up first which those are; those that are fetched follow the copies of their matrices,
and what is in slots is computed meanwhile. The seconds of every product and transfer are the cost model's, so that
without contention this is the clock's answer."""

from dataclasses import dataclass
from functools import cached_property

from helmsman.lowering.graph import Task
from helmsman.lowering.operation import Formats, Operation
from helmsman.lowering.ops import block_ops
from helmsman.lowering.tensor import Tensor
from helmsman.planner.cost.model import CostModel
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Device, Link


@dataclass(frozen=True, slots=True)
class ExpertShare:
    """A part of a layer's experts in a pass: `read`, the distinct ones that tokens choose, as a share of the `rows`
    that are looked at (all experts, or those of a part); `distinct`: how many they are; `choices`: of all choices."""

    read: float
    rows: int
    distinct: float
    choices: float

    def part(self, share: float) -> "ExpertShare":
        """Return a share of this part."""
        return ExpertShare(share * self.read, self.rows, share * self.distinct, share * self.choices)

    @property
    def empty(self) -> bool:
        """Whether tokens choose none of them."""
        return self.read <= 0.0


@dataclass(frozen=True)
class ExpertSeconds:
    """The seconds of the experts of block `layer` in one pass."""

    frame: Frame
    costs: CostModel
    iteration: Iteration
    layer: int

    def products(self, device: Device, share: ExpertShare) -> tuple[float, ...]:
        """Return the seconds of each matrix of a part of the experts on a device."""
        if share.empty:
            return (0.0,) * len(self._operations)
        return tuple(self.costs.price(self._product(op, device, share)).mid for op in self._operations)

    def here(self, share: ExpertShare) -> float:
        """Return the seconds of a part on the accelerator."""
        return sum(self.products(self.frame.accelerator, share))

    def there(self, share: ExpertShare) -> float:
        """Return the seconds of a part on the host."""
        return sum(self.products(self.frame.roles.host, share))

    def both(self, here: ExpertShare, there: ExpertShare) -> float:
        """Return the seconds until both sides have computed their parts, and all is where the router was."""
        return self.here(here) if there.empty else max(self.here(here), self.messages + self.there(there))

    def divided(self, here: ExpertShare, fetched: ExpertShare, there: ExpertShare) -> float:
        """Return the seconds where a part of what is not in slots is fetched, and the other computed on the host."""
        return max(self.fetched(here, fetched, self._asked_with_states), self.messages + self.there(there))

    def fetched(self, here: ExpertShare, missing: ExpertShare, asked: float | None = None) -> float:
        """Return the seconds of experts in slots and of those that come first: matrix after matrix, in order; `asked`:
        until it is known on the host which, by default by a message of its own."""
        hits, misses = self.products(self.frame.accelerator, here), self.products(self.frame.accelerator, missing)
        arrived, done = self._asked if asked is None else asked, 0.0
        for op, hit, miss in zip(self._operations, hits, misses, strict=True):
            done += hit
            if not missing.empty:
                arrived += self.copied(op, missing)
                done = max(done, arrived) + miss
        return done

    def entering(self, share: ExpertShare) -> float:
        """Return the seconds of the link in which experts enter slots behind the pass."""
        return 0.0 if share.empty else sum(self.copied(op, share) for op in self._operations)

    def copied(self, op: Operation, share: ExpertShare) -> float:
        """Return the seconds in which a matrix of a part comes to the accelerator."""
        return self._transfer(self._to_accelerator, self._bytes(op, share), self.frame.weights)

    @cached_property
    def look_up(self) -> float:
        """Return the seconds from the end of the router until it is known which experts are in slots."""
        op, device = self._of["router"], self.frame.accelerator
        work = op.tokens, op.weight_bytes, op.activation_bytes, op.flops
        router = Task(op.kind, op.name, self.iteration.phase, device.name, *work, "f32", (device.memory,))
        seconds = self.costs.look_up(router)
        return 0.0 if seconds is None else seconds.mid

    @property
    def _asked_with_states(self) -> float:
        """Return the seconds of the message to the host that hidden states share."""
        router, entry = self._of["router"], self._of[self._operations[0].inputs[0]]
        size = router.out_bytes + entry.out_bytes
        return self._transfer(self._to_host, size, self.frame.roles.activations)

    @cached_property
    def messages(self) -> float:
        """Return the seconds of a message to the host, hidden states with numbers and weights of experts, and of the
        sums back."""
        router, down = self._of["router"], self._operations[-1]
        entry = self._of[self._operations[0].inputs[0]]
        activations = self.frame.roles.activations
        between, host, accelerator = self.costs.between(), self.frame.roles.host, self.frame.accelerator
        return (
            self._transfer(self._to_host, router.out_bytes + entry.out_bytes, activations)
            + between.after(self._to_host.name, host.name)
            + self._transfer(self._to_accelerator, down.out_bytes, activations)
            + between.after(self._to_accelerator.name, accelerator.name)
        )

    @property
    def _asked(self) -> float:
        """Return the seconds until it is known on the host what is missing."""
        return self._transfer(self._to_host, self._of["router"].out_bytes, self.frame.roles.activations)

    @cached_property
    def _of(self) -> dict[str, Operation]:
        formats = Formats(kv=self.frame.kv, activations=self.frame.roles.activations)
        return {op.name: op for op in block_ops(self.frame.model, self.layer, self.iteration, formats)}

    @cached_property
    def _operations(self) -> tuple[Operation, ...]:
        """Return the products of experts, in order."""
        return tuple(op for op in self._of.values() if op.kind == "experts")

    @cached_property
    def _to_host(self) -> Link:
        return self._link(self.frame.accelerator.memory, self.frame.roles.host.memory)

    @cached_property
    def _to_accelerator(self) -> Link:
        return self._link(self.frame.roles.host.memory, self.frame.accelerator.memory)

    def _link(self, source: str, target: str) -> Link:
        link = self.frame.roles.hardware.link(source, target)
        assert link is not None, "roles have links both ways"
        return link

    def _bytes(self, op: Operation, share: ExpertShare) -> int:
        sizes = (
            size_of(
                round(share.read * share.rows * (tensor.elements // tensor.shape[0])),
                self._format(tensor),
            )
            for tensor in op.tensors
        )
        return sum(sizes)

    def _format(self, tensor: Tensor) -> StoredFormat:
        """Return the format in which a tensor is kept."""
        return tensor.kept_in(self.frame.formats.get((tensor.name, self.layer), self.frame.weights))

    def _product(self, op: Operation, device: Device, share: ExpertShare) -> Task:
        """Return the task of a part of an operation, as far as its price depends on it."""
        largest = max(op.tensors, key=lambda tensor: tensor.size(self._format(tensor)))
        return Task(
            kind=op.kind,
            op=op.name,
            phase=self.iteration.phase,
            resource=device.name,
            tokens=max(1, round(op.tokens * share.choices)),
            bytes=self._bytes(op, share),
            activation_bytes=round(op.activation_bytes * share.choices),
            flops=round(op.flops * share.choices),
            format=self._format(largest),
            memories=(device.memory,),
            sequences=max(1, round(share.distinct)),
            columns=op.columns,
            per_token=op.per_token * share.choices or 1.0,
            layer=self.layer,
        )

    def _transfer(self, link: Link, size: int, fmt: StoredFormat) -> float:
        ends = (link.source_memory, link.target_memory)
        task = Task("transfer", "activation", self.iteration.phase, link.name, 0, size, 0, 0, fmt, ends, layer=0)
        return self.costs.price(task).mid
