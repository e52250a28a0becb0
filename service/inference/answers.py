"""Answers in OpenAI's shapes: one document, or chunks of a stream of server-sent events."""

import json
from dataclasses import dataclass
from typing import Any

from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.openai_requests import GenerationRequest
from helmsman.service.inference.refusals import refusal_body
from helmsman.service.inference.replies import Piece

DONE = b"data: [DONE]\n\n"
_COMPACT = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the prompt, of the answer so far, and those of the prompt that need not be computed."""

    prompt: int
    answer: int
    cached: int

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's object."""
        total, details = self.prompt + self.answer, {"cached_tokens": self.cached}
        counts = {"prompt_tokens": self.prompt, "completion_tokens": self.answer, "total_tokens": total}
        return {**counts, "prompt_tokens_details": details}


@dataclass(frozen=True)
class RequestAnswer:
    """How one request is answered: as a conversation goes on (`chat`) or a text does, under which `name` and model."""

    request: GenerationRequest
    name: str
    created: int
    model: str
    chat: bool

    def whole(self, piece: Piece, prompt: tuple[int, ...], usage: Usage) -> bytes:
        """Return the answer as one document."""
        said = {"message": {"role": "assistant", "content": piece.text}} if self.chat else {"text": piece.text}
        choice: dict[str, Any] = {"index": 0, **said, "logprobs": None, "finish_reason": piece.finish}
        if self.request.return_token_ids:
            choice |= {"prompt_token_ids": list(prompt), "token_ids": list(piece.tokens)}
        return json.dumps(self._document(choice, "") | {"usage": usage.body}).encode()

    def chunk(self, piece: Piece, usage: Usage, *, first: bool) -> bytes:
        """Return the event of some tokens; the first says who speaks, too: apart, it would look like a token."""
        role = {"role": "assistant"} if first else {}
        said = {"delta": role | {"content": piece.text}} if self.chat else {"text": piece.text}
        choice: dict[str, Any] = {"index": 0, **said, "logprobs": None, "finish_reason": piece.finish}
        if self.request.return_token_ids:
            choice["token_ids"] = list(piece.tokens)
        body = self._document(choice, ".chunk")
        if self._usage:
            body["usage"] = usage.body if self._continuous else None
        return _event(body)

    def closing(self, usage: Usage) -> bytes:
        """Return the events that end a stream: the usage where it is asked for."""
        if not self._usage:
            return DONE
        return _event(self._document(None, ".chunk") | {"usage": usage.body}) + DONE

    def failing(self, problem: RefusedError) -> bytes:
        """Return the events that end a stream that cannot go on."""
        return _event(refusal_body(problem)) + DONE

    def _document(self, choice: dict[str, Any] | None, suffix: str) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self.chat else "text_completion"
        choices = [] if choice is None else [choice]
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    @property
    def _usage(self) -> bool:
        options = self.request.stream_options
        return options is not None and bool(options.include_usage or options.continuous_usage_stats)

    @property
    def _continuous(self) -> bool:
        options = self.request.stream_options
        return options is not None and bool(options.continuous_usage_stats)


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + _COMPACT.encode(body).encode() + b"\n\n"
