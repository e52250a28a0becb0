"""Describes feed-forward networks: dense ones, routed experts, and the input that a layer of its own has per token."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Frozen, NonNegative, Positive, mistake
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.numbers import Dimension, ExpertCount, Scale

Activation = Literal["silu", "relu", "gelu", "gelu_tanh", "relu2", "swiglu_oai"]
"""The function between a network's matrices; swiglu_oai: gpt-oss's, gate * sigmoid(1.702 gate) * (up + 1)."""


class FeedForward(Frozen):
    """A network of `width`: down(activation(gate(x)) * up(x)), or down(activation(up(x))) where it is not gated.

    `clamp`: to which magnitude gate (above only) and up are cut; `gate_scale`: by what the gate is multiplied."""

    kind: Literal["feed-forward"] = "feed-forward"
    width: Dimension
    activation: Activation
    gated: bool
    bias: bool = False
    clamp: Positive | None = None
    gate_scale: Scale = 1.0

    @property
    def matrices(self) -> int:
        """Return how many matrices it has."""
        return 2 + self.gated


class RouterGroups(Frozen):
    """Experts lie in `count` groups of which the `kept` best are chosen among, by their best score, or best two."""

    count: ExpertCount
    kept: ExpertCount
    by: Literal["best", "best-two"] = "best-two"


class Router(Frozen):
    """Chooses experts by scores of a linear layer in f32.

    `score`: what becomes of logits; none: they are compared as they are. `correction`: a stored bias is added to
    scores for choosing alone. `weights`: those of the chosen: their scores, or the softmax of their logits;
    `normalised`: divided by their sum (+ `normalise_eps`), then multiplied by `scaling`. `input_norm`: of the hidden
    state, which a stored vector and hidden^-1/2 multiply (Gemma 4); `expert_scale`: a stored factor per expert.
    `choice`: scores; hash: a stored table from token to experts; sparse-mixer: the best twice, each weighed among those
    within 2 * `jitter` of it (Phi)."""

    score: Literal["softmax", "sigmoid", "sqrt-softplus", "none"] = "softmax"
    bias: bool = False
    correction: bool = False
    groups: RouterGroups | None = None
    weights: Literal["scores", "softmax-of-chosen"] = "scores"
    normalised: bool = True
    normalise_eps: NonNegative = 0.0
    scaling: Positive = 1.0
    input_norm: Norm | None = None
    expert_scale: bool = False
    choice: Literal["scores", "hash", "sparse-mixer"] = "scores"
    jitter: Positive | None = None


class Experts(Frozen):
    """`experts` networks of `width`, of which every token goes through the `chosen` ones of its `router`.

    `latent`: experts see and give as many values, through two matrices that all share; `input_scaled`: an expert's
    weight multiplies its input (Llama 4). `shared`: a network that every token goes through as well; `shared_gate`:
    whether the sigmoid of a linear layer of one row multiplies its outcome."""

    kind: Literal["experts"] = "experts"
    experts: ExpertCount
    chosen: ExpertCount
    width: Dimension
    activation: Activation
    gated: bool = True
    bias: bool = False
    clamp: Positive | None = None
    latent: Dimension | None = None
    input_scaled: bool = False
    router: Router
    shared: FeedForward | None = None
    shared_gate: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.chosen > self.experts:
            message = f"{self.chosen} experts are chosen of {self.experts}"
            raise mistake(message, "correct one of them", "chosen", self.chosen)
        groups = self.router.groups
        if groups is not None and (self.experts % groups.count or groups.kept > groups.count):
            message = f"{self.experts} experts do not lie in {groups.count} groups of which {groups.kept} are kept"
            raise mistake(message, "correct one of them", "router.groups")
        if groups is not None and self.chosen > groups.kept * (self.experts // groups.count):
            message = f"{groups.kept} groups have fewer than {self.chosen} experts"
            raise mistake(message, "correct one of them", "router.groups.kept", groups.kept)
        if self.shared is None and self.shared_gate:
            raise mistake("a gate without a shared expert", "describe the shared expert", "shared_gate", True)
        return self

    @property
    def matrices(self) -> int:
        """Return how many matrices an expert has."""
        return 2 + self.gated


class PerLayerInput(Frozen):
    """Adds what a table holds for the token and this layer: width values, gated by the hidden state (Gemma 4 E)."""

    kind: Literal["per-layer-input"] = "per-layer-input"
    activation: Activation


class PerLayerTable(Frozen):
    """A table of `vocab` x (layers * `width`) values, of which a token's row joins a projection of its embedding."""

    vocab: Annotated[int, Field(ge=1, le=2**24)]
    width: Dimension
    norm: Norm


class HyperConnections(Frozen):
    """`streams` hidden states run beside each other and are mixed around every body (DeepSeek V4).

    `iterations`: of the Sinkhorn steps that make a mixing matrix doubly stochastic."""

    streams: Count
    iterations: Count
    eps: NonNegative = 0.0
