"""Results of `vllm bench serve`, `latency` and `throughput`, as their JSON files have them (vLLM's vllm/benchmarks).

`serve` says the model and how many requests run at once; the others neither model nor lengths, which the question must
say. What none of them says is the machine."""

from collections.abc import Iterator, Mapping
from typing import Any

from helmsman.analysis.bench_files.measured_run import MeasuredRun, RefusedResult
from helmsman.schemas.errors import BadInputError

Content = Mapping[str, Any]


def is_vllm_bench(content: object) -> bool:
    """Whether a JSON document is a result of vLLM's bench."""
    return (isinstance(content, dict) and any(map(content.__contains__, ("avg_latency", "tokens_per_second")))) or (
        isinstance(content, dict) and "completed" in content and "total_output_tokens" in content
    )


def vllm_runs(content: Content, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    """Yield the runs of a result. Raises BadInputError for figures that are none."""
    try:
        if "avg_latency" in content:
            yield MeasuredRun("request", _positive(content["avg_latency"]), file, noise=_spread(content))
        elif "completed" in content:
            yield from _served(content, file)
        else:
            yield MeasuredRun("request", _positive(content["elapsed_time"]), f"{file} (throughput)",
                              options={"requests": int(content["num_requests"])})  # fmt: skip
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        remedy = "write it again with vllm bench"
        raise BadInputError(f"no result of vllm bench: {error}", file=file, remedy=remedy) from None


def _served(content: Content, file: str) -> Iterator[MeasuredRun | RefusedResult]:
    completed, together = int(content["completed"]), content.get("max_concurrency")
    if together is None:
        yield RefusedResult(file, "says no max_concurrency: how many requests ran at once is not known")
        return
    model, batch = str(content["model_id"]), min(int(together), completed)
    prompt, output = (round(int(content[f"total_{name}_tokens"]) / completed) for name in ("input", "output"))

    def run(of: Any, value: float, where: str) -> MeasuredRun:
        return MeasuredRun(of, value, where, max(1, prompt), max(1, output), batch=batch, model=model)

    step = content.get("median_tpot_ms") or content.get("mean_tpot_ms")
    if step:
        yield run("decode", 1e3 * batch / _positive(step), f"{file} (TPOT)")
    first = content.get("median_ttft_ms") or content.get("mean_ttft_ms")
    if first and batch == 1:
        yield run("prefill", 1e3 * max(1, prompt) / _positive(first), f"{file} (TTFT)")
    elif first:
        yield RefusedResult(f"{file} (TTFT)", "prompts of several requests wait for each other")


def _spread(content: Content) -> float:
    return float(content.get("std_latency") or 0.0) / _positive(content["avg_latency"])


def _positive(value: Any) -> float:
    number = float(value)
    if not 0.0 < number < 1e9:
        raise ValueError(f"{number} is no time")
    return number
