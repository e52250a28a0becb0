"""Makes the rows that latent attention appends to its cache on a PyTorch device: what csrc/stage/latent_operation.h is
for processors."""

import torch

from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.rotation import angles_at, rotate, rotate_pairs
from helmsman.executor.devices.torch.steps import LatentAppendStep


def place_latent(step: LatentAppendStep, activations: Activations, tokens: int, at: torch.Tensor) -> torch.Tensor:
    """Norm and rotate what is new at positions `at`, int64 (tokens,); return the rows (batch, 1, tokens, width) that
    the cache keeps."""
    op = step.spec
    assert step.weights is not None, "a norm of this stage"
    plain, rotated, width = op["plain"], op["rotated"], op["head_dim"]
    queries = activations.heads(op["inputs"][0], tokens, plain + rotated)
    rows = activations.heads(op["inputs"][1], tokens, width)
    wide = activations.heads(op["output"], tokens, width)
    queries[..., :plain].mul_(op["factor"])
    _turn(step, queries[..., plain:], at, wide[..., width - rotated :])
    wide[..., width - rotated :].mul_(op["factor"])
    latent, turned = rows[..., : width - rotated], rows[..., width - rotated :]
    latent.copy_(step.weights.of(latent, op["norm"], op["eps"]))
    _turn(step, turned, at, turned)
    return rows.transpose(1, 2)


def _turn(step: LatentAppendStep, x: torch.Tensor, at: torch.Tensor, target: torch.Tensor) -> None:
    if step.cos is None or step.sin is None:
        if x is not target:
            target.copy_(x)
    elif step.spec["pairs"] == "interleaved":
        rotate_pairs(x, step.cos[at], step.sin[at], target)
    else:
        target.copy_(_halves(x, step.cos, step.sin, at))


def _halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    rotate(x, angles_at(cos, sin, at), result)
    return result
