"""Operation tables: Park & Egger's published ones, random ones, and a search of splits that tries everything.

Figures 6a, 7a and 8a are of OPT-30B: host, link, packed link, unpacking and storage for one batch of 50, the
accelerator for a batch of 25. Milliseconds as printed.
"""

from dataclasses import dataclass
from itertools import combinations
from random import Random

from helmsman.planner.strategies.op_split.layer_table import COLUMNS, LayerTable, chunked, layer_table, storable

OPS = ("LN.0", "Q", "K", "V", "Scores", "Softmax", "WV", "Output", "LN.1", "FC.0", "FC.1")
HOST = (0.255, 5.775, 5.775, 5.775, 77.527, 0.776, 77.527, 5.775, 0.255, 23.216, 24.193)
LINK = (0.001, 4.214, 4.214, 4.214, 15.344, 0.0, 15.344, 4.214, 0.001, 16.856, 16.856)
ACCELERATOR = (0.038, 0.323, 0.323, 0.323, 0.463, 0.066, 0.463, 0.323, 0.038, 1.097, 1.174)
LINK_PACKED = (0.001, 1.083, 1.083, 1.083, 4.110, 0.0, 4.110, 1.083, 0.001, 4.332, 4.332)
UNPACK = (0.0, 6.623, 6.623, 6.623, 10.963, 0.0, 10.963, 6.623, 0.0, 11.446, 11.446)
STORAGE = (0.0, 20.7, 20.7, 20.7, 0.0, 0.0, 0.0, 20.7, 0.0, 82.798, 82.798)
KV_OPS = ("Scores", "WV")
MS = 1e-3


def published(storage_devices_faster: float = 1.0) -> LayerTable:
    """The published tables in seconds, storage as measured or so many times faster."""

    def pick(column: tuple[float, ...], kv: bool) -> tuple[float, ...]:
        return tuple(value * MS if (op in KV_OPS) == kv else 0.0 for op, value in zip(OPS, column, strict=True))

    return layer_table(
        OPS,
        {
            "host": tuple(value * MS for value in HOST),
            "accelerator": tuple(value * MS for value in ACCELERATOR),
            "weights": pick(LINK, False),
            "cache": pick(LINK, True),
            "weights_q": pick(LINK_PACKED, False),
            "cache_q": pick(LINK_PACKED, True),
            "decompress_weights": pick(UNPACK, False),
            "decompress_cache": pick(UNPACK, True),
            "storage": tuple(value * MS / storage_devices_faster for value in STORAGE),
        },
    )


def random_table(rng: Random, most: int = 6, whole_numbers: bool = False) -> LayerTable:
    """Up to `most` units with weights, caches, both or neither, some divided; whole numbers tie often."""
    count = rng.randint(1, most)
    columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for _ in range(count):
        for name, value in _random_operation(rng, whole_numbers).items():
            columns[name].append(value)
    table = layer_table(tuple(f"op{k}" for k in range(count)), columns)
    spare = most - count
    if whole_numbers or not spare or rng.random() < 0.4:
        return table
    return chunked(table, {f"op{rng.randrange(count)}": _random_parts(rng, spare + 1)})


def _random_parts(rng: Random, most: int) -> int | tuple[float, ...]:
    parts = rng.randint(1, most)
    if rng.random() < 0.5:
        return parts
    weights = [rng.uniform(0.2, 1) for _ in range(parts)]
    return tuple(weight / sum(weights) for weight in weights)


def _random_operation(rng: Random, whole_numbers: bool) -> dict[str, float]:
    def draw(top: float, chance: float = 1.0) -> float:
        if rng.random() > chance:
            return 0.0
        return float(rng.randint(1, int(top))) if whole_numbers else rng.uniform(0.05, 1) * top

    weights, cache = draw(12, 0.7), draw(12, 0.4)
    return {
        "host": draw(20),
        "accelerator": draw(6, 0.9),
        "weights": weights,
        "cache": cache,
        "weights_q": draw(6) if weights else 0.0,
        "cache_q": draw(6) if cache else 0.0,
        "decompress_weights": draw(8, 0.8) if weights else 0.0,
        "decompress_cache": draw(8, 0.8) if cache else 0.0,
        "storage": draw(20, 0.5) if weights else 0.0,
        "staged": draw(8, 0.3) if weights else 0.0,
    }


@dataclass(frozen=True)
class Tried:
    """One candidate of the oracle and its lanes, in seconds."""

    start: int
    stop: int
    compressed: bool
    stored: tuple[str, ...]
    cpu: float
    h2d: float
    decompress: float
    s2d: float
    gpu: float
    total: float

    def key(self, table: LayerTable, compress: tuple[bool, ...]) -> tuple[float, ...]:
        """The order of candidates; times to 1e-9, for sums in another order."""
        ops = storable(table)
        index = sum(1 << ops.index(op) for op in self.stored)
        times = [round(value, 9) + 0.0 for value in (self.total, abs(self.cpu - self.h2d), self.s2d)]
        return (*times, self.start, self.stop, index, compress.index(self.compressed))


def try_everything(
    table: LayerTable, batches: int, printed: bool, compress: tuple[bool, ...], storage: bool
) -> list[Tried]:
    """Every split in every configuration with every set of stored operations of its range, one at a time."""
    n = len(table.units)
    found = []
    for start in range(n + 1):
        for stop in range(start, n + 1):
            inside = {unit.op for unit in table.units[start:stop]}
            ops = [op for op in storable(table) if op in inside] if storage else []
            sets = [chosen for size in range(len(ops) + 1) for chosen in combinations(ops, size)]
            found += [try_one(table, start, stop, q, chosen, batches, printed) for chosen in sets for q in compress]
    return found


def try_one(
    table: LayerTable, start: int, stop: int, compressed: bool, stored: tuple[str, ...], batches: int, printed: bool
) -> Tried:
    """One candidate, by walking through its transfers and unpackings."""
    units, held = range(start, stop), {k for k, unit in enumerate(table.units) if unit.op in stored}
    host = sum(seconds for k, seconds in enumerate(table.host) if k not in units)
    gpu = sum(table.accelerator[k] for k in units)
    s2d = sum(table.storage[k] for k in units if k in held)
    moved, unpack = (table.weights_q, table.decompress_weights) if compressed else (table.weights, (0.0,) * 999)
    moved_kv, unpack_kv = (table.cache_q, table.decompress_cache) if compressed else (table.cache, (0.0,) * 999)
    weights = [(table.staged[k], 0.0) if k in held else (moved[k], unpack[k]) for k in units]
    caches = [(moved_kv[k], unpack_kv[k]) for k in units]
    mixed = [item for pair in zip(weights, caches, strict=True) for item in pair]
    if printed:
        h2d, done, total = _printed(mixed, weights, caches, gpu, batches)
        total = max(total, batches * host, s2d)
    else:
        h2d, done, total = _chained(mixed, weights, caches, gpu, batches)
        total = max(total, batches * host, host + gpu, batches * gpu, s2d)
    return Tried(start, stop, compressed, stored, batches * host, h2d, done, s2d, batches * gpu, total)


Items = list[tuple[float, float]]


def _walk(items: Items, link: float, unpack: float) -> tuple[float, float]:
    """When link and unpacking are free after these items, if they are free at `link` and `unpack` before."""
    for seconds, work in items:
        link += seconds
        if work > 0:
            unpack = max(link, unpack) + work
    return link, unpack


def _printed(mixed: Items, weights: Items, caches: Items, gpu: float, batches: int) -> tuple[float, float, float]:
    link, done = _walk(mixed, 0.0, 0.0)
    for _ in range(batches - 1):
        link, later = _walk(caches, max(link, done) + gpu, 0.0)
        done = max(done, later)
    h2d = sum(s for s, _ in weights) + batches * sum(s for s, _ in caches) + (batches - 1) * gpu
    return h2d, done, max(h2d, done)


def _chained(mixed: Items, weights: Items, caches: Items, gpu: float, batches: int) -> tuple[float, float, float]:
    if batches == 1 or not any(map(any, caches)):
        h2d, done = _walk(mixed, 0.0, 0.0)
        return h2d, done, max(h2d, done)
    plain, _ = _cycle([(s, 0.0) for s, _ in weights], [(s, 0.0) for s, _ in caches], gpu, batches)
    packed, works = _cycle(weights, caches, gpu, batches)
    return plain, packed if works else 0.0, max(plain, packed)


def _cycle(weights: Items, caches: Items, gpu: float, batches: int) -> tuple[float, bool]:
    """From the last batch's KV of one layer to that of the next, walking; one batch's KV is there at a time."""
    link, unpack = _walk(caches, 0.0, 0.0)
    section = max(link, unpack) + gpu
    link, unpack = _walk(weights, link, unpack)
    for _ in range(batches - 1):
        link, unpack = _walk(caches, max(link, section), unpack)
        section = max(link, unpack) + gpu
    return section, any(work > 0 for _, work in (*weights, *caches))
