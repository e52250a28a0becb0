"""The window of a cache: whole pages, room for the one being filled, room beyond the watermark."""

from typing import Any

import pytest
from pydantic import ValidationError

from helmsman.schemas.page_cache import PageCache


def test_defaults_are_the_papers() -> None:
    cache = PageCache(memory="vram", window_tokens=2048)
    assert (cache.page_tokens, cache.watermark, cache.eviction, cache.high) == (512, 0.8, "oldest", 1638)


def test_the_watermark_is_counted_in_whole_tokens() -> None:
    assert PageCache(memory="vram", page_tokens=32, window_tokens=96, watermark=2 / 3).high == 64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"window_tokens": 512}, "two pages"),
        ({"window_tokens": 1000}, "two pages"),
        ({"window_tokens": 1024, "watermark": 0.4}, "no room"),
        ({"window_tokens": 1024, "watermark": 1.0}, "less than 1"),
        ({"window_tokens": 1024, "page_tokens": 500}, "multiple of 32"),
        ({"window_tokens": 1024, "page_tokens": 0}, "greater than or equal to 32"),
        ({"window_tokens": 1024, "eviction": "newest"}, "oldest"),
    ],
)
def test_windows_without_room_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PageCache(memory="vram", **changes)
