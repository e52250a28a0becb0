"""What a request asks of the engine: its prompt in tokens, what ends it, and whether that can ever fit."""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from helmsman.executor.chat_template import PLAIN_STOPS
from helmsman.executor.template_process import Renderer
from helmsman.executor.text import Text
from helmsman.schemas.errors import BadInputError
from helmsman.service.apart import Apart
from helmsman.service.asked import ChatAsked, CompletionAsked, GenerationRequest
from helmsman.service.generation import EngineCapacity, Job
from helmsman.service.refusals import RefusedError, refused

_AT_ONCE = 4096
"""Characters that are tokenised in the loop; more take milliseconds, apart."""


@dataclass(frozen=True)
class ServedModel:
    """The model that is served: its name, its tokenizer and chat template (None without), ids below `vocab`, `eos`;
    `about`: what else `/v1/models` says of it."""

    name: str
    vocab: int
    eos: Collection[int] = ()
    text: Text | None = None
    template: Renderer | None = None
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job, and the texts that end it."""

    job: Job
    stops: tuple[str, ...]


async def completion(asked: CompletionAsked, served: ServedModel, capacity: EngineCapacity, apart: Apart) -> Wanted:
    """What a completion asks. Raises RefusedError."""
    if isinstance(asked.prompt, str):
        prompt = await _tokens(served, asked.prompt, apart, special=True)
        return _wanted(asked, prompt, asked.stops, served, capacity)
    prompt = asked.prompt
    fits = prompt[: _most(capacity)]  # a longer one is refused for its length
    wrong = next((token for token in fits if not 0 <= token < served.vocab), None)
    if wrong is not None:
        message = f"prompt: token ids are 0 to {served.vocab - 1} (got {wrong})"
        raise RefusedError(400, "invalid_request", message, param="prompt")
    return _wanted(asked, prompt, asked.stops, served, capacity)


async def chat(asked: ChatAsked, served: ServedModel, capacity: EngineCapacity, apart: Apart) -> Wanted:
    """What a conversation asks. Raises RefusedError."""
    template = served.template
    if template is None:
        raise RefusedError(400, "invalid_request", "this model has no tokenizer; use /v1/completions with token ids")
    try:
        text = await asyncio.wrap_future(template.submit([message.message for message in asked.messages]))
    except BadInputError as error:
        raise RefusedError(400, "invalid_request", error.message, param="messages") from None
    prompt = await _tokens(served, text, apart, special=not template.own)
    stops = asked.stops if template.own else (*asked.stops, *PLAIN_STOPS)
    return _wanted(asked, prompt, stops, served, capacity)


async def _tokens(served: ServedModel, text: str, apart: Apart, *, special: bool) -> Sequence[int]:
    if served.text is None:
        raise RefusedError(400, "invalid_request", "this model has no tokenizer; give token ids", param="prompt")
    try:
        if len(text) <= _AT_ONCE:
            return served.text.encode(text, special=special)
        return await apart.encode(text, special)
    except BadInputError as error:
        raise refused(error) from None


def _wanted(
    asked: GenerationRequest,
    prompt: Sequence[int],
    stops: tuple[str, ...],
    served: ServedModel,
    capacity: EngineCapacity,
) -> Wanted:
    if not prompt:
        raise RefusedError(400, "invalid_request", "the prompt is empty", param="prompt")
    if stops and served.text is None:
        raise RefusedError(400, "invalid_request", "this model has no tokenizer; use stop_token_ids", param="stop")
    most = asked.most_tokens(_most(capacity) - len(prompt))
    least = asked.min_tokens or 0
    if least > most:
        message = f"min_tokens: at most max_tokens, {most} (got {least})"
        raise RefusedError(400, "invalid_request", message, param="min_tokens")
    stops_at, eos = frozenset(asked.stop_token_ids or ()), frozenset(served.eos)
    barred = frozenset(token for token in stops_at | eos if token < served.vocab)
    if least and len(barred) == served.vocab:
        message = "min_tokens: every token would end the answer"
        raise RefusedError(400, "invalid_request", message, param="min_tokens")
    ends = stops_at if asked.ignore_eos else stops_at | eos
    seed = secrets.randbits(63) if asked.seed is None else asked.seed % 2**64
    _check_fits(len(prompt), most, capacity)
    return Wanted(Job(tuple(prompt), most, asked.sampling, seed, least, ends, barred, asked.priority or 0), stops)


def _most(capacity: EngineCapacity) -> int:
    """Tokens of a request, prompt and answer, at most."""
    return min(capacity.context, capacity.home_tokens)


def _check_fits(prompt: int, answer: int, capacity: EngineCapacity) -> None:
    """A request of so many tokens that can never fit is refused at once, not queued for ever."""
    most = _most(capacity)
    if prompt + answer > most:
        message = f"{prompt} tokens of prompt and {answer} of answer: {most} are the most here"
        raise RefusedError(400, "context_length_exceeded", message, param="max_tokens")
