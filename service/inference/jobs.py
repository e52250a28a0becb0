"""The job that a request is for the engine: its prompt in tokens, what ends it, and whether that can ever fit."""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from helmsman.executor.text.chat_template import PLAIN_STOPS
from helmsman.executor.text.template_process import Renderer
from helmsman.executor.text.tokenizer import Text
from helmsman.schemas.errors import BadInputError
from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.body_process import BodyProcess
from helmsman.service.inference.generation import EngineCapacity, Job
from helmsman.service.inference.openai_requests import ChatRequest, CompletionRequest, GenerationRequest
from helmsman.service.inference.refusals import refused

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
class TextJob:
    """A job, and the texts that end it."""

    job: Job
    stops: tuple[str, ...]


async def completion(
    request: CompletionRequest, served: ServedModel, capacity: EngineCapacity, helper: BodyProcess
) -> TextJob:
    """Return the job of a completion. Raises RefusedError."""
    if isinstance(request.prompt, str):
        prompt = await _tokens(served, request.prompt, helper, special=True)
        return _wanted(request, prompt, request.stops, served, capacity)
    prompt = request.prompt
    fits = prompt[: _most(capacity)]  # a longer one is refused for its length
    wrong = next((token for token in fits if not 0 <= token < served.vocab), None)
    if wrong is not None:
        message = f"prompt: token ids are 0 to {served.vocab - 1} (got {wrong})"
        raise RefusedError(400, "invalid_request", message, param="prompt")
    return _wanted(request, prompt, request.stops, served, capacity)


async def chat(request: ChatRequest, served: ServedModel, capacity: EngineCapacity, helper: BodyProcess) -> TextJob:
    """Return the job of a conversation. Raises RefusedError."""
    template = served.template
    if template is None:
        raise RefusedError(400, "invalid_request", "this model has no tokenizer; use /v1/completions with token ids")
    try:
        text = await asyncio.wrap_future(template.submit([message.message for message in request.messages]))
    except BadInputError as error:
        raise RefusedError(400, "invalid_request", error.message, param="messages") from None
    prompt = await _tokens(served, text, helper, special=not template.own)
    stops = request.stops if template.own else (*request.stops, *PLAIN_STOPS)
    return _wanted(request, prompt, stops, served, capacity)


async def _tokens(served: ServedModel, text: str, helper: BodyProcess, *, special: bool) -> Sequence[int]:
    if served.text is None:
        raise RefusedError(400, "invalid_request", "this model has no tokenizer; give token ids", param="prompt")
    try:
        if len(text) <= _AT_ONCE:
            return served.text.encode(text, special=special)
        return await helper.encode(text, special)
    except BadInputError as error:
        raise refused(error) from None


def _wanted(
    request: GenerationRequest,
    prompt: Sequence[int],
    stops: tuple[str, ...],
    served: ServedModel,
    capacity: EngineCapacity,
) -> TextJob:
    if not prompt:
        raise RefusedError(400, "invalid_request", "the prompt is empty", param="prompt")
    if stops and served.text is None:
        raise RefusedError(400, "invalid_request", "this model has no tokenizer; use stop_token_ids", param="stop")
    most = request.most_tokens(_most(capacity) - len(prompt))
    least = request.min_tokens or 0
    if least > most:
        message = f"min_tokens: at most max_tokens, {most} (got {least})"
        raise RefusedError(400, "invalid_request", message, param="min_tokens")
    stops_at, eos = frozenset(request.stop_token_ids or ()), frozenset(served.eos)
    barred = frozenset(token for token in stops_at | eos if token < served.vocab)
    if least and len(barred) == served.vocab:
        message = "min_tokens: every token would end the answer"
        raise RefusedError(400, "invalid_request", message, param="min_tokens")
    ends = stops_at if request.ignore_eos else stops_at | eos
    seed = secrets.randbits(63) if request.seed is None else request.seed % 2**64
    _check_fits(len(prompt), most, capacity)
    return TextJob(Job(tuple(prompt), most, request.sampling, seed, least, ends, barred, request.priority or 0), stops)


def _most(capacity: EngineCapacity) -> int:
    """Return tokens of a request, prompt and answer, at most."""
    return min(capacity.context, capacity.home_tokens)


def _check_fits(prompt: int, answer: int, capacity: EngineCapacity) -> None:
    """A request of so many tokens that can never fit is refused at once, not queued for ever."""
    most = _most(capacity)
    if prompt + answer > most:
        message = f"{prompt} tokens of prompt and {answer} of answer: {most} are the most here"
        raise RefusedError(400, "context_length_exceeded", message, param="max_tokens")
