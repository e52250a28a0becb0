"""A decision in words: the plan, its speed with interval, memory, bottleneck, bound, and the other candidates."""

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap

from helmsman.lowering.caches import pieces_of
from helmsman.lowering.paging import paging_of, windows
from helmsman.lowering.placement import batches_together, shaped
from helmsman.lowering.rules import homes, places
from helmsman.lowering.turns import divides_attention
from helmsman.planner.cost.rounding_loss import attention_loss, loss_of
from helmsman.planner.decision import Decision, RejectedCandidate
from helmsman.planner.machine import roles, why_unused
from helmsman.planner.memory.alike_blocks import alike, counted_tensors
from helmsman.planner.memory.names import room_in_words
from helmsman.planner.prediction.objective import objective_bound, objective_seconds
from helmsman.planner.prediction.phase_document import gap
from helmsman.planner.registry import known
from helmsman.planner.words.draft_words import draft_words
from helmsman.planner.words.engine_command import engine_command
from helmsman.planner.words.plan_picture import INDENT, WIDTH, Paint, picture, plain
from helmsman.planner.words.plan_words import binding, in_words
from helmsman.planner.words.routing_words import routing_words, slot_words
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.formats import Precision, StoredFormat, is_plain, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, OBJECTIVES, Objective
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.plan import Considered, Plan, Residence
from helmsman.schemas.predicted import Interval, MemoryUse, PhasePrediction
from helmsman.schemas.units import format_bytes, format_number, format_seconds

SHOWN = 4

_PREFERRED = {
    "median": "is simpler",
    "pessimistic": "takes less at the 95th percentile",
    "regret": "loses less where a figure is off",
}
"""By `--risk`, why a plan is recommended instead of a faster one."""

_OBJECTIVES: Mapping[Objective, str] = {
    "request": "for the request",
    "latency": "a step",
    "ttft": "for the prompt",
    "throughput": "for all tokens",
}
"""The words for what the seconds of an objective are of."""

_WAYS = {False: "way to run blocks", True: "ways to run blocks, composed at will,"}


def explain(decision: Decision, exact: bool = False, paint: Paint = plain) -> str:
    """The text that `helm-plan` prints, WIDTH columns wide where no single word is longer; `exact` adds labels, bytes,
    all other candidates, and what the predictions are the sum of."""
    plan = decision.plan
    lines = [
        *_wrapped([_title(plan), "", f"in short     {in_words(plan)}"]),
        *_command(plan),
        *picture(plan, paint),
        *_wrapped(
            ["", *_speed(plan, exact), *_considered(plan), *_memory(plan, exact), *_apart(_others(decision, exact))]
        ),
    ]
    if exact:
        lines += [
            *_apart(_precision(plan)),
            "",
            *_terms("prefill", plan.predicted.prefill),
            "",
            *_terms("decode", plan.predicted.decode),
        ]
    return "\n".join(lines)


def _command(plan: Plan) -> Iterator[str]:
    """Yield the command of another engine that does what the plan says, where that is known."""
    command = engine_command(plan)
    if command is not None:
        yield f"command      {command}"


def _wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines broken between words, what follows below where the first says something."""
    for line in lines:
        yield from (
            wrap(line, WIDTH, subsequent_indent=" " * INDENT, break_long_words=False, break_on_hyphens=False) or [""]
        )


def _precision(plan: Plan) -> Iterator[str]:
    """Per device with Helm's own kernels and format of matrices: what activations are rounded to in products of
    many tokens, and what that costs; likewise of attention."""
    for device in plan.hardware.devices:
        if device.rounding is None or not any(rule.device == device.name for rule in plan.compute):
            continue
        for fmt, experts in dict.fromkeys((rule.used, experts) for rule, _, experts in _matrix_rows(plan)):
            rounding = device.rounding.of_experts(fmt) if experts else device.rounding.of(fmt)
            weights = f"{fmt} {'experts' if experts else 'weights'}"
            weights += ", rounded to bf16," if _rounds_values(fmt, rounding) else ""
            yield f"precision    {device.name}: {weights} meet activations in {rounding}, {loss_of(fmt, rounding)}"
        attention = device.rounding.attention
        if attention != "f32" and _attends(plan, device.name):
            loss = attention_loss(attention)
            yield f"precision    {device.name}: attention of prompts multiplies {attention}, {loss} by itself"


def _rounds_values(fmt: StoredFormat, rounding: Precision) -> bool:
    """Return whether what the codes of weights stand for is rounded before it is multiplied."""
    return rounding == "bf16" and not is_plain(fmt)


def _attends(plan: Plan, device: str) -> bool:
    """Return whether the device computes all attention of prompts in some layer; divided attention stays in f32."""
    prompt = prefill(plan.workload)
    heads = {layer: plan.model.attention(layer) for layer in range(plan.model.layers)}
    return any(
        attention is not None
        and not divides_attention(plan, layer, prompt)
        and places(plan, "scores", layer, "prefill", attention.kv_heads, "heads")[0].rule.device == device
        for layer, attention in heads.items()
    )


def _apart(lines: Iterable[str]) -> list[str]:
    """Lines after an empty one, if there are any."""
    listed = list(lines)
    return ["", *listed] if listed else []


def _title(plan: Plan) -> str:
    work = plan.workload
    prefix = f" ({work.prefix_tokens} known)" if work.prefix_tokens else ""
    return (
        f"{plan.model.name} on {plan.hardware.name}: {work.prompt_tokens}{prefix} + {work.output_tokens} tokens, "
        f"batch {work.shape}, context {work.context}, {_formats(_matrices(plan))} weights, {_formats(_caches(plan))} KV"
    )


def _matrices(plan: Plan) -> Iterator[tuple[StoredFormat, int]]:
    """Formats of rows of matrices, and bytes; norms and biases are never compressed."""
    return ((rule.format, size) for rule, size, _ in _matrix_rows(plan))


def _matrix_rows(plan: Plan) -> Iterator[tuple[Residence, int, bool]]:
    """Yield the rule that rows of a matrix are kept by, the bytes of these rows, and whether they are of experts."""
    placed = shaped(plan)
    for tensor, count in counted_tensors(placed):
        if len(tensor.shape) > 1 and tensor.tied_to is None:
            for piece in homes(placed, tensor):
                rows = piece.stop - piece.start
                size = count * size_of(rows * (tensor.elements // tensor.shape[0]), piece.rule.format)
                yield piece.rule, size, tensor.stacked


def _caches(plan: Plan) -> Iterator[tuple[StoredFormat, int]]:
    """Formats of heads of keys and values, and how many."""
    placed = shaped(plan)
    for layer, count in alike(placed).items():
        for piece in pieces_of(placed, layer):
            yield piece.rule.format, count * piece.heads


def _formats(parts: Iterable[tuple[StoredFormat, int]]) -> str:
    """The formats, that of most first."""
    sizes: dict[StoredFormat, int] = {}
    for fmt, size in parts:
        sizes[fmt] = sizes.get(fmt, 0) + size
    return " and ".join(fmt for fmt, _ in sorted(sizes.items(), key=lambda item: -item[1]))


def _speed(plan: Plan, exact: bool) -> Iterator[str]:
    predicted, decode = plan.predicted, plan.predicted.decode
    rate = predicted.tokens_per_second
    yield f"plan         {plan.label if exact else _named(plan, plan.label)}"
    yield f"request      {_request(plan)}"
    yield (
        f"decode       {format_number(rate.mid, 4)} tokens/s "
        f"[{format_number(rate.low, 3)} .. {format_number(rate.high, 3)}], "
        f"{format_seconds(decode.seconds.mid)} a step"
    )
    yield from draft_words(plan, exact)
    yield f"TTFT         {_interval(predicted.ttft.seconds)}"
    yield f"bottleneck   steps: {binding(plan, decode)}; prompts: {binding(plan, predicted.prefill)}"
    yield _bound(plan)


def _request(plan: Plan) -> str:
    """`8.8 s [7.9 s .. 10.2 s]: TTFT 1.2 s + 255 steps of 29.9 ms`; of batches that take turns, how often."""
    work, predicted = plan.workload, plan.predicted
    together = batches_together(plan)
    whole, turns = objective_seconds(predicted, work, together, "request"), work.batches // together
    parts = [f"TTFT {format_seconds(predicted.ttft.seconds.mid)}"]
    if work.decode_steps:
        steps = "1 step" if work.decode_steps == 1 else f"{work.decode_steps} steps"
        parts.append(f"{steps} of {format_seconds(predicted.decode.seconds.mid)}")
    summed = " + ".join(parts)
    return f"{_interval(whole)}: {summed if turns == 1 else f'{turns} turns of {summed}'}"


def _bound(plan: Plan) -> str:
    """Return what a plan is compared with: the proof where it has one, which is the stronger bound, or the
    hardware's."""
    proof = plan.certificate
    if proof is None:
        return _hardware_bound(plan)
    ways = f"{proof.ways} {_WAYS[proof.ways > 1]}"
    return (
        f"proof        {proof.objective} {format_seconds(proof.seconds)}; none of {ways} "
        f"takes less than {format_seconds(proof.lower_bound)}; this one {proof.gap:.1%} more"
    )


def _hardware_bound(plan: Plan) -> str:
    """`lower bound  7.2 s for the request; the plan is 22% above it`, of the objective that was asked for."""
    work, together, objective = plan.workload, batches_together(plan), _objective(plan)
    bound = objective_bound(plan.predicted, work, together, objective)
    seconds = objective_seconds(plan.predicted, work, together, objective).mid
    turns = work.batches // together if objective in ("request", "throughput") else 1
    of = _OBJECTIVES[objective] + (f" in {turns} turns" if turns > 1 else "")
    if objective == "throughput" and bound:
        of += f", at most {work.batch * work.batches * work.output_tokens / bound:.4g} tokens/s"
    return f"lower bound  {format_seconds(bound)} {of}; the plan is {gap(seconds, bound):.0%} above it"


def _objective(plan: Plan) -> Objective:
    """Return what the plan was to be best at, as it recorded it."""
    recorded = plan.strategy.options.get("objective")
    return next((objective for objective in OBJECTIVES if objective == recorded), DEFAULT_OBJECTIVE)


def _considered(plan: Plan) -> Iterator[str]:
    """The divisions into batches that a search for the most tokens/s looked at, by verdict."""
    several = len({division.batches for division in plan.considered}) > 1
    for verdict, words in (
        ("planned", "tokens/s over the whole request"),
        ("left-out", "left out, at most"),
        ("no-plan", "without a plan"),
    ):
        divisions = [division for division in plan.considered if division.verdict == verdict]
        texts = (_division(division, several) for division in divisions)
        if divisions:
            yield f"batches      {words}: {', '.join(texts)}"


def _division(considered: Considered, several: bool) -> str:
    shape = f"{considered.batches} x {considered.batch}" if several else str(considered.batch)
    return shape if considered.rate is None else f"{shape} -> {considered.rate:.4g}"


def _memory(plan: Plan, exact: bool) -> Iterator[str]:
    for use in plan.predicted.memory if exact else ():
        yield f"memory       {_use(use)}"
    yield from (f"{'slots':<{INDENT}}{line}" for line in slot_words(plan))
    yield from routing_words(plan) if exact else ()
    for cache in windows(plan):
        yield f"window       {cache.memory}: {_window(plan, cache)}"
    parts = roles(plan.hardware)
    if parts.accelerator is not None and parts.unified:
        both = f"{parts.host.name} and {parts.accelerator.name} share {parts.host.memory}"
        yield f"one memory   {both}: moving data between memories gains nothing on this machine"


def _window(plan: Plan, cache: PageCache) -> str:
    away = paging_of(cache).evicted(plan.workload.context)
    pages = f"{away} pages of {cache.page_tokens} at home by the last" if away else "no page ever leaves"
    return f"{cache.window_tokens} of {plan.workload.context} tokens of each sequence's KV; {pages}"


def _use(use: MemoryUse) -> str:
    parts = f"weights {format_bytes(use.weights)}, KV {format_bytes(use.kv)}, buffers {format_bytes(use.buffers)}"
    parts += f", page-locking {format_bytes(use.pinned)}" if use.pinned else ""
    parts += f", drafter {format_bytes(use.drafter)}" if use.drafter else ""
    return f"{use.memory}: {format_bytes(use.used)} of {format_bytes(use.available)} ({parts})"


def _others(decision: Decision, exact: bool) -> Iterator[str]:
    yield from _passed_over(decision, exact)
    yield from _runner_ups(decision, exact)
    if exact:
        yield from _too_large(decision.plan.hardware, decision.rejected)
    for name in decision.unused:
        yield f"not used     {name}: {why_unused(decision.plan.hardware, name)}"
    nearest = decision.nearest
    if nearest is not None:
        gain = decision.seconds / nearest.seconds - 1
        room = room_in_words(decision.plan.hardware, nearest.shortage)
        yield f"to be faster {room} would allow {_named(decision.plan, nearest.label)} (+{gain:.1%} speed)"


def _runner_ups(decision: Decision, exact: bool) -> Iterator[str]:
    """The next best candidates: a line each, or all in one where those of one name are told together."""
    others = [(label, seconds, seconds / decision.seconds - 1) for label, seconds in decision.runner_ups[:SHOWN]]
    if exact:
        for label, seconds, more in others:
            yield f"runner-up    {label}: {format_seconds(seconds)} ({more:+z.1%})"
        return
    alike: dict[str, list[float]] = {}
    for label, _, more in others:
        alike.setdefault(_named(decision.plan, label), []).append(more)
    texts = [
        f"{name} {more[0]:+z.1%}" + (f" to {more[-1]:+z.1%} ({len(more)} plans)" if len(more) > 1 else "")
        for name, more in alike.items()
    ]
    if texts:
        yield f"runner-ups   {', '.join(texts)}; -v names them"


def _named(plan: Plan, label: str) -> str:
    """A label that people can read, or else the name of its strategy: devices by operation are for -v."""
    first = label.partition(" ")[0]
    return label if "[" not in label else first if known(first) else plan.strategy.name


def _too_large(hardware: Hardware, rejected: Iterable[RejectedCandidate]) -> Iterator[str]:
    """The candidates that lack least."""
    ordered = sorted(rejected, key=lambda candidate: candidate.missing)
    for candidate in ordered[:SHOWN]:
        yield f"does not fit {candidate.label}: {room_in_words(hardware, candidate.shortage)} needed"
    if len(ordered) > SHOWN:
        yield f"             and {len(ordered) - SHOWN} more, each lacking more"


def _passed_over(decision: Decision, exact: bool) -> Iterator[str]:
    """Lines on faster plans: the gain that is expected, the largest one, and why they were not recommended."""
    why = _PREFERRED[str(decision.plan.strategy.options.get("risk", "median"))]
    for plan in decision.plan.passed_over:
        label = plan.label if exact else _named(decision.plan, plan.label)
        share = plan.gain.mid / decision.seconds if decision.seconds else 0.0
        yield (
            f"passed over  {label}: {format_seconds(plan.seconds)} expected; it saves "
            f"{format_seconds(plan.gain.mid)} ({share:.1%}), {format_seconds(plan.gain.high)} at best"
            f"{', and may save nothing' if plan.gain.low == 0.0 else ''}: the plan above {why}"
        )


def _terms(title: str, phase: PhasePrediction) -> Iterator[str]:
    yield f"{title:<30}{'seconds':>10}  {'share':>6}  {'bytes':>10}  bound    source"
    for term in phase.terms:
        share = term.seconds.mid / phase.seconds.mid if phase.seconds.mid else 0.0
        name = f"{term.op} on {term.resource}"
        yield (
            f"  {name:<28} {format_seconds(term.seconds.mid):>9}  {share:>6.1%}  {format_bytes(term.bytes):>10}  "
            f"{term.bound:<8} {term.source}"
        )


def _interval(seconds: Interval) -> str:
    low, mid, high = (format_seconds(s) for s in (seconds.low, seconds.mid, seconds.high))
    return f"{mid} [{low} .. {high}]"
