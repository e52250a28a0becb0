"""Makes the pages of strategies and of serving policies, from their registries."""

from collections.abc import Iterator
from dataclasses import MISSING, Field
from typing import Any

from docs.generator.markdown import code, escaped, page, section, sentence, table

from helmsman.planner.options import Option, options_of
from helmsman.planner.registry import OWN, RECOMMENDED, Method, method
from helmsman.scheduler.policies import POLICIES, PolicyOptions

_STRATEGIES = (
    "A strategy chooses a plan. `helm-plan --strategy NAME` takes it, `strategy` in Python and JSON. An option is a "
    "key of `options`, and a flag of `helm-plan`: `kv_offload` is `--kv-offload`. Which paper each method is from is "
    "in [references](../references.md); the [tutorial](../tutorials/strategy.md) adds one."
)
_POLICIES = (
    "A policy decides which requests go into the next pass. `helm-sim`, `helm-serve` and `helm-whatif` take it as "
    "`--policy NAME`, and its options as `--policy-option NAME=VALUE`. [Serving](../serving.md) says how they differ."
)


def strategies_page() -> str:
    """Return the page of all strategies with their options."""
    return page("Strategies", _STRATEGIES, *(_strategy(method(name)) for name in (RECOMMENDED, *OWN)))


def policies_page() -> str:
    """Return the page of all policies with their options."""
    return page("Policies", _POLICIES, *(_policy(name, policy) for name, policy in POLICIES.items()))


def _strategy(of: Method[Any]) -> str:
    head = ("option", "values", "default", "meaning")
    rows = [_row(field, known) for field, known in offered(of)]
    streams = "Weights stream by definition, however much memory there is." if of.streams else ""
    return section(code(of.name), sentence(of.summary), streams, table(head, rows) or "It has no options.")


def offered(of: Method[Any]) -> "Iterator[tuple[Field[Any], Option]]":
    """Yield the options of a strategy that users are offered."""
    return ((field, known) for field, known in options_of(of.options) if known.offered)


def _row(field: "Field[Any]", known: Option) -> tuple[str, ...]:
    default = "" if field.default in (None, MISSING) else "off" if field.default is False else str(field.default)
    values = " ".join(map(code, known.choices)) if known.choices else code(known.metavar or "")
    without = "" if known.flag else " (no flag)"
    return code(field.name), values, code(default), escaped(known.help) + without


def _policy(name: str, policy: PolicyOptions) -> str:
    homes = {"gpu": "on the accelerator", "cpu": "at the host"}
    where = "Keys and values of requests that decode are " + " or ".join(homes[home] for home in policy.homes) + "."
    rows = [
        (code(option), escaped(known.values), code(_told(known.default)), escaped(known.help))
        for option, known in policy.options.items()
    ]
    return section(code(name), sentence(policy.help), where, table(("option", "values", "default", "meaning"), rows))


def _told(value: str | int | float | bool) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
