"""The ratio of measured to predicted seconds of a server's passes, from its `/metrics` before and after a load."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from helmsman.schemas.served_table import OVER_PRICE, PASS_PARTS
from helmsman.service.inference.load.processors import MAX_SECONDS

_SAMPLE = "helm:pass_seconds_total"

PassSeconds = Mapping[str, Mapping[str, float]]
"""Seconds so far by part of a pass, then by source: `priced` or `measured`."""


def parse_passes(text: str) -> PassSeconds:
    """Read Prometheus' text format; empty for servers that do not tell, as others than Helm's."""
    result: dict[str, dict[str, float]] = {}
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # whatever a stranger sent
        return {}
    for sample in (sample for family in families for sample in family.samples if sample.name == _SAMPLE):
        part, source = (sample.labels.get(label, "") for label in ("part", "source"))
        known = part in PASS_PARTS and source in ("priced", "measured")
        if known and 0.0 <= sample.value < MAX_SECONDS:
            result.setdefault(part, {})[source] = sample.value
    return result


def price_notes(before: PassSeconds, after: PassSeconds) -> dict[str, float]:
    """Return the ratio of measured to priced seconds between two moments, by part, for the notes of a table; parts that
    no pass had are left out, and all where the server did not tell before."""
    notes: dict[str, float] = {}
    if not before:
        return notes
    for part, last in after.items():
        first = before.get(part, {})
        priced, measured = (last.get(source, 0.0) - first.get(source, 0.0) for source in ("priced", "measured"))
        if priced > 0.0:
            notes[part + OVER_PRICE] = max(0.0, measured) / priced
    return notes
