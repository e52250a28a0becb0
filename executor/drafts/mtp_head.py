"""The draft head of a model (MTP): joins the embedding of a token and the state before it, and runs its block."""

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import linear
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.opening import Devices
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.drafts.drafter import Hidden
from helmsman.executor.drafts.head_stage import HeadStage
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader, as_f32
from helmsman.executor.passes.generation import Tokens
from helmsman.executor.weights.conversion import Rows
from helmsman.executor.weights.draft_weights import DraftWeights
from helmsman.lowering.draft_head import EMBEDDING_NORM, FUSE, HIDDEN_NORM, OUTPUT_NORM, block_model, draft_head
from helmsman.lowering.drafter import drafter_rules, head_table
from helmsman.lowering.tensors import embedding_tensors
from helmsman.schemas.plan import Plan


class MtpHead:
    """Drafts with one head of a model: further tokens by feeding it its own states, behind its norm.

    Its weights and cache are where `lowering.drafter` says; it shares the model's head. `tokens`: of every sequence
    that it takes in at a time."""

    def __init__(
        self, plan: Plan, devices: Devices, store: WeightLoader, storage: Storage, weights: DraftWeights, tokens: int
    ) -> None:
        model, rules = plan.model, drafter_rules(plan)
        made = plan.model_copy(update={**rules._asdict(), "model": block_model(model), "expert_slots": ()})
        device = of_kind(devices.by_name[made.compute[0].device], CpuDevice)
        own = WeightLoader(made, weights, dict(devices.memories), storage, lambda _: None)
        own.share(store, head_table(model))
        self._stage, self._tokens, self._hidden = HeadStage(made, device, own, tokens), tokens, model.hidden
        self._order, self._eps = draft_head(model).order, draft_head(model).norm.eps
        self._table = weights.tensor(embedding_tensors(model)[0])
        own_norms = {name: _vector(*weights.beside(name)) for name in (EMBEDDING_NORM, HIDDEN_NORM, OUTPUT_NORM)}
        self._norms = {name: weights.computed_beside(name, vector) for name, vector in own_norms.items()}
        self._final = weights.computed_final(_vector(*weights.final_norm()))
        self._format = made.residence[0].format
        fmt, fuse = weights.beside(FUSE)
        self._fuse = device.memory.keep(fuse, fmt, self._format, 2 * model.hidden, FUSE)
        self._pool, self._past = device.pool, 0
        self._next: Tokens = np.zeros(0, np.int32)
        self._last: Hidden = np.zeros((0, 1, model.hidden), np.float32)

    def follow(self, following: Tokens, hidden: Hidden, past: int) -> None:
        """Run the head over verified tokens, as many at a time as its stage takes."""
        for first in range(0, following.shape[1], self._tokens):
            part = slice(first, first + self._tokens)
            self._advance(following[:, part], self._rms(hidden[:, part], self._final), past + first)

    def propose(self, count: int) -> Tokens:
        """Return the token that the last state leads to, and those that the head's own states lead to."""
        drafts = [self._next]
        while len(drafts) < count:
            self._advance(drafts[-1][:, None], self._last, self._past)
            drafts.append(self._next)
        return np.stack(drafts, axis=1)

    def logits(self) -> NDArray[np.float32]:
        """Return f32 (sequences, vocab): those of which the latest draft is the largest."""
        return self._stage.logits()

    def _advance(self, following: Tokens, states: Hidden, past: int) -> None:
        """Run the head over `following` (sequences, tokens) and normed states before them."""
        self._next = self._stage.run(self._joined(following, states), past)
        self._last = self._rms(self._stage.states(following.shape[1])[:, -1:], self._norms[OUTPUT_NORM])
        self._past = past + following.shape[1]

    def _joined(self, following: Tokens, states: Hidden) -> Hidden:
        """Return eh_proj over the normed embeddings of tokens and the normed states, in the head's order."""
        embedded = self._rms(self._embedded(following).reshape(states.shape), self._norms[EMBEDDING_NORM])
        halves = [embedded, self._rms(states, self._norms[HIDDEN_NORM])]
        if self._order == "hidden-first":
            halves.reverse()
        x, width = np.ascontiguousarray(np.concatenate(halves, axis=-1), np.float32), self._hidden
        y: NDArray[np.float32] = np.empty(states.shape, np.float32)
        linear(self._pool, self._format, self._fuse, width, 2 * width, x.data, y.data, following.size, "f32")
        return y

    def _embedded(self, ids: Tokens) -> NDArray[np.float32]:
        fmt, table = self._table
        return as_f32(fmt, np.concatenate([table[slice(token, token + 1)] for token in ids.ravel().tolist()]))

    def _rms(self, values: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
        squares = np.mean(np.square(values), axis=-1, keepdims=True, dtype=np.float32)
        return np.asarray(values / np.sqrt(squares + np.float32(self._eps)) * weight, np.float32)


def _vector(fmt: str, rows: Rows) -> NDArray[np.float32]:
    return as_f32(fmt, rows[:])
