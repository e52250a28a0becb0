"""The seconds that each request waited, as columns, as vLLM's bench serve and the papers define it
(docs/serving.md)."""

import numpy as np
from numpy.typing import NDArray

from helmsman.schemas.requests import Floats
from helmsman.schemas.served_table import CANCELLED, FINISHED, ServedTable
from helmsman.schemas.serving import Goodput, Slo, Spread
from helmsman.simulator.serving.gap_quantiles import Runs, quantiles

_ASKED = (0.5, 0.9, 0.99, 1.0)


def finished(served: ServedTable) -> NDArray[np.bool_]:
    """(n) Who got all tokens: only they have latencies."""
    done: NDArray[np.bool_] = served.status == FINISHED
    return done


def ttft(served: ServedTable) -> Floats:
    """(n) Seconds from arrival to the first token; nan where there was none."""
    return served.first_token_s - served.arrival_s


def e2e(served: ServedTable) -> Floats:
    """(n) Seconds from arrival to the last token; nan where not finished."""
    return np.where(finished(served), served.finish_s - served.arrival_s, np.nan)


def tpot(served: ServedTable) -> Floats:
    """(n) (E2E - TTFT) / (n - 1) seconds; nan for one token, and where not finished."""
    gaps = np.where(served.produced > 1, served.produced - 1, np.nan)
    return (e2e(served) - ttft(served)) / gaps


def per_token(served: ServedTable) -> Floats:
    """(n) E2E / output tokens, seconds: the papers' per-token latency of a request (NEO-36, APEX-36)."""
    return e2e(served) / np.maximum(served.produced, 1)


def keeps(served: ServedTable, slo: Slo) -> NDArray[np.bool_]:
    """(n) Who finished within every limit; one token keeps any TPOT."""
    kept = finished(served)
    for limit, values in ((slo.ttft, ttft), (slo.e2e, e2e), (slo.per_token, per_token)):
        if limit is not None:
            kept = kept & (values(served) <= limit)
    return kept if slo.tpot is None else kept & ~(tpot(served) > slo.tpot)


def goodput(served: ServedTable, slo: Slo, duration: float) -> Goodput:
    """How many of those that were not cancelled kept the SLO, and how many of them a second."""
    good = int(np.sum(keeps(served, slo)))
    counted = int(np.sum(served.status != CANCELLED))
    share = good / counted if counted else 1.0
    rate = good / duration if duration > 0.0 else 0.0
    return Goodput(slo=slo, good=good, share=share, requests=rate, met=share >= slo.share)


def spread(values: Floats) -> Spread | None:
    """Return the distribution of what is not nan; none where nothing is."""
    value = values[~np.isnan(values)]
    if not len(value):
        return None
    p50, p90, p99, largest = np.quantile(value, _ASKED).tolist()
    return Spread(count=len(value), mean=float(value.mean()), p50=p50, p90=p90, p99=p99, max=largest)


def gap_spread(runs: Runs) -> Spread | None:
    """Return the distribution of gaps between tokens; none where there are none."""
    count = runs.count()
    if not count:
        return None
    p50, p90, p99, largest = quantiles(runs, _ASKED)
    return Spread(count=count, mean=runs.mean(), p50=p50, p90=p90, p99=p99, max=largest)
