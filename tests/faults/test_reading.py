"""Every command that reads, with each of its reads failing in turn or coming up short: an error that names the file."""

import errno
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path

import pytest
from faults import READING, Fault, Faulty, Forking, failing, short
from faulty_commands import COMMANDS, MODEL, TRACED_RUN, Command, is_one_line, is_usual
from two_cpus import TWO_CPUS

from helmsman.executor.checkpoint.gguf_write import write_gguf

pytestmark = TWO_CPUS

REQUESTS = {
    "requests.csv": "arrival_s,prompt_tokens,output_tokens\n0.0,8,4\n0.5,8,4\n",
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,8,4\n2023-11-16 18:15:47.0,8,4\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 8, "output_length": 4, "hash_ids": [0]}\n',
    "osc.json": '[{"prompt": 8, "max_tokens": 4}]',
}


def _requests(name: str) -> Command:
    return Command("sim", {}, lambda inputs: [inputs / "served.json", "--requests", inputs / name, "--rate", 1, "-q"])


Plant = Callable[[int], Fault]

WAYS: dict[str, Plant] = {
    "an error": lambda number: failing(READING, number),
    "a short read": lambda number: short(("read",), number),
    "an interruption": lambda number: failing(READING, number, errno.EINTR),
}

READERS = {
    **{name: COMMANDS[name] for name in ("plan", "sim", "run", "run-stored", "check", "bench")},
    **{name: _requests(name) for name in (*REQUESTS, "served.parquet")},
    "gguf": Command(
        "bench",
        {},
        lambda inputs: [inputs / "plan.json", "--checkpoint", inputs / "model.gguf", "-p", 2, "-n", 1, "-r", 1, "-q"],
    ),
    "text": Command(
        "run", {}, lambda inputs: [inputs / "plan.json", "--checkpoint", inputs / "checkpoint", "--text", "a", "-q"]
    ),
    "this": Command(
        "plan",
        {},
        lambda inputs: ["--model", inputs / "checkpoint", "--hw", "this", "--strategy", "layer-split", "-q"],
    ),
}


@pytest.fixture(scope="module")
def inputs(inputs: Path) -> Path:
    """Return the folder of inputs that all tests of faults have, after adding files of requests and a GGUF file."""
    for name, text in REQUESTS.items():
        (inputs / name).write_text(text)
    write_gguf(MODEL, inputs / "model.gguf", seed=1, fmt="f16")
    return inputs


@pytest.fixture(scope="module")
def system(forking: Forking, inputs: Path) -> Faulty:
    found = Faulty(forking, inputs, XDG_CACHE_HOME=str(inputs / "cache"))
    for ended in (
        found.run(TRACED_RUN, *COMMANDS["run"].argv(inputs), "--trace", inputs / "run.parquet"),
        found.run("sim", *COMMANDS["sim-requests"].argv(inputs), "-o", inputs / "served.parquet"),
        found.run(COMMANDS["profile"].name, "-q"),
    ):
        assert (ended.code, ended.err) == (0, ""), ended
    return found


def check_reads(system: Faulty, inputs: Path, name: str, ways: Mapping[str, Plant], step: int) -> int:
    """Let each `step`-th read fail in the next of `ways`; how many there are."""
    command, next_way = READERS[name], cycle(ways.items())
    argv = [str(word) for word in command.argv(inputs)]
    clean = system.run(command.name, *argv)
    assert is_usual(clean, command), clean
    count = clean.count(READING)
    for number in range(0, count, step):
        way, plant = next(next_way)
        ended = system.run(command.name, *argv, fault=plant(number))
        place = f"{way} at read {number} of {count}: {ended}"
        if way == "an error" and ended.code not in command.codes:
            assert ended.met and ended.code in (5, 6) and is_one_line(ended, command), place
            assert str(inputs) in ended.err + ended.out, place
        else:
            assert is_usual(ended, command), place
    return count


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if place % 4 == 0 else pytest.mark.nightly) for place, name in enumerate(READERS)],
)
def test_a_read_may_fail(system: Faulty, inputs: Path, name: str) -> None:
    assert check_reads(system, inputs, name, WAYS, 17) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", READERS)
def test_each_read_may_fail(system: Faulty, inputs: Path, name: str, way: str) -> None:
    check_reads(system, inputs, name, {way: WAYS[way]}, 1)
