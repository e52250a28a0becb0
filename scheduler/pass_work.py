"""The work of one pass, from which its time follows in closed form (csrc/scheduling/cost.h)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassWork:
    """What one pass, or one of its sub-batches, has to do.

    `tokens`: rows of the linear stage. `outputs`: sequences that yield a token. `gpu_requests`, `gpu_kv`: decodes with
    attention on the accelerator, and the KV tokens that they read. `pairs`, `prompt_kv`: query-key pairs of prompt
    chunks, and KV tokens that they read. `cpu_requests`, `cpu_kv`: decodes with attention on the host, and the KV
    tokens that they read. `swap_out`, `swap_in`: KV tokens that move to the host, and to the accelerator.
    `states_copied`, `states_out`, `states_in`: requests whose states become snapshots or come from one, and move to
    either side."""

    tokens: int = 0
    outputs: int = 0
    gpu_requests: int = 0
    gpu_kv: int = 0
    pairs: int = 0
    prompt_kv: int = 0
    cpu_requests: int = 0
    cpu_kv: int = 0
    swap_out: int = 0
    swap_in: int = 0
    states_copied: int = 0
    states_out: int = 0
    states_in: int = 0
