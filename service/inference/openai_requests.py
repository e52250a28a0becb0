"""The requests of OpenAI's interface, with vLLM's additions.

A null is as good as a field left out. What changes no answer (`user`, ...) is read and ignored; what this service
cannot do is accepted where it asks for nothing and refused otherwise; a field that is not known is a mistake."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from helmsman.executor.text.sampling import Sampling
from helmsman.schemas.base import Count, Document, Frozen, Index, mistake

_Stop = Annotated[str, Field(min_length=1, max_length=1000)]
_Stops = Annotated[tuple[_Stop, ...], Field(max_length=16)]
_Token = Annotated[int, Field(ge=0, lt=2**31)]
_Share = Annotated[float, Field(gt=0, le=1)]
_DEFAULT_COMPLETION = 16
"""Tokens of a completion where none are asked for, as at OpenAI's."""


def _only(what: str, *neutral: Any) -> BeforeValidator:
    """For a field of which only values that ask for nothing are known."""

    def check(value: Any) -> Any:
        if value is not None and value not in neutral:
            raise mistake(f"{what} not offered here", "leave the field out")
        return value

    return BeforeValidator(check)


class StreamOptions(Frozen):
    """`include_usage`: a last chunk with the usage; `continuous_usage_stats`: the usage so far in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationRequest(Document):
    """The fields that completions and conversations have in common."""

    byte_limit: ClassVar[int] = 2**20

    model: str | None = None
    max_tokens: Count | None = None
    min_tokens: Index | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: _Share | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: _Stop | _Stops | None = None
    stop_token_ids: Annotated[tuple[_Token, ...], Field(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None

    n: Annotated[Any, _only("several answers are", 1)] = None
    frequency_penalty: Annotated[Any, _only("penalties by frequency are", 0)] = None
    presence_penalty: Annotated[Any, _only("penalties by presence are", 0)] = None
    logit_bias: Annotated[Any, _only("biased logits are", {})] = None
    response_format: Annotated[Any, _only("forms other than text are", {"type": "text"})] = None

    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen: with OpenAI's temperature of 1 where none is given; vLLM's top_k of -1 is all."""
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=max(0, self.top_k or 0),
            top_p=self.top_p or 1.0,
            min_p=self.min_p or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
        )

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop or ()

    @abstractmethod
    def most_tokens(self, room: int) -> int:
        """Return tokens of the answer at most, where the context has `room` for so many."""


def _prompt(prompt: Any) -> str | tuple[int, ...]:
    """Return a text or token ids; a list of one prompt is that prompt. By hand: a union took 2 us a token."""
    if isinstance(prompt, list) and prompt and type(prompt[0]) in (str, list):
        if len(prompt) > 1:
            raise mistake("several prompts in one request are not offered here", "send a request for each")
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise mistake("neither a text nor token ids", "write a text in quotes, or a list of whole numbers")
    return tuple(prompt)


class CompletionRequest(GenerationRequest):
    """`POST /v1/completions`: a prompt as text or token ids."""

    prompt: Annotated[Any, BeforeValidator(_prompt)]

    logprobs: Annotated[Any, _only("log probabilities are")] = None
    prompt_logprobs: Annotated[Any, _only("log probabilities are")] = None
    echo: Annotated[Any, _only("echoes of the prompt are", False)] = None
    best_of: Annotated[Any, _only("several answers are", 1)] = None
    suffix: Annotated[Any, _only("texts after the completion are", "")] = None

    def most_tokens(self, room: int) -> int:
        """Return tokens of the answer at most: what is asked for."""
        return self.max_tokens or _DEFAULT_COMPLETION


class TextPart(Frozen):
    """A part of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(Frozen):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | tuple[TextPart, ...]
    name: str | None = None

    @property
    def message(self) -> dict[str, str]:
        """As chat templates take it; OpenAI's newer `developer` is what they call `system`."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatRequest(GenerationRequest):
    """`POST /v1/chat/completions`: a conversation to go on with."""

    messages: Annotated[tuple[ChatMessage, ...], Field(min_length=1, max_length=10_000)]
    max_completion_tokens: Count | None = None

    logprobs: Annotated[Any, _only("log probabilities are", False)] = None
    top_logprobs: Annotated[Any, _only("log probabilities are", 0)] = None
    tools: Annotated[Any, _only("tools are", [])] = None
    tool_choice: Annotated[Any, _only("tools are", "none", "auto")] = None
    parallel_tool_calls: Any = None

    def most_tokens(self, room: int) -> int:
        """Return tokens of the answer at most: what is asked for, or all that the context has room for."""
        return self.max_completion_tokens or self.max_tokens or max(1, room)
