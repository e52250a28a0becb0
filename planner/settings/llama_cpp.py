"""llama.cpp: the command of its server, `llama-fit-params`, `--fit-print`, and what a running server says of itself."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from helmsman.lowering.named_mixes import named_mix
from helmsman.planner.machine import roles
from helmsman.planner.serving.engine_reserve import card_count, cards_of
from helmsman.planner.settings.command_flags import FIELD, GivenFlag, texts, whole_number, words_of
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    OptionValue,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.fit_print import FIT_PRINT, read_fit_print
from helmsman.planner.settings.host_threads import fewer_threads, host_cores, threads_are_priced
from helmsman.planner.settings.llama_grammar import BATCH, GRAMMAR, PROGRAMS, SOURCE, UBATCH, VERSION
from helmsman.planner.settings.llama_places import OFFLOADED_TOKENS, LlamaPlaces, numbers_pattern
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KV_FORMATS, NAMED_MIXES, STORED_FORMATS, KvFormat, NamedMix, is_plain
from helmsman.schemas.model import Model

_WIDER: dict[str, KvFormat] = {"q4_0": "q8_0", "q4_1": "q8_0", "iq4_nl": "q8_0", "q5_0": "q8_0", "q5_1": "q8_0"}
"""Formats of caches that Helm does not price, and the next wider one that it does."""

_PLAIN = ("f32", "f16", "bf16")
"""Formats of values that llama.cpp attends to in steps as well."""

_STEPWISE = (("off",), ("0",), ("false",), ("disabled",))
"""Values of --flash-attn with which attention is a product, a softmax and a product."""

_ASSUMED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "--flash-attn": ((), ("on",), ("auto",), ("1",), *_STEPWISE),
    "--load-mode": (("auto",), ("mmap",)),
    "--lazy-mode": (("auto",), ("off",)),
    "--main-gpu": (("0",),),
}
"""Values that are priced, or change nothing of a prediction; --flash-attn had none in builds before 2025-09."""

_ALL_LAYERS = ("all", "-2")
_AUTOMATIC = ("auto", "-1")


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the command of a server that carries out the plan as nearly as llama.cpp can."""
    own, plan = LlamaPlaces(places), places.plan
    work = plan.workload
    words = ["llama-server", "-ngl", str(own.slots), *_divided(own)]
    if count := own.expert_layers:
        words += ["--cpu-moe"] if count == plan.model.layers else ["--n-cpu-moe", str(count)]
    if own.overrides:
        words += ["-ot", ",".join(own.overrides)]
    words += ["-c", str(work.context * work.batch), "-np", str(work.batch)]
    micro = micro_batch(places)
    words += ["-b", str(max(BATCH, micro)), "-ub", str(micro)]
    words += ["-ctk", places.nearest_kv_format, "-ctv", places.nearest_kv_format]
    words += ["-fa", flash(places)]
    if places.threads is not None:
        words += ["-t", str(places.threads), "-tb", str(places.threads)]
    if _stays(places):
        words += ["--no-op-offload"]
    words += ["-m", model_file(places)]
    return WrittenSettings(shlex.join(words), (*own.differences(), *kv_differences(places, KV_FORMATS)))


def flash(places: PlanPlaces) -> str:
    """Return whether attention is one operation, as `--flash-attn` has it: what a plan of llama.cpp says, else as the
    plan attends; values that are quantised llama.cpp attends to in one operation alone."""
    plan = places.plan
    said = plan.strategy.options.get("flash_attn") if plan.strategy.name == "llama-cpp" else None
    if not is_plain(places.nearest_kv_format):
        return "on"
    return str(said) if said in ("on", "off") else "on" if plan.schedule.attention == "whole" else "off"


def model_file(places: PlanPlaces) -> str:
    """Return what the file of the model may be called: whose it is, and in which format, or mixture that has a name."""
    model, (fmt, own) = places.plan.model, places.formats
    stated = fmt if not own and fmt in STORED_FORMATS else _mixture(model, places.matrix_formats)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", model.name.rpartition("/")[2])
    return f"{name}-{stated.upper()}.gguf" if stated else f"{name}.gguf"


def _mixture(model: Model, formats: Formats) -> NamedMix | None:
    """Return the name of a mixture that keeps every matrix of a model as `formats` do; None where none does."""
    for name in NAMED_MIXES:
        mix = named_mix(model, name)
        if all(mix.get(key) == fmt for key, fmt in formats.items()):
            return name
    return None


def kv_differences(places: PlanPlaces, known: Sequence[str]) -> tuple[Difference, ...]:
    """Return that the engine, which knows some formats of caches, has another than the plan."""
    if places.kv_format in known:
        return ()
    had = " and ".join(dict.fromkeys(rule.format for rule in places.plan.kv))
    return (Difference(what=f"caches are kept in {had}", instead=f"they are in {places.nearest_kv_format}"),)


def micro_batch(places: PlanPlaces) -> int:
    """Return the tokens of a micro-batch: those that a plan of llama.cpp says, else its own; of a model with experts,
    whose weights come again for every pass, all of a prompt that the plan takes in one."""
    plan = places.plan
    said = plan.strategy.options.get("ubatch") if plan.strategy.name == "llama-cpp" else None
    micro = said if isinstance(said, int) else UBATCH
    whole = plan.model.routed and plan.schedule.pass_tokens is None
    return max(micro, plan.workload.new_tokens * plan.workload.batch) if whole else micro


def _divided(own: LlamaPlaces) -> list[str]:
    """Return the flags that divide slots among accelerators, where there are several, or several cards are one."""
    if own.slots and own.places.cards > 1:
        return ["-sm", "layer", "-ts", ",".join(f"{share:g}" for share in _shares(own))]
    if len(own.counts) < 2 or not own.slots:
        return []
    if own.counts[0] == own.slots:
        return ["-sm", "none"]
    return ["-sm", "layer", "-ts", ",".join(map(str, own.counts))]


def _shares(own: LlamaPlaces) -> Iterator[float]:
    """Yield the slots of every accelerator of the machine that was asked about, where several cards of it are one in
    the plan: each of these has as many."""
    plan = own.places.plan
    of_one = dict(zip((device.name for device in own.places.roles.accelerators), own.counts, strict=True))
    joined = next(device for device in own.places.roles.accelerators if card_count(device) > 1)
    left, product = cards_of(joined.product or "")
    for device in roles(plan.machine or plan.hardware).accelerators:
        if left and device.product in (product, joined.product):
            yield of_one[joined.name] / card_count(joined)
            left -= 1
        else:
            yield 0 if device.name == joined.name else of_one.get(device.name, 0)


def _stays(places: PlanPlaces) -> bool:
    """Whether products of many tokens are computed where their weights are, against llama.cpp's default."""
    plan, roles = places.plan, places.roles
    if plan.strategy.name == "llama-cpp":
        return plan.strategy.options.get("no_op_offload") is True
    if not roles.separate or plan.workload.batch * plan.workload.new_tokens < OFFLOADED_TOKENS:
        return False
    used = {rule.device for rule in plan.compute}
    there = any(place.side == HOST for (name, layer), place in places.tensors.items() if layer is not None)
    on_host = {rule.device for rule in plan.compute if rule.phase in (None, "prefill")} & {roles.host.name}
    offloads = any(rule.phase == "prefill" and rule.device != roles.host.name for rule in plan.compute)
    return there and len(used) > 1 and bool(on_host) and not offloads


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a command, the flags that llama-fit-params prints, the table of --fit-print, or the answer of `/props` as
    a question. Raises UsageError for what is none of these, and by name for flags that are not known."""
    if text.lstrip().startswith("{"):
        return _read_props(text)
    if FIT_PRINT.search(text):
        return read_fit_print(text, subject)
    words = without_program(words_of(text))
    return read_flags(words, subject)


def without_program(words: Sequence[str]) -> Sequence[str]:
    """Return the flags of a command, after what sets the environment, and its program."""
    left = list(words)
    while left and re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", left[0], re.DOTALL):
        name = left.pop(0).partition("=")[0]
        if name.startswith("LLAMA_ARG_"):
            raise UsageError(f"{name} sets a flag from outside", field=FIELD, remedy="write the flag itself")
    if left and not left[0].startswith("-"):
        program = left.pop(0).rpartition("/")[2].removesuffix(".exe")
        if program not in PROGRAMS:
            remedy = f"give the flags of {PROGRAMS[0]}"
            raise UsageError(
                f"{program} is no program of llama.cpp whose flags are known here", field=FIELD, remedy=remedy
            )
    return left


def read_flags(words: Sequence[str], subject: SettingsSubject) -> ReadSettings:
    """Return the flags of a command as a question."""
    given = list(GRAMMAR.given(words))
    last = {flag.name: flag for flag in given}
    options, assumed = _placement(last, [flag for flag in given if flag.name == "--override-tensor"], subject)
    batch, context, about = _context(last, subject)
    kv, doubts = _caches(last)
    _check_values(last)
    unpriced = tuple(flag.text for flag in given if flag.effect == "unpriced" and not _as_priced(flag, last, subject))
    options |= _passes(last) | fewer_threads(last.get("--threads"), subject)
    stepwise = [flag.text for flag in last.values() if flag.name == "--flash-attn" and flag.values[:1] in _STEPWISE]
    options["flash_attn"] = "off" if stepwise else "on"
    placed = (*texts(given, "placed"), *([last["--threads"].text] if "threads" in options else ()), *stepwise)
    return ReadSettings(
        "llama.cpp", "llama-cpp", options, context, batch, kv, placed, (*assumed, *about),
        (*unpriced, *doubts), texts(given, "idle"),
    )  # fmt: skip


def _placement(
    last: Mapping[str, GivenFlag], patterns: Sequence[GivenFlag], subject: SettingsSubject
) -> tuple[dict[str, OptionValue], list[str]]:
    """Return the options that place layers, experts and tensors, and what is taken for those that are left out."""
    options: dict[str, OptionValue] = {}
    assumed = list[str]()
    moved = [flag.values[0] for flag in patterns]
    if "--n-cpu-ffn" in last:
        count = whole_number(last["--n-cpu-ffn"])
        moved += [rf"blk\.{numbers_pattern(range(count))}\.ffn_(gate|up|down)\.=CPU"] if count else []
    if moved:
        options["override_tensor"] = ",".join(moved)
    if "--cpu-moe" in last:
        options["cpu_moe"] = True
    elif "--n-cpu-moe" in last:
        options["n_cpu_moe"] = min(whole_number(last["--n-cpu-moe"]), subject.model.layers)
    split = _split(last)
    slots = _slots(last, bool(options) or "tensor_split" in split, subject, assumed)
    return options | slots | ({} if "fit" in slots else split), assumed


def _split(last: Mapping[str, GivenFlag]) -> dict[str, OptionValue]:
    options: dict[str, OptionValue] = {}
    if "--split-mode" in last:
        mode = last["--split-mode"].values[0]
        if mode not in ("none", "layer"):
            problem, remedy = f"--split-mode {mode} is not predicted", "use layer or none"
            raise UsageError(problem, field=FIELD, value=mode, remedy=remedy)
        options["split_mode"] = mode
    if "--tensor-split" in last:
        options["tensor_split"] = last["--tensor-split"].values[0].replace("/", ",")
    return options


def _slots(
    last: Mapping[str, GivenFlag], placed: bool, subject: SettingsSubject, assumed: list[str]
) -> dict[str, OptionValue]:
    """Return the layers on accelerators: those said, all, or those that llama.cpp fits itself, which it does where
    nothing else is `placed`."""
    everything = subject.model.layers + 1
    said = last["--n-gpu-layers"].values[0] if "--n-gpu-layers" in last else "auto"
    if not any(device.kind != "cpu" for device in subject.hardware.devices):
        if said not in (*_AUTOMATIC, "0"):
            assumed.append(f"-ngl {said}: 0, as this machine has no accelerator")
        return {"ngl": 0}
    if said in _ALL_LAYERS:
        return {"ngl": everything}
    if said not in _AUTOMATIC:
        return {"ngl": min(whole_number(last["--n-gpu-layers"]), everything)}
    if _is_fitted(last) and not placed:
        assumed.append("-ngl is left out: layers and experts where --fit puts them")
        target = last.get("--fit-target")
        fitted: dict[str, OptionValue] = {"fit": True}
        return fitted if target is None else fitted | {"fit_target": whole_number(target)}
    assumed.append("-ngl is left out: all layers, since --fit leaves alone what other flags have placed")
    return {"ngl": everything}


def _is_fitted(last: Mapping[str, GivenFlag]) -> bool:
    """Whether llama.cpp changes what flags leave out until it fits, as it does by itself."""
    return "--fit" not in last or last["--fit"].values[0] in ("on", "1", "true", "enabled")


def _context(last: Mapping[str, GivenFlag], subject: SettingsSubject) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Return sequences, tokens of each, and what is taken for what is left out."""
    sequences = whole_number(last["--parallel"], -1) if "--parallel" in last else -1
    total = whole_number(last["--ctx-size"]) if "--ctx-size" in last else 0
    batch = sequences if sequences > 0 else None
    about = () if batch else ("-np is left out: the batch of the question",)
    if not total and _is_fitted(last):
        return batch, None, (*about, "-c is 0 or left out: the context of the question; --fit shortens the model's")
    total = total or subject.model.max_context * (batch or subject.workload.batch)
    share = total // (batch or subject.workload.batch)
    if share < 1:
        remedy = "write -c of at least as many tokens"
        raise UsageError(f"{total} tokens for {batch} sequences", field=FIELD, remedy=remedy)
    return batch, share, about


def _caches(last: Mapping[str, GivenFlag]) -> tuple[KvFormat, tuple[str, ...]]:
    """Return the format of caches, and what is not priced as it is."""
    kinds = [last[name].values[0] if name in last else "f16" for name in ("--cache-type-k", "--cache-type-v")]
    doubts = []
    for kind in dict.fromkeys(kinds):
        if kind not in KV_FORMATS and kind not in _WIDER:
            remedy = f"use one of {', '.join((*KV_FORMATS, *_WIDER))}"
            raise UsageError("no format of llama.cpp's caches", field=FIELD, value=kind, remedy=remedy)
        if kind in _WIDER:
            doubts.append(f"caches in {kind}, priced as {_WIDER[kind]}")
    priced = [_WIDER.get(kind, kind) for kind in kinds]
    if priced[0] != priced[1]:
        doubts.append(f"keys in {kinds[0]} and values in {kinds[1]}, priced as the wider for both")
    return next(fmt for fmt in KV_FORMATS if fmt in priced), tuple(doubts)


def _check_values(last: Mapping[str, GivenFlag]) -> None:
    """Raise UsageError for quantised values without flash attention, with which llama.cpp does not start."""
    values = last["--cache-type-v"].values[0] if "--cache-type-v" in last else "f16"
    off = "--flash-attn" in last and last["--flash-attn"].values[:1] in _STEPWISE
    if off and values not in _PLAIN:
        remedy = "use -fa on, or -ctv f16"
        raise UsageError(
            "llama.cpp quantises values with flash attention alone", field=FIELD, value=values, remedy=remedy
        )


def _passes(last: Mapping[str, GivenFlag]) -> dict[str, OptionValue]:
    """Return the options of prompts."""
    sizes = {"--ubatch-size": UBATCH, "--batch-size": BATCH}
    micro = min(whole_number(last[name], 1) if name in last else usual for name, usual in sizes.items())
    options: dict[str, OptionValue] = {"ubatch": micro}
    return options | ({"no_op_offload": True} if "--no-op-offload" in last else {})


def _as_priced(flag: GivenFlag, last: Mapping[str, GivenFlag], subject: SettingsSubject) -> bool:
    """Whether a prediction knows what a flag says: threads of steps, as many of prompts, and what `_ASSUMED` has."""
    if flag.name == "--threads":
        return threads_are_priced(flag, subject)
    if flag.name == "--threads-batch":
        steps = last["--threads"].values if "--threads" in last else tuple(map(str, host_cores(subject)[:1]))
        return flag.values == steps
    return flag.values in _ASSUMED.get(flag.name, ())


def _read_props(text: str) -> ReadSettings:
    """Return what `GET /props` of a server says: slots, and tokens of each."""
    props = parsed_object(text, "the answer of /props")
    settings: Any = props.get("default_generation_settings")
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    slots = props.get("total_slots")
    if not (_is_count(context) and _is_count(slots)):
        remedy = "give the address of llama-server, as http://127.0.0.1:8080, or its command"
        raise UsageError("no answer of llama-server's /props", field=FIELD, remedy=remedy)
    placed = (f"{slots} slots", f"{context} tokens of each")
    named = tuple(f"{name} {props[name]}"[:300] for name in ("model_path", "build_info") if name in props)
    assumed = (
        "/props does not say where layers are: where --fit puts them",
        "/props does not say how caches are kept: f16",
    )
    options: dict[str, OptionValue] = {"fit": True, "flash_attn": "on"}
    return ReadSettings("llama.cpp", "llama-cpp", options, context, slots, "f16", placed, assumed, (), named)


def parsed_object(text: str, what: str) -> dict[str, Any]:
    """Return the object that a JSON text is. Raises UsageError for another text."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{what} is no JSON: {error}", field=FIELD, remedy="give it as it was printed") from None
    if not isinstance(content, dict):
        raise UsageError(f"{what} is no object", field=FIELD, remedy="give it as it was printed")
    return content


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def variants(text: str) -> tuple[str, ...]:
    """Return the command with attention the other way, as one operation or in steps, where llama.cpp can do both: it
    reads quantised values in one operation alone."""
    words = words_of(text)
    last = {flag.name: flag for flag in GRAMMAR.given(without_program(words))}
    values = last["--cache-type-v"].values[0] if "--cache-type-v" in last else "f16"
    if values not in _PLAIN or "-fa" not in words:
        return ()
    place = words.index("-fa") + 1
    other = "off" if words[place] == "on" else "on"
    return (shlex.join([*words[:place], other, *words[place + 1 :]]),)


FORMAT = EngineFormat("llama.cpp", "llama-cpp", VERSION, SOURCE, "command", write, read, variants=variants)
