"""An explanation for people: what binds, what more would be worth, what every rule of the plan is worth."""

from collections.abc import Iterator, Sequence

from helmsman.analysis.comparison_table import aligned
from helmsman.schemas.explanation import Explanation, Part, Phase, ShadowPrice, Undone, Worth
from helmsman.schemas.units import format_seconds

_SHOWN = 4
_NOTHING = 1e-3
"""The share of the speed below which a change is not worth a line, when there is twice as much of something."""

UNSEEN = 3e-3
"""The search does not look for what is so little better, as a share."""

_TOKENS = {"request": "output tokens/s of a request", "prompt pass": "prompt tokens/s"}


def table(explanation: Explanation) -> str:
    """Return the text that `helm-plan --explain` prints after the plan."""
    parts = [list(_binding(explanation)), list(_prices(explanation)), list(_undone(explanation))]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _binding(explanation: Explanation) -> Iterator[str]:
    for phase in explanation.phases:
        if not phase.counted:
            yield f"{phase.phase:<12} is limited, but does not count for the {explanation.objective}"
            continue
        yield f"{phase.phase:<12} busy throughout: {_shares(phase.lanes)}"
        yield f"             shrinks with: {_rates(phase)}"
    for name in ("prefill", "decode"):
        if name not in (phase.phase for phase in explanation.phases):
            yield f"{name:<12} does not count for the {explanation.objective}"
    for memory in explanation.full:
        price = next(price for price in explanation.prices if price.what == "capacity" and price.name == memory)
        yield f"full         {memory}: one GB more gives {_signed(price.more)} tokens/s"


def _shares(parts: Sequence[Part]) -> str:
    return ", ".join(f"{part.name} {part.share:.0%}" for part in parts[:_SHOWN])


def _rates(phase: Phase) -> str:
    """Return rates by their share of the seconds; what is left does not depend on any."""
    shown = [part for part in phase.rates[:_SHOWN] if part.share >= 0.005]
    rest = 1 - sum(part.share for part in phase.rates)
    constant = f"{rest:.0%} on none (latencies, launches, how rows are shared)" if rest >= 0.005 else ""
    return ", ".join(filter(None, (_shares(shown), constant)))


def _prices(explanation: Explanation) -> Iterator[str]:
    unit = _TOKENS.get(explanation.objective, "tokens/s of decode steps")
    yield (
        f"shadow prices in {unit}, where blocks and rows may be divided "
        f"({format_seconds(explanation.divided)}; the plan takes {format_seconds(explanation.seconds)})"
    )
    speed = explanation.tokens / explanation.seconds
    rows = [row for price in explanation.prices for row in _rows(price, speed)]
    if rows:
        yield from (f"  {line}" for line in aligned([("", "of", "price", "solved again", "changed by"), *rows], 1))
    nothing = [_named(price) for price in explanation.prices if not any(_rows(price, speed))]
    if nothing:
        yield f"  worth nothing more: {', '.join(nothing)}"


def _rows(price: ShadowPrice, speed: float) -> Iterator[tuple[str, ...]]:
    """A line; one for each side where one more gains another amount than one less costs."""
    sides = (("more", price.more), ("less", price.less))
    worth = [(word, side) for word, side in sides if side is not None and _matters(side, price, speed)]
    for word, side in worth if price.kinked else worth[:1]:
        sign = 1 if word == "more" else -1
        unit = f"one {price.unit}" if price.unit == "core" else price.unit
        name = f"{unit} {word} of {price.name}"
        size = f"{price.size:.4g}"
        yield name, size, f"{sign * side.price:+.4g}", f"{sign * side.again:+.4g}", f"{sign * side.step:+.2%}"
    if price.less is None:
        yield f"{price.unit} less of {price.name}", f"{price.size:.4g}", "nothing fits", "", ""


def _matters(side: Worth, price: ShadowPrice, speed: float) -> bool:
    return max(abs(side.price), abs(side.again)) * price.size >= _NOTHING * speed


def _named(price: ShadowPrice) -> str:
    return f"{price.name} {price.what}"


def _signed(worth: Worth | None) -> str:
    return "+0" if worth is None else f"{worth.price:+.4g}"


def _undone(explanation: Explanation) -> Iterator[str]:
    if not explanation.undone:
        return
    yield f"without one rule, the best of all others: how much longer the {explanation.objective} takes"
    shown = [_row(undone) for undone in explanation.undone if undone.slower is None or undone.slower >= UNSEEN]
    if shown:
        yield from (f"  {line}" for line in aligned(shown, 1))
    equal = [undone.rule for undone in explanation.undone if undone.slower is not None and undone.slower < UNSEEN]
    if equal:
        yield f"  less than {UNSEEN:.1%} for any of: {'; '.join(equal)}"


def _row(undone: Undone) -> tuple[str, ...]:
    if undone.seconds_more is None or undone.slower is None:
        return undone.rule, "nothing fits", ""
    return undone.rule, f"+{format_seconds(undone.seconds_more)}", f"+{undone.slower:.1%}"
