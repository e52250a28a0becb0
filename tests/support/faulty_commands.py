"""Commands as tests of faults run them: on small models, with the files that they write."""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from faults import Ended
from op_plans import make_op_split_plan
from plans import make_hardware, make_plan
from quick_probes import quick_probes
from shapes import small_model
from splits import with_storage

from helmsman.cli.app import run_command
from helmsman.cli.parser import PLACE, command_parser
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.profile import run as profiler
from helmsman.hwdb.load_hardware import load_hardware
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload
from helmsman.schemas.write import new_file, whole_file, whole_folder

MODEL = small_model("llama")
OLDER = b"what was there before"


@dataclass(frozen=True, slots=True)
class Command:
    """A command, the files (or the folder) that it writes by option, and what it is called with beside them.

    `replaces`: whether it writes over older files; `codes`: what it returns without a fault."""

    name: str
    writes: dict[str, str]
    argv: Callable[[Path], Sequence[object]]
    replaces: bool = True
    codes: Set[int] = frozenset((0,))

    def arguments(self, inputs: Path, outputs: Path) -> list[str]:
        """All arguments, for inputs in one folder and outputs in another."""
        places = [word for option, name in self.writes.items() for word in (option, str(outputs / name))]
        return [*(str(word) for word in self.argv(inputs)), *places]

    @property
    def called(self) -> str:
        """What it says it is."""
        return f"helm-{self.name.rpartition(':')[2]}"


def _plan(inputs: Path) -> list[object]:
    return ["--model", inputs / "checkpoint", "--hw", inputs / "machine.json", "--strategy", "layer-split", "-q"]


def _run(inputs: Path) -> list[object]:
    return [inputs / "plan.json", "--checkpoint", inputs / "checkpoint", "--tokens", inputs / "tokens.json",
            "--output-tokens", 2, "--ignore-eos", "-q"]  # fmt: skip


def _stored(inputs: Path) -> list[object]:
    return [inputs / "stored.json", *_run(inputs)[1:], "--storage", inputs / "outputs"]


def _serve(inputs: Path) -> list[object]:
    return [inputs / "served.json", "--requests", "synthetic:n=5,input=8,output=4", "--rate", 10, "-q"]


PROFILE, TRACED_RUN = "faulty_commands:profile", "faulty_commands:traced_run"
COMMANDS = {
    "plan": Command(
        "plan",
        {"-o": "plan.json", "--plot": "plan.svg"},
        lambda inputs: [
            "--model",
            inputs / "checkpoint",
            "--hw",
            inputs / "machine.json",
            "--strategy",
            "layer-split",
            "-q",
        ],
    ),
    "sim": Command(
        "sim",
        {"-o": "sim.json", "--trace": "sim.parquet", "--timeline": "timeline.json", "--plot": "sim.svg"},
        lambda inputs: [inputs / "plan.json", "-q"],
    ),
    "sim-requests": Command(
        "sim", {"-o": "served.parquet", "--export-vllm": "vllm.json", "--export-aiperf": "aiperf.jsonl"}, _serve
    ),
    "run": Command("run", {"-o": "run.json"}, _run),
    "run-stored": Command("run", {"-o": "run.json"}, _stored),
    "check": Command(
        "check",
        {"-o": "check.json"},
        lambda inputs: [inputs / "plan.json", "--measured", inputs / "run.parquet", "--json"],
        codes=frozenset((0, 4, 6)),  # a machine made up is not the one that ran
    ),
    "bench": Command(
        "bench",
        {"-o": "bench.json"},
        lambda inputs: [inputs / "plan.json", "--checkpoint", inputs / "checkpoint", "-p", 2, "-n", 1, "-r", 1, "-q"],
    ),
    "make-checkpoint": Command(
        "make-checkpoint",
        {"-o": "made"},
        lambda inputs: ["--model", inputs / "checkpoint", "--layers", 1, "--shard-size", "300kB", "-q"],
        replaces=False,
    ),
    "make-gguf": Command(
        "make-checkpoint",
        {"-o": "made.gguf"},
        lambda inputs: ["--model", inputs / "checkpoint", "--layers", 1, "--gguf", "--format", "f16", "-q"],
        replaces=False,
    ),
    "profile": Command(PROFILE, {"-o": "profile.json"}, lambda inputs: ["-q"]),
}


def profile(argv: Sequence[str]) -> int:
    """helm-profile whose measurements are those of the catalogue."""
    from helmsman.cli.profile import main

    profiler.profile = lambda *_, **__: load_hardware("rtx4060-laptop", None).model_copy(update={"name": "this"})
    return main(argv)


def traced_run(argv: Sequence[str]) -> int:
    """helm-run whose probes are quick."""
    from helmsman.cli.run import main

    quick_probes(setattr)
    return main(argv)


def file(argv: Sequence[str]) -> int:
    """A command that writes a file in three pieces and does nothing else."""

    def execute(args: Namespace) -> int:
        with whole_file(args.out) as stream:
            for piece in ("[0", "," + 20_000 * "0," + "0", "]\n"):
                stream.write(piece.encode())
        return 0

    return run_command(command_parser("helm-file", "A test.", "helm-file"), execute, argv)


def folder(argv: Sequence[str]) -> int:
    """A command that writes a folder of two files and does nothing else."""

    def execute(args: Namespace) -> int:
        with whole_folder(args.out) as place:
            for name in FOLDER:
                with new_file(place / name) as stream:
                    stream.write(name.encode())
        return 0

    return run_command(command_parser("helm-folder", "A test.", "helm-folder", out=PLACE), execute, argv)


FOLDER = ("one", "two")
ALONE = {
    "file": Command("faulty_commands:file", {"-o": "new.json"}, lambda inputs: []),
    "folder": Command("faulty_commands:folder", {"-o": "new"}, lambda inputs: [], replaces=False),
}
"""Commands that do nothing but write."""


def prepare(inputs: Path) -> None:
    """What commands read: a checkpoint, plans of it, a machine, a prompt, an empty folder for outputs."""
    write_checkpoint(MODEL, inputs / "checkpoint", seed=1, fmt="f32")
    (inputs / "plan.json").write_text(make_plan(MODEL, 2).to_json())
    (inputs / "served.json").write_text(make_plan(MODEL).to_json())
    (inputs / "stored.json").write_text(stored_plan().to_json())
    (inputs / "machine.json").write_text(make_hardware().to_json())
    (inputs / "tokens.json").write_text(json.dumps(list(range(1, 9))))
    (inputs / "outputs").mkdir()


def stored_plan() -> Plan:
    """A plan some of whose weights live on storage."""
    work = Workload(prompt_tokens=8, output_tokens=8, context=32)
    hardware = with_storage(make_hardware(), "nvme0", direct=False)
    stored = {"stored": ("up", "down"), "storage": ("nvme0",), "path": "bounce"}
    return make_op_split_plan(MODEL, 4, len(pieces(MODEL, {})), workload=work, hardware=hardware, **stored)


def is_whole(path: Path) -> bool:
    """Whether a file or a folder is complete, by what is in it."""
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir())
        return is_whole_checkpoint(path) if "config.json" in names else names == sorted(FOLDER)
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
        return content.endswith(b"\n")
    if path.suffix == ".jsonl":
        return content.endswith(b"\n") and all(json.loads(line) for line in content.splitlines())
    if path.suffix == ".svg":
        return content.rstrip().endswith(b"</svg>")
    if path.suffix == ".parquet":
        return bool(pq.read_table(path, page_checksum_verification=True).num_rows)
    return content.startswith(b"GGUF")


def is_whole_checkpoint(path: Path) -> bool:
    """Whether it loads, every tensor of it."""
    from helmsman.executor.weights.checkpoint import Checkpoint
    from helmsman.lowering.tensors import tensors

    model = MODEL.with_layers(1)
    found = Checkpoint.open(path, model)
    return all(len(found.tensor(each)[1]) for each in tensors(model)) and (path / "tokenizer.json").exists()


def temporaries(folder: Path) -> Iterator[Path]:
    """What no command may leave behind."""
    return (path for path in folder.rglob("*") if path.name.startswith((".", "tmp")))


def is_usual(ended: Ended, command: Command) -> bool:
    """Whether the command ended as it may without a fault: silent where it did what was asked, else with one line."""
    return ended.code in command.codes and (is_one_line(ended, command) if ended.code else ended.err == "")


def is_one_line(ended: Ended, command: Command) -> bool:
    """Whether a failure is one line of the command's own, or one document where that was asked for."""
    if not ended.err:
        return list(json.loads(ended.out)) == ["error"]
    return ended.err.count("\n") == 1 and ended.err.startswith(f"{command.called}: ")
