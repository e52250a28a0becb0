"""A conversation: every turn continues what earlier ones left in the caches, where the plan allows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.engine import Engine
from helmsman.executor.text.chat_template import PLAIN_STOPS, Message
from helmsman.executor.text.sampling import Sampling, chooser
from helmsman.executor.text.stopping import StoppedStream
from helmsman.executor.text.template_process import Renderer
from helmsman.executor.text.tokenizer import Text

Ending = Literal["done", "length", "context"]
"""Why a reply ended: by itself, after as many tokens as it may have, or at the end of the context."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """`computed`: tokens of the prompt that were not in the caches."""

    text: str
    tokens: tuple[int, ...]
    computed: int
    ending: Ending


@dataclass(frozen=True)
class ReplyOptions:
    """How replies are made: by `sampling` from `seed`, at most `output_tokens` each, up to one of `stops` or `ends`."""

    sampling: Sampling
    seed: int
    output_tokens: int
    stops: tuple[str, ...]
    ends: tuple[int, ...]


class Chat:
    """One conversation with an engine whose plan has one sequence."""

    def __init__(self, engine: Engine, text: Text, template: Renderer, how: ReplyOptions, system: str | None) -> None:
        self._engine, self._text, self._template, self._how = engine, text, template, how
        self._messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._cached: list[int] = []
        self.context = engine.plan.workload.context
        self._piece = engine.plan.workload.prompt_tokens

    def reply(self, message: str, on_text: Callable[[str], None]) -> ChatReply | None:
        """Return the assistant's answer, told to `on_text` as it grows; None when the context has no room for an
        answer.

        Raises BadInputError where the template fails."""
        messages = [*self._messages, {"role": "user", "content": message}]
        prompt = self._text.encode(self._template.render(messages), special=not self._template.own)
        room = self.context - len(prompt)
        if room < 1:
            return None
        past = min(common(self._cached, prompt), len(prompt) - 1)
        past = past if self._engine.continues(past, len(prompt) - past) else 0
        stops = self._how.stops if self._template.own else (*self._how.stops, *PLAIN_STOPS)
        stream, shown = StoppedStream(self._text, stops), []

        def told(chosen: NDArray[np.int32]) -> NDArray[np.bool_]:
            shown.append(stream.push(int(chosen[0])))
            on_text(shown[-1])
            return np.array([stream.ended or int(chosen[0]) in self._how.ends])

        tokens, ended = self._generate(prompt, past, min(self._how.output_tokens, room), told)
        shown.append(stream.rest())
        on_text(shown[-1])
        self._cached = [*prompt, *tokens[:-1]]
        answer = "".join(shown)
        self._messages = [*messages, {"role": "assistant", "content": answer}]
        ending: Ending = "done" if ended else "context" if len(tokens) == room else "length"
        return ChatReply(answer, tokens, len(prompt) - past, ending)

    def _generate(
        self, prompt: list[int], past: int, output: int, told: Callable[[NDArray[np.int32]], NDArray[np.bool_]]
    ) -> tuple[tuple[int, ...], bool]:
        """(tokens, whether the last one ended the reply). A prompt that may continue goes in pieces that the plan has
        buffers for."""
        batch = np.array([prompt], np.int32)
        while self._engine.rewinds and len(prompt) - past > self._piece:
            self._engine.generate(batch[:, past : past + self._piece], 1, past=past)
            past += self._piece
        ended = False

        def watched(chosen: NDArray[np.int32]) -> NDArray[np.bool_]:
            nonlocal ended
            result = told(chosen)
            ended = bool(result[0])
            return result

        choose = chooser(self._how.sampling, (self._how.seed, len(self._messages)), batch)
        made = self._engine.generate(
            batch[:, past:], output, past=past, choose=choose, on_token=watched, ignore_eos=True
        )
        return made.tokens[0], ended


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many equal tokens two sequences begin."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)
