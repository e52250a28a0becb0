"""Options that several strategies have, and the memories and tables that they name."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from helmsman.planner.options import option
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.schemas.hardware import Hardware

COMPRESSIONS = ("none", "weights", "kv", "all", "best")
KV_RULES = ("accelerator", "host", "layerkv", "headinfer", "lmcache")


def compress_option() -> Any:
    """Which values are kept in 4-bit groups."""
    return option("none", "stream 4-bit groups (optimal: where faster)", choices=COMPRESSIONS)


def table_option() -> Any:
    """A file of measured operation latencies."""
    text = "measured operation latencies (helm.optable/1)"
    return option(None, text, metavar="FILE", parse=Path, recorded=False)


def nvme_option() -> Any:
    """The path by which weights may come from storage."""
    text = "weights may come from storage, by this path (optimal: where needed)"
    return option(None, text, choices=("direct", "bounce"))


def home_option() -> Any:
    """The memory that is the host's tier."""
    text = "the memory that is the host's tier (default: the CPU's); optimal: where weights may live beside that"
    return option(None, text, metavar="MEMORY")


def kv_rule_option() -> Any:
    """Where keys and values are."""
    rule = "where keys and values are: of as few blocks (layerkv) or heads (headinfer) in host memory as fit"
    known = "lmcache: those of --prefix-tokens come from a store in the prompt pass (vllm too)"
    return option(None, f"{rule}; {known} (default: accelerator)", choices=KV_RULES)


def kv_store_option() -> Any:
    """The memory in which known tokens of prompts wait."""
    return option(None, "lmcache: the store (default: the CPU's memory)", metavar="MEMORY")


def managed_option() -> Any:
    """Whether the host's tier is managed memory."""
    text = "flexgen, layerwise-map, weights-on-host: the host's tier is managed memory, whose pages migrate on touch"
    return option(False, text)


def percent_option() -> Any:
    """Percentages of weights by tier."""
    text = "flexgen, layerwise-map: per cent of every layer's weights in storage, host memory and the accelerator's"
    return option(None, text, metavar="S,H,A")


def inclusive_option() -> Any:
    """Whether the accelerator's weights are copies of the host's."""
    text = "flexgen, layerwise-map: the accelerator has copies of the host's tier (default: one place for each)"
    return option(False, text)


def reshape_option() -> Any:
    """Whether caches are turned between passes."""
    return option(False, "caches are kept (batch, tokens, hidden) and turned", flag=False)


def paper_option() -> Any:
    """Whether decode steps are priced by a paper's formulas."""
    return option(False, "price decode steps by the printed formulas", flag=False)


def same_software_option() -> Any:
    """Whether an engine is priced with the record's launch times."""
    text = "engines: placements alone are compared, with the launch times of the machine's record"
    return option(False, text)


def every_way_option() -> Any:
    """Return the option by which an engine whose placements alone are compared also seeks what a request leaves open:
    how many accelerators, and which experts where. Helm's own searches compare with one way of each engine."""
    return option(False, "what is left open is sought", recorded=False, offered=False)


def cards_option() -> Any:
    """Return the option that sets the number of equal accelerators which divide every layer."""
    text = "vllm, ktransformers: equal accelerators that divide every layer (default: as many as is fastest)"
    return option(None, text, metavar="N", parse=int)


def check_cards(count: int | None) -> None:
    """Raise UsageError for what is no number of accelerators."""
    if count is not None and count < 1:
        raise UsageError("not a number of cards", field="tensor_parallel_size", value=count, remedy="write 1 or more")


def threads_option() -> Any:
    """Return the option that sets the number of processor threads of an engine."""
    text = "llama-cpp, ktransformers, freetoken: threads of processors (default: their cores)"
    return option(None, text, metavar="N", parse=int)


def slo_option() -> Any:
    """Limits of seconds that plans keep."""
    text = "optimal: no plan that is slower than this; all: those first that are not"
    return option(None, text, metavar="ttft=2s,tpot=100ms")


def explain_option() -> Any:
    """Whether reasons are asked for."""
    what = "what binds in the search's own plan (--strategy optimal), shadow prices, what every rule is worth"
    return option(False, f"{what}; --json prints that, --out still writes the plan", recorded=False)


@dataclass(frozen=True, slots=True)
class OptimalOptions:
    """Options of `optimal`, which `best` has as well."""

    slo: str | None = slo_option()
    table: Path | None = table_option()
    explain: bool = explain_option()
    nvme: Literal["direct", "bounce"] | None = nvme_option()
    home: str | None = home_option()
    compress: str = compress_option()


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a strategy that has none but the user's operation table."""

    table: Path | None = table_option()


def memory_named(name: str | None, otherwise: str, field: str, hardware: "Hardware") -> str:
    """Return the memory that option `field` names, `otherwise` where it names none. Raises UsageError."""
    if name is None:
        return otherwise
    names = [memory.name for memory in hardware.memories]
    if name not in names:
        raise UsageError(
            "this machine has no such memory", field=field, value=name, remedy=f"use one of {', '.join(names)}"
        )
    return name
