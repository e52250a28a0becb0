"""Workload: how many tokens of which sequences."""

from typing import Literal, Self

from pydantic import model_validator

from helmsman.schemas.base import Count, Document, Index, mistake, version
from helmsman.schemas.routing import Routing


class Workload(Document):
    """`batches` batches of `batch` sequences, each with a prompt and an output (HELM-49).

    `prefix_tokens` of each prompt were computed before: their keys and values are kept, and not computed again.
    `routing`: which experts the tokens choose; None: all of a layer alike."""

    schema_id: Literal["helm.workload/1"] = version("helm.workload/1")
    prompt_tokens: Count = 128
    output_tokens: Count = 128
    batch: Count = 1
    batches: Count = 1
    context: Count = 256
    prefix_tokens: Index = 0
    routing: Routing | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.prompt_tokens + self.output_tokens > self.context:
            needed = self.prompt_tokens + self.output_tokens
            message = f"prompt_tokens + output_tokens ({needed}) exceed context ({self.context})"
            raise mistake(message, f"use a context of at least {needed}", "context")
        if self.prefix_tokens >= self.prompt_tokens:
            remedy = f"at most {self.prompt_tokens - 1}: the last token of a prompt is computed"
            raise mistake("no token of the prompt is left", remedy, "prefix_tokens", self.prefix_tokens)
        return self

    @property
    def new_tokens(self) -> int:
        """Return tokens of each prompt that the prompt pass computes."""
        return self.prompt_tokens - self.prefix_tokens

    @property
    def shape(self) -> str:
        """Return the sequences in words: `25`, or `2 x 25` of two batches."""
        return f"{self.batches} x {self.batch}" if self.batches > 1 else f"{self.batch}"

    @property
    def decode_steps(self) -> int:
        """Steps after the first token, which prefill yields."""
        return self.output_tokens - 1

    @property
    def mean_context(self) -> int:
        """KV tokens that the average decode step reads: the mean of S+1 .. S+n-1, rounded up."""
        return self.prompt_tokens + (self.output_tokens + 1) // 2
