"""A plan as llama.cpp can place it: the last slots of a model on accelerators, experts of the first layers in RAM, and
patterns for tensors that are elsewhere."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from helmsman.lowering.layer_cache import cache_of
from helmsman.lowering.stages import first_ops, last_ops
from helmsman.lowering.stored_names import TensorKey
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.planner.machine import Roles
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.planner.settings.tensor_names import tensor_names
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import FORMAT_FACTS

_BACKENDS = {"rocm": "ROCm", "metal": "Metal"}
"""The backends of llama.cpp by kinds of devices, where it is not CUDA."""

_LONGEST_PATTERN = 180
"""Letters of one pattern: longer ones become several."""


def buffer_of(machine: Roles, side: str) -> str:
    """Return what llama.cpp calls the buffer of a side: `CPU`, `CUDA0`."""
    if side == HOST:
        return "CPU"
    backend = _BACKENDS.get(machine.hardware.device(side).kind, "CUDA")
    names = [device.name for device in machine.accelerators]
    return backend if backend == "Metal" else f"{backend}{names.index(side)}"


@dataclass(frozen=True)
class LlamaPlaces:
    """The nearest placement of llama.cpp."""

    places: PlanPlaces

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Return how many of the last slots, of layers + 1, each accelerator has; the output is the last slot."""
        return self._counts(self._cut)

    @property
    def slots(self) -> int:
        """Return how many slots are on accelerators."""
        return sum(self.counts)

    @property
    def expert_layers(self) -> int:
        """Return of how many first layers experts are kept in RAM by a flag of their own."""
        moved = [tensor.layer for tensor in self._moved if tensor.stacked and self._side(tensor) == HOST]
        if not moved or None in moved:
            return 0
        count = 1 + max(layer for layer in moved if layer is not None)
        stacked = (tensor for tensor in self._all if tensor.stacked and tensor.layer is not None)
        inside = all(self._side(tensor) == HOST for tensor in stacked if (tensor.layer or 0) < count)
        return count if inside else 0

    @cached_property
    def overrides(self) -> tuple[str, ...]:
        """Return patterns with buffers for all other tensors that are elsewhere, in llama.cpp's names."""
        return tuple(self._patterns(self._by_pattern)) if self._by_pattern and not self._unnamed else ()

    @cached_property
    def _by_pattern(self) -> list[Tensor]:
        """Return the tensors that no other flag moves."""
        first = range(self.expert_layers)
        return [tensor for tensor in self._moved if not (tensor.stacked and tensor.layer in first)]

    @cached_property
    def _unnamed(self) -> bool:
        """Whether there are such tensors of a model for which llama.cpp has no names."""
        try:
            return bool(self._by_pattern) and not tensor_names(self.places.plan.model)
        except UsageError:
            return True

    def differences(self) -> Iterator[Difference]:
        """Yield what llama.cpp cannot place so."""
        yield from self.places.differences()
        yield from self.places.undivided("every card has layers of its own")
        kinds = (rule.format for rule in self.places.plan.residence)
        others = sorted({fmt for fmt in kinds if FORMAT_FACTS[fmt].gguf_file is None})
        if others:
            yield Difference(what=f"weights are in {', '.join(others)}", instead="GGUF files have no such types")
        streamed = sum(tensor.layer is not None and self.places.tensors[_key(tensor)].moves for tensor in self._all)
        if streamed and self.places.plan.workload.batch < OFFLOADED_TOKENS:
            instead = "the processors compute them where they are"
            yield Difference(what=f"{streamed} tensors come to the accelerator in every decode step", instead=instead)
        wrong = [layer for layer, side in enumerate(self._bases) if self._cached[layer] and self._caches[layer] != side]
        if wrong:
            yield Difference(
                what=f"caches of layers {numbers_in_words(wrong)} are elsewhere",
                instead="a cache is where its layer is, and the last layers are on accelerators",
            )
        if self._unnamed:
            what = f"{len(self._by_pattern)} tensors are elsewhere than their layers, and have no names in llama.cpp"
            yield Difference(what=what, instead="they are with their layers")
        if self._embedding_moved:
            yield Difference(what="token embeddings are on the accelerator", instead="rows are looked up in RAM")

    @cached_property
    def _all(self) -> tuple[Tensor, ...]:
        return tensors(self.places.plan.model)

    @property
    def _caches(self) -> tuple[str, ...]:
        return self.places.caches

    @cached_property
    def _cached(self) -> tuple[bool, ...]:
        model = self.places.plan.model
        return tuple(cache_of(model, layer) is not None for layer in range(model.layers))

    @cached_property
    def _accelerators(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.places.roles.accelerators)

    def _side(self, tensor: Tensor) -> str:
        return self.places.tensors[_key(tensor)].side

    @cached_property
    def _sizes(self) -> tuple[Counter[str], ...]:
        """Return bytes of every layer by side."""
        result = [Counter[str]() for _ in range(self.places.plan.model.layers)]
        for tensor in self._all:
            if tensor.layer is not None:
                result[tensor.layer][self._side(tensor)] += self.places.size(tensor)
        return tuple(result)

    @cached_property
    def _cut(self) -> int:
        """Return the first layer on an accelerator: with the fewest caches or states, then bytes, that are
        elsewhere."""
        layers = len(self._sizes)
        return min(range(layers, -1, -1), key=self._misplaced) if self._accelerators else layers

    def _misplaced(self, cut: int) -> tuple[int, int]:
        bases = self._bases_of(cut, self._counts(cut))
        sizes = zip(self._sizes, bases, strict=True)
        return (
            sum(there != base for there, base in zip(self._caches, bases, strict=True)),
            sum(size.total() - size[base] for size, base in sizes),
        )

    def _counts(self, cut: int) -> tuple[int, ...]:
        """Return the slots of each accelerator where layers from `cut` on are on accelerators, in their order."""
        layers, counts = len(self._sizes), [0] * len(self._accelerators)
        if not counts:
            return ()
        reached = 0
        for layer in range(cut, layers):
            side = self._caches[layer]
            reached = max(reached, self._accelerators.index(side)) if side in self._accelerators else reached
            counts[reached] += 1
        output = self._output_side
        if cut < layers or output in self._accelerators:
            counts[max(reached, self._accelerators.index(output)) if output in self._accelerators else reached] += 1
        return tuple(counts)

    @property
    def _output_side(self) -> str:
        return self._side(self._all[-1])

    def _bases_of(self, cut: int, counts: Sequence[int]) -> list[str]:
        """Return where every layer is without patterns."""
        on = [name for name, count in zip(self._accelerators, counts, strict=True) for _ in range(count)]
        return [HOST] * cut + on[: len(self._sizes) - cut]

    @cached_property
    def _bases(self) -> list[str]:
        return self._bases_of(self._cut, self.counts)

    @cached_property
    def _output_base(self) -> str:
        used = [name for name, count in zip(self._accelerators, self.counts, strict=True) if count]
        return used[-1] if used else HOST

    def _base(self, tensor: Tensor) -> str:
        if tensor.layer is not None:
            return self._bases[tensor.layer]
        model = self.places.plan.model
        name = tensor.name.partition(".")[0]
        last = name in last_ops(model) or tensor.op in last_ops(model)
        return self._output_base if last and name not in first_ops(model) else HOST

    @cached_property
    def _moved(self) -> list[Tensor]:
        """Return the tensors that are elsewhere than their layer; what is looked up stays where llama.cpp looks it
        up, unless the plan is one of llama.cpp."""
        return [tensor for tensor in self._elsewhere if self._named or not self._looked_up(tensor)]

    @property
    def _elsewhere(self) -> Iterator[Tensor]:
        return (tensor for tensor in self._all if self._side(tensor) != self._base(tensor))

    @property
    def _named(self) -> bool:
        return self.places.plan.strategy.name == "llama-cpp"

    @property
    def _embedding_moved(self) -> bool:
        return not self._named and any(self._looked_up(tensor) for tensor in self._elsewhere)

    def _looked_up(self, tensor: Tensor) -> bool:
        return tensor.layer is None and tensor.op in first_ops(self.places.plan.model)

    def _patterns(self, moved: Iterable[Tensor]) -> Iterator[str]:
        """Yield `PATTERN=BUFFER` for tensors that are elsewhere, those of the same layers together."""
        stems: dict[tuple[str, str], list[int]] = defaultdict(list)
        for side, name in sorted(self._file_names(moved)):
            block, _, rest = name.removeprefix("blk.").partition(".")
            if name.startswith("blk."):
                stems[side, rest].append(int(block))
            else:
                yield f"^{_escaped(name)}={buffer_of(self.places.roles, side)}"
        together: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
        for (side, rest), layers in stems.items():
            together[side, tuple(sorted(layers))].append(rest)
        for (side, blocks), rests in together.items():
            buffer = buffer_of(self.places.roles, side)
            for part in _short(sorted(rests)):
                yield rf"blk\.{numbers_pattern(blocks)}\.{_one_of(part)}={buffer}"

    def _file_names(self, moved: Iterable[Tensor]) -> set[tuple[str, str]]:
        """Return (side, name) of the file's tensors that hold them: of one whose parts are apart, the side of most."""
        names = tensor_names(self.places.plan.model)
        wanted = {name for tensor in moved for name in names[_key(tensor)][0]}
        sides: dict[str, Counter[str]] = defaultdict(Counter)
        base: dict[str, str] = {}
        for tensor in self._all:
            for name in names[_key(tensor)][0]:
                if name in wanted:
                    sides[name][self._side(tensor)] += tensor.elements
                    base[name] = self._base(tensor)
        chosen = {name: by_side.most_common(1)[0][0] for name, by_side in sides.items()}
        return {(side, name) for name, side in chosen.items() if side != base[name]}


OFFLOADED_TOKENS = 32
"""Tokens of a pass from which on llama.cpp brings weights of matrices to the accelerator (ggml's op offload)."""


def _key(tensor: Tensor) -> TensorKey:
    return tensor.name, tensor.layer


def _escaped(name: str) -> str:
    return name.replace(".", r"\.")


def _one_of(rests: Sequence[str]) -> str:
    """Return the pattern of ends of names."""
    return _escaped(rests[0]) if len(rests) == 1 else f"({'|'.join(map(_escaped, rests))})"


def _short(rests: Sequence[str]) -> Iterator[list[str]]:
    """Yield ends of names in groups that make patterns of a length that llama.cpp's users can read."""
    group: list[str] = []
    for rest in rests:
        if group and len(_one_of([*group, rest])) > _LONGEST_PATTERN - 80:
            yield group
            group = []
        group.append(rest)
    if group:
        yield group


def numbers_pattern(numbers: Sequence[int]) -> str:
    """Return a pattern of these numbers alone: `(0|[3-5]|1[0-9])`."""
    tens: dict[int, list[int]] = defaultdict(list)
    for number in sorted(set(numbers)):
        tens[number // 10].append(number % 10)
    parts = [f"{ten or ''}{_digits(digits)}" for ten, digits in tens.items()]
    return parts[0] if len(parts) == 1 else f"({'|'.join(parts)})"


def _digits(digits: Sequence[int]) -> str:
    if len(digits) == 1:
        return str(digits[0])
    runs = [[digit for _, digit in run] for _, run in groupby(enumerate(digits), lambda pair: pair[1] - pair[0])]
    return "[" + "".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else "".join(map(str, run)) for run in runs) + "]"


def numbers_in_words(numbers: Sequence[int]) -> str:
    """Return `0-4, 7`."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
