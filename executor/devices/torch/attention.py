"""Attention in parts, merged exactly: each part's output and the logarithm of its softmax's denominator.

HELM's streaming attention (section 4.2.3.3, eq 4.18-4.20) in the form that PyTorch's flash kernels return."""

import torch
from torch.nn.functional import scaled_dot_product_attention

Seen = tuple[torch.Tensor, torch.Tensor]
"""The attention over some keys and values: (out, lse)."""


def attend_at_once(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, target: torch.Tensor
) -> None:
    """Write to f32 `target` (batch, tokens, heads, head_dim) what f32 queries q of that shape see in keys and values
    (batch, kv_heads, n, head_dim), in these' type.

    `mask` (group * tokens, n) of that type is added to scores, for the query heads of a KV head, one after the other;
    None: a prompt's tokens, each of which sees those before it. With a mask these heads are rows of one: of heads in
    groups most GPUs have no kernel that takes a mask, and copies of keys would be made for every query head."""
    if mask is None:
        heads = q.transpose(1, 2).to(keys.dtype)
        out = scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=True)
        target.copy_(out.transpose(1, 2))
        return
    batch, tokens, _, width = q.shape
    parted = q.view(batch, tokens, keys.shape[1], -1, width).permute(0, 2, 3, 1, 4)
    rows = parted.to(keys.dtype).reshape(batch, keys.shape[1], -1, width)
    out = scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
    target.view(batch, tokens, keys.shape[1], -1, width).permute(0, 2, 3, 1, 4).copy_(out.view(parted.shape))


def attend_part(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor | None) -> Seen:
    """(out, lse) of queries q (batch, kv_heads, rows, head_dim) over keys and values (batch, kv_heads, n, head_dim).

    `hidden`: bool, broadcast to (batch, kv_heads, rows, n), true where a row may not look; None where it may look
    everywhere. out f32 like q, zero for a row that sees nothing; lse f32 (batch, kv_heads, rows), then -inf."""
    if q.is_cuda and hidden is None and keys.dtype in (torch.float16, torch.bfloat16):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q.to(keys.dtype), keys, values)[:2]
        return out.float(), lse.float()[..., : q.shape[-2]]
    scores = torch.matmul(q.to(keys.dtype), keys.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
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
