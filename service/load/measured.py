"""What a replay observed, as the table that simulations are written as."""

import numpy as np

from helmsman.schemas.requests import Requests
from helmsman.schemas.served import STATUSES, Gaps, Served, ServedInfo
from helmsman.service.load.client import Observed
from helmsman.service.load.replay import Replayed


def measured(requests: Requests, replayed: Replayed, info: ServedInfo) -> Served:
    """One row a request. Times count from second 0 of the requests; when one was scheduled a client cannot see.

    A request counts from when it should have been sent, so that a client that is late hides nothing."""
    start, observed = replayed.start, replayed.observed
    count = len(requests)
    nothing = np.zeros(count, np.int64)
    return Served(
        info=info,
        request=np.arange(count),
        arrival_s=requests.arrival_s,
        started_s=np.full(count, np.nan),
        first_token_s=np.array([record.moments[0] - start if record.moments else np.nan for record in observed]),
        finish_s=np.array([_finish(record) - start for record in observed]),
        prompt_tokens=np.array([_prompt(record, requests) for record in observed], np.int64),
        output_tokens=requests.output_tokens,
        produced=np.array([record.produced for record in observed], np.int64),
        status=np.array([STATUSES.index(_status(record)) for record in observed], np.int64),
        cpu_tokens=nothing,
        preemptions=nothing,
        reused_tokens=np.array([record.reused_tokens for record in observed], np.int64),
        replica=nothing,
        gaps=_gaps(observed),
    )


def _finish(observed: Observed) -> float:
    """The last token; of those who did not finish, when they left."""
    return observed.moments[-1] if _status(observed) == "finished" else observed.ended


def _status(observed: Observed) -> str:
    """An answer without a token is none."""
    return "failed" if observed.status == "finished" and not observed.moments else observed.status


def _prompt(observed: Observed, requests: Requests) -> int:
    return int(requests.prompt_tokens[observed.row]) if observed.prompt_tokens is None else observed.prompt_tokens


def _gaps(observed: tuple[Observed, ...]) -> Gaps:
    """Every gap as a run of its own."""
    gaps = [np.diff(record.moments) for record in observed]
    start = np.concatenate([[0], np.cumsum([len(gap) for gap in gaps])]).astype(np.int64)
    ones = np.ones(start[-1], np.int64)
    values = np.concatenate(gaps) if gaps else np.zeros(0)
    return Gaps(start, values, np.zeros(len(ones)), ones, ones, np.zeros(len(ones), bool))
