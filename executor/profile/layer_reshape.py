"""The cost of turning a cache kept (batch, tokens, width) at every step: the layout that PARK-15 does away with."""

import time
from dataclasses import dataclass, field

from helmsman.executor._kernels import Pool, turn_rows
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.layer import Layers
from helmsman.executor.profile.layer_traffic import LayerTraffic
from helmsman.hwdb.fit import spread
from helmsman.schemas.formats import size_of

ROUNDS = 5


@dataclass
class TurnTimes:
    """Seconds of turning the keys of a layer, `size` bytes read and written, while the link rests and while it is
    busy; bytes/s of the device's plain reads at the time; `disturbed`: the share of the time that others took."""

    size: int
    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    disturbed: float = 0.0

    @property
    def spread(self) -> float:
        """How far the plain reads lie apart."""
        return spread(self.reads)


def measure_reshape(layers: Layers, pool: Pool, bench: MeasurementBuffers, traffic: LayerTraffic) -> TurnTimes:
    """Turn the keys of a layer into (batch, heads, head_dim, tokens) by the threads of `pool`, as executed."""
    question, shape = layers.question, layers.question.model.dense
    batch, tokens, heads, width = question.batch, question.context, shape.kv_heads, shape.head_dim
    row = size_of(width, question.kv_format)
    line = size_of(tokens, question.kv_format)
    came, to = (tokens * heads * row, row, heads * row), (heads * width * line, width * line, line)
    size = batch * heads * width * line
    target = arena_beside(size).alloc(size, "turned keys")
    turn_times = TurnTimes(size_of(2 * batch * tokens * heads * width, question.kv_format))

    def turn(number: int) -> float:
        keys, fmt = layers.blocks[number % layers.count]["keys"], question.kv_format
        began = time.monotonic()
        turn_rows(pool, keys, 0, came, target, 0, to, (batch, heads, tokens, width), fmt, fmt, True)
        return time.monotonic() - began

    for number in range(ROUNDS):
        turn_times.reads.append(bench.read(pool))
        turn_times.idle.append(turn(2 * number))
        with traffic.flowing():
            turn_times.busy.append(turn(2 * number + 1))
    return turn_times
