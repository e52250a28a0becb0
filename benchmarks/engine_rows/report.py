"""Tables of how well constants predict what was left out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks.engine_rows.folds import Outcome, after_one_run, left_out, summary
from benchmarks.engine_rows.offload import HostRow
from benchmarks.engine_rows.rows import ERAS, EngineRow
from benchmarks.engine_rows.terms import Question

_WORST = 12

_HEAD = """\
# Engines' speeds, and how far off they are

`helm-plan --engine llama.cpp` predicts what llama.cpp's kernels take: for every operation an overhead, and beside it
bytes over a share of the bandwidth, or FLOPs over a share of the rate and over what a watt does. Each constant is of a
device, its class, its kind or its backend, whichever is the nearest that others measured; builds differ by year
(`--build-era`), attention by `--flash-attn`. The constants are in `hwdb/engines/llama.cpp.json`, each with the rows it
came from; DESIGN.md 4.8 has the model. Backends without rows (SYCL) are predicted as Vulkan is, and of processors the
rate of their memory is what the machine's record says. Runs of yours narrow all that: `helm-calibrate`.

    helm-plan --model Llama-3.1-8B --gpu "RTX 4090" --cpu "AMD Ryzen 9 7950X" --ram 64GB --format q4_k_m \\
      --engine llama.cpp --build-era 2025

This page is made by `python -m benchmarks.engine_rows FOLDER --page docs/engines.md` from rows of others (llama.cpp on
one GPU, 2023 to 2026; rows that their table warns of are left out), and of rows with part of a model on processors,
llama.cpp's and ik_llama.cpp's, in which what GPUs and links take is as predicted without them. Every row is predicted
by constants fitted without its GPU, or without its source. Errors are of tokens/s, intervals those of 90 %.

The form of the model and two means of its priors (cards with HBM, P100) were chosen with these figures in view, some
ten variants of each phase: on GPUs that nobody here has seen, errors may be larger. Widths of priors are those with
which all rows are most likely (CUDA, Metal), or assumed. Terms that were added for a reason found elsewhere are those
of power (data sheets), of expanded weights (ggml-org/llama.cpp#7676), and of written scores.
"""


def report(
    rows: Sequence[EngineRow],
    decode: Sequence[Question],
    prompts: Sequence[Question],
    hosts: Mapping[str, Sequence[Question]],
    sweeps: Sequence[str],
    others: Sequence[str],
    shares: Sequence[str] = (),
) -> str:
    """Return the figures of both phases with GPUs and with sources left out, the worst rows, those of `hosts`, by
    phase, with their sources left out, and the lines of `sweeps`, of `others`, which are about other engines, and of
    `shares`, about the rows of every table."""
    parts = [_HEAD]
    for phase, questions in (("decode", decode), ("prompts", prompts)):
        answered = {question.row.number for question in questions}
        parts.append(f"## {phase.capitalize()}: {len(questions)} of {len(rows)} rows\n")
        left = [row.number for row in rows if row.number not in answered]
        if left:
            parts.append(f"Not answered: rows {', '.join(map(str, left))}.\n")
        for fold in ("GPU", "source"):
            by_gpu = fold == "GPU"
            outcomes = left_out(questions, lambda q, own=by_gpu: q.device.name if own else q.row.source)
            parts.append(f"One {fold} left out:\n")
            parts.append(_table(outcomes))
            if by_gpu:
                parts.append("The GPUs that are furthest off:\n")
                parts.append(_worst(outcomes))
    parts += ["## One run of a user\n", "A row of a machine in, its source's others of that machine out:\n", *_HEADER]
    for name, of in (("decode", decode), ("prompts", prompts)):
        parts.append(_line(f"one GPU, {name}", after_one_run(of, _gpu_and_source)))
    for phase, of in hosts.items():
        beside = [q for q in of if isinstance(q.row, HostRow) and not q.row.alone]
        parts += (
            [_line(f"part of a model on processors, {phase}", after_one_run(beside, _host_and_source))]
            if beside
            else []
        )
    parts.append("")
    for phase, questions in hosts.items():
        if questions:
            parts.append(of_hosts(phase, questions))
    if sweeps:
        parts += ["## Sweeps of `-ngl` and `--n-cpu-moe`\n", _SWEEPS, *sweeps, ""]
    if others:
        parts += ["## Other engines\n", _OTHERS, *others, ""]
    if shares:
        parts += ["## Rows that are answered\n", _ANSWERED, *shares, ""]
    return "\n".join(parts)


_ANSWERED = """\
Every row of the tables that these do not warn of, by its own machine and placement: how many are of models and engines
that are known here, and how many of those are answered; the last column leaves out rows whose source does not say the
processor, the format of weights or the placement. `build_era_open.csv` has rows of the first two tables again.
"""

_OTHERS = """\
[vLLM](engines-vllm.md) has constants of its own, from profiles of its operators. The others have none: plans of
ktransformers, FreeToken, Accelerate and ZeRO are priced by the classes of their devices and links. Such plans of
ktransformers and FreeToken are compared with the rows there are below; `--engine ktransformers` of the same command
says how well rows of one source predict another's, which is too badly for constants of an engine. Rows of Accelerate
and ZeRO are of large batches on two GPUs, each with a caution in its table; of exllamav3 and SGLang there is none. Rows
of ik_llama.cpp are among llama.cpp's above, with factors of their own on processors.
"""

_SWEEPS = """\
The value that is chosen by prediction among all that fit, the nearest measured one that keeps no more on the GPU, and
the part of the best measured speed that this has:
"""


def _gpu_and_source(question: Question) -> tuple[str, str]:
    return question.device.nodes[0], question.row.source


def _host_and_source(question: Question) -> tuple[str, str]:
    row = question.row
    return question.device.nodes[0], f"{row.source} {row.machine if isinstance(row, HostRow) else ''}"


def of_hosts(phase: str, questions: Sequence[Question]) -> str:
    """Return the figures of a phase of rows with work on processors, one source left out."""
    outcomes = left_out(questions, lambda q: q.row.source)
    lines = [f"## Processors, {phase}: {len(questions)} rows\n", "One source left out:\n", *_HEADER]
    for name, inside in _HOST_PARTS.items():
        part = [o for o in outcomes if isinstance(o.question.row, HostRow) and inside(o.question.row, o.question)]
        if part:
            lines.append(_line(name, part))
    return "\n".join(lines) + "\n"


_HOST_PARTS: Mapping[str, Callable[[HostRow, Question], bool]] = {
    "experts beside accelerators": lambda row, q: row.routed and not row.alone,
    "layers beside accelerators": lambda row, q: not row.routed and not row.alone,
    "both, speed of the memory stated": lambda row, q: not row.alone and not row.unknown,
    "alone, x86": lambda row, q: row.alone and "/x86" in q.device.nodes[2],
    "alone, Arm": lambda row, q: row.alone and "/arm" in q.device.nodes[2],
}
"""Rows with work on processors, by what they are about."""


_HEADER = (
    "| rows | count | median error | p90 | within its interval | median high / low |",
    "|---|---|---|---|---|---|",
)


def _line(name: str, part: Sequence[Outcome]) -> str:
    s = summary(part)
    numbers = f"{s.median:.1%} | {s.p90:.1%} | {s.covered:.0%} | {s.width:.2f}"
    return f"| {name} | {s.count} | {numbers} |"


def _table(outcomes: Sequence[Outcome]) -> str:
    return "\n".join([*_HEADER, *(_line(name, part) for name, part in _parts(outcomes))]) + "\n"


def _parts(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    yield "all", list(outcomes)
    for backend in sorted({outcome.question.device.backend for outcome in outcomes}):
        yield backend, [o for o in outcomes if o.question.device.backend == backend]
    for era in ERAS:
        part = [o for o in outcomes if o.question.row.era == era]
        if part:
            yield f"builds of {era}" + (" or later" if era == ERAS[-1] else ""), part


def _worst(outcomes: Iterable[Outcome]) -> str:
    by_device: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_device.setdefault(f"{outcome.question.device.name} ({outcome.question.device.backend})", []).append(outcome)
    ranked = sorted(by_device.items(), key=lambda item: -summary(item[1]).median)
    lines = ["| GPU | rows | said, least and most |", "|---|---|---|"]
    for name, members in ranked[:_WORST]:
        errors = sorted(member.error for member in members)
        lines.append(f"| {name} | {len(members)} | {errors[0]:+.0%} to {errors[-1]:+.0%} |")
    return "\n".join(lines) + "\n"
