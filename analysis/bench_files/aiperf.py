"""Results of AIPerf: `profile_export_aiperf.json` (its docs/tutorials/working-with-profile-exports.md), in which every
metric is an object with its unit and its statistics."""

from collections.abc import Iterator, Mapping
from typing import Any

from helmsman.analysis.bench_files.measured_run import MeasuredRun, RefusedResult
from helmsman.schemas.errors import BadInputError

Content = Mapping[str, Any]

_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}


def is_aiperf(content: object) -> bool:
    """Whether a JSON document is a result of AIPerf."""
    return isinstance(content, dict) and isinstance(content.get("inter_token_latency"), dict)


def aiperf_runs(content: Content, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of a result: steps, and the prompt where requests ran alone. Raises BadInputError for metrics that
    have no figures."""
    settings = content.get("input_config")
    settings = settings if isinstance(settings, Mapping) else {}
    model, together = _first(settings, "model_names"), _first(settings, "concurrency")
    if together is None:
        yield RefusedResult(file, "says no concurrency: how many requests ran at once is not known")
        return
    try:
        batch = int(together)
        prompt = max(1, round(_statistic(content, "input_sequence_length")))
        output = max(2, round(_statistic(content, "output_sequence_length")))
        named = str(model[0] if isinstance(model, list) else model) if model else None
        step, first = _time(content, "inter_token_latency"), _time(content, "time_to_first_token")
        where = f"{file} (inter_token_latency)"
        yield MeasuredRun("decode", batch / step, where, prompt, output, batch=batch, model=named)
        if batch == 1:
            where = f"{file} (time_to_first_token)"
            yield MeasuredRun("prefill", prompt / first, where, prompt, output, batch=batch, model=named)
        else:
            yield RefusedResult(f"{file} (time_to_first_token)", "prompts of several requests wait for each other")
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise BadInputError(f"no result of AIPerf: {error}", file=file, remedy="write it again with aiperf") from None


def _first(settings: Any, name: str) -> Any:
    """Return the first value of that name anywhere in the settings; None where there is none."""
    if isinstance(settings, Mapping):
        if settings.get(name) is not None:
            return settings[name]
        return next((inner for value in settings.values() if (inner := _first(value, name)) is not None), None)
    return None


def _statistic(content: Content, metric: str) -> float:
    """Return the median of a metric, else its average."""
    told = content[metric]
    value = told.get("p50", told.get("avg"))
    if not 0.0 < float(value) < 1e12:
        raise ValueError(f"{metric} is {value}")
    return float(value)


def _time(content: Content, metric: str) -> float:
    return _statistic(content, metric) * _SECONDS[str(content[metric].get("unit", "ms"))]
