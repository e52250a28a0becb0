"""The page: every fact with its value, ours, the error and the tolerance; what is left out, and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.facts.answer import Answer, Answers, Value
from benchmarks.papers.facts.left_out import GROUPS

PAPERS = {"HELM": "HELM", "PARK": "Park & Egger", "GUPTA": "Gupta & Dwarkadas", "APEX": "APEX", "NEO": "NEO"}
_REASONS = frozenset(name for group in GROUPS for name in group.facts)
_HEAD = """# Facts of the papers

Written by `python -m benchmarks.papers.facts --facts FILE -o docs/facts.md`; FILE lists the papers' numbers (`id`,
`doc`, `where`, `quantity`, `conditions`, `value`, `unit`, `role`). Everything is computed from the catalogue's records.

- *Given*: carried by a record, the catalogue or a question, so that a deviation is a mistake there; *at least*, *at
  most*: the paper states a bound; everything else is computed by planner or simulator.
- Error: ours over published, less one; of percentages the difference in points (pp). Tolerances: 2 % for arithmetic,
  20 % for times and rates, 30 % where the paper itself has several values (E-HELM-13), 10 points for percentages of
  something that was measured.
- Doubt: the erratum that questions the printed value. Such a row counts as all others do.
"""


@dataclass(frozen=True, slots=True)
class Fact:
    """A published number: its id (a member of a list has `.0`), paper, place, what it is, value and unit."""

    name: str
    paper: str
    where: str
    what: str
    value: Value
    unit: str
    role: str


@dataclass(frozen=True, slots=True)
class Row:
    """A fact beside ours."""

    fact: Fact
    answer: Answer

    @property
    def holds(self) -> bool:
        """Whether ours is within the tolerance."""
        return self.answer.holds(self.fact.value)


def rows(facts: Iterable[Fact], answers: Answers) -> Iterator[Row]:
    """The facts that have an answer, in their order."""
    return (Row(fact, answers[fact.name]) for fact in facts if _compared(fact, answers))


def _compared(fact: Fact, answers: Answers) -> bool:
    return fact.name in answers and _whole(fact) not in _REASONS


def unexplained(facts: Iterable[Fact], answers: Answers) -> list[str]:
    """Facts that have neither an answer nor a reason."""
    return [fact.name for fact in facts if fact.name not in answers and _whole(fact) not in _REASONS]


def _whole(fact: Fact) -> str:
    return fact.name.partition(".")[0]


def page(facts: Sequence[Fact], answers: Answers) -> str:
    """The page as Markdown."""
    found = list(rows(facts, answers))
    parts = [_HEAD, *_summary(found)]
    for paper, title in PAPERS.items():
        mine = [row for row in found if row.fact.paper == paper]
        parts += [f"\n## {title}\n", *_table(mine)] if mine else []
    return "\n".join([*parts, *_left_out(facts, answers), ""])


def _summary(found: Sequence[Row]) -> Iterator[str]:
    yield "| paper | facts | within | outside |"
    yield "|---|---|---|---|"
    for paper, title in PAPERS.items():
        mine = [row for row in found if row.fact.paper == paper]
        held = sum(row.holds for row in mine)
        yield f"| {title} | {len(mine)} | {held} | {len(mine) - held} |"


def _table(found: Iterable[Row]) -> Iterator[str]:
    yield "| fact | where | what | published | ours | error | tolerance | verdict | doubt |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in found:
        fact, answer = row.fact, row.answer
        unit = f" {fact.unit}" if fact.unit and fact.value not in ("x", "OOM") else ""
        yield (
            f"| {fact.name} | {fact.where} | {fact.what} | {_shown(fact.value)}{unit} | {_shown(answer.ours)} "
            f"| {_error(row)} | {_tolerance(answer)} | {_verdict(row)} | {answer.doubt} |"
        )


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "does not fit" if value is None else value


def _error(row: Row) -> str:
    error = row.answer.error(row.fact.value)
    if error is None:
        return "-"
    return f"{error:+.1f} pp" if row.answer.points else f"{100 * error:+.1f} %"


def _tolerance(answer: Answer) -> str:
    if answer.kind in ("at least", "at most"):
        return answer.kind
    size = f"{answer.tolerance:g} pp" if answer.points else f"{100 * answer.tolerance:g} %"
    return f"{size}, given" if answer.kind == "given" else size


def _verdict(row: Row) -> str:
    return "within" if row.holds else "**outside**"


def _left_out(facts: Sequence[Fact], answers: Mapping[str, Answer]) -> Iterator[str]:
    """Reasons, with the facts that they are about."""
    left = {_whole(fact): None for fact in facts if not _compared(fact, answers)}
    yield "\n## Not computed\n"
    for group in GROUPS:
        mine = [name for name in left if name in group.facts]
        if mine:
            yield f"- {group.reason} {', '.join(_spans(mine))}."


def _spans(names: Sequence[str]) -> Iterator[str]:
    """Neighbouring ids as `PARK-F096..F101`."""
    at = 0
    while at < len(names):
        paper, number = names[at].split("-F")
        end = at
        while end + 1 < len(names) and names[end + 1] == f"{paper}-F{int(number) + end + 1 - at:03}":
            end += 1
        yield names[at] if end == at else f"{names[at]}..F{names[end].split('-F')[1]}"
        at = end + 1
