"""The records of a replay as the table that simulations are written as."""

import numpy as np

from helmsman.schemas.requests import Requests
from helmsman.schemas.served_table import STATUSES, Gaps, ServedInfo, ServedTable
from helmsman.service.inference.load.client import RequestRecord
from helmsman.service.inference.load.replay import ReplayResult


def table_of_replay(requests: Requests, replayed: ReplayResult, info: ServedInfo) -> ServedTable:
    """Return a table with one row a request. Times count from second 0 of the requests; when one was scheduled a client
    cannot see.

    A request counts from when it should have been sent, so that a client that is late hides nothing."""
    start, observed = replayed.start, replayed.observed
    count = len(requests)
    nothing = np.zeros(count, np.int64)
    return ServedTable(
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


def _finish(observed: RequestRecord) -> float:
    """Return the moment of the last token; of those who did not finish, when they left."""
    return observed.moments[-1] if _status(observed) == "finished" else observed.ended


def _status(observed: RequestRecord) -> str:
    """An answer without a token is none."""
    return "failed" if observed.status == "finished" and not observed.moments else observed.status


def _prompt(observed: RequestRecord, requests: Requests) -> int:
    return int(requests.prompt_tokens[observed.row]) if observed.prompt_tokens is None else observed.prompt_tokens


def _gaps(observed: tuple[RequestRecord, ...]) -> Gaps:
    """Return every gap as a run of its own."""
    gaps = [np.diff(record.moments) for record in observed]
    start = np.concatenate([[0], np.cumsum([len(gap) for gap in gaps])]).astype(np.int64)
    ones = np.ones(start[-1], np.int64)
    values = np.concatenate(gaps) if gaps else np.zeros(0)
    return Gaps(start, values, np.zeros(len(ones)), ones, ones, np.zeros(len(ones), bool))
