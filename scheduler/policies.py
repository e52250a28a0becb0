"""Policies: which there are, what they do, and their options: types, defaults, ranges, and what they mean.

Helm's own are native (csrc/scheduling, one file each); what reaches them has been checked here. Other packages add
policies in Python by an entry point of the group `helmsman.policies` that names a `PolicyOptions` with `make`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from helmsman.scheduler.decision import Home
from helmsman.scheduler.limits import HOST_ORDERS
from helmsman.schemas.entry_points import added, loaded, refusal
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from helmsman.scheduler._scheduling import ReplicaState

GROUP = "helmsman.policies"

Value = str | int | float | bool
Amount = TypeVar("Amount", int, float)


@dataclass(frozen=True, slots=True)
class WordChoice:
    """One of some words."""

    default: str
    choices: tuple[str, ...]
    help: str

    @property
    def values(self) -> str:
        """Return the words."""
        return " or ".join(self.choices)

    def parse(self, text: str) -> str:
        """Return the word. Raises ValueError."""
        if text not in self.choices:
            raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True)
class Flag:
    """yes or no."""

    default: bool
    help: str

    @property
    def values(self) -> str:
        """Both."""
        return "yes or no"

    def parse(self, text: str) -> bool:
        """Whether it is yes. Raises ValueError."""
        return ("no", "yes").index(text) == 1


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A whole number between `least` and `most`."""

    default: int
    least: int
    most: int
    help: str

    @property
    def values(self) -> str:
        """Return its range."""
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, text: str) -> int:
        """Return the number. Raises ValueError."""
        return _within(int(text), self.least, self.most)


@dataclass(frozen=True, slots=True)
class Number:
    """A number between `least` and `most`."""

    default: float
    least: float
    most: float
    help: str

    @property
    def values(self) -> str:
        """Return its range."""
        return f"a number from {self.least:g} to {self.most:g}"

    def parse(self, text: str) -> float:
        """Return the number. Raises ValueError."""
        return _within(float(text), self.least, self.most)


Option = WordChoice | Flag | WholeNumber | Number
"""An option of a policy: its default, and its meaning."""


class PythonPolicy(Protocol):
    """A policy in Python, of one replica."""

    def decide(self, state: "ReplicaState") -> None:
        """Make the next pass by the methods of `state`: first who leaves or moves (preempt, swap_out, swap_in), then
        decode_on_gpu, then prompts, decodes on the host and the kind of pass. Doing nothing means waiting for an
        arrival; while anything runs, something must go on."""


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """A policy for people, its options by name, and where keys and values of its requests are when they decode.

    `make`: for each replica a policy in Python, from the values of its options; None: the policy is native."""

    help: str
    options: Mapping[str, Option]
    homes: tuple[Home, ...] = ("gpu", "cpu")
    make: Callable[[Mapping[str, Value]], PythonPolicy] | None = None


class PolicyMaker(NamedTuple):
    """The description of a Python policy for native code: `make` is called once for each replica, `homes` are the
    memories where its requests keep their caches."""

    make: Callable[[], PythonPolicy]
    homes: tuple[Home, ...]


_SATURATION = WholeNumber(
    128,
    0,
    1_000_000,
    "tokens of a pass from which on each more takes longer: prompts whose cache leaves for the host join passes beyond "
    "only where they hide attention there (NEO's code: 128)",
)

_POOL: Mapping[str, Option] = {
    "cohorts": WholeNumber(
        1,
        1,
        64,
        "most cohorts that attend on the host at a time, each at a layer of its own: with more than one, requests need "
        "not wait until the one under way has its tokens (APEX-40), and memory is kept for each",
    ),
    "order": WordChoice(
        HOST_ORDERS[0],
        HOST_ORDERS,
        "of several cohorts, whose attention the host does first: of the last layer, of the first, or what came first",
    ),
}
"""Of policies that have deferred passes."""

POLICIES: Mapping[str, PolicyOptions] = {
    "gpu-only": PolicyOptions(
        "continuous batching on the accelerator alone, as vLLM does it",
        {
            "preemption": WordChoice(
                "recompute",
                ("recompute", "swap"),
                "what becomes of the cache of a request whose room others need: given up and computed again, or kept "
                "at the host, where that has room",
            )
        },
        ("gpu",),
    ),
    "simple-offload": PolicyOptions(
        "all decode attention on the host, in turn with everything else (NEO-03)", {}, ("cpu",)
    ),
    "symmetric": PolicyOptions("two equal sub-batches, all decode attention on the host (NEO-04)", {}, ("cpu",)),
    "fastdecode-plus": PolicyOptions("NEO's sub-batches with all decode attention on the host (NEO-34)", {}, ("cpu",)),
    "neo": PolicyOptions(
        "two unequal sub-batches where they advance more requests a second than the accelerator alone (NEO 3.2)",
        {
            "saturation": _SATURATION,
            "prompts": WordChoice(
                "work",
                ("work", "requests"),
                "what a prompt counts for in requests advanced a second: as many decodes as take as long, or one",
            ),
        },
    ),
    "apex": PolicyOptions(
        "two sub-batches where APEX's inequality holds, else attention on the host that nobody waits for (Algorithm 1)",
        {
            "saturation": _SATURATION,
            "threshold": Number(
                8.0, 0.0, 1e6, "least requests on the host for each on the accelerator, to begin with (APEX-27)"
            ),
            "printed": Flag(False, "the inequality of mixed passes as printed, not as it is consistent (E-APEX-03)"),
            **_POOL,
        },
    ),
    "adaptive": PolicyOptions(
        "of the passes that all others would make the one that advances most requests a second, by costs that measured "
        "passes correct",
        {"saturation": _SATURATION, **_POOL},
    ),
}
"""Helm's own by name; csrc/scheduling/policy.cpp has the same names."""


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies, Helm's own first."""
    return tuple(dict.fromkeys((*POLICIES, *added(GROUP))))


def policy_maker(policy: str, options: Mapping[str, Value]) -> str | PolicyMaker:
    """Return what native code knows a policy by: the name of one of its own, or what makes one in Python."""
    known = policy_options(policy)
    return policy if known.make is None else PolicyMaker(partial(known.make, dict(options)), known.homes)


def checked_options(policy: str, given: Mapping[str, str]) -> dict[str, Value]:
    """Return all options of a policy, as given or by default.

    Raises UsageError for a policy or option that there is not, or a value that it cannot have."""
    options = policy_options(policy).options
    for name in given:
        if name not in options:
            remedy = f"{policy} has {', '.join(options) or 'no options'}"
            raise UsageError("no such option of the policy", field="policy_option", value=name, remedy=remedy)
    return {name: _value(name, option, given.get(name)) for name, option in options.items()}


def policy_options(policy: str) -> PolicyOptions:
    """Return a policy's options. Raises UsageError for one that there is not."""
    if policy in POLICIES:
        return POLICIES[policy]
    if policy in added(GROUP):
        return _loaded(added(GROUP)[policy])
    remedy = f"use one of {', '.join(policy_names())}"
    raise UsageError("no such policy", field="policy", value=policy, remedy=remedy)


def _loaded(point: "EntryPoint") -> PolicyOptions:
    """The policy of another package. Raises UsageError where its entry point leads to none."""
    result = loaded(point, "policy")
    if not isinstance(result, PolicyOptions) or not _makes(result):
        problem = "is no PolicyOptions whose `make` makes a policy, with caches in `homes` gpu, cpu or both"
        raise refusal(point, "policy", problem)
    return result


def _makes(policy: PolicyOptions) -> bool:
    """Whether it makes a policy in Python, with a home for caches."""
    homes: object = policy.homes
    return callable(policy.make) and isinstance(homes, tuple) and bool(homes) and {*homes} <= {"gpu", "cpu"}


def _value(name: str, option: Option, text: str | None) -> Value:
    if text is None:
        return option.default
    try:
        return option.parse(text)
    except ValueError:
        raise UsageError(f"no such value of {name}", field=name, value=text, remedy=f"write {option.values}") from None


def _within(value: Amount, least: Amount, most: Amount) -> Amount:
    if not (isfinite(value) and least <= value <= most):
        raise ValueError(value)
    return value
