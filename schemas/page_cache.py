"""PageCache: the window of a key and value cache that lives elsewhere."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Frozen, Name, mistake

PAGE_STEP = 32
"""Tokens by which pages grow: as many rows of any format fill whole cache lines."""


class PageCache(Frozen):
    """A window of a KV cache in `memory`, whole pages of `page_tokens`; the rest waits at home (HELM-58..61, 65).

    Above `watermark` x `window_tokens` cached tokens of a sequence the oldest full page goes home, and attention
    streams it back for every pass (HELM-62..64). Pages of every format begin and end at cache lines."""

    memory: Name
    page_tokens: Annotated[int, Field(ge=PAGE_STEP, le=1 << 20, multiple_of=PAGE_STEP)] = 512
    window_tokens: Count
    watermark: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.8
    eviction: Literal["oldest"] = "oldest"

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        pages, rest = divmod(self.window_tokens, self.page_tokens)
        if rest or pages < 2:
            remedy = f"write a multiple of {self.page_tokens}, at least {2 * self.page_tokens}"
            raise mistake("a window is two pages or more", remedy, "window_tokens", self.window_tokens)
        if not self.page_tokens <= self.high < self.window_tokens:
            remedy = f"leave a page of the {pages} to be filled, and a token beyond it"
            raise mistake("no room for a page below the watermark, or above it", remedy, "watermark", self.watermark)
        return self

    @property
    def high(self) -> int:
        """Cached tokens of a sequence above which pages leave."""
        return int(self.watermark * self.window_tokens + 1e-9)
