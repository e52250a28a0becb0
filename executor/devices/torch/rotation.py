"""Rotary positions on a PyTorch device: heads turned by the angles of where their tokens are."""

import torch

Angles = tuple[torch.Tensor, torch.Tensor]
"""f32 (tokens, 1, rotary_dim) each: the cosines, and the sines, negative for the first half of the dimensions."""


def angles_at(cos: torch.Tensor, sin: torch.Tensor, at: torch.Tensor) -> Angles:
    """The angles of positions `at` (tokens,), of tables f32 (positions, rotary_dim / 2)."""
    near, far = cos[at].unsqueeze(1), sin[at].unsqueeze(1)
    return torch.cat((near, near), -1), torch.cat((-far, far), -1)


def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, target: torch.Tensor) -> None:
    """Write f32 `x` (.., tokens, n, 2 * half) to `target`, dimensions 2i and 2i + 1 turned by angles whose cosines and
    sines are (tokens, half); the two may be the same."""
    near, far = cos.unsqueeze(1), sin.unsqueeze(1)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = even * near - odd * far, odd * near + even * far
    target.copy_(torch.stack(turned, -1).flatten(-2))


def rotate(heads: torch.Tensor, angles: Angles, target: torch.Tensor) -> None:
    """Write f32 `heads` (.., tokens, n, head_dim) to `target`, their first rotary_dim dimensions turned as Hugging
    Face's rotate_half turns them; the two may be the same."""
    cos, sin = angles
    width = cos.shape[-1]
    turned = heads[..., :width]
    torch.addcmul(turned * cos, torch.roll(turned, width // 2, -1), sin, out=target[..., :width])
    if width < heads.shape[-1] and heads is not target:
        target[..., width:].copy_(heads[..., width:])
