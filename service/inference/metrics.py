"""The metrics of `/metrics`, under vLLM's names and those of OpenTelemetry's conventions for generative AI.

OpenTelemetry's names are written as its Prometheus exporters do: dots become underscores, the unit is appended. Both
conventions state buckets (opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics; vllm/v1/metrics/loggers.py)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from helmsman.executor.system.interference import moment
from helmsman.service.inference.generation import Load

_OTEL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_OTEL_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_OTEL_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_VLLM_FIRST = (*_OTEL_FIRST, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_VLLM_PER_TOKEN = (*_OTEL_PER_TOKEN, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_VLLM_SECONDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
                 960.0, 1920.0, 7680.0)  # fmt: skip
_TOKENS = tuple(scale * 10**power for power in range(6) for scale in (1, 2, 5))
_PROVIDER = "helm"
_OF_EXPERTS = {
    "hits": ("expert_slot_hits", "Distinct experts of passes that were in slots, added up over layers."),
    "misses": ("expert_slot_misses", "Distinct experts of passes that were in no slot."),
    "fetched": ("expert_fetched_bytes", "Bytes of experts that came into slots."),
    "evictions": ("expert_slot_evictions", "Experts that left slots for others."),
}
"""Names of counters and what they count, by what slots for experts do."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How one request went, in seconds: `first_s` from its arrival to its first token, None where there was none.

    `reason`: stop, length, abort (who asked has left, or reads too slowly) or error."""

    reason: str
    prompt_tokens: int
    answer_tokens: int
    latency_s: float
    first_s: float | None
    last_s: float

    @property
    def per_token_s(self) -> float | None:
        """TPOT; None with fewer than two tokens."""
        if self.first_s is None or self.answer_tokens < 2:
            return None
        return (self.last_s - self.first_s) / (self.answer_tokens - 1)


class Metrics:
    """Counters and histograms of the service; gauges are asked of the engine when they are read."""

    def __init__(self, model: str, load: Callable[[], Load]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_LoadCollector(model, load))
        self._registry.register(_Processors())
        labels = {"model_name": model, "engine": "0"}

        def counter(name: str, what: str, *more: str) -> Counter:
            return Counter(name, what, [*labels, *more], registry=self._registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
            metric = Histogram(name, what, list(labels), buckets=buckets, registry=self._registry)
            return metric.labels(**labels)

        def otel(name: str, what: str, buckets: tuple[float, ...], *more: str) -> Histogram:
            names = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", *more]
            return Histogram(f"gen_ai_server_{name}_seconds", what, names, buckets=buckets, registry=self._registry)

        self._labels, self._model = labels, model
        self._success = counter("vllm:request_success", "Requests that ended, by how.", "finished_reason")
        self._rejected = counter("helm:requests_rejected", "Requests that were not let in, by why.", "reason")
        self._faults = counter("helm:device_faults", "Faults after which nothing was served until a canary passed.")
        self._faults.labels(**labels)
        self._prompt = counter("vllm:prompt_tokens", "Tokens of prompts.").labels(**labels)
        self._answer = counter("vllm:generation_tokens", "Tokens generated.").labels(**labels)
        self._gap = histogram("vllm:inter_token_latency_seconds", "Seconds between tokens (ITL).", _VLLM_PER_TOKEN)
        self._vllm_first = histogram("vllm:time_to_first_token_seconds", "TTFT.", _VLLM_FIRST)
        self._vllm_tpot = histogram("vllm:request_time_per_output_token_seconds", "TPOT.", _VLLM_PER_TOKEN)
        self._vllm_latency = histogram("vllm:e2e_request_latency_seconds", "E2E.", _VLLM_SECONDS)
        self._prompts = histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", _TOKENS)
        self._answers = histogram("vllm:request_generation_tokens", "Tokens of an answer.", _TOKENS)
        self._first = otel("time_to_first_token", "Seconds to the first token.", _OTEL_FIRST)
        self._tpot = otel("time_per_output_token", "Seconds per token after the first.", _OTEL_PER_TOKEN)
        self._latency = otel("request_duration", "Seconds to the last token.", _OTEL_SECONDS, "error_type")

    def gap(self, seconds: float) -> None:
        """Between two tokens of a request."""
        self._gap.observe(seconds)

    def ended(self, operation: str, outcome: RequestOutcome) -> None:
        """A request that was let in has ended."""
        self._success.labels(**self._labels, finished_reason=outcome.reason).inc()
        self._prompt.inc(outcome.prompt_tokens)
        self._answer.inc(outcome.answer_tokens)
        names = (operation, _PROVIDER, self._model)
        error = "" if outcome.reason in ("stop", "length") else outcome.reason
        self._latency.labels(*names, error).observe(outcome.latency_s)
        if error:
            return
        self._vllm_latency.observe(outcome.latency_s)
        self._prompts.observe(outcome.prompt_tokens)
        self._answers.observe(outcome.answer_tokens)
        if outcome.first_s is not None:
            self._vllm_first.observe(outcome.first_s)
            self._first.labels(*names).observe(outcome.first_s)
        if outcome.per_token_s is not None:
            self._vllm_tpot.observe(outcome.per_token_s)
            self._tpot.labels(*names).observe(outcome.per_token_s)

    def rejected(self, reason: str) -> None:
        """A request was not let in."""
        self._rejected.labels(**self._labels, reason=reason).inc()

    def fault(self) -> None:
        """A device failed."""
        self._faults.labels(**self._labels).inc()

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)


class _LoadCollector(Collector):
    """Collects what the engine is doing when it is asked."""

    def __init__(self, model: str, load: Callable[[], Load]) -> None:
        self._model, self._load = model, load

    def collect(self) -> Iterator[Metric]:
        load = self._load()
        labels, values = ["model_name", "engine"], [self._model, "0"]
        for family, name, what, value in (
            (GaugeMetricFamily, "vllm:num_requests_running", "Requests that run.", load.running),
            (GaugeMetricFamily, "vllm:num_requests_waiting", "Requests that wait.", load.waiting),
            (GaugeMetricFamily, "vllm:kv_cache_usage_perc", "Keys and values in use, 1 is all.", load.kv_share),
            (CounterMetricFamily, "vllm:num_preemptions", "Preemptions.", load.preemptions),
            (
                CounterMetricFamily,
                "vllm:prefix_cache_queries",
                "Tokens of prompts that were sought.",
                load.looked_up,
            ),
            (CounterMetricFamily, "vllm:prefix_cache_hits", "Tokens of prompts that were cached.", load.reused),
        ):
            metric = family(name, what, labels=labels)
            metric.add_metric(values, value)
            yield metric
        what = "Of passes, by part: as costs price them, and as they took."
        seconds = CounterMetricFamily("helm:pass_seconds", what, labels=[*labels, "part", "source"])
        for part, sums in load.passes.items():
            for source, value in zip(("priced", "measured"), sums, strict=True):
                seconds.add_metric([*values, part, source], value)
        yield seconds
        for key, count in load.experts.items():
            name, what = _OF_EXPERTS[key]
            metric = CounterMetricFamily(f"helm:{name}", what, labels=labels)
            metric.add_metric(values, count)
            yield metric


class _Processors(Collector):
    """Processor time of this process and of the whole machine, so that who measures knows what others took."""

    def collect(self) -> Iterator[Metric]:
        now = moment()
        if now.times is None:
            return
        waited = sum(now.waits.values())
        yield CounterMetricFamily("process_cpu_seconds", "Processor time of the server.", now.times.own)
        yield CounterMetricFamily("helm:machine_busy_seconds", "Processor time of all processes.", now.times.busy)
        yield CounterMetricFamily("helm:machine_cpu_seconds", "Processor time, idle or not.", now.times.total)
        yield CounterMetricFamily("helm:thread_wait_seconds", "Of the server's threads for a processor.", waited)
