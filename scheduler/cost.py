"""IterationCost: what the stages of one pass take on one replica, as policies, simulator and executor read it.

Times are seconds of one layer. Filled in by `planner.serving.iteration_cost`, or from what an executor has measured."""

from bisect import bisect_right
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Line:
    """A piecewise linear function through (x, y): y[0] below the first knot, the last slope beyond the last one.

    x strictly ascending, y never falling, at least one knot (NEO-17: typical lengths and linear interpolation)."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.x and len(self.x) == len(self.y), f"{len(self.x)} knots with {len(self.y)} values"
        assert all(here < there for here, there in zip(self.x, self.x[1:], strict=False)), "knots in ascending order"
        assert all(here <= there for here, there in zip(self.y, self.y[1:], strict=False)), "values that never fall"

    def __call__(self, at: float) -> float:
        """Return the value at `at`."""
        if at <= self.x[0] or len(self.x) == 1:
            return self.y[0]
        left = min(bisect_right(self.x, at), len(self.x) - 1) - 1
        slope = (self.y[left + 1] - self.y[left]) / (self.x[left + 1] - self.x[left])
        return self.y[left] + (at - self.x[left]) * slope

    def scaled(self, factor: float) -> "Line":
        """Return the same function `factor` times as high."""
        return Line(self.x, tuple(factor * value for value in self.y))


@dataclass(frozen=True, slots=True)
class IterationCost:
    """Seconds of one layer by stage, and of the ends of a pass; `layers` of them make a pass.

    `linear`: tokens in the pass (or sub-batch) -> norms, q, k, v, append, o and FFN (T_l). `gpu_attention`: KV tokens
    that decode attention on the accelerator reads (T_ga), and `gpu_request` seconds more for each request.
    `prefill_compute`: query-key pairs of prompt chunks, the sum of t past + t (t + 1) / 2; `prefill_read`: KV tokens
    that they read, the sum of past + t; the longer of both counts. `cpu_attention`: KV tokens that decode attention on
    the host reads (T_ca), and `cpu_request` seconds more for each request. `to_host`: requests -> Q, K and V over the
    link; `to_device`: requests -> outputs of attention back; both until what waits for them begins. `swap_out`,
    `swap_in`: KV tokens -> their keys and values over the link. `ends`: sequences that yield a token -> embedding,
    final norm, head and the choice of a token (T_prl + T_pol, NEO-11).

    `stages`: of a pipeline of accelerators, each with its layers and its link, at work on as many micro-batches at a
    time (APEX-39). A pass is then a round, and the accelerator's stages and ends are such that `layers` of them make
    one; those of the host and of a link are as ever.

    `shared_device`, `shared_host`: by how much longer, as a share, what the accelerator reads and what the host's
    attention reads take while both read at once, where their memories are one; else 0.

    `join_device`, `join_host`: seconds between two stages of the accelerator, and of the host, the second of which
    waits for the other side: once a layer for each sub-batch with attention on the host.

    `state_copy`, `state_out`, `state_in`: seconds in which the states of one request, of all layers, are copied to
    another place on the accelerator, and moved over the link either way: before and behind a pass."""

    layers: int
    linear: Line
    gpu_attention: Line
    prefill_compute: Line
    prefill_read: Line
    cpu_attention: Line
    cpu_request: float
    to_host: Line
    to_device: Line
    swap_out: Line
    swap_in: Line
    ends: Line
    stages: int = 1
    gpu_request: float = 0.0
    shared_device: float = 0.0
    shared_host: float = 0.0
    join_device: float = 0.0
    join_host: float = 0.0
    state_copy: float = 0.0
    state_out: float = 0.0
    state_in: float = 0.0

    def scaled(
        self, linear: float = 1.0, gpu_attention: float = 1.0, cpu_attention: float = 1.0, link: float = 1.0
    ) -> "IterationCost":
        """Return the same costs where stages take that many times as long: what is believed against what happens
        (APEX-43), and hosts of another memory bandwidth (`cpu_attention`) or links of another (`link`, both ways).

        `linear` stands for the ends too, `gpu_attention` for prompts' attention."""
        return replace(
            self,
            linear=self.linear.scaled(linear),
            gpu_attention=self.gpu_attention.scaled(gpu_attention),
            gpu_request=self.gpu_request * gpu_attention,
            prefill_compute=self.prefill_compute.scaled(gpu_attention),
            prefill_read=self.prefill_read.scaled(gpu_attention),
            cpu_attention=self.cpu_attention.scaled(cpu_attention),
            cpu_request=self.cpu_request * cpu_attention,
            to_host=self.to_host.scaled(link),
            to_device=self.to_device.scaled(link),
            swap_out=self.swap_out.scaled(link),
            swap_in=self.swap_in.scaled(link),
            ends=self.ends.scaled(linear),
            state_copy=self.state_copy * linear,
            state_out=self.state_out * link,
            state_in=self.state_in * link,
        )
