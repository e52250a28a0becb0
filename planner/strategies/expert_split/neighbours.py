"""The layouts next to one that was predicted: what the closed form may rank wrong by what it leaves out, contention."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from helmsman.planner.strategies.expert_split.layout import ExpertLayout


def neighbours(layout: ExpertLayout, beyond: Callable[[int], int], factor: float) -> Iterator[ExpertLayout]:
    """Yield a layout with the experts of all layers away, or of one more or less, with one whole layer more or less on
    the host, and with other shares of misses fetched; how many experts are held is left to who asks. None of layouts
    without slots, whose form is exact. `beyond`: how many layers with experts follow so many layers; `factor`: how many
    times as large the share becomes, or that of the others."""
    rule = layout.rule
    if rule is None or layout.by_layer:
        return
    layers = beyond(layout.host)
    for away in {layers, layout.away + 1, layout.away - 1} - {layout.away, 0}:
        yield replace(layout, away=min(away, layers))
    for host in {max(0, layout.host - 1), layout.host + 1} - {layout.host}:
        if beyond(host):
            yield replace(layout, host=host, away=beyond(host))
    if rule.share is not None:
        larger = max(1.0 - (1.0 - rule.share) / factor, rule.share * factor)
        for share in (rule.share / factor, min(larger, (1.0 + rule.share) / 2)):
            yield replace(layout, rule=rule._replace(share=share))
