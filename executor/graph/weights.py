"""A module's parameters from a checkpoint to devices, one at a time, never the whole model twice (HELM-45)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from helmsman.executor.graph.decoder import Decoder
from helmsman.executor.graph.partition import GraphStage
from helmsman.executor.graph.tensors import DeviceTensors
from helmsman.executor.weights.checkpoint import stored_files, stored_rows
from helmsman.executor.weights.conversion import in_steps
from helmsman.hwdb.safetensors_file import SafetensorsFile
from helmsman.schemas.errors import BadInputError

_RENAMED = {"lm_head.weight": ("embed_out.weight",)}
"""Parameters that files hold under the names of older transformers."""


class DecoderWeights:
    """The parameters of a decoder on the devices that use them; what is tied is kept once per device."""

    def __init__(self, decoder: Decoder, directory: Path, on_bytes: Callable[[int], None]) -> None:
        self._decoder, self._directory, self._on_bytes = decoder, directory, on_bytes
        self._files = stored_files(directory)
        self._kept: dict[tuple[str, str], Tensor] = {}

    def place(self, stage: GraphStage, device: DeviceTensors, constants: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors that a stage holds, by attribute: parameters from files, constants as they are."""
        return {
            name: constants[name].to(device.device) if name in constants else self._parameter(name, device)
            for name in stage.attributes
        }

    def _parameter(self, name: str, device: DeviceTensors) -> Tensor:
        key = device.name, self._decoder.tied[name][0]
        if key not in self._kept:
            self._kept[key] = self._loaded(name, device)
        return self._kept[key]

    def _loaded(self, name: str, device: DeviceTensors) -> Tensor:
        like = self._decoder.module.get_parameter(name)
        file, stored = self._find(name, tuple(like.shape))
        fmt, rows = stored_rows(file, stored, tuple(like.shape))
        tensor = device.empty(tuple(like.shape), like.dtype, name)
        for first, read in in_steps(rows, like[0].numel()):
            source = torch.from_numpy(read.view(np.int16) if fmt == "bf16" else read)
            values = (source.view(torch.bfloat16) if fmt == "bf16" else source).to(like.dtype)
            if not torch.isfinite(values).all():
                message = "values that are not finite: every token would be nonsense"
                remedy = "download the checkpoint again"
                raise BadInputError(message, file=str(file.path), field=stored, remedy=remedy)
            tensor[first : first + len(read)].copy_(values)
        self._on_bytes(rows.nbytes)
        return tensor

    def _find(self, name: str, shape: tuple[int, ...]) -> tuple[SafetensorsFile, str]:
        for candidate in _candidates(self._decoder.tied[name]):
            if candidate in self._files:
                return self._files[candidate], candidate
        message = f"missing: a tensor of shape {list(shape)} is expected"
        remedy = "use the checkpoint of the plan's model"
        raise BadInputError(message, file=str(self._directory), field=name, remedy=remedy)


def _candidates(names: tuple[str, ...]) -> Iterator[str]:
    """Under which names files may hold a parameter: its own, older ones, and those without the base model's prefix."""
    for name in names:
        yield from (name, *_RENAMED.get(name, ()), name.partition(".")[2])
