"""Metrics: vLLM's and OpenTelemetry's names, and what they count."""

import pytest
from benchmarks.virtual_engine import VirtualEngine
from http_service import Site, on_site
from prometheus_client.parser import text_string_to_metric_families

from helmsman.service.inference.generation import Load
from helmsman.service.inference.load.pass_prices import parse_passes
from helmsman.service.inference.metrics import Metrics, RequestOutcome

VLLM = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:num_preemptions": "counter",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:request_success": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
}
OTEL = {
    "gen_ai_server_request_duration_seconds": "histogram",
    "gen_ai_server_time_to_first_token_seconds": "histogram",
    "gen_ai_server_time_per_output_token_seconds": "histogram",
}


def values(text: bytes) -> dict[str, float]:
    """Sums and counts by name, over all labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_names_are_those_of_vllm_and_opentelemetry() -> None:
    metrics = Metrics("tiny", lambda: Load(2, 3, 0.5, 7, 40, 32))
    metrics.ended("chat", RequestOutcome("stop", 10, 5, latency_s=1.0, first_s=0.2, last_s=1.0))
    families = {family.name: family for family in text_string_to_metric_families(metrics.text().decode())}
    assert {name: families[name].type for name in VLLM | OTEL} == VLLM | OTEL
    labels = families["gen_ai_server_request_duration_seconds"].samples[0].labels
    assert labels["gen_ai_operation_name"] == "chat" and labels["gen_ai_request_model"] == "tiny"
    assert families["vllm:num_requests_running"].samples[0].labels == {"model_name": "tiny", "engine": "0"}


def test_seconds_of_passes_are_told_as_priced_and_as_measured() -> None:
    load = Load(2, 3, 0.5, 7, 40, 32, passes={"pass": (2.0, 3.0), "host": (0.5, 0.25)})
    text = Metrics("tiny", lambda: load).text().decode()
    assert parse_passes(text) == {
        "pass": {"priced": 2.0, "measured": 3.0},
        "host": {"priced": 0.5, "measured": 0.25},
    }


def test_what_slots_for_experts_did_is_told_where_there_are_some() -> None:
    experts = {"hits": 7, "misses": 3, "fetched": 4096, "evictions": 2}
    found = values(Metrics("tiny", lambda: Load(2, 3, 0.5, 7, 40, 32, experts=experts)).text())
    names = ("expert_slot_hits", "expert_slot_misses", "expert_fetched_bytes", "expert_slot_evictions")
    assert [found[f"helm:{name}_total"] for name in names] == [7, 3, 4096, 2]
    assert b"expert" not in Metrics("tiny", lambda: Load(2, 3, 0.5, 7, 40, 32)).text()


def test_what_is_counted() -> None:
    metrics = Metrics("tiny", lambda: Load(2, 3, 0.5, 7, 40, 32))
    metrics.ended("chat", RequestOutcome("length", 10, 5, latency_s=1.0, first_s=0.2, last_s=1.0))
    metrics.ended("chat", RequestOutcome("stop", 10, 1, latency_s=0.3, first_s=0.2, last_s=0.2))
    metrics.ended("chat", RequestOutcome("abort", 10, 3, latency_s=9.0, first_s=0.2, last_s=1.0))
    metrics.gap(0.5)
    found = values(metrics.text())
    assert found["vllm:request_success_total"] == 3 and found["vllm:generation_tokens_total"] == 9
    assert found["vllm:e2e_request_latency_seconds_count"] == 2, "latencies are of those that finished"
    assert found["gen_ai_server_request_duration_seconds_count"] == 3, "durations name their error"
    assert found["vllm:time_to_first_token_seconds_sum"] == pytest.approx(0.4)
    assert found["vllm:request_time_per_output_token_seconds_count"] == 1, "undefined for one token"
    assert found["gen_ai_server_time_per_output_token_seconds_sum"] == pytest.approx(0.2)
    assert found["vllm:num_requests_waiting"] == 3 and found["vllm:num_preemptions_total"] == 7
    assert found["vllm:prefix_cache_queries_total"] == 40 and found["vllm:prefix_cache_hits_total"] == 32


def test_a_service_measures_itself() -> None:
    async def test(site: Site) -> None:
        await site.events("/v1/completions", prompt="abc", max_tokens=5, ignore_eos=True)
        await site.complete(prompt="abc", max_tokens=4, ignore_eos=True)
        found = values((await site.get("/metrics"))[1].encode())
        assert found["vllm:prompt_tokens_total"] == 6 and found["vllm:generation_tokens_total"] == 9
        assert found["vllm:inter_token_latency_seconds_count"] == 7
        assert found["vllm:inter_token_latency_seconds_sum"] > 0
        assert found["vllm:time_to_first_token_seconds_sum"] >= 2 * 0.003

    on_site(test, VirtualEngine(step_s=0.003))
