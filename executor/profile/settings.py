"""The settings of a profile: the loopback accelerator's cores, memory and link, from `cores=1,vram=512MiB,...`."""

from dataclasses import dataclass
from typing import Self

from helmsman.schemas.errors import UsageError
from helmsman.schemas.units import parse_bytes, parse_rate, parse_seconds

_KEYS = ("cores", "vram", "link", "latency")
_FIELD = "loopback"


@dataclass(frozen=True, slots=True)
class Loopback:
    """A loopback accelerator: CPUs taken from the host, bytes of memory, bytes/s and seconds of its link."""

    cores: int = 1
    vram: int = 512 << 20
    link: float = 2e9
    latency: float = 20e-6

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `cores=1,vram=512MiB,link=2GB/s,latency=20us`; what is left out keeps its default.

        Raises UsageError naming the setting, and when there is none at all."""
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        if not pairs:
            raise UsageError("no settings", field=_FIELD, value=text, remedy="give one at least: cores=1")
        given = {key.strip(): value.strip() for key, _, value in pairs}
        unknown = sorted(set(given) - set(_KEYS))
        if unknown or len(given) < len(pairs):
            wrong = unknown[0] if unknown else text
            raise UsageError("unknown or repeated setting", field=_FIELD, value=wrong, remedy=f"use {', '.join(_KEYS)}")
        settings = cls(
            _cores(given.get("cores", "1")),
            parse_bytes(given.get("vram", "512MiB"), f"{_FIELD} vram"),
            parse_rate(given.get("link", "2GB/s"), f"{_FIELD} link"),
            parse_seconds(given.get("latency", "20us"), f"{_FIELD} latency"),
        )
        return settings._checked()

    def _checked(self) -> Self:
        _within("vram", self.vram, 1 << 20, 1 << 46)
        _within("link", self.link, 1e6, 1e12)
        _within("latency", self.latency, 0.0, 1.0)
        return self


def _cores(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError("must be a whole number of at least 1", field=f"{_FIELD} cores", value=text)
    return int(text)


def _within(key: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UsageError(f"must be between {low:g} and {high:g}", field=f"{_FIELD} {key}", value=value)
