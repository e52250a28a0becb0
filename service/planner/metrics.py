"""The metrics of `/metrics`, for Prometheus."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Gauges = Callable[[], Mapping[str, float]]
"""Gives values by the name of their metric."""

_GAUGES = {
    "helm_web_workers_busy": "Processes that answer questions.",
    "helm_web_job_workers_busy": "Processes that do jobs.",
    "helm_web_questions_waiting": "Questions that wait for a process.",
    "helm_web_jobs_queued": "Jobs that wait.",
    "helm_web_jobs_running": "Jobs that run.",
    "helm_web_body_bytes": "Bytes of bodies that are being read.",
    "helm_web_connections": "Open connections.",
    "helm_web_event_streams": "Streams of events.",
    "helm_web_cache_bytes": "Bytes of answers in memory.",
}
_COUNTERS = {
    "helm_web_cache_hits": "Answers that were in memory.",
    "helm_web_cache_misses": "Answers that were not in memory.",
    "helm_web_workers_killed": "Processes that were ended before they had answered.",
}


class WebMetrics:
    """Counters and histograms of the service; what is counted elsewhere is asked for when it is read."""

    def __init__(self, gauges: Gauges) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_ServiceCollector(gauges))
        ProcessCollector(registry=self._registry)
        names = ["route", "method", "status"]
        self._requests = Counter("helm_web_requests", "Requests that ended.", names, registry=self._registry)
        self._seconds = Histogram(
            "helm_web_request_seconds", "From head to end.", ["route"], buckets=_SECONDS, registry=self._registry
        )
        self._refused = Counter("helm_web_refused", "Requests refused, by why.", ["code"], registry=self._registry)
        self._jobs = Counter("helm_web_jobs_taken", "Jobs taken in.", ["kind"], registry=self._registry)

    def ended(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request has ended."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, code: str) -> None:
        """A request was refused."""
        self._refused.labels(code).inc()

    def job(self, kind: str) -> None:
        """A job was taken in."""
        self._jobs.labels(kind).inc()

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)


class _ServiceCollector(Collector):
    """Collects what the service counts itself."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        values = self._gauges()
        for name, what in _GAUGES.items():
            yield GaugeMetricFamily(name, what, value=values[name])
        for name, what in _COUNTERS.items():
            yield CounterMetricFamily(name, what, value=values[name])
