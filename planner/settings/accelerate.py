"""Hugging Face Accelerate: a `device_map`, the place of every module that is never divided."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from helmsman.lowering.stored_names import TensorKey, file_name, names_by_tensor
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import embedding_tensors, output_tensors, tensors
from helmsman.planner.serving.engine_reserve import card_count
from helmsman.planner.settings.command_flags import FIELD
from helmsman.planner.settings.engine_format import (
    EngineFormat,
    ReadSettings,
    SettingsSubject,
    WrittenSettings,
)
from helmsman.planner.settings.llama_cpp import parsed_object
from helmsman.planner.settings.llama_places import numbers_in_words
from helmsman.planner.settings.on_accelerator import check_accelerator, host_computes, other_formats, plain_caches
from helmsman.planner.settings.plan_places import HOST, PlanPlaces
from helmsman.schemas.engine_settings import Difference
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

VERSION = "1.15.0"
"""The release whose `dispatch_model` takes these maps, read as its package has it."""
SOURCE = "huggingface/accelerate: src/accelerate/big_modeling.py, src/accelerate/utils/modeling.py (check_device_map)"
"""Its documents: what places may be, and that every tensor of a model needs one."""

_BLOCK = re.compile(r"^(.*?\.\d+)\.")
"""A name of a tensor of a block, whose module ends with the number."""


def module_of(name: str) -> str:
    """Return the module that is never divided, by the name of a tensor of a checkpoint: a block, or what has its own
    name outside of blocks."""
    block = _BLOCK.match(name)
    return block[1] if block else name.rpartition(".")[0]


def modules(model: Model) -> Mapping[str, tuple[Tensor, ...]]:
    """Return by name the modules of a checkpoint in order of use, each with its tensors; a tied head goes with its
    table."""
    names = names_by_tensor(model, file_name)
    result: dict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors(model):
        if tensor.tied_to is None:
            result[module_of(_name(names, (tensor.name, tensor.layer)))].append(tensor)
    return {name: tuple(members) for name, members in result.items()}


def tied_head(model: Model) -> str | None:
    """Return the module of a head that shares its table's weights, which a map places as well; None where there is
    none."""
    head = output_tensors(model)[-1]
    return module_of(file_name(model.family, head)) if head.tied_to is not None else None


def _name(names: Mapping[TensorKey, tuple[frozenset[str], ...]], key: TensorKey) -> str:
    return min(names[key][0])


def write(places: PlanPlaces) -> WrittenSettings:
    """Return the map as JSON. Raises UsageError for a machine without a GPU of its own memory."""
    check_accelerator(places, "Accelerate")
    numbers, cards = 0, dict[str, range]()
    for device in places.roles.accelerators:
        count = card_count(device)
        cards[device.name], numbers = range(numbers, numbers + count), numbers + count
    content: dict[str, int | str] = {}
    divided = list[str]()
    known = modules(places.plan.model)
    for number, (module, members) in enumerate(known.items()):
        sides = Counter[str]()
        for tensor in members:
            sides[places.tensors[tensor.name, tensor.layer].side] += places.size(tensor)
        side = sides.most_common(1)[0][0]
        own = cards.get(side, range(0))  # of cards that divide layers, each has those of one after the other
        content[module] = "cpu" if side == HOST else own[number * len(own) // len(known)]
        divided += [module] if len(sides) > 1 else []
    if (head := tied_head(places.plan.model)) is not None:
        content[head] = content[module_of(file_name(places.plan.model.family, embedding_tensors(places.plan.model)[0]))]
    return WrittenSettings(json.dumps(content, indent=1) + "\n", tuple(_differences(places, divided)))


def _differences(places: PlanPlaces, divided: list[str]) -> Iterator[Difference]:
    yield from places.differences()
    yield from places.undivided("every card has modules of its own")
    yield from host_computes(places)
    yield from other_formats(places, "a checkpoint that transformers reads")
    yield from plain_caches(places)
    if divided:
        named = f"{', '.join(divided[:3])}{', ...' if len(divided) > 3 else ''}"
        yield Difference(what=f"{len(divided)} modules are in several memories: {named}", instead="a module is in one")


def read(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a map as a question. Raises UsageError for modules that the model does not have, and for places other
    than the first accelerator and the CPU."""
    content = parsed_object(text, "the device map")
    content = content.get("device_map", content)
    if not isinstance(content, dict):
        raise UsageError("no device map", field=FIELD, remedy="give the mapping of modules to devices")
    known = modules(subject.model)
    kept = [number for number, module in enumerate(known) if _on_accelerator(content, module)]
    for name in content:
        if name and not any(module == name or module.startswith(f"{name}.") for module in known):
            _check_within(name, subject.model)
    options = {"modules": numbers_in_words(kept).replace(" ", "") or "none"}
    placed = (f"{len(kept)} of {len(known)} modules on the accelerator",)
    assumed = ("a device map has no context: that of the question",)
    return ReadSettings("accelerate", "accelerate", options, kv="f16", placed=placed, assumed=assumed)


def _on_accelerator(content: Mapping[str, object], module: str) -> bool:
    """Whether the nearest entry that a module is in places it on the accelerator."""
    entries = [name for name in content if not name or module == name or module.startswith(f"{name}.")]
    inside = [name for name in content if name.startswith(f"{module}.")]
    if not entries and not inside:
        problem, remedy = f"the map has no place for {module}", "give the whole map, as `model.hf_device_map` has it"
        raise UsageError(problem, field=FIELD, remedy=remedy)
    if entries:
        return _is_accelerator(content[max(entries, key=len)])
    votes = [_is_accelerator(content[name]) for name in inside]
    return sum(votes) * 2 > len(votes)


def _is_accelerator(place: object) -> bool:
    if place in ("cpu", "disk"):
        return False
    if place in (0, "0", "cuda", "cuda:0", "mps", "xpu:0") and not isinstance(place, bool):
        return True
    problem, remedy = "a place that is not predicted", "use 0 and cpu: the first accelerator alone works"
    raise UsageError(problem, field=FIELD, value=place, remedy=remedy)


def _check_within(name: str, model: Model) -> None:
    """Raise UsageError for a module that is neither one of the model nor within one, nor its tied head, nor the
    rotation, which has no weights."""
    known = modules(model)
    within = any(name.startswith(f"{module}.") for module in known)
    if not within and name != tied_head(model) and not name.endswith("rotary_emb"):
        remedy = f"use {', '.join(list(known)[:3])}, ..."
        raise UsageError("no module of the model", field=FIELD, value=name, remedy=remedy)


FORMAT = EngineFormat("accelerate", "accelerate", VERSION, SOURCE, "file", write, read, "device_map.json")
