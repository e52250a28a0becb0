"""How far the executor is from transformers in f32 on the same weights: the mean KL divergence of next tokens.

    python -m benchmarks.agreement --checkpoint DIR --hardware FILE [--formats f16,q4_0] [--kv-formats f16,bf16]
        [--activations f32,int8] [--tokens 2000] [--sequences 4] [--faults] [--json FILE]

For every pair of formats, an all-CPU plan with weights kept so; the reference holds the values that they stand for.
Activations are in f32 unless others are named: in bf16 and int8 the divergence is that of rounding them, which
`benchmarks.precision` compares with other engines, and only the faults have a bar.
Tokens are of several sequences that advance together, so that weights are read once for all. One position in eight
comes out of a prompt pass over the tokens before it, the others out of decode steps.
With `--faults`, the reference is also made wrong, once in every way that a wrong executor might be."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from benchmarks.asking import ask
from benchmarks.faults import Plant, swapped_heads, transposed, without_qk_norm, wrong_base
from benchmarks.machine import print_machine
from benchmarks.oracle import Logits, divergences, keep_in, load_oracle, mean_kl, oracle_logits
from helmsman.executor.checkpoint.tokenizer import printable_ids
from helmsman.executor.engine import Engine
from helmsman.executor.passes.generation import Tokens
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.formats import KV_FORMATS, PRECISIONS, STORED_FORMATS, StoredFormat
from helmsman.schemas.plan import Plan

BAR = 1e-4
"""Largest mean divergence of an executor that is right, where activations are not rounded (`EXACT`)."""
FAULT, ABOVE_ROUNDING = 1e-2, 3.0
"""Smallest mean divergence of a fault, and its smallest ratio to that of the same precision without a fault."""
EXACT = ("f32", "int16")
PASSES = (2, 5, 17)
"""Tokens of the prompt passes, in turns: of kernels that use each weight once, and of matrix products."""
EVERY = 8
"""Positions from one prompt pass to the next."""
FAULTS: dict[str, Plant] = {
    "rope base 1e4": wrong_base(1e4),
    "rope base 5e5": wrong_base(5e5),
    "swapped KV heads": swapped_heads,
    "no norm of queries": without_qk_norm,
    "transposed values": transposed("v_proj"),
}


@dataclass(frozen=True)
class Found:
    """Mean KL of all positions, of those of prompt passes and of decode steps, and the largest of all; in nats."""

    weights: str
    kv: str
    activations: str
    mean: float
    prompts: float
    steps: float
    worst: float


def main() -> int:
    """Measure and print; 4 where a format is beyond the bar, or a fault is not."""
    args = _arguments()
    print_machine()
    print(
        f"{'weights':<9}{'KV':<7}{'activations':<13}{'mean':>10}{'prompts':>10}{'steps':>10}{'worst':>10}", flush=True
    )
    rows, faults = list[Found](), dict[str, float]()
    caught = True
    for fmt in args.formats:
        reference = Reference(args.checkpoint, fmt, args.sequences, args.tokens // args.sequences)
        for activations in args.activations:
            for kv in args.kv_formats:
                plan = _planned(args, fmt, kv, activations)
                own_logits = logits(plan, args.checkpoint, reference.tokens)
                rows.append(compared(fmt, kv, activations, reference.logits, own_logits, args.sequences))
                print(_line(rows[-1]), flush=True)
            if args.faults:
                least = max(FAULT, ABOVE_ROUNDING * rows[-1].mean)
                for name, plant in FAULTS.items():
                    value = reference.wrong(plant, own_logits)
                    caught &= value > least
                    faults[f"{fmt}, {activations} beside {name}"] = value
                    print(f"{name}: {value:.2e}{'' if value > least else '  not caught'}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": [asdict(row) for row in rows], "faults": faults}, indent=1))
    return 0 if caught and not any(_beyond(row) for row in rows) else 4


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="Hugging Face directory")
    parser.add_argument("--hardware", type=Path, required=True, help="a record of this machine")
    parser.add_argument("--formats", type=_names, default=STORED_FORMATS)
    parser.add_argument("--kv-formats", type=_names, default=("f16",), help=f"of {', '.join(KV_FORMATS)}")
    parser.add_argument("--activations", type=_names, default=("f32",), help=f"of {', '.join(PRECISIONS)}")
    parser.add_argument("--tokens", type=int, default=2000, help="of all sequences together")
    parser.add_argument("--sequences", type=int, default=4, help="as long as each other")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _planned(args: argparse.Namespace, fmt: str, kv: str, activations: str) -> Plan:
    """Everything on the CPUs, of which one works: beside other work, two would wait for each other."""
    context = args.tokens // args.sequences + 2
    shape = {"prompt_tokens": max(PASSES), "output_tokens": 1, "context": context, "batch": args.sequences}
    where = {"model": args.checkpoint, "hw": args.hardware, "strategy": "layer-split", "vram_avail": 1}
    plan = ask(**where, **shape, format=fmt, kv_format=kv, activations=activations)
    return plan.model_copy(update={"schedule": plan.schedule.model_copy(update={"threads": 1})})


class Reference:
    """Random text, and what transformers makes of it with weights that went through `fmt`."""

    def __init__(self, checkpoint: Path, fmt: StoredFormat, sequences: int, count: int) -> None:
        self.model = load_model(str(checkpoint))
        shape = sequences, count
        self.tokens: Tokens = np.random.default_rng(0).choice(printable_ids(self.model), shape).astype(np.int32)
        self._oracle = load_oracle(checkpoint)
        keep_in(self._oracle, fmt)
        self.logits = self._found()

    def wrong(self, plant: Plant, found: Logits) -> float:
        """The mean divergence of `found` from a reference with a fault."""
        with plant(self._oracle, self.model):
            return mean_kl(self._found(), found)

    def logits_in(self, dtype: torch.dtype) -> Logits:
        """Return the reference's logits, f32 (positions, vocab), computed in `dtype`, to which it
        is converted for good."""
        self._oracle = self._oracle.to(dtype)
        return self._found()

    def _found(self) -> Logits:
        """f32 (positions, vocab) of one sequence after the other."""
        return np.concatenate([oracle_logits(self._oracle, each) for each in self.tokens.tolist()])


def logits(plan: Plan, checkpoint: Path, tokens: Tokens) -> Logits:
    """f32 (positions, vocab): what the executor has after each of `tokens` (sequences, n), one sequence after the
    other."""
    sequences, count = tokens.shape
    found = np.empty((sequences, count, plan.model.vocab), np.float32)
    with Engine.load(plan, checkpoint, Machine.this(), prompt_tokens=max(PASSES)) as engine:
        for position, length in zip(range(0, count, EVERY), cycle(PASSES)):
            first, last = max(0, position + 1 - length), min(position + EVERY, count)
            following = iter(range(position, last))

            def teach(made: Logits, following: Iterator[int] = following) -> Tokens:
                at = next(following)
                found[:, at] = made
                return tokens[:, min(at + 1, count - 1)]

            prompt = tokens[:, first : position + 1]
            engine.generate(prompt, last - position, past=first, choose=teach, ignore_eos=True)
    return found.reshape(sequences * count, -1)


def compared(weights: str, kv: str, activations: str, reference: Logits, found: Logits, sequences: int) -> Found:
    """The divergence at every position, summed up."""
    each = divergences(reference, found).reshape(sequences, -1)
    prompts = np.arange(each.shape[1]) % EVERY == 0
    mean, first, rest = (float(some.mean()) for some in (each, each[:, prompts], each[:, ~prompts]))
    return Found(weights, kv, activations, mean, first, rest, float(each.max()))


def _line(row: Found) -> str:
    figures = "".join(f"{value:>10.2e}" for value in (row.mean, row.prompts, row.steps, row.worst))
    return f"{row.weights:<9}{row.kv:<7}{row.activations:<13}{figures}{'  beyond' if _beyond(row) else ''}"


def _beyond(row: Found) -> bool:
    return row.activations in EXACT and row.mean >= BAR


if __name__ == "__main__":
    sys.exit(main())
