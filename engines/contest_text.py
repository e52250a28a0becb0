"""A contest for people."""

from collections.abc import Iterator
from statistics import median

from helmsman.schemas.engine_contest import ContestCall, ContestSide, EngineContest
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.units import format_seconds

_PACES = {"faster": "is faster than", "same": "is as fast as", "slower": "is slower than"}


def contest_table(contest: EngineContest) -> str:
    """Return the text that `helm-check --engine` prints."""
    tokens = f"{contest.prompt_tokens} + {contest.output_tokens} tokens"
    head = f"{'settings':<11}{'predicted':>11}{'request':>11}{'prompt':>11}{'step':>11}  as"
    return "\n".join(
        [
            f"{contest.program}: {contest.plan}, {tokens}, {contest.runs} fresh processes of each in turns; medians",
            "",
            head,
            *map(_row, contest.sides),
            "",
            *(f"{one.name} left out: {one.reason}" for one in contest.absent),
            *(line for call in contest.calls for line in _call_lines(call)),
            f"machine    {contest.machine}",
            *_disturbed(contest),
            f"verdict    {verdict_line(contest)}",
        ]
    )


def _row(side: ContestSide) -> str:
    predicted = "-" if side.predicted_s is None else format_seconds(side.predicted_s.mid)
    step = format_seconds(median(side.step_s)) if side.step_s else "-"
    times = (predicted, format_seconds(median(side.request_s)), format_seconds(median(side.prompt_s)), step)
    return f"{side.name:<11}{''.join(f'{text:>11}' for text in times)}  {side.settings}"


def _call_lines(call: ContestCall) -> Iterator[str]:
    span = f"{_percent(call.relative)} [{_percent(call.low)} .. {_percent(call.high)}], noise {call.noise:.1%}"
    yield f"the plan's {_PACES[call.ran]} the {call.rival}, whose requests take {span}"
    if call.predicted is None:
        yield "           Helm had made no prediction"
        return
    word = "right" if call.right else "WRONG"
    yield f"           called {call.called} ({_percent(call.predicted)}): {word}"


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def _disturbed(contest: EngineContest) -> Iterator[str]:
    if contest.others_cpu_share is not None and contest.others_cpu_share > DISTURBED:
        yield f"disturbed  other processes used {contest.others_cpu_share:.0%} of the processors: measure again"


def verdict_line(contest: EngineContest) -> str:
    """Return one line: how many calls were right."""
    if contest.verdict == "disturbed":
        return "not judged, others took the processors"
    called = [call for call in contest.calls if call.right is not None]
    return f"{sum(bool(call.right) for call in called)} of {len(called)} calls right"
