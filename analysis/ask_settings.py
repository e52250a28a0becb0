"""Write plans as settings of other engines, and predict the speed of settings that somebody has."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from helmsman.analysis.why_slower import why_slower
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.rounding import with_rounding
from helmsman.planner.decide import decide
from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.options import offered, read_options
from helmsman.planner.prediction.speed import planned
from helmsman.planner.registry import RECOMMENDED, method
from helmsman.planner.request import PlanRequest
from helmsman.planner.serving.tensor_parallel import held_by
from helmsman.planner.settings.engine_format import EngineFormat, ReadSettings, SettingsSubject, WrittenSettings
from helmsman.planner.settings.plan_places import PlanPlaces
from helmsman.planner.settings.registry import engine_format, own_engine, read_text
from helmsman.planner.strategies.engines.quantised import quantised_formats
from helmsman.schemas.comparison import Planned
from helmsman.schemas.engine_settings import Difference, EngineSettings, SettingsReading
from helmsman.schemas.errors import HelmError, InfeasibleError, UsageError
from helmsman.schemas.formats import FORMAT_FACTS
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.units import format_number

_LOST = 0.02
"""The share of a request's time by which settings must be slower for those of another plan to replace them."""


@dataclass(frozen=True, slots=True)
class _PricedSettings:
    """Holds settings that were written for a plan, with their prediction (`nearest`); `unpriced`: the reason why there
    is none; `fits`: False where that reason is a lack of memory."""

    content: WrittenSettings
    nearest: Planned | None
    unpriced: str | None = None
    fits: bool = True


def settings_of(plan: Plan, engine: str, request: PlanRequest[Any] | None = None) -> EngineSettings:
    """Return a plan's settings for an engine, with what they cannot say, and what is predicted for them.

    What the plan leaves to the engine is as it is predicted to be fastest. `request`: what the plan was made for;
    without it, one like it is asked about the machine that the plan was made for, and nothing is chosen. With it, where
    the settings do not fit the machine, or the strategy was left to Helm and the engine is slower with them than with
    a plan of its own, those of that plan are returned. Raises UsageError for an engine that cannot say anything of the
    plan."""
    form = engine_format(engine)
    written = _written(plan, form, request)
    if request is not None:
        written = _of_own_plan(written, plan, form, request) or written
    return EngineSettings(
        engine=form.name,
        version=form.version,
        source=form.source,
        form=form.form,
        file=form.file,
        text=written.content.text,
        differences=written.content.differences,
        plan=planned(plan),
        nearest=written.nearest,
        unpriced=written.unpriced,
    )


def _written(plan: Plan, form: EngineFormat, request: PlanRequest[Any] | None) -> _PricedSettings:
    """Return a plan's settings for an engine, and what is predicted for them."""
    content = form.write(PlanPlaces(plan))
    if _is_priced_by(plan, form) and not content.differences:
        return _PricedSettings(content, planned(plan))
    if request is not None and own_engine(plan) != form.name and (rows := ranked(content.text, request, form.name)):
        content = replace(content, text=rows[0][1])
    try:
        return _PricedSettings(content, planned(settings_plan(content.text, request or request_of_plan(plan), form)))
    except InfeasibleError as error:
        return _PricedSettings(content, None, f"does not fit: {error}", fits=False)
    except UsageError as error:
        return _PricedSettings(content, None, str(error))


def _is_priced_by(plan: Plan, form: EngineFormat) -> bool:
    """Whether a plan is of an engine and predicted as that engine runs it, not as other software would."""
    return own_engine(plan) == form.name and plan.strategy.options.get("same_software") is not True


def _of_own_plan(
    written: _PricedSettings, plan: Plan, form: EngineFormat, request: PlanRequest[Any]
) -> _PricedSettings | None:
    """Return the settings of the engine's own best plan where those of `plan` do not fit, or where that plan was left
    to Helm and they lose time against these; None: those of `plan` stay."""
    left_to_helm = request.strategy == RECOMMENDED and not _is_priced_by(plan, form)
    if written.fits and (not left_to_helm or written.nearest is None):
        return None
    other = _own_settings(form, request)
    if other is None or other.nearest is None or not _loses(written.nearest, other.nearest):
        return None
    nearest = "do not fit" if written.nearest is None else f"make {_tokens(written.nearest)}"
    replaced = Difference(
        what=f"the plan of {plan.strategy.name}: the settings nearest to it {nearest}",
        instead=f"these are of the fastest plan that {form.name} has: {_tokens(other.nearest)}",
    )
    return replace(other, content=replace(other.content, differences=(replaced, *other.content.differences)))


def _own_settings(form: EngineFormat, request: PlanRequest[Any]) -> _PricedSettings | None:
    """Return the settings of the engine's own best plan that they can say and that fit; None where there is none."""
    for options in (form.expert_options or form.own_options) if request.model.routed else form.own_options:
        own = request.of(form.strategy, _read_options(form.strategy, options))
        with suppress(InfeasibleError, UsageError):
            settings = _written(decide(own).plan, form, own)
            if settings.nearest is not None:
                return settings
    return None


def _loses(one: Planned | None, other: Planned) -> bool:
    """Whether settings are predicted not at all, or to take longer than others do."""
    return one is None or other.speed.request.mid < (1 - _LOST) * one.speed.request.mid


def _tokens(one: Planned) -> str:
    return f"{format_number(one.speed.decode_rate.mid, 3)} tokens/s"


def ranked(text: str, request: PlanRequest[Any], engine: str) -> list[tuple[float, str]]:
    """Return seconds of the request and settings: `text`, and its variants in what is the engine's own choice, as far
    as they fit and can be predicted, the fastest first."""
    form, rows = engine_format(engine), []
    for settings in (text, *form.variants(text)):
        try:
            rows.append((planned(settings_plan(settings, request, form)).speed.request.mid, settings))
        except (InfeasibleError, UsageError):
            continue
    return sorted(rows, key=lambda row: row[0])


def reading_of(text: str, request: PlanRequest[Any], stated: str | None = None) -> SettingsReading:
    """Return the prediction for settings, beside the plan of the request for as many tokens and sequences. `stated`:
    the format of weights that the request has from these settings.

    Raises UsageError for settings that are not understood, InfeasibleError where they do not fit the machine."""
    read = read_text(text, _subject(request))
    yours = _asked(read, request)
    best = decide(_same_work(read, _quantised(read, request)))
    return SettingsReading(
        engine=read.engine,
        version=engine_format(read.engine).version,
        placed=read.placed,
        assumed=(
            *read.assumed,
            *((f"weights in {stated}, which the name of what is run states or means",) if stated else ()),
        ),
        unpriced=read.unpriced,
        idle=read.idle,
        yours=planned(yours.plan),
        best=planned(best.plan),
        best_strategy=best.plan.strategy.name,
        because=_because(yours.plan, best.plan),
    )


def _quantised(read: ReadSettings, request: PlanRequest[Any]) -> PlanRequest[Any]:
    """Return the request with weights as settings quantise them, unless its strategy's files have no such formats, or
    it says itself how they are quantised."""
    given: Any = read.options.get("quantization")
    if given is None or getattr(request.options, "quantization", None) is not None:
        return request
    weights, formats = quantised_formats(request.model, given, request.weights, request.formats)
    if request.strategy == "llama-cpp" and FORMAT_FACTS[weights].gguf_file is None:
        return request
    return replace(request, weights=weights, formats=formats)


def _because(yours: Plan, best: Plan) -> str:
    """Return why one plan is slower than another, with the formats of most weights where these are not the same."""
    (mine, _), (other, _) = (PlanPlaces(plan).formats for plan in (yours, best))
    why = why_slower(yours, best)
    return why if mine == other else f"weights are in {mine} instead of {other}, and {why}"


def settings_plan(text: str, request: PlanRequest[Any], form: EngineFormat) -> Plan:
    """Return what an engine is predicted to do with settings, for a request's model, machine and tokens.

    Raises UsageError for settings that are not understood, InfeasibleError where they do not fit."""
    return _asked(form.read(text, _subject(request)), request).plan


_OF_SOFTWARE = ("build_era", "backend", "same_software")
"""Options of engines that no settings say: how their software was built, and how it is priced."""


def driven_hardware(plan: Plan, record: Hardware) -> Hardware:
    """Return a record as the engine of a plan finds and drives it: with its constants and launch times. Raises
    UsageError for a plan of no engine, InfeasibleError where the engine has no plan there."""
    if own_engine(plan) is None:
        raise UsageError("is of no engine", field="plan", value=plan.strategy.name, remedy="use it as it is")
    return decide(same_request(plan, with_rounding(record))).plan.hardware


def _offered_options(plan: Plan) -> dict[str, object]:
    """Return the options that a plan's strategy was given."""
    known = offered(method(plan.strategy.name).options)
    return {name: value for name, value in plan.strategy.options.items() if name in known}


def _asked(read: ReadSettings, request: PlanRequest[Any]) -> Decision:
    """Return the plan of settings, of the software that the request means. Raises InfeasibleError where they do not
    fit."""
    options: Any = _options(read)
    if read.strategy == "llama-cpp" and not options.fit and options.split_mode is options.tensor_split is None:
        several = len(roles(request.hardware).accelerators) > 1
        options = replace(options, split_mode="layer") if several else options  # llama.cpp's own default
    if request.strategy == read.strategy:
        kept = {name: getattr(request.options, name) for name in _OF_SOFTWARE if hasattr(request.options, name)}
        options = replace(options, **kept)
    return decide(_same_work(read, request).of(read.strategy, options))


def _options(read: ReadSettings) -> object:
    try:
        return _read_options(read.strategy, read.options)
    except HelmError as error:
        error.field = "settings"
        raise


def _read_options(strategy: str, values: Mapping[str, object]) -> object:
    """Return the options of a strategy that have such values. Raises what `read_options` raises."""
    return read_options(method(strategy).options, values, strategy)


def _same_work(read: ReadSettings, request: PlanRequest[Any]) -> PlanRequest[Any]:
    """Return the request with the context, the sequences and the caches of settings."""
    work = request.workload
    batch, context = read.batch or work.batch, read.context or work.context
    needed = work.prompt_tokens + work.output_tokens
    if context < needed:
        remedy = f"ask about fewer tokens, with `prompt_tokens` and `output_tokens`, or a context of {needed}"
        problem = f"a context of {context} tokens has no room for prompt and output"
        raise UsageError(problem, field="settings", value=needed, remedy=remedy)
    resized = work.model_copy(update={"batch": batch, "context": context})
    return replace(request, workload=resized, kv=read.kv or request.kv, batch=None, batches=None, drafts=None)


def _subject(request: PlanRequest[Any]) -> SettingsSubject:
    return SettingsSubject(request.model, request.weights, request.formats, request.hardware, request.workload)


def _asked_model(plan: Plan) -> Model:
    """Return the model that was asked about: of one that several cards hold together, that of the catalogue."""
    cards = PlanPlaces(plan).cards
    if cards > 1:
        with suppress(HelmError):
            catalogue_model = load_model(plan.model.name)
            if held_by(catalogue_model, cards) == plan.model:
                return catalogue_model
    return plan.model


def same_request(plan: Plan, hardware: Hardware) -> PlanRequest[Any]:
    """Return the request whose answer a plan is, with all options of its strategy, on `hardware`."""
    own = plan.strategy.name
    return request_of_plan(plan, hardware).of(own, read_options(method(own).options, _offered_options(plan), own))


def request_of_plan(plan: Plan, hardware: Hardware | None = None) -> PlanRequest[Any]:
    """Return a request for plans like one, on `hardware`, by default the machine that was asked about."""
    places = PlanPlaces(plan)
    weights, formats = places.formats
    name = RECOMMENDED if own_engine(plan) is None else plan.strategy.name
    of_software = {} if name == RECOMMENDED else _offered_options(plan)
    known = {option: value for option, value in of_software.items() if option in _OF_SOFTWARE}
    return PlanRequest(
        _asked_model(plan),
        hardware or plan.machine or plan.hardware,
        plan.workload,
        name,
        read_options(method(name).options, known, name),
        weights=weights,
        kv=places.nearest_kv_format,
        formats=formats,
    )
