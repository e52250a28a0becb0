"""Attention in parts, merged exactly: each part's output and the logarithm of its softmax's denominator.

HELM's streaming attention (section 4.2.3.3, eq 4.18-4.20) in the form that PyTorch's flash kernels return."""

from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from helmsman.executor.devices.operations import CacheUser

FLASH_WIDTH = 256
"""The widest head that PyTorch's flash kernels take; rows of latent attention are wider."""

Seen = tuple[torch.Tensor, torch.Tensor]
"""The attention over some keys and values: (out, lse)."""


class Scoring(NamedTuple):
    """The numbers that make scores of products of queries and keys: a factor, None: 1 / sqrt(head_dim); then
    softcap * tanh(score / softcap)."""

    scale: float | None = None
    softcap: float | None = None


PLAIN = Scoring()
"""The scores of plain attention."""


def scoring_of(heads: CacheUser) -> Scoring:
    """Return how an operation makes scores."""
    return Scoring(heads.get("scale"), heads.get("softcap"))


def seen_sinks(q: torch.Tensor, sinks: torch.Tensor) -> Seen:
    """Return what queries q (batch, kv_heads, group * tokens, head_dim) have seen with sinks f32 (heads,) alone: a
    weight, and no value."""
    batch, kv_heads, rows, _ = q.shape
    logits = sinks.view(kv_heads, -1, 1).repeat(1, 1, rows * kv_heads // len(sinks)).view(1, kv_heads, rows)
    return torch.zeros_like(q, dtype=torch.float32), logits.repeat(batch, 1, 1)


def attend_at_once(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    target: torch.Tensor,
    scale: float | None = None,
) -> None:
    """Write to f32 `target` (batch, tokens, heads, head_dim) what f32 queries q of that shape see in keys and values
    (batch, kv_heads, n, head_dim), in these' type; `scale` multiplies scores, None: 1 / sqrt(head_dim).

    `mask` (group * tokens, n) of that type is added to scores, for the query heads of a KV head, one after the other;
    None: a prompt's tokens, each of which sees those before it. With a mask these heads are rows of one: of heads in
    groups most GPUs have no kernel that takes a mask, and copies of keys would be made for every query head."""
    if mask is None:
        heads = q.transpose(1, 2).to(keys.dtype)
        out = scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=True, scale=scale)
        target.copy_(out.transpose(1, 2))
        return
    batch, tokens, _, width = q.shape
    parted = q.view(batch, tokens, keys.shape[1], -1, width).permute(0, 2, 3, 1, 4)
    rows = parted.to(keys.dtype).reshape(batch, keys.shape[1], -1, width)
    out = scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
    target.view(batch, tokens, keys.shape[1], -1, width).permute(0, 2, 3, 1, 4).copy_(out.view(parted.shape))


def attend_part(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor | None, scoring: Scoring = PLAIN
) -> Seen:
    """(out, lse) of queries q (batch, kv_heads, rows, head_dim) over keys and values (batch, kv_heads, n, head_dim).

    `hidden`: bool, broadcast to (batch, kv_heads, rows, n), true where a row may not look; None where it may look
    everywhere. out f32 like q, zero for a row that sees nothing; lse f32 (batch, kv_heads, rows), then -inf."""
    scale, softcap = scoring
    narrow = keys.dtype in (torch.float16, torch.bfloat16) and q.shape[-1] <= FLASH_WIDTH
    if q.is_cuda and hidden is None and softcap is None and narrow:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        out, lse = flash(q.to(keys.dtype), keys, values, scale=scale)[:2]
        return out.float(), lse.float()[..., : q.shape[-2]]
    scores = torch.matmul(q.to(keys.dtype), keys.transpose(-1, -2)).float() * (
        q.shape[-1] ** -0.5 if scale is None else scale
    )
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.unsqueeze(-1)).nan_to_num_(0.0)
    return torch.matmul(weights.to(values.dtype), values).float(), lse


def merge(one: Seen, other: Seen) -> Seen:
    """(out, lse) of the union of two parts; a part that saw nothing has lse -inf and weighs nothing (E-HELM-21)."""
    (first, left), (second, right) = one, other
    lse = torch.logaddexp(left, right)
    shares = [torch.exp(part_lse - lse).nan_to_num_(0.0).unsqueeze(-1) for part_lse in (left, right)]
    return first * shares[0] + second * shares[1], lse
