"""`make demo`: profile this machine, plan, replay, make a checkpoint, run it, check the three times.

Every step is the command a user would type; what it writes stays under `demo/`."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import print_machine

FOLDER = Path("demo")
MODEL = "Qwen3-0.6B"
LOOPBACK = "cores=1,vram=512MiB,link=2GB/s,latency=20us"
HOST_MEMORY = "1100MB"
"""Neither the accelerator nor the host may hold the 1.2 GB of weights alone, so the plan must divide them."""
PROMPT = "Call me Ishmael. Some years ago - never mind how long precisely."
OUTPUT_TOKENS = 32
RUNS = 5
TARGET_MISSED = 4


def main() -> int:
    """Run every step; the exit code of the first that fails, except a missed tolerance, which is told."""
    FOLDER.mkdir(exist_ok=True)
    print_machine()
    plan, trace, timeline = FOLDER / "plan.json", FOLDER / "measured.parquet", FOLDER / "timeline.json"
    checkpoint = FOLDER / "checkpoint"
    step("profile this machine", "helm-profile", "--loopback", LOOPBACK, "-o", FOLDER / "hardware.json")
    shape = ("--prompt-tokens", len(PROMPT), "--output-tokens", OUTPUT_TOKENS, "--format", "bf16")
    machine = ("--hw", FOLDER / "hardware.json", "--ram-avail", HOST_MEMORY)
    step("plan", "helm-plan", "--model", MODEL, *machine, *shape, "-o", plan)
    step("replay", "helm-sim", plan, "--timeline", timeline, "-o", FOLDER / "simulated.json")
    if not checkpoint.exists():
        step("make a checkpoint", "helm-make-checkpoint", "--model", MODEL, "--seed", 1, "-o", checkpoint)
    run = ("helm-run", plan, "--checkpoint", checkpoint, "--text", PROMPT, "--runs", RUNS, "--ignore-eos")
    step("run", *run, "--trace", trace, "-o", FOLDER / "measured.json")
    within = step("check", "helm-check", plan, "--measured", trace, allowed=(0, TARGET_MISSED)) == 0
    print(summary(within, timeline))
    return 0


def step(title: str, *command: object, allowed: tuple[int, ...] = (0,)) -> int:
    """Print and run one command with this environment's scripts; exits with its code if it is not allowed."""
    words = [str(word) for word in command]
    print(f"\n== {title}\n$ {' '.join(words)}", flush=True)
    start = time.monotonic()
    code = subprocess.run([str(Path(sys.executable).with_name(words[0])), *words[1:]], check=False).returncode
    print(f"({time.monotonic() - start:.1f} s)", flush=True)
    if code not in allowed:
        sys.exit(code)
    return code


def summary(within: bool, timeline: Path) -> str:
    """The three times side by side."""
    predicted, simulated, measured = (read(name) for name in ("plan", "simulated", "measured"))
    steps = (predicted["predicted"]["decode"]["seconds"]["mid"], simulated["tpot_s"], measured["tpot_s"])
    firsts = (predicted["predicted"]["ttft"]["seconds"]["mid"], simulated["ttft_s"], measured["ttft_s"])
    rows = [("decode step", steps), ("first token", firsts)]
    head = f"{predicted['label']:<24}{'predicted':>12}{'simulated':>12}{'measured':>12}"
    lines = [f"{name:<24}" + "".join(f"{1e3 * seconds:>9.2f} ms" for seconds in times) for name, times in rows]
    verdict = "within" if within else "beyond (a noisy machine? profile again)"
    return "\n".join(
        [
            "\n== three times",
            head,
            *lines,
            f"the check is {verdict} its tolerance",
            f"timeline: {timeline} (ui.perfetto.dev)",
        ]
    )


def read(name: str) -> Any:
    """A JSON document that a step wrote."""
    return json.loads((FOLDER / f"{name}.json").read_text())


if __name__ == "__main__":
    sys.exit(main())
