"""Whether more freedom is never slower, proofs are sound, and the default is near simple plans: `python -m
benchmarks.freedom`.

Random questions, asked as on the command line: a dense model of the catalogue, or a GGUF file that mixes formats, on a
machine of hwdb with all of its memory or less, any format of weights and of keys and values, batches, objectives. Of
each, by predicted seconds of the objective:

- freedom: a strategy that may choose more, or has more memory or a second accelerator, is never slower, nor without a
  plan where it had one (`WIDENINGS`), a tenth of a per cent apart from that;
- proofs: every bound of every plan, of its objective and of its phases, is at most the plan's own seconds, and the one
  of `optimal` is at most those of layer splits, of llama.cpp's split and of one device with everything; no runner-up is
  faster than a plan;
- the default: whole requests take at most 3 % longer than with the best of these, under the same software.

What is another contract or machine rather than more freedom is not compared: another way to move or keep data that is
asked for (`--pinning`, `--no-overlap`, `--kv-offload`, `--kv-window`, `--home`, `--percent`, `--nvme bounce`), other
attention (`--fused-attention`, `--kv-keep`, `--reshape`), an engine's own rule (`--ngl`, `--cpu-offload-gb`), other
work (`--batch`, `--batches`, `--block`: a larger batch is not a freer one, so only `best` is compared), and numbers of
parts that do not divide each other (`--chunks 6` and `--chunks 8` cut elsewhere).

Prints every failure with the command lines that show it. Exits 4 where there is one."""

import argparse
import contextlib
import io
import json
import random
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from math import inf
from multiprocessing import Pool
from pathlib import Path

from helmsman.analysis.comparison import speed
from helmsman.cli.plan import build_parser
from helmsman.cli.plan import main as plan_main
from helmsman.executor.checkpoint.gguf_write import write_outline
from helmsman.hwdb.load_hardware import load_hardware, system_names
from helmsman.hwdb.load_model import catalogue_names, load_model
from helmsman.lowering.tensors import parameters
from helmsman.planner.format_check import cache_misfit, weights_misfit
from helmsman.planner.machine import roles
from helmsman.schemas.errors import HelmError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

CASES = 300

ROUNDING = 1e-6
"""Relative difference of bounds, and of rates, that is none."""

TOLERANCE = 1e-3
"""The share by which a plan may be slower than that of a narrower question. The search does not look for compositions
better by less (`planner.strategies.optimal.compositions.SLACK`), as predictions are wrong by far more."""

MARGIN = 0.03
"""So much longer than the best of simple plans the default may take."""

PROMPTS, OUTPUTS = (32, 128, 512, 2048), (1, 32, 128, 512)
SHAPES = ((1, 1), (1, 1), (1, 1), (1, 4), (1, 16), (2, 8), (4, 4))
"""Batches, and sequences of each."""

WEIGHTS = ("f16", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "native", "native")
CACHES = ("f16", "f16", "f16", "f32", "q8_0")
MEMORY = (1.0, 1.0, 0.8, 0.5, 0.3, 0.15)
"""Shares of the accelerator's memory that a plan may use."""

COMPOSED = (("RTX 3090", "pcie4x16"), ("RTX 4060 Ti 16GB", "pcie4x8"), ("RTX 3060 12GB", "pcie3x16"))
"""Graphics cards that a machine has one or two of, and their links."""

LESS = 0.7
"""The part of a memory that the narrower question has."""

OBJECTIVES = ("latency", "latency", "throughput", "ttft")

SIMPLE = (
    "layer-split",
    "llama-cpp --same-software",
    "llama-cpp --ngl 999 --same-software",
    "llama-cpp --ngl 0 --same-software",
)
"""What the default is compared with: layer splits, llama.cpp's, and one device with everything. Placements alone: what
engines' own launches take is another software's."""


@dataclass(frozen=True)
class Widening:
    """Options of a strategy, and others that let it choose more."""

    strategy: str
    narrow: str
    wide: str
    needs: str = ""


WIDENINGS = (
    Widening("op-split", "", "--chunks 2"),
    Widening("op-split", "", "--chunks 8"),
    Widening("op-split", "--chunks 2", "--chunks 4"),
    Widening("op-split", "--chunks 4", "--chunks 8"),
    Widening("op-split", "", "--compress best", "plain"),
    Widening("op-split", "--compress weights", "--compress best", "plain"),
    Widening("op-split", "--compress kv", "--compress best", "plain"),
    Widening("op-split", "--compress all --chunks 4", "--compress best --chunks 4", "plain"),
    Widening("op-split", "--no-cpu-offload", ""),
    Widening("op-split", "--no-cpu-offload --chunks 4", "--chunks 4"),
    Widening("op-split", "", "--nvme direct", "nvme"),
    Widening("op-split", "--compress best", "--compress best --nvme direct", "plain nvme"),
    Widening("optimal", "--effort 1", ""),
    Widening("optimal", "", "--effort 1000"),
    Widening("optimal", "", "--compress best", "plain"),
    Widening("optimal", "--compress weights", "--compress best", "plain"),
    Widening("optimal", "--compress kv", "--compress best", "plain"),
    Widening("optimal", "--compress kv", "--compress all", "plain"),
    Widening("optimal", "", "--nvme direct", "nvme"),
    Widening("optimal", "--batch 4", "--batch best", "throughput one"),
    *(
        Widening(strategy, less, "", needs)
        for strategy in (
            "optimal",
            "op-split",
            "layer-split",
            "flexgen",
            "flexgen-lp",
            "layerwise-map",
            "all-cpu",
            "hetegen",
            "twinpilots",
            "llama-cpp",
            "zero-inference",
            "vllm",
            "accelerate",
        )
        for less, needs in (("--vram-avail LESS", "vram"), ("--ram-avail LESS", "ram"))
    ),
    Widening("optimal", "--gpu ONE", "--gpu TWO", "composed"),
    Widening("layer-split", "--gpu ONE", "--gpu TWO", "composed"),
)
"""Pairs of questions of which the second contains the first."""


@dataclass(frozen=True)
class Question:
    """What is asked of all strategies. `words`: model, machine, work and formats, as on the command line; `objective`:
    of the strategies; `traits`: what a widening may need."""

    words: str
    objective: str
    traits: frozenset[str]
    sizes: tuple[tuple[str, int], ...]

    def line(self, strategy: str, options: str, objective: str | None = None) -> str:
        """The arguments of helm-plan."""
        options, words = self._filled(options), self.words
        for flag in re.findall(r"--\S+", options):
            if flag in ("--vram-avail", "--ram-avail", "--batch"):
                words = re.sub(rf"{flag} \S+ ?", "", words)
        if "--gpu" in options:
            words = re.sub(r"--gpu '[^']*' ?", "", words)
        asked = f"--objective {self.objective if objective is None else objective}" if objective != "" else ""
        return " ".join(f"{words} --strategy {strategy} {asked} {options}".split())

    def _filled(self, options: str) -> str:
        gpu = next(iter(re.findall(r"--gpu '([^']*)'", self.words)), "")
        options = options.replace("ONE", f"'{gpu}'").replace("TWO", f"'2x {gpu}'")
        sizes = dict(self.sizes)
        for flag in ("--vram-avail", "--ram-avail"):
            options = options.replace(f"{flag} LESS", f"{flag} {int(LESS * sizes.get(flag, 0))}")
        return options


@dataclass(frozen=True)
class Answer:
    """A plan, or why there is none; `code`: the exit code."""

    code: int
    plan: Plan | None
    reason: str

    def seconds(self, objective: str) -> float:
        """Of the objective, for all batches."""
        assert self.plan is not None
        of = speed(self.plan)
        if objective == "latency":
            return of.step.mid
        return of.ttft.mid if objective == "ttft" else of.request.mid


@dataclass(frozen=True)
class Checked:
    """What was found of one question."""

    number: int
    question: Question
    compared: int
    failures: tuple[str, ...]


Ask = Callable[[str], Answer]


def asked(line: str) -> Answer:
    """What helm-plan answers to the arguments."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = plan_main([*shlex.split(line), "--json"])
    if code == 0:
        return Answer(0, parse_document(Plan, out.getvalue().encode(), "plan"), "")
    return Answer(code, None, json.dumps(json.loads(out.getvalue())["error"]) if out.getvalue() else errors.getvalue())


def checked(folder: Path, seed: int, largest: float, widenings: int, number: int) -> Checked:
    """Ask the first of random questions that any strategy has a plan for in all ways, and with so many `widenings`;
    `largest`: parameters of its model at most."""
    answers: dict[str, Answer] = {}

    def ask(line: str) -> Answer:
        if line not in answers:
            answers[line] = asked(line)
        return answers[line]

    for attempt in count():
        chance = random.Random(f"{seed} {number} {attempt}")
        question, answers = drawn(chance, folder, largest), {}
        failures = list(_default(question, ask))
        if failures or any(answer.plan is not None for answer in answers.values()):
            break
    fitting = [each for each in WIDENINGS if set(each.needs.split()) <= question.traits]
    for each in chance.sample(fitting, min(widenings, len(fitting))):
        failures += _widened(question, each, ask)
    for line, answer in answers.items():
        failures += _sound(line, answer)
    plans = sum(answer.plan is not None for answer in answers.values())
    return Checked(number, question, plans, tuple(failures))


def _widened(question: Question, widening: Widening, ask: Ask) -> Iterator[str]:
    lines = [question.line(widening.strategy, options) for options in (widening.narrow, widening.wide)]
    narrow, wide = map(ask, lines)
    if narrow.plan is None:
        return
    if wide.plan is None:
        if wide.code != 2:
            yield f"freedom: without a plan for being allowed more: {wide.reason}{_shown(lines)}"
        return
    if "--batch best" in widening.wide:
        rates = [speed(answer.plan).rate.mid for answer in (narrow, wide) if answer.plan is not None]
        if rates[1] < rates[0] * (1 - ROUNDING):
            yield f"freedom: {rates[1]:.5g} tokens/s instead of {rates[0]:.5g}{_shown(lines)}"
        return
    before, after = (answer.seconds(question.objective) for answer in (narrow, wide))
    if after > before * (1 + TOLERANCE):
        yield f"freedom: {after / before - 1:.3%} slower ({before:.6g} s, {after:.6g} s){_shown(lines)}"


def _default(question: Question, ask: Ask) -> Iterator[str]:
    """The default against simple plans, by the whole request; the bound against all of them."""
    whole = "" if build_parser().get_default("objective") == "request" else "throughput"
    lines = [question.line("optimal", "", whole), *(question.line(each, "", whole) for each in SIMPLE)]
    ours, *others = map(ask, lines)
    found = [(each.seconds("request"), line) for each, line in zip(others, lines[1:], strict=True) if each.plan]
    if not found:
        return
    best, line = min(found)
    if ours.plan is None:
        yield f"default: no plan where another strategy has one: {ours.reason}{_shown([lines[0], line])}"
        return
    took, proof = ours.seconds("request"), ours.plan.certificate
    if took > best * (1 + MARGIN):
        yield f"default: {took / best - 1:.2%} slower ({took:.6g} s, {best:.6g} s){_shown([lines[0], line])}"
    turns = took / proof.seconds if proof else 1.0
    if proof is not None and best < proof.lower_bound * turns * (1 - ROUNDING):
        below = f"{best:.6g} s lie below the bound {proof.lower_bound * turns:.6g} s of {took:.6g} s"
        yield f"proof: {below}{_shown([lines[0], line])}"


def _sound(line: str, answer: Answer) -> Iterator[str]:
    """What a plan says of itself."""
    if answer.code == 1:
        yield f"internal error: {answer.reason}{_shown([line])}"
    if answer.plan is None:
        return
    plan, proof = answer.plan, answer.plan.certificate
    for phase in (plan.predicted.prefill, plan.predicted.decode):
        if phase.lower_bound > phase.seconds.mid * (1 + ROUNDING):
            yield f"proof: {phase.seconds.mid} s of a phase lie below {phase.lower_bound} s{_shown([line])}"
    if proof is not None and proof.lower_bound > proof.seconds * (1 + ROUNDING):
        yield f"proof: {proof.seconds} s lie below their bound {proof.lower_bound} s{_shown([line])}"
    stated = {"decode step": plan.predicted.decode.seconds.mid, "prompt pass": plan.predicted.prefill.seconds.mid}
    own = stated.get(proof.objective) if proof is not None else None
    if proof is not None and own is not None and abs(proof.seconds / own - 1) > 0.01:
        yield f"proof: of {proof.seconds} s for a plan of {own} s{_shown([line])}"


def _shown(lines: Sequence[str]) -> str:
    return "".join(f"\n      helm-plan {line}" for line in lines)


def drawn(chance: random.Random, folder: Path, largest: float = inf) -> Question:
    """A question that fits the model's context, in formats that its matrices have."""
    while True:
        name, weights, kv = chance.choice(_models(largest)), chance.choice(WEIGHTS), chance.choice(CACHES)
        model, path = load_model(name), name
        if weights == "native":
            found = _outline(folder, name)
            if found is None:
                continue
            path = str(found)
        elif weights_misfit(model, weights) is not None:
            continue
        if cache_misfit(model, kv) is not None:
            continue
        output = chance.choice(OUTPUTS)
        prompt = min(chance.choice(PROMPTS), model.longest_context - output)
        (batches, batch), objective = chance.choice(SHAPES), chance.choice(OBJECTIVES)
        machine, traits, sizes = _machine(chance)
        work = f"--prompt-tokens {prompt} --output-tokens {output} --batch {batch}"
        work += f" --batches {batches}" if batches > 1 else ""
        words = f"--model {path} {machine} {work} --format {weights} --kv-format {kv}"
        traits |= {"plain"} if weights in ("f16", "bf16") and kv in ("f16", "f32") else set()
        traits |= {"one"} if batches == 1 else set()
        return Question(words, objective, frozenset({*traits, objective}), tuple(sizes.items()))


def _machine(chance: random.Random) -> tuple[str, set[str], dict[str, int]]:
    """Words, traits, and the sizes of memories."""
    if chance.random() < 0.1:
        gpu, link = chance.choice(
            (("RTX 3090", "pcie4x16"), ("RTX 4060 Ti 16GB", "pcie4x8"), ("RTX 3060 12GB", "pcie3x16"))
        )
        return f"--gpu '{gpu}' --cpu 'AMD Ryzen 9 5950X' --ram 64GB --link {link}", {"composed"}, {}
    name = chance.choice(system_names())
    hardware = load_hardware(name, None)
    parts, words, traits, sizes = roles(hardware), f"--hw {name}", {"ram"}, {}
    sizes["--ram-avail"] = hardware.memory(parts.host.memory).available
    if parts.separate and parts.accelerator is not None:
        share = chance.choice(MEMORY)
        sizes["--vram-avail"] = int(share * hardware.memory(parts.accelerator.memory).available)
        words += f" --vram-avail {sizes['--vram-avail']}" if share < 1 else ""
        traits |= {"vram"}
    if any(memory.kind == "nvme" for memory in hardware.memories):
        traits |= {"nvme"}
    return words, traits, sizes


@cache
def _models(largest: float) -> tuple[str, ...]:
    return tuple(name for name in catalogue_names() if parameters(load_model(name)) <= largest)


def _outline(folder: Path, name: str) -> Path | None:
    """A GGUF file of the model that mixes formats; None for a family without one."""
    path = folder / f"{name}.gguf"
    try:
        if not path.exists():
            write_outline(load_model(name), path, "q4_k_m")
        return path
    except HelmError:
        return None


def main() -> int:
    """Ask, print, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first case")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--widenings", type=int, default=3, metavar="N", help="that every question is asked with")
    parser.add_argument("--largest", type=float, default=inf, metavar="N", help="parameters of a model at most")
    parser.add_argument("--folder", type=Path, help="where outlines of GGUF files go, and stay")
    args = parser.parse_args()
    failed = plans = 0
    with contextlib.ExitStack() as opened:
        folder = args.folder or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        pool = opened.enter_context(Pool(args.jobs))
        ask = partial(checked, folder, args.seed, args.largest, args.widenings)
        for found in pool.imap_unordered(ask, range(args.first, args.first + args.cases)):
            plans, failed = plans + found.compared, failed + bool(found.failures)
            for failure in found.failures:
                print(f"{found.number:4d} {failure}", flush=True)
    print(f"{args.cases} questions, {plans} plans: {failed} questions with failures")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
