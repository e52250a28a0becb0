"""Measures the accuracy loss of each precision of activations: the KL divergence of next tokens from f32.

    python -m benchmarks.precision --checkpoint DIR --hardware FILE [--formats bf16,q8_0,q4_0,q4_k] [--tokens 1000]
        [--sequences 4] [--json FILE]

Every position comes out of a prompt pass of five tokens of each sequence on top of what is cached: so many rows that
products take what `helm-plan --activations` says. The reference is transformers in f32 with the values that stored
weights stand for. Beside it stand torch's own bf16, for weights in bf16, and what the format itself costs: the
divergence of that reference from one with the checkpoint's own weights."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.agreement import Reference
from benchmarks.asking import ask
from benchmarks.machine import print_machine
from benchmarks.oracle import Logits, divergences
from helmsman.executor.engine import Engine
from helmsman.executor.passes.generation import Tokens
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.schemas.formats import Precision, StoredFormat, is_plain
from helmsman.schemas.plan import Plan

PASS = 5
"""Tokens of each sequence in a pass: four times as many rows, beyond those that meet weights as they are read."""
SETTINGS: dict[bool, tuple[Precision, ...]] = {True: ("f32", "bf16"), False: ("f32", "int16", "bf16", "int8")}
"""The settings that are measured, of plain weights (True) and of quantised ones."""


@dataclass(frozen=True)
class Loss:
    """The KL divergence from f32 in nats, its mean over positions and its maximum. `of`: what was compared with f32."""

    weights: str
    of: str
    mean: float
    worst: float


def main() -> int:
    """Measure and print."""
    args = _arguments()
    print_machine()
    print(f"{'weights':<9}{'what':<18}{'mean KL':>10}{'worst':>10}", flush=True)
    own = Reference(args.checkpoint, "f32", args.sequences, args.tokens // args.sequences).logits
    rows = []
    for fmt in args.formats:
        for row in _rows(args, fmt, own):
            rows.append(asdict(row))
            print(f"{row.weights:<9}{row.of:<18}{row.mean:>10.2e}{row.worst:>10.2e}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="Hugging Face directory")
    parser.add_argument("--hardware", type=Path, required=True, help="a record of this machine")
    parser.add_argument("--formats", type=lambda text: text.split(","), default=["bf16", "q8_0", "q4_0", "q4_k"])
    parser.add_argument("--tokens", type=int, default=1000, help="of all sequences together")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _rows(args: argparse.Namespace, fmt: StoredFormat, own: Logits) -> Iterator[Loss]:
    count = args.tokens // args.sequences
    chosen = np.concatenate([np.arange(PASS - 1, count, PASS) + at * count for at in range(args.sequences)])
    reference = Reference(args.checkpoint, fmt, args.sequences, count)
    expected = reference.logits[chosen]
    if is_plain(fmt):
        yield _loss(fmt, "torch in bf16", expected, reference.logits_in(torch.bfloat16)[chosen])
    else:
        yield _loss(fmt, "the format itself", own[chosen], expected)
    for setting in SETTINGS[is_plain(fmt)]:
        plan = _planned(args, fmt, setting, count)
        yield _loss(fmt, setting, expected, _logits(plan, args.checkpoint, reference.tokens))


def _loss(fmt: str, of: str, reference: Logits, found: Logits) -> Loss:
    """Return the loss of the logits `found` against those of the reference."""
    kl = divergences(reference, found)
    return Loss(fmt, of, float(kl.mean()), float(kl.max()))


def _planned(args: argparse.Namespace, fmt: StoredFormat, setting: Precision, count: int) -> Plan:
    """Ask for a plan with everything on the CPUs, and the KV cache in f32."""
    shape = {"prompt_tokens": PASS, "output_tokens": 1, "context": count + 2, "batch": args.sequences}
    where = {"model": args.checkpoint, "hw": args.hardware, "strategy": "layer-split"}
    if any(device.kind != "cpu" for device in load_hardware(str(args.hardware), None).devices):
        where["vram_avail"] = 1
    return ask(**where, **shape, format=fmt, kv_format="f32", activations=setting)


def _logits(plan: Plan, checkpoint: Path, tokens: Tokens) -> Logits:
    """Return the executor's logits, f32 (positions, vocab), after every pass's last token, sequence by sequence."""
    sequences, count = tokens.shape
    logits = []
    with Engine.load(plan, checkpoint, Machine.this(), prompt_tokens=PASS) as engine:
        for first in range(0, count - PASS + 1, PASS):

            def keep(made: Logits, first: int = first) -> Tokens:
                logits.append(made.copy())
                return tokens[:, first]

            engine.generate(tokens[:, first : first + PASS], 1, past=first, choose=keep, ignore_eos=True)
    return np.stack(logits, axis=1).reshape(sequences * len(logits), -1)


if __name__ == "__main__":
    sys.exit(main())
