"""What is fuzzed: every reader of what a user, a file or a network gives, and plans simulated and executed."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from gguf_bytes import array, gguf, info, string, text, u32
from harness import Case, Target, of_bytes, of_files
from mutations import VALUES, damaged, damaged_json
from op_plans import make_op_split_plan
from plans import make_hardware, make_plan
from shapes import small_model

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document
from helmsman.schemas.workload import Workload

MODEL = small_model("llama").with_layers(2)
WORK = Workload(prompt_tokens=5, output_tokens=4, context=32)
SMALL = make_hardware(ram=2**27, vram=2**26)
"""A machine of which a case has all memory that it may take."""

Seeds = Callable[[Path], Sequence[bytes]]


@cache
def plans() -> tuple[Plan, ...]:
    """Plans of several kinds that run on a loopback accelerator."""
    small = {"workload": WORK, "hardware": SMALL}
    splits = [make_plan(MODEL, units, **small) for units in (0, 2, MODEL.units)]
    several = small | {"workload": WORK.model_copy(update={"batch": 2, "batches": 2})}
    shared = [make_op_split_plan(MODEL, start, stop, **small) for start, stop in ((4, 8), (2, 11))]
    return (*splits, *shared, make_op_split_plan(MODEL, 4, 9, {"up": 2, "down": 2}, **several))


def _of_plans(folder: Path) -> Sequence[bytes]:
    return [plan.to_json(indent=None).encode() for plan in plans()]


def _document(cls: Any) -> Callable[[bytes], object]:
    return lambda data: parse_document(cls, data, "document.json")


def _documents(*found: Any) -> Seeds:
    return lambda folder: [each.to_json(indent=None).encode() for each in found]


def _json(*found: Any) -> Seeds:
    return lambda folder: [json.dumps(each).encode() for each in found]


def _either(data: bytes, chance: Random) -> bytes:
    """Values of a document exchanged; sometimes its bytes damaged."""
    return damaged(data, chance) if chance.random() < 0.2 else damaged_json(data, chance)


def _simulated(data: bytes) -> None:
    """A plan that is accepted is simulated, too."""
    from helmsman.planner.checks.accept import accept
    from helmsman.planner.cost.plan_costs import cost_model
    from helmsman.simulator.pricing import median_price
    from helmsman.simulator.stream import simulate

    plan = accept(parse_document(Plan, data, "plan.json"))
    costs = cost_model(plan, "plan.json")
    simulate(plan, median_price(plan, "plan.json"), costs.between(), slowed=costs.slowed())


def _rules_changed(plan: Plan, chance: Random) -> bytes:
    """A plan whose rules were changed, as people edit them: digests and shapes stay those of its model."""
    content = json.loads(plan.to_json(indent=None))
    memories, devices = ("dram", "vram"), ("cpu", "loopback", "cpu-all")
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.choice(("residence", "kv", "compute", "compute", "schedule"))
        if kind == "schedule":
            schedule, name = content["schedule"], chance.choice(list(content["schedule"]))
            schedule[name] = chance.choice(_SCHEDULES.get(name, VALUES))
            continue
        rules = content[kind]
        rule = chance.choice(rules)
        action = chance.randrange(6)
        if action == 0:
            rules.insert(chance.randrange(len(rules) + 1), json.loads(json.dumps(chance.choice(rules))))
        elif action == 1 and len(rules) > 1:
            rules.remove(rule)
        elif action == 2:
            rule["select"]["names"] = chance.choice(_NAMES)
        elif action == 3:
            start = chance.randrange(MODEL.layers)
            rule["select"]["layers"] = {"start": start, "stop": chance.randrange(start, MODEL.layers + 2)}
        elif action == 4 and kind == "kv":
            rule["cache"] = {
                "memory": chance.choice(memories),
                "window_tokens": 64,
                "page_tokens": 32,
                "watermark": 0.6,
            }
        elif action == 4:
            start, size = chance.choice((0, 0, 0, 16, 48, 1)), chance.choice((16, 32, 48, 64, 96, 1, 3))
            rule["select"]["part"] = {"axis": chance.choice(("rows", "heads")), "start": start, "stop": start + size}
        else:
            key, values = ("device", devices) if kind == "compute" else ("memory", memories)
            rule[key] = chance.choice(values)
    return json.dumps(content).encode()


_SCHEDULES: dict[str, tuple[Any, ...]] = {
    "overlap": ("none", "next-layer"),
    "attention": ("whole", "divided"),
    "stage": ("block", "half"),
    "reshape": (True, False),
    "barrier": (True, False),
    "prefetch": (0, 1, 2, 5),
    "order": ("layer-major", "zig-zag", "turns"),
}

_NAMES = ("*", "q*", "up*", "head*", "head", "norm*", "norm1", "scores", "keys", "values", "embedding*", "final_norm*",
          "attention", "o", "down", "softmax", "append", "wv", "norm2", "k*", "gate", "norm1.weight",
          "up.weight")  # fmt: skip


def _prepare_executed(folder: Path) -> Case:
    """Plans that are accepted make the tokens that processors alone make, or are refused before they run."""
    from helmsman.executor.checkpoint.write import write_checkpoint
    from helmsman.executor.engine import Engine
    from helmsman.executor.system.machine import Machine
    from helmsman.planner.checks.accept import accept

    checkpoint, machine = folder / "checkpoint", Machine.this()
    write_checkpoint(MODEL, checkpoint, seed=1, fmt="f32")
    expected: dict[tuple[int, int], Any] = {}

    def run(plan: Plan) -> Any:
        work = plan.workload
        tokens = np.random.default_rng(3).integers(0, MODEL.vocab, (work.batch * work.batches, 5)).astype(np.int32)
        with Engine.load(plan, checkpoint, machine) as engine:
            return engine.generate(tokens, 4, ignore_eos=True).tokens

    def read(data: bytes) -> None:
        plan = accept(parse_document(Plan, data, "plan.json"))
        key = plan.workload.batch, plan.workload.batches
        if key not in expected:
            work = WORK.model_copy(update={"batch": key[0] * key[1]})
            expected[key] = run(make_plan(MODEL, workload=work, hardware=SMALL))
        found = run(plan)
        assert np.array_equal(found, expected[key]), "other tokens than processors alone make"

    def case(chance: Random) -> Callable[[], object]:
        data = _rules_changed(chance.choice(plans()), chance)
        return lambda: read(data)

    return case


def _prepare_rules(folder: Path) -> Case:
    def case(chance: Random) -> Callable[[], object]:
        data = _rules_changed(chance.choice(plans()), chance)
        return lambda: _simulated(data)

    return case


def _configs(folder: Path) -> Sequence[bytes]:
    from helmsman.executor.checkpoint.config import hf_config

    return [json.dumps(hf_config(small_model(name), "bf16")).encode() for name in ("llama", "qwen3", "opt", "phi3")]


def _config(data: bytes) -> object:
    from helmsman.hwdb.model_config import model_from_config
    from helmsman.schemas.read import parse_json

    content = parse_json(data, "config.json")
    return model_from_config(content, "name", "config.json") if isinstance(content, dict) else None


def _gguf(folder: Path) -> Sequence[bytes]:
    from helmsman.executor.checkpoint.gguf_write import write_gguf

    found = []
    for family in ("llama", "qwen3", "phi3"):
        model = small_model(family).with_layers(1)
        if family == "phi3":
            model = model.model_copy(update={"name": "small"})
        path = folder / f"{family}.gguf"
        write_gguf(model, path, 1, "f16")
        found.append(path.read_bytes())
    small = gguf({"a": u32(3), "b": string("x"), "c": array(8, 2, text("a") + text("b"))}, [info("t", (4, 32))], 512)
    return [*found, small]


def _read_gguf(path: Path) -> None:
    from helmsman.executor.text.tokenizer import open_text
    from helmsman.executor.weights.opening import open_weights
    from helmsman.hwdb.load_model import load_model
    from helmsman.lowering.tensors import tensors

    model = load_model(str(path))
    weights = open_weights(path, model)
    for tensor in tensors(model)[:8]:
        weights.tensor(tensor)[1][:2]
    open_text(path, model.vocab)


def _safetensors(folder: Path) -> Sequence[bytes]:
    from helmsman.executor.checkpoint.write import write_checkpoint

    write_checkpoint(MODEL, folder / "model", seed=1, fmt="f16")
    return [(folder / "model" / "model.safetensors").read_bytes()]


def _read_safetensors(path: Path) -> None:
    from helmsman.hwdb.safetensors_file import SafetensorsFile

    file = SafetensorsFile(path)
    for entry in file.entries.values():
        assert 0 <= entry.start <= entry.end <= file.bytes.size
    file.close()


def _tokenizers(folder: Path) -> Sequence[bytes]:
    from helmsman.executor.checkpoint.tokenizer import tokenizer_json

    return [tokenizer_json(MODEL).encode()]


def _read_tokenizer(path: Path) -> None:
    from helmsman.executor.text.tokenizer import open_text

    found = open_text(path.parent, MODEL.vocab)
    if found is not None:
        found.decode(found.encode("Call me é 世")[:64])


def _traces(folder: Path) -> Sequence[bytes]:
    from io import BytesIO

    from helmsman.planner.cost.plan_costs import cost_model
    from helmsman.schemas.trace import Trace, TraceInfo, write_trace
    from helmsman.simulator.pricing import median_price
    from helmsman.simulator.stream import timeline

    plan = plans()[1]
    costs = cost_model(plan, "plan.json")
    spans = list(timeline(plan, median_price(plan, "plan.json"), costs.between(), 2))
    stream = BytesIO()
    write_trace(Trace(TraceInfo(source="simulated", plan_sha256=digest(plan)), spans), stream)
    return [stream.getvalue()]


def _read_trace(path: Path) -> None:
    from helmsman.schemas.trace import read_trace

    read_trace(path)


def _served(folder: Path) -> Sequence[bytes]:
    from io import BytesIO

    from helmsman.schemas.served_table import Gaps, ServedInfo, ServedTable, write_served

    row = np.arange(12)
    counts = dict.fromkeys(("request", "prompt_tokens", "output_tokens", "produced"), row + 1)
    others = dict.fromkeys(("cpu_tokens", "preemptions", "reused_tokens", "replica", "status"), row * 0)
    times = {name: row + place for place, name in enumerate(("arrival_s", "started_s", "first_token_s", "finish_s"))}
    gaps = Gaps(np.arange(13), row + 0.5, row * 0.0, row * 0 + 1, row * 0 + 1, row > 5)
    info = ServedInfo(source="simulated", plan_sha256="0" * 64, policy="neo", requests="a.csv")
    stream = BytesIO()
    write_served(
        ServedTable(info, **{name: 1.0 * each for name, each in times.items()}, **counts, **others, gaps=gaps), stream
    )
    return [stream.getvalue()]


def _read_served(path: Path) -> None:
    from helmsman.schemas.served_table import read_served

    read_served(path)


def _read_index(path: Path) -> None:
    from helmsman.hwdb.safetensors_file import names_in, shards_of

    shards_of(path)
    names_in(path.parent)


INDEX = {
    "metadata": {"total_size": 10},
    "weight_map": {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"},
}


def _requests_file(path: Path) -> None:
    from helmsman.simulator.serving.requests.request_source import open_source

    open_source(str(path), limit=50).requests(1)


AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"".join(
    f"2023-11-16 18:15:{second:02}.6805900,{100 + second},{10 + second}\n".encode() for second in range(8)
)
MOONCAKE = b"".join(
    json.dumps({"timestamp": 1000 * row, "input_length": 700, "output_length": 9, "hash_ids": [row, 1]}).encode()
    + b"\n"
    for row in range(8)
)


def _words(data: bytes) -> None:
    """The small languages of arguments, each given the same text."""
    from helmsman.executor.profile.settings import Loopback
    from helmsman.planner.slo import limits_of
    from helmsman.schemas.errors import HelmError
    from helmsman.schemas.units import parse_bytes, parse_rate, parse_seconds
    from helmsman.simulator.serving.requests.arrivals import parse_arrivals
    from helmsman.simulator.serving.requests.request_source import open_source
    from helmsman.simulator.serving.slo import parse_slo
    from helmsman.simulator.serving.sweep import parse_sweep

    words = data.decode("utf-8", "surrogateescape")
    readers: tuple[Callable[[str], object], ...] = (
        lambda given: parse_bytes(given, "--x"),
        lambda given: parse_rate(given, "--x"),
        lambda given: parse_seconds(given, "--x"),
        Loopback.parse,
        limits_of,
        parse_slo,
        parse_sweep,
        parse_arrivals,
        lambda given: open_source(f"synthetic:{given}").requests(1),
    )
    errors = list[HelmError]()
    for read in readers:
        try:
            read(words)
        except HelmError as error:
            errors.append(error)
    if len(errors) == len(readers):
        raise errors[0]


WORDS = (b"2.5GiB", b"16GB/s", b"20us", b"cores=1,vram=4GiB,link=8GB/s,latency=20us", b"ttft=2s,tpot=100ms",
         b"n=20,input=64,output=32,rate=2", b"n=5,input=10:90,output=zipf,rate=1", b"poisson", b"gamma:cv=2",
         b"1:8:x2", b"0.5:4:0.5")  # fmt: skip


def _events(data: bytes) -> None:
    """A stream of events of a server, as helm-bench-serve reads them."""
    from helmsman.service.inference.load import client

    found = client.RequestRecord(0, 0.0)
    try:
        for event in data.split(b"\n\n"):
            client._note(event, 1.0, found)
    except client._OtherError as error:
        raise BadInputError(str(error)) from None
    json.dumps([found.tokens, found.produced, found.prompt_tokens, found.reused_tokens])


EVENTS = (
    b'data: {"choices":[{"delta":{"content":"a"},"token_ids":[1,2]}]}\n\ndata: [DONE]\n\n',
    b'data: {"usage":{"prompt_tokens":3,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":2}}}\n\n',
    b'data: {"error":{"message":"no","code":3}}\n\n',
)


def _metrics(data: bytes) -> None:
    """A server's counters, as helm-bench-serve reads them: whatever they are, notes are numbers of JSON."""
    from helmsman.service.inference.load.pass_prices import parse_passes, price_notes
    from helmsman.service.inference.load.processors import parse_use, use_notes

    words = data.decode("utf-8", "replace")
    passes, use = parse_passes(words), parse_use(words, 0.0)
    json.dumps({**price_notes(passes, passes), **use_notes(use, use)}, allow_nan=False)
    if not passes and use is None:
        raise BadInputError("nothing that is told")


METRICS = (
    b"process_cpu_seconds_total 3.5\nhelm:machine_busy_seconds_total 9\nhelm:machine_cpu_seconds_total 20.0\n"
    b"helm:thread_wait_seconds_total 0.1\n",
    b'# TYPE helm:pass_seconds counter\nhelm:pass_seconds_total{part="pass",source="priced"} 1.5\n'
    b'helm:pass_seconds_total{part="host",source="measured"} 2\n',
)


def _asked(data: bytes) -> None:
    from helmsman.service.inference.openai_requests import ChatRequest, CompletionRequest

    cls = ChatRequest if b"messages" in data else CompletionRequest
    parse_document(cls, data, "request")


ASKED = (
    {
        "model": "m",
        "prompt": "Call me",
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["x", "y"],
        "seed": 3,
    },
    {"prompt": [1, 2, 3], "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "top_k": 4},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}]},
)

HARDWARE = make_hardware()


def _fixed(*found: bytes) -> Seeds:
    return lambda folder: found


_TARGETS = (
    Target("plan", of_bytes(_of_plans, _either, _simulated)),
    Target("plan-rules", _prepare_rules),
    Target("plan-executed", _prepare_executed),
    Target("hardware", of_bytes(_documents(HARDWARE), _either, _document(type(HARDWARE)))),
    Target("model", of_bytes(_documents(MODEL), _either, _document(type(MODEL)))),
    Target("workload", of_bytes(_documents(WORK), _either, _document(Workload))),
    Target("config", of_bytes(_configs, _either, _config)),
    Target("gguf", of_files(_gguf, damaged, _read_gguf, "case.gguf")),
    Target("safetensors", of_files(_safetensors, damaged, _read_safetensors)),
    Target("tokenizer", of_files(_tokenizers, _either, _read_tokenizer, "tokenizer.json")),
    Target("trace", of_files(_traces, damaged, _read_trace)),
    Target("served", of_files(_served, damaged, _read_served)),
    Target("index", of_files(_json(INDEX), _either, _read_index, "model.safetensors.index.json")),
    Target("azure", of_files(_fixed(AZURE), damaged, _requests_file, "requests.csv")),
    Target("mooncake", of_files(_fixed(MOONCAKE), damaged, _requests_file, "requests.jsonl")),
    Target("words", of_bytes(_fixed(*WORDS), damaged, _words)),
    Target("asked", of_bytes(_json(*ASKED), _either, _asked)),
    Target("events", of_bytes(_fixed(*EVENTS), damaged, _events)),
    Target("metrics", of_bytes(_fixed(*METRICS), damaged, _metrics)),
)
TARGETS = {each.name: each for each in _TARGETS}
