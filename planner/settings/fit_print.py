"""The table that llama.cpp's `--fit-print` prints: MiB of weights, caches and work by device, and on the host."""

import re
from collections.abc import Iterator

from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, output_tensors
from helmsman.planner.settings.command_flags import FIELD
from helmsman.planner.settings.engine_format import OptionValue, ReadSettings, SettingsSubject
from helmsman.planner.tensor_formats import size_in
from helmsman.schemas.errors import UsageError

FIT_PRINT = re.compile(r"^Host (\d+) (\d+) (\d+) *$", re.MULTILINE)
"""The last line; those of devices before it begin with their names."""
_DEVICE = re.compile(r"^(\S+) (\d+) (\d+) (\d+) *$", re.MULTILINE)
_MIB = 2**20


def read_fit_print(text: str, subject: SettingsSubject) -> ReadSettings:
    """Return a table as the slots, or the layers with experts in RAM, whose weights on the accelerators are nearest to
    it. Raises UsageError for several devices, of which the table does not say which layers each has."""
    rows = {name: int(weights) * _MIB for name, weights, _, _ in _DEVICE.findall(text) if name != "Host"}
    if len(rows) != 1:
        problem = f"the table has {len(rows)} devices, and does not say which layers are on which"
        raise UsageError(problem, field=FIELD, remedy="give the command, or what llama-fit-params prints")
    name, wanted = next(iter(rows.items()))
    options, size = min(_placements(subject), key=lambda placed: abs(placed[1] - wanted))
    flags = " ".join(f"{key} {value}" for key, value in options.items())
    options["split_mode"] = "none"  # the table is of one device
    assumed = f"the table says no flags: `{flags}` is nearest, {size // _MIB} MiB of weights on {name}"
    placed = (f"{name}: {wanted // _MIB} MiB of weights",)
    return ReadSettings("llama.cpp", "llama-cpp", options, placed=placed, assumed=(assumed,), kv="f16")


def _placements(subject: SettingsSubject) -> Iterator[tuple[dict[str, OptionValue], int]]:
    """Yield what llama.cpp's own fit may choose: slots, or all slots with fewer and fewer experts; with bytes of
    weights on the accelerator."""
    model = subject.model

    def size(members: tuple[Tensor, ...]) -> int:
        return sum(size_in(tensor, subject.formats, subject.weights) for tensor in members)

    ends = size(output_tensors(model))
    blocks = [block_tensors(model, layer) for layer in range(model.layers)]
    if not model.routed:
        reached = ends
        yield {"ngl": 0}, 0
        yield {"ngl": 1}, ends
        for number, block in enumerate(reversed(blocks), start=2):
            reached += size(block)
            yield {"ngl": number}, reached
        return
    experts = [size(tuple(tensor for tensor in block if tensor.stacked)) for block in blocks]
    whole = ends + sum(map(size, blocks))
    for count in range(model.layers + 1):
        yield {"ngl": model.layers + 1, "n_cpu_moe": count}, whole - sum(experts[:count])
