"""Short forms of studies: one question asked of several machines, or of one machine with single upgrades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helmsman.hwdb.edits import AS_IT_IS
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.study import Study
from helmsman.schemas.study_report import StudyReport
from helmsman.studies.answering.run import Told, counted
from helmsman.studies.answering.shards import Engine
from helmsman.studies.ask import report_of
from helmsman.studies.questions.named_parts import Machines
from helmsman.studies.questions.read_study import study_of
from helmsman.studies.questions.upgrades import single_upgrades
from helmsman.studies.report.words import better, cost_words, machine_words


@dataclass(frozen=True)
class ShortForm:
    """A study of one question: `content`, its fields beside machines and changes; `hardware`: the machine at hand, if
    one is named; `machines`: others beside it; `changes` of it, `None`: those that are offered; `prices` by machine or
    change."""

    content: Mapping[str, Any]
    hardware: Hardware | None = None
    machines: Sequence[str] = ()
    changes: Sequence[str] | None = ()
    prices: Mapping[str, float] = field(default_factory=dict)

    def study(self) -> Study:
        """Return the study. Raises UsageError for upgrades of no machine, and prices of what is not asked about."""
        own = () if self.hardware is None else (self.hardware.name,)
        machines = tuple(dict.fromkeys((*own, *self.machines)))
        changes = self.changes
        if changes is None or changes:
            if self.hardware is None:
                raise UsageError("upgrades of no machine", field="hardware", remedy="name the machine")
            changes = single_upgrades(self.hardware) if changes is None else changes
        priced = {"machines": {name: p for name, p in self.prices.items() if name in machines}}
        priced["changes"] = {name: p for name, p in self.prices.items() if name not in machines}
        listed = {"machines": machines, "changes": (AS_IT_IS, *changes), "prices": [priced], "sensitivity": 0}
        return study_of({**self.content, **listed})


def short_report(form: ShortForm, engine: Engine, told: Told) -> StudyReport:
    """Return the report of a short form, answered as any study is. Raises what `report_of` raises."""
    study = form.study()
    known = [] if form.hardware is None else [(form.hardware.name, form.hardware)]
    return report_of(study, counted(study), engine, None, told, Machines.of(known))


def buy_first(report: StudyReport) -> str:
    """Return a line that says what to buy first: of changes that which gains most for its price, or most where none has
    one; of machines the cheapest a token, or the best."""
    if report.upgrades:
        upgrade = next(iter(better(report)), None)
        if upgrade is None:
            return "buy first    nothing: no upgrade brings 1 %"
        gain = "makes it fit" if upgrade.times is None else f"{upgrade.times:.2f}x as good"
        price = "" if upgrade.price is None else f" for {cost_words(report, upgrade.price)}"
        return f"buy first    {upgrade.change}: {gain}{price}"
    if report.cheapest:
        row = report.rows[report.cheapest[0]]
        cost = cost_words(report, row.cost)
        return f"buy first    {machine_words(row.machine, row.change)}: {cost} a million tokens, the least"
    best = next((setting for setting in report.best if setting.row is not None), None)
    return "buy first    none of them" if best is None else f"buy first    {best.machine}: the fastest"
