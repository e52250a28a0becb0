"""Studies: CPU seconds of large grids, and what is lost where the command is killed.

python -m benchmarks.studies grid               # 10,000 questions: layer splits and engines' strategies
python -m benchmarks.studies grid --strategies optimal --points 1000
python -m benchmarks.studies capacity           # 300 questions that are served, under two policies
python -m benchmarks.studies killed             # killed ten times at random moments, and resumed"""

import argparse
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from helmsman.hwdb.load_hardware import system_names
from helmsman.schemas.study_table import read_rows

MODELS = ("Qwen3-8B", "Llama-3.1-8B", "Qwen3-14B", "Qwen3-32B")
STRATEGIES = ("layer-split", "llama-cpp", "vllm", "accelerate", "zero-inference")
MACHINES = 25
POLICIES = ("gpu-only", "neo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("grid", "capacity", "killed"))
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        if args.what == "killed":
            killed(Path(folder))
        else:
            study = grid(args.points, args.strategies) if args.what == "grid" else capacity()
            timed(Path(folder), study, args.jobs)


def grid(points: int, strategies: tuple[str, ...]) -> dict[str, Any]:
    """A study of so many questions: four models on 25 machines, in settings that differ in everything else."""
    settings = points // (len(MODELS) * MACHINES)
    lengths = settings // (len(strategies) * 2)
    return {
        "models": list(MODELS),
        "machines": spread(system_names(), MACHINES),
        "formats": ["q4_k", "q8_0"],
        "strategies": list(strategies),
        "prompt_tokens": [128 * (number + 1) for number in range(lengths)],
        "sensitivity": 0,
    }


def capacity() -> dict[str, Any]:
    """A study of 300 questions that are served: two models, 25 machines, three formats, two policies."""
    return {
        "models": list(MODELS[:2]),
        "machines": spread(system_names(), MACHINES),
        "formats": ["q4_k", "q8_0", "f16"],
        "strategies": ["layer-split"],
        "slo": "ttft=2s,tpot=100ms",
        "serving": {"requests": "synthetic:n=300,input=512,output=128,rate=1", "policies": list(POLICIES)},
        "sensitivity": 0,
    }


def spread(names: list[str], count: int) -> list[str]:
    """Return `count` of the names, at even distances."""
    return [names[number * len(names) // count] for number in range(count)]


def timed(folder: Path, study: dict[str, Any], jobs: int) -> None:
    """Ask a study once, and say what it took and what its rows were."""
    rows, began = folder / "rows.parquet", time.perf_counter()
    command(folder, study, "--jobs", str(jobs), "--rows", str(rows), "--store", str(folder / "answers")).wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, wall, answers = used.ru_utime + used.ru_stime, time.perf_counter() - began, read_rows(rows)
    told = {
        status: sum(row.status == status for row in answers) for status in ("fits", "does-not-fit", "does-not-apply")
    }
    print(f"{len(answers)} questions: {cpu:.1f} s CPU, {wall:.1f} s, {1e3 * cpu / len(answers):.2f} ms each; {told}")


def killed(folder: Path) -> None:
    """End a study with SIGKILL at ten random moments while it runs, then let it end: its table must be that of one run,
    and no shard that was written may be lost. An attempt that ends before its moment does not count."""
    study = grid(2000, ("layer-split", "cpu-only"))
    whole, resumed, store = folder / "whole.parquet", folder / "resumed.parquet", folder / "answers"
    begun = time.monotonic()
    command(folder, study, "--rows", str(whole), "--store", str(folder / "other")).wait()
    seconds = time.monotonic() - begun
    chance = random.Random(1)
    kills = 0
    while kills < 10:
        running = command(folder, study, "--store", str(store))
        time.sleep(chance.uniform(0.0, seconds / 3))
        before = finished(store)
        if running.poll() is not None:
            rmtree(store)
            continue
        running.send_signal(signal.SIGKILL)
        running.wait()
        left = finished(store)
        assert before <= left, "an answer was lost"
        kills += 1
        print(f"killed {kills}: {len(left)} shards kept")
    command(folder, study, "--store", str(store), "--rows", str(resumed)).wait()
    same = digest(whole) == digest(resumed)
    print(f"the same bytes: {same}; {sum(len(read_rows(path)) for path in store.glob('*.parquet'))} answers kept")
    sys.exit(0 if same else 1)


def finished(store: Path) -> set[str]:
    """Return the names of the shards that are there. Raises BadInputError for one that is not whole."""
    return {path.name for path in store.glob("*.parquet") if read_rows(path)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def command(folder: Path, study: dict[str, Any], *options: str) -> "subprocess.Popen[bytes]":
    """The command, started for a study."""
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    script = Path(sys.executable).with_name("helm-whatif")
    return subprocess.Popen([str(script), str(path), "--yes", "-q", *options])


if __name__ == "__main__":
    main()
