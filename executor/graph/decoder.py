"""A Hugging Face decoder as structure alone: its parameters have shapes and types, but no memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helmsman.schemas.errors import BadInputError


@dataclass(frozen=True)
class Decoder:
    """`module`: a causal language model of `layers` blocks, the elements of its list `blocks` (`model.layers`).

    Its parameters are fake tensors of `mode`; buffers that its config decides have values. `tied`: by parameter, all
    names under which a checkpoint may hold it. `file`: its config, for errors."""

    module: Any
    blocks: str
    layers: int
    mode: FakeTensorMode
    tied: Mapping[str, tuple[str, ...]]
    file: str


def open_decoder(directory: Path, dtype: torch.dtype) -> Decoder:
    """The module that `config.json` in `directory` describes, computing in `dtype`; weights are not looked at.

    Raises BadInputError for a config that transformers does not know (code beside it is never run)."""
    from transformers import AutoConfig

    file = str(directory / "config.json")
    with _quiet():
        try:
            config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unknown(file, error) from None
    return build_decoder(config, dtype, file)


def build_decoder(config: Any, dtype: torch.dtype, file: str = "config.json") -> Decoder:
    """The module of a transformers config. Raises BadInputError when transformers cannot build it."""
    from transformers import AutoModelForCausalLM

    with _quiet():
        try:
            with torch.device("meta"):
                module = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False).eval()
        except (ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError) as error:
            raise _unknown(file, error) from None
    layers = int(getattr(config, "num_hidden_layers", 0))
    _fill_buffers(module, file)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    tied = _fake_parameters(module, mode)
    return Decoder(module, _blocks(module, layers, file), layers, mode, tied, file)


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers tells of configs that are unusual but valid; what is wrong becomes an error anyway."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _fill_buffers(module: Any, file: str) -> None:
    """Give buffers that no checkpoint holds (rotary frequencies, scales) the values their owners start with."""
    for path, owner in module.named_modules():
        names = [name for name, buffer in owner._buffers.items() if buffer is not None]
        kept = owner._non_persistent_buffers_set
        for name in names:
            buffer = torch.empty_like(owner._buffers[name], device="cpu")
            owner._buffers[name] = buffer.fill_(torch.nan) if buffer.is_floating_point() else buffer.zero_()
        if names:
            with torch.no_grad():
                module._init_weights(owner)
        if any(name in kept and bool(torch.isnan(owner._buffers[name]).any()) for name in names):
            message = f"transformers does not say how the constants of {path} begin"
            raise BadInputError(message, file=file, field="model_type", remedy="choose another model")


def _fake_parameters(module: nn.Module, mode: FakeTensorMode) -> dict[str, tuple[str, ...]]:
    """Replace every parameter by a fake one that believes to be on a CPU; ties stay ties."""
    names: dict[int, list[str]] = {}
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), []).append(name)
    for together in names.values():
        with mode:
            like = parameters[together[0]]
            fake = nn.Parameter(torch.empty(like.shape, dtype=like.dtype, device="cpu"), requires_grad=False)
        for name in together:
            path, _, last = name.rpartition(".")
            module.get_submodule(path)._parameters[last] = fake
    return {name: tuple(together) for together in names.values() for name in together}


def _blocks(module: Any, layers: int, file: str) -> str:
    """The path of the list that holds all blocks: as many modules as layers, all of one class."""
    path: str
    for path, named_module in module.named_modules():
        if (
            isinstance(named_module, nn.ModuleList)
            and len(named_module) == layers
            and len({type(block) for block in named_module}) == 1
        ):
            return path
    message = f"no list of {layers} equal blocks in {type(module).__name__}"
    raise BadInputError(message, file=file, field="num_hidden_layers", remedy="choose a decoder of equal blocks")


def _unknown(file: str, error: Exception) -> BadInputError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    remedy = "choose a decoder that the installed transformers has; code beside a checkpoint is not run"
    return BadInputError(f"not a decoder that transformers can build: {reason[:200]}", file=file, remedy=remedy)
