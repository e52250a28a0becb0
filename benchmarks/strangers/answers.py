"""Helm's answer to a row: the speeds of prompts and decode steps that it predicts for the row's own placement."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.strangers.machines import machine_of
from benchmarks.strangers.models import format_of, model_of
from benchmarks.strangers.placements import Flags, StatedPlacement, placement_of, rules_for
from benchmarks.strangers.rows import Lack, OpenRow, UnansweredError
from helmsman.lowering.tensors import parameters
from helmsman.planner.decide import decide
from helmsman.planner.read_request import request_from
from helmsman.schemas.errors import HelmError, InfeasibleError
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan

_PROMPT, _OUTPUT = 512, 128
"""Tokens of a prompt and of an answer where a row says neither."""

_ROOM = re.compile(r"(?:n_ctx|-c) (\d+)")
"""Settings that say for how many tokens there is room."""

_RAM_BESIDE = 64 * 2**30
"""Bytes of RAM beside a file, where all that counts is how fast it is."""

_GREATEST_RAM = 4 * 2**40

_BUILD: Flags = {"build_era": "2025"}
"""Of llama.cpp in rows: builds of 2025 and 2026."""


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """A row, and tokens/s that Helm says of its prompts and its decode steps; `reason`: why it says nothing; `lack`:
    what that takes."""

    row: OpenRow
    prefill: float | None = None
    decode: float | None = None
    reason: str = ""
    lack: Lack | None = None

    def errors(self) -> Iterator[tuple[str, float]]:
        """Yield by phase how far Helm's speed is from the row's, as a part of it."""
        for column, said in (("prefill", self.prefill), ("decode", self.decode)):
            measured = self.row.speed(f"{column}_tps")
            if measured and said is not None:
                yield column, said / measured - 1.0


def answer(row: OpenRow) -> RowAnswer:
    """Return what Helm says of a row, or why it says nothing."""
    try:
        made = planned(row)
    except UnansweredError as reason:
        return RowAnswer(row, reason=str(reason), lack=reason.lack)
    work = made.workload
    stated_prompt = row.count("prompt_tokens") is not None
    prefill = work.new_tokens / made.predicted.prefill.seconds.mid if stated_prompt else None
    return RowAnswer(row, prefill, 1.0 / made.predicted.decode.seconds.mid)


@cache
def planned(row: OpenRow) -> Plan:
    """Return the plan of a row's own placement. Raises UnansweredError where there is none."""
    model = model_of(row)
    stated, fmt = placement_of(row, model), format_of(row, model)
    ram = min(_GREATEST_RAM, size_of(parameters(model), fmt) + _RAM_BESIDE)
    try:
        idle = stated.flags.get("ngl") == model.layers + 1 and not stated.spilled
        return _planned(row, model, machine_of(row, ram, idle), stated, fmt)
    except HelmError as error:
        raise UnansweredError(str(error).splitlines()[0], "mode") from None


def _planned(row: OpenRow, model: Model, machine: Hardware, stated: StatedPlacement, fmt: StoredFormat) -> Plan:
    """Return the plan; of weights that are spilled by patterns, of as few layers' networks as must."""
    if not stated.spilled:
        return _plan(row, model, machine, stated, fmt)

    def spilled(count: int) -> Plan | None:
        """Return the plan with the networks of `count` last layers on the host; None where it does not fit."""
        rules = rules_for(range(model.layers - count, model.layers), "ffn_.*", "CPU")
        try:
            moved: Flags = {"override_tensor": rules} if count else {}
            return _plan(row, model, machine, replace(stated, flags={**stated.flags, **moved}), fmt)
        except InfeasibleError:
            return None

    count = bisect_left(range(model.layers + 1), True, key=lambda count: spilled(count) is not None)
    made = spilled(count) if count <= model.layers else None
    if made is None:
        raise UnansweredError("no spilled weights leave room for the rest")
    return made


def _plan(row: OpenRow, model: Model, machine: Hardware, stated: StatedPlacement, fmt: StoredFormat) -> Plan:
    question: dict[str, Any] = {"model": model, "hardware": machine, "format": "q4_0", "strategy": stated.strategy}
    build = _BUILD if stated.strategy == "llama-cpp" else {}
    request = request_from({**question, **_workload(row), "kv_format": _kv(row), "options": {**build, **stated.flags}})
    return decide(replace(request, weights=fmt)).plan


def _workload(row: OpenRow) -> dict[str, int]:
    """Return the tokens of a row: of a sweep's, its context is what is cached before the prompt; of others', and where
    settings say so, all that there is room for."""
    prompt, output = row.count("prompt_tokens"), row.count("gen_tokens")
    context, room = row.count("context") or 0, _ROOM.search(row.settings)
    before = context if prompt is not None and output is not None and context != prompt and room is None else 0
    known, steps = before + (prompt or _PROMPT), output or _OUTPUT
    most = max(known + steps, context, int(room[1]) if room else 0)
    return {"prompt_tokens": known, "prefix_tokens": before, "output_tokens": steps, "context": most}


def _kv(row: OpenRow) -> str:
    """Return the format of caches that is priced: of formats that a fork alone has (TurboQuant), the next wider one."""
    return "q8_0" if re.search(r"q8_0|=turbo\d", row.settings) else "f16"
