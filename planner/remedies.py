"""Remedies that make a plan fit before more memory does: another format of weights or caches, a shorter context, or one
more GPU. Each is asked of the strategy's memory check, none is guessed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from helmsman.lowering.tensors import parameters
from helmsman.planner.fits import longest_context, would_fit
from helmsman.planner.machine import roles
from helmsman.planner.registry import method
from helmsman.planner.request import PlanRequest
from helmsman.planner.tensor_formats import weights_size
from helmsman.planner.words.plan_words import SMALLER
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Device, Hardware


def with_remedies(error: InfeasibleError, request: PlanRequest[Any]) -> InfeasibleError:
    """The refusal of a request with the changes that would do before its own remedy, where memory is what lacks."""
    changes = list(_changes(request.sized())) if error.lacks else []
    if changes:
        error.remedy = f"it fits with {', or '.join(changes)}; else {error.remedy}"
    return error


def _changes(request: PlanRequest[Any]) -> Iterator[str]:
    """Changes with which the request has a plan; those of formats name the options of the library."""
    size = weights_size(request.model, request.formats, request.weights)
    smaller = [fmt for fmt in SMALLER if size_of(parameters(request.model), fmt) < size]
    if fmt := next((fmt for fmt in smaller if would_fit(replace(request, weights=fmt, formats={}))), None):
        yield f"`format` {fmt}"
    if request.kv != "q8_0" and would_fit(replace(request, kv="q8_0")):
        yield "`kv_format` q8_0"
    yield from _shorter(request)
    parts = roles(request.hardware)
    accelerator = parts.accelerator if parts.separate else None
    if (
        accelerator is not None
        and accelerator.kind != "loopback"
        and would_fit(replace(request, hardware=_with_another(request.hardware, accelerator)))
    ):
        yield f"another {accelerator.product or accelerator.kind}"


def _shorter(request: PlanRequest[Any]) -> Iterator[str]:
    """Yield a context that fits, if it has room for the prompt and a token; not of strategies that are slow to plan, as
    it is asked about a dozen times."""
    work = request.workload
    least = work.prompt_tokens + 1
    if (
        method(request.strategy).slow
        or work.context <= least
        or not would_fit(request.sized(context=least, output_tokens=1))
    ):
        return
    longest = longest_context(request, work.context - 1, would_fit)
    output = min(work.output_tokens, longest - work.prompt_tokens)
    if output < 1 or not would_fit(request.sized(context=longest, output_tokens=output)):
        return
    yield f"`context` {longest}" if output == work.output_tokens else f"{output} tokens of output at most"


def _with_another(hardware: Hardware, accelerator: Device) -> Hardware:
    """The machine with one more of its accelerator, with a memory and links of its own."""
    memory = hardware.memory(accelerator.memory)
    names = {accelerator.memory: _another(accelerator.memory)}
    links = [link for link in hardware.links if accelerator.memory in (link.source_memory, link.target_memory)]
    shares = {link.name: _another(link.name) for link in links}
    ends = ("source_memory", "target_memory")
    copies = tuple(
        link.model_copy(
            update={"name": _another(link.name), "shares": shares.get(link.shares or "", link.shares)}
            | {end: names.get(getattr(link, end), getattr(link, end)) for end in ends}
        )
        for link in links
        if all(hardware.memory(getattr(link, end)).kind != memory.kind or getattr(link, end) in names for end in ends)
    )
    another = {"name": _another(accelerator.name), "memory": names[accelerator.memory]}
    return hardware.model_copy(
        update={
            "memories": (*hardware.memories, memory.model_copy(update={"name": names[accelerator.memory]})),
            "devices": (*hardware.devices, accelerator.model_copy(update=another)),
            "links": (*hardware.links, *copies),
        }
    )


def _another(name: str) -> str:
    return f"{name} (another)"
