"""Models in formats at contexts on one machine: each solved as a question of a study, and the best of them chosen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from helmsman import library
from helmsman.hwdb.edits import AS_IT_IS
from helmsman.hwdb.format_losses import published_losses
from helmsman.hwdb.load_model import catalogue_names
from helmsman.lowering.tensors import parameters
from helmsman.planner.read_request import workload_of
from helmsman.planner.registry import RECOMMENDED, strategy_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.fit_report import FitReport, FitRow
from helmsman.schemas.formats import KvFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan_question import Value
from helmsman.schemas.study import Study
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.answering.local import LocalEngine
from helmsman.studies.answering.run import Told
from helmsman.studies.answering.shards import Engine, shard_of
from helmsman.studies.fitting.choice import best_rows
from helmsman.studies.fitting.formats import TriedFormat, tried_formats
from helmsman.studies.fitting.purposes import Purpose, floor_of, purpose_named
from helmsman.studies.questions.named_parts import Machines, keyed
from helmsman.studies.questions.points import ServedPoint, StudyMethod, StudyPoint

QUICK = "llama-cpp"
"""The strategy that is asked where many models are: that of the engine that most people have, and quick to solve."""

_FOUND_ITSELF = {"fit": True}
"""Options of it: experts and layers are where it puts them itself."""

_PLACING = frozenset({"ngl", "override_tensor", "n_cpu_moe", "cpu_moe", "split_mode", "tensor_split", "fit"})
"""Options of it that say where layers and experts are."""


@dataclass(frozen=True)
class FitLengths:
    """Tokens of a request; `context`: that caches hold, None: prompt and output."""

    prompt: int
    output: int
    context: int | None = None

    @property
    def tokens(self) -> int:
        """Return tokens that caches hold."""
        return self.context or self.prompt + self.output


@dataclass(frozen=True)
class FitQuestion:
    """Asks one machine for `models` by name, in `formats` (none: those that are worth a try), for requests of
    these `lengths`, planned by `strategy` with `options`, for `engine` where its speed is asked for. `whole`: every
    format is wanted, not the best alone."""

    hardware: Hardware
    models: tuple[str, ...]
    purpose: Purpose
    floor: float | None = None
    lengths: tuple[FitLengths, ...] = ()
    formats: tuple[str, ...] = ()
    kv_format: KvFormat = "f16"
    strategy: str = QUICK
    options: Mapping[str, Value] = field(default_factory=dict)
    objective: str = "request"
    batch: int | None = None
    whole: bool = False
    engine: str | None = None

    @property
    def sequences(self) -> int:
        """Return sequences that advance together."""
        return self.purpose.batch if self.batch is None else self.batch

    @cached_property
    def loaded(self) -> Mapping[str, Model]:
        """Return the models by name. Raises UsageError and BadInputError for those that there are not."""
        return {name: library.load_model(name) for name in self.models}


def fit(
    hardware: str | Hardware,
    models: Sequence[str] | None = None,
    *,
    purpose: str = "chat",
    floor: float | None = None,
    contexts: Sequence[int] = (),
    formats: Sequence[str] = (),
    kv_format: KvFormat = "f16",
    engine: str | None = None,
    strategy: str | None = None,
    options: Mapping[str, Value] | None = None,
    whole: bool = False,
    jobs: int = 1,
) -> FitReport:
    """Return what a machine can run: models (default: all of the catalogue) in formats at contexts, with the one to
    take of each model.

    `purpose`: chat, code or batch, which says lengths and the least tokens/s unless `floor` does; `contexts`: tokens of
    prompt and output together, at which they are asked; `formats`: by default those worth a try, of which those that
    lose more than one that is fast enough are left out unless the `whole` table is wanted; `engine`: whose speed is
    predicted, and whose `strategy` plans unless another is named (default: llama-cpp); `jobs`: processes.

    >>> report = fit("rtx4060-laptop", ["Qwen3-0.6B"], formats=["q8_0"], strategy="cpu-only")
    >>> [(row.format, row.status) for row in report.rows]
    [('q8_0', 'fits')]
    """
    meant = purpose_named(purpose)
    question = FitQuestion(
        library.load_hardware(hardware) if isinstance(hardware, str) else hardware,
        tuple(catalogue_names() if models is None else models),
        meant,
        floor,
        lengths_at(contexts, meant),
        tuple(formats),
        kv_format,
        planning_strategy(engine, strategy),
        options_of(planning_strategy(engine, strategy), options or {}),
        whole=whole or bool(formats),
        engine=engine,
    )
    return fitted(question, LocalEngine(jobs), lambda done, total: None)


def planning_strategy(engine: str | None, strategy: str | None) -> str:
    """Return the strategy that is asked about many models: the one that is named, that of the engine, or `QUICK`."""
    if strategy is not None:
        return strategy
    return QUICK if engine is None else strategy_of(engine, RECOMMENDED)


def options_of(strategy: str, given: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the options of a strategy that is asked about many models, with those that are `given`."""
    return {**_FOUND_ITSELF, **given} if strategy == QUICK and not _PLACING & given.keys() else given


def lengths_at(contexts: Sequence[int], purpose: Purpose) -> tuple[FitLengths, ...]:
    """Return requests that fill contexts, with the outputs of a purpose, or its own. Raises UsageError for a context
    without room for a prompt."""
    if not contexts:
        return (FitLengths(purpose.prompt_tokens, purpose.output_tokens),)
    least = min(contexts)
    if least <= purpose.output_tokens:
        remedy = f"use more than {purpose.output_tokens} tokens, which an output takes"
        raise UsageError("no room for a prompt", field="contexts", value=least, remedy=remedy)
    return tuple(
        FitLengths(context - purpose.output_tokens, purpose.output_tokens) for context in dict.fromkeys(contexts)
    )


def fitted(question: FitQuestion, engine: Engine, told: Told) -> FitReport:
    """Return the report of a question. Raises UsageError for names, formats and lengths that there are not."""
    floor, floor_source = floor_of(question.purpose, question.floor)
    ladders = tuple(_ladders(question))
    if not ladders:
        remedy = "ask for other formats or shorter contexts"
        raise UsageError("no model has such formats at such contexts", field="models", remedy=remedy)
    answers = _answers(question, ladders, floor, engine, told)
    rows = tuple(_row(question, fmt, row, floor) for fmt, row in answers if row.status != "does-not-apply")
    if not rows:
        raise UsageError(str(answers[0][1].missing), field="strategy", value=question.strategy)
    used = {row.format for row in rows if row.loss}
    return FitReport(
        machine=question.hardware.name,
        purpose=question.purpose.name,
        floor=floor,
        floor_source=floor_source,
        batch=question.sequences,
        kv_format=question.kv_format,
        engine=question.engine,
        best=best_rows(rows),
        losses=tuple(loss for fmt, loss in published_losses().items() if fmt in used),
        rows=rows,
    )


Ladder = tuple[tuple[StudyPoint, TriedFormat], ...]
"""The points of a model at a context, the most precise format first."""


def _answers(
    question: FitQuestion, ladders: Sequence[Ladder], floor: float, engine: Engine, told: Told
) -> list[tuple[TriedFormat, StudyRow]]:
    """Return the answers to ladders in order, each with its format; unless all are wanted, as far as the first that
    makes `floor` tokens a second."""
    name, hardware = question.hardware.name, question.hardware
    study = Study(models=question.models, machines=(name,), strategies=(question.strategy,))
    points = [point for ladder in ladders for point, _ in ladder]
    machines = Machines.of([(name, hardware)], question.loaded.items())
    keys = {point: key for key, point in keyed(study, points, machines)}
    enough = None if question.whole else floor
    shards = [shard_of([(keys[point], point) for point, _ in ladder], machines, enough) for ladder in ladders]
    known: dict[str, StudyRow] = {}
    told(0, len(shards))
    for done, rows in enumerate(engine(study, shards), 1):
        known.update((row.key, row) for row in rows)
        told(done, len(shards))
    return [(fmt, known[keys[point]]) for ladder in ladders for point, fmt in ladder if keys[point] in known]


def _ladders(question: FitQuestion) -> Iterator[Ladder]:
    """Yield what is asked of every model at every context that it has."""
    method = StudyMethod(question.strategy, tuple(question.options.items()), question.engine)
    for name, model in question.loaded.items():
        formats = _worth_asking(question, tried_formats(model, name, question.formats, question.strategy == QUICK))
        for lengths in question.lengths:
            if len(question.models) > 1 and lengths.tokens > model.max_context:
                continue
            _check(question, model, lengths)
            if formats:
                yield tuple((_point(question, name, method, lengths, fmt), fmt) for fmt in formats)


def _worth_asking(question: FitQuestion, formats: tuple[TriedFormat, ...]) -> tuple[TriedFormat, ...]:
    """Return the formats that all memories together have room for, or the smallest; all where all are wanted."""
    if question.whole or not formats:
        return formats
    room = sum(memory.available for memory in question.hardware.memories)
    return tuple(fmt for fmt in formats if fmt.size <= room) or (min(formats, key=lambda fmt: fmt.size),)


def _check(question: FitQuestion, model: Model, lengths: FitLengths) -> None:
    """Raise UsageError for lengths that make no sense or that the model has not."""
    workload_of(
        model,
        prompt_tokens=lengths.prompt,
        output_tokens=lengths.output,
        context=lengths.context,
        prefix_tokens=0,
        batch=question.sequences,
        batches=1,
    )


def _point(question: FitQuestion, name: str, method: StudyMethod, lengths: FitLengths, fmt: TriedFormat) -> StudyPoint:
    return StudyPoint(
        model=name,
        machine=question.hardware.name,
        change=AS_IT_IS,
        format=fmt.name,
        kv_format=question.kv_format,
        method=method,
        objective=question.objective,
        prompt_tokens=lengths.prompt,
        output_tokens=lengths.output,
        context=lengths.context,
        batch=question.sequences,
        slo=None,
        served=ServedPoint(),
        prices="prices",
    )


_COPIED = (
    "prompt_tokens", "output_tokens", "context", "status", "decode_rate", "decode_rate_low", "decode_rate_high",
    "ttft_s", "ttft_low_s", "ttft_high_s", "request_s", "host_bytes", "accelerator_bytes", "missing",
)  # fmt: skip
"""Columns that are those of a study."""


def _row(question: FitQuestion, fmt: TriedFormat, answer: StudyRow, floor: float) -> FitRow:
    model = question.loaded[answer.model]
    rate = answer.decode_rate
    return FitRow(
        **{name: getattr(answer, name) for name in _COPIED},
        model=answer.model,
        parameters=parameters(model),
        format=fmt.name,
        bits=fmt.bits,
        weight_bytes=fmt.size,
        strategy=answer.planned_by,
        settings=answer.plan,
        meets_floor=None if rate is None else rate >= floor,
        loss=fmt.loss,
        loss_of=fmt.loss_of,
        note=f"planned, not run: {', '.join(model.unknown)} unknown" if model.unknown else None,
    )
