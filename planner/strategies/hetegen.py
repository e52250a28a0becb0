"""`hetegen`: every linear layer's rows are divided between the host, which computes its own from host memory, and the
accelerator, to which the others come at the same time (HELM-90; HeteGen, Zhao et al., MLSys 2024, arXiv 2403.01164).

The share of a layer is where T_CPU = T_COM: one per shape and phase, as prompts are bound by FLOPs. What is left of the
accelerator's memory keeps whole matrices, those first that save most of the host's time per byte (T_CPU / M_GPU)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import batches_together
from helmsman.lowering.tensors import linears
from helmsman.planner.batches.largest import most
from helmsman.planner.cost.model import CostModel
from helmsman.planner.decision import Decision
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.objective import phase_weights
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import TableOptions
from helmsman.planner.strategies.streaming.divided_rows import Division, divided_operations, place
from helmsman.planner.strategies.streaming.ends import End
from helmsman.planner.strategies.streaming.framing import decide_framed, frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.streaming.shared_rows import Shared, apportioned, delays, through
from helmsman.scheduler.iteration import PHASES, Phase, prefill

NAME = "hetegen"

_ROOMS: tuple[tuple[End, End], ...] = (
    ("accelerator", "accelerator"),
    ("accelerator", "host"),
    ("host", "accelerator"),
    ("host", "host"),
)
"""Where caches and the output are: what is predicted to be best of those that fit, the first of equal ones."""


@dataclass(frozen=True)
class HeteGen:
    """HeteGen's plan for one question."""

    question: Question

    def decide(self, recorded: Recorded) -> Decision:
        """The plan. Raises InfeasibleError when it does not fit, UsageError without a separate accelerator."""
        self.question.check(NAME)
        placed = place(self.question.frame, self.division)
        if not self.question.fits(placed):
            raise self.question.infeasible(NAME, placed, lambda question: HeteGen(question).fits)
        return self.question.decision(NAME, self.label, placed, recorded)

    @property
    def fits(self) -> bool:
        """Whether any of its plans does."""
        return any(self.question.fits(place(self.question.frame, division)) for division in self._proposed())

    @property
    def label(self) -> str:
        """`hetegen cpu[71 %] cuda[29 % streamed, 12 of 36 blocks]`: of the rows that are divided in decode steps, and
        what is kept; `hetegen cuda[36 of 36 blocks]`."""
        frame, division = self.question.frame, self.division
        elements = {op: rows * columns for op, rows, columns, _ in linears(frame.model)}
        brought = {op: rows / op_extent(frame.model, op)[1] for op, rows in division.brought["decode"].items()}
        share = 100 * sum(elements[op] * part for op, part in brought.items()) / sum(elements.values())
        many, kind = min(division.kept.values(), default=0), frame.accelerator.kind
        if many == frame.model.layers:
            return f"{NAME} {kind}[{many} of {many} blocks]"
        streamed = f"{share:.0f} % streamed, {many} of {frame.model.layers} blocks"
        return f"{NAME} {frame.roles.host.kind}[{100 - share:.0f} %] {kind}[{streamed}]"

    @cached_property
    def division(self) -> Division:
        """The shares of every shape, and as much kept on the accelerator as fits and helps; if nothing fits, with
        caches and output in host memory. Shares are only balanced where anything can fit: many batches take long."""
        proposed = list(self._proposed())
        otherwise = proposed[-1] if proposed else self._unshared(*_ROOMS[-1], brought=True)
        return self._best(proposed, otherwise)

    def _best(self, proposed: Sequence[Division], otherwise: Division) -> Division:
        """Return the division of those that fit whose plan has the fewest predicted seconds; `otherwise` where none
        fits."""
        fitting = [division for division in proposed if self.question.fits(place(self.question.frame, division))]
        return fitting[0] if len(fitting) == 1 else min(fitting, key=self._seconds, default=otherwise)

    def _proposed(self) -> Iterator[Division]:
        """Yield a division for every place of caches and output for which the accelerator's memory has room."""
        for cache, end in _ROOMS:
            if self._may_fit(cache, end):
                base = self.balanced(cache, end)
                if self._has_room(base):
                    yield self._with_kept(base)

    def _seconds(self, division: Division) -> float:
        """Return the predicted seconds of the objective."""
        return self.question.seconds(place(self.question.frame, division))

    def balanced(self, cache: End, end: End) -> Division:
        """The shares of every shape, with nothing kept."""
        shares = {phase: shared_matrices(self.question, cache, end, phase) for phase in PHASES}
        brought = {phase: {op: matrix.brought for op, matrix in share.items()} for phase, share in shares.items()}
        return Division(brought, {}, cache, end)

    def _with_kept(self, base: Division) -> Division:
        """Whole blocks while they fit, then single matrices of the next one: by seconds saved per byte in decode steps,
        or in whole requests, whichever is predicted to be better."""
        saved = {phase: self._saved(base, phase) for phase in PHASES}
        work = self.question.frame.workload
        request = phase_weights("request", work, together=work.batches)
        whole = {op: sum(weight * saved[phase][op] for phase, weight in request.items()) for op in saved["decode"]}
        proposed = [self._keeping(base, gains) for gains in (saved["decode"], whole)]
        if proposed[0] == proposed[1]:
            return proposed[0]
        return self._best(proposed, proposed[0])

    def _saved(self, base: Division, phase: Phase) -> dict[str, float]:
        """Seconds that every linear layer takes less where the accelerator keeps it."""
        matrices = shared_matrices(self.question, base.cache, base.end, phase)
        return {
            op: matrix.seconds(matrix.brought) - matrix.accelerator.at(matrix.rows) for op, matrix in matrices.items()
        }

    def _keeping(self, base: Division, gains: Mapping[str, float]) -> Division:
        """With as much kept as fits, by `gains` in seconds."""
        model = self.question.frame.model
        if sum(gains.values()) <= 0:
            return base
        kept = dict.fromkeys(
            gains, most(model.layers, lambda many: self._has_room(replace(base, kept=dict.fromkeys(gains, many))))
        )
        sizes = {op: rows * columns for op, rows, columns, _ in linears(model)}
        for op in sorted(gains, key=lambda op: gains[op] / sizes[op], reverse=True):
            more = {**kept, op: kept[op] + 1}
            if kept[op] < model.layers and gains[op] > 0 and self._has_room(replace(base, kept=more)):
                kept = more
        return replace(base, kept=kept)

    def _has_room(self, division: Division) -> bool:
        """Whether the accelerator's memory is large enough."""
        return self.question.frame.accelerator.memory not in self._lacks(division)

    def _may_fit(self, cache: End, end: End) -> bool:
        """Whether the accelerator's memory is large enough when nothing comes and nothing is kept there, and the
        host's when everything is."""
        least = self._unshared(cache, end, brought=False)
        whole = dict.fromkeys(divided_operations(self.question.frame.model), self.question.frame.model.layers)
        host = self.question.frame.roles.host.memory
        return self._has_room(least) and host not in self._lacks(replace(least, kept=whole))

    def _unshared(self, cache: End, end: End, brought: bool) -> Division:
        """All rows are brought, or none; nothing is kept."""
        model = self.question.frame.model
        rows = {op: op_extent(model, op)[1] if brought else 0 for op in divided_operations(model)}
        return Division(dict.fromkeys(PHASES, rows), {}, cache, end)

    def _lacks(self, division: Division) -> dict[str, int]:
        return self.question.lacks(place(self.question.frame, division))


def shared_matrices(question: Question, cache: End, end: End, phase: Phase) -> dict[str, Shared]:
    """Every linear layer's three ways, from the prices of one block of which nothing, half and all is brought."""
    model, one = question.frame.model, question.of(layers=1)
    extents = {op: op_extent(model, op)[1] for op in divided_operations(model)}
    halves = {op: rows // 2 // PANEL * PANEL for op, rows in extents.items()}
    none, half, whole = (
        _block(one, Division(dict.fromkeys(PHASES, rows), {}, cache, end), phase)
        for rows in (dict.fromkeys(extents, 0), halves, extents)
    )
    slower, later = half.delays
    matrices = {}
    for op, rows in extents.items():
        few, host, link = halves[op], half.host(op), half.link(op)
        on_host = through((rows - few, host), (rows, none.host(op))).times(slower)
        coming = through((few, link), (rows, whole.link(op))).times(later)
        away = through((few, half.accelerator(op)), (rows, whole.accelerator(op)))
        matrices[op] = Shared(rows, on_host, coming, away)
    return apportioned(matrices, half.other)


def _block(question: Question, division: Division, phase: Phase) -> "_Block":
    placed = place(question.frame, division)
    work, together = placed.workload, batches_together(placed)
    graph = lower(placed, mean_step(work, together) if phase == "decode" else prefill(work, together))
    tasks = [task for task in graph.tasks if task.layer is not None]
    return _Block(question.frame, question.costs(placed), tasks)


@dataclass(frozen=True)
class _Block:
    """The tasks of one block and their prices."""

    frame: Frame
    costs: CostModel
    tasks: Sequence[Task]

    def host(self, op: str) -> float:
        """Seconds of the host for its rows of `op`, of all batches."""
        return self._seconds(
            task for task in self.tasks if task.op == op and task.resource == self.frame.roles.host.name
        )

    def accelerator(self, op: str) -> float:
        """Seconds of the accelerator for its rows."""
        return self._seconds(
            task for task in self.tasks if task.op == op and task.resource == self.frame.accelerator.name
        )

    def link(self, op: str) -> float:
        """Seconds of the link for them."""
        return self._seconds(task for task in self.tasks if task.operation == op and _brings_weights(task))

    @property
    def other(self) -> float:
        """Seconds in which neither side computes linear layers: norms, attention, hidden states on their way."""
        return self._seconds(
            task for task in self.tasks if task.kind != "linear" and task.op != "kv" and not _brings_weights(task)
        )

    @property
    def delays(self) -> tuple[float, float]:
        """How many times as long the host's work and transfers take beside each other."""
        work = [t for t in self.tasks if t.kind == "linear" and t.resource == self.frame.roles.host.name]
        coming = [task for task in self.tasks if _brings_weights(task)]
        if not work or not coming:
            return 1.0, 1.0
        largest, comes = (max(tasks, key=lambda task: task.bytes) for tasks in (work, coming))
        return delays(self.costs, largest, (comes,))[0]

    def _seconds(self, tasks: Iterator[Task]) -> float:
        return sum(self.costs.price(task).mid for task in tasks)


def _brings_weights(task: Task) -> bool:
    return task.kind == "transfer" and task.payload == "weights"


_decide = partial(decide_framed, HeteGen)


def _fits(request: PlanRequest[TableOptions]) -> bool:
    question = Question(frame_of(request, request.options.table), request.prices, request.objective)
    question.check(NAME)
    return HeteGen(question).fits


STRATEGY = Method(
    "hetegen",
    "HeteGen: every matrix shared between host and accelerator",
    TableOptions,
    _decide,
    fits=_fits,
)
