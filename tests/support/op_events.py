"""The dependent chain of decoder layers as tasks in lanes, executed one by one: the oracle of L'.

Lanes run their tasks in the order given. `fetch` says when a layer's weights (and with one batch its KV) may start to
move: "layer": once the accelerator starts the layer before; "buffer": once it is done with the one before that, which
is all that two buffers need. `cpu` says in which order the host takes its tasks: "batch": suffix of a layer and prefix
of the next together, batch by batch; "layer": all prefixes of a layer, then all suffixes. What
storage brought to the host the layer before is there (`staged`).
"""

from collections import deque
from dataclasses import dataclass, field

from helmsman.planner.strategies.op_split.layer_table import LayerTable

Name = tuple[object, ...]


@dataclass
class Chain:
    table: LayerTable
    start: int
    stop: int
    compressed: bool = False
    stored: tuple[str, ...] = ()
    batches: int = 1
    fetch: str = "layer"
    cpu: str = "batch"
    lanes: dict[str, deque[tuple[Name, float, tuple[Name, ...]]]] = field(default_factory=dict)
    data: dict[tuple[int, int], list[Name]] = field(default_factory=dict)

    def period(self, layers: int) -> float:
        """Seconds per layer at the end: the mean over the last quarter of the layers."""
        for layer in range(layers):
            self._fetch(layer)
            self._accelerator(layer)
        self._host(layers)
        ends = _execute(self.lanes)
        last, before = layers - 2, layers - 2 - layers // 4
        return (ends[("done", last)] - ends[("done", before)]) / (last - before)

    def _add(self, lane: str, name: Name, seconds: float, after: tuple[Name, ...]) -> None:
        self.lanes.setdefault(lane, deque()).append((name, seconds, after))

    def _fetch(self, layer: int) -> None:
        gate: Name = ("gate", layer - 1, 0) if self.fetch == "layer" else ("section", layer - 2, self.batches - 1)
        after = (gate,) if gate[1] >= 0 else ()
        linked = [k for k in self._units() if self.table.units[k].op not in self.stored]
        for k in self._units():
            if k in linked:
                self._move("weights", k, layer, 0, after)
            elif self.table.storage[k]:
                self._deliver("storage", ("storage", k, layer), self.table.storage[k], after, layer, 0)
                self._deliver("link", ("staged", k, layer), self.table.staged[k], after, layer, 0)
            if self.batches == 1:
                self._move("cache", k, layer, 0, after)
        if self.batches > 1:
            self._fetch_caches(layer)

    def _fetch_caches(self, layer: int) -> None:
        """Every batch's KV after the section of the batch before."""
        for batch in range(self.batches):
            previous: Name = ("section", layer, batch - 1) if batch else ("section", layer - 1, self.batches - 1)
            for k in self._units():
                self._move("cache", k, layer, batch, (previous,) if layer or batch else ())

    def _move(self, what: str, k: int, layer: int, batch: int, after: tuple[Name, ...]) -> None:
        seconds = getattr(self.table, what + ("_q" if self.compressed else ""))[k]
        work = getattr(self.table, f"decompress_{what}")[k] if self.compressed else 0.0
        name: Name = (what, k, layer, batch)
        if seconds or work:
            self._deliver("link", name, seconds, after, layer, batch)
        if work:
            self._deliver("unpack", ("unpack", *name), work, (name,), layer, batch)

    def _deliver(self, lane: str, name: Name, seconds: float, after: tuple[Name, ...], layer: int, batch: int) -> None:
        self._add(lane, name, seconds, after)
        self.data.setdefault((layer, batch), []).append(name)

    def _accelerator(self, layer: int) -> None:
        for batch in range(self.batches):
            data = tuple(self.data.get((layer, batch), ()))
            self._add("gpu", ("gate", layer, batch), 0.0, (*data, ("prefix", layer, batch)))
            for k in self._units():
                self._add("gpu", ("compute", k, layer, batch), self.table.accelerator[k], ())
            self._add("gpu", ("section", layer, batch), 0.0, ())

    def _host(self, layers: int) -> None:
        prefix = sum(self.table.host[: self.start])
        suffix = sum(self.table.host[self.stop :])
        for batch in range(self.batches):
            self._add("cpu", ("prefix", 0, batch), prefix, ())
        for layer in range(layers):
            rounds = [[batch] for batch in range(self.batches)] if self.cpu == "batch" else [list(range(self.batches))]
            for together in rounds:
                for batch in together:
                    self._add("cpu", ("suffix", layer, batch), suffix, (("section", layer, batch),))
                for batch in together:
                    self._add("cpu", ("prefix", layer + 1, batch), prefix, (("suffix", layer, batch),))
            self._add("cpu", ("done", layer), 0.0, ())

    def _units(self) -> range:
        return range(self.start, self.stop)


def _execute(lanes: dict[str, deque[tuple[Name, float, tuple[Name, ...]]]]) -> dict[Name, float]:
    """When every task ends; raises if tasks wait for each other."""
    ends: dict[Name, float] = {}
    free = dict.fromkeys(lanes, 0.0)
    while any(lanes.values()):
        before = len(ends)
        for lane, queue in lanes.items():
            while queue and all(name in ends for name in queue[0][2]):
                name, seconds, after = queue.popleft()
                free[lane] = ends[name] = max([free[lane], *(ends[other] for other in after)]) + seconds
        if len(ends) == before:
            raise ValueError(f"tasks wait for each other: {[queue[0][0] for queue in lanes.values() if queue]}")
    return ends
