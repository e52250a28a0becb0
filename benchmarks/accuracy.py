"""Predicted against measured on this machine: the all-CPU plan and three loopback splits of each model.

    python -m benchmarks.accuracy --models Qwen3-0.6B Qwen3-1.7B --checkpoints DIR

Prints, per configuration, the plan, the predicted, simulated and measured decode step, the raw and the scaled signed
error, and the noise (HELM-83, rules 6 and 7 of measuring: profiled on other shapes, probes beside every run)."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROMPT = 16
SIZES = ((0.0, 2.0), (0.6, 0.85), (0.8, 0.65), (0.95, 0.45))
"""(loopback memory, host memory) as shares of the weights: the all-CPU plan, then hosts too small for it."""
BAR = 0.08


def main() -> int:
    """Profile once, then plan, run and check every configuration."""
    args = _arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    record = args.work / "hardware.json"
    if not args.keep_profile or not record.exists():
        loopback = f"cores=1,vram={args.vram},link=2GB/s,latency=20us"
        _command("helm-profile", "--loopback", loopback, "-q", "-o", record)
    columns = [f"{name:>10}" for name in ("predicted", "simulated", "measured", "raw", "scaled", "noise")]
    print(f"{'model':<12}{'plan':<26}" + "".join(columns), flush=True)
    rows = [row for model in args.models for row in _model(model, record, args)]
    (args.work / "accuracy.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["within"] for row in rows) else 4


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["Qwen3-0.6B", "Qwen3-1.7B"])
    parser.add_argument("--checkpoints", type=Path, default=Path("demo/checkpoints"))
    parser.add_argument("--work", type=Path, default=Path("demo/accuracy"))
    parser.add_argument("--vram", default="4GiB", help="of the loopback record; plans use parts of it")
    parser.add_argument("--output-tokens", type=int, default=12)
    parser.add_argument("--runs", type=int, default=9, help="short ones: probes stand between them")
    parser.add_argument("--keep-profile", action="store_true", help="use the profile of an earlier call")
    return parser.parse_args()


def _model(model: str, record: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    checkpoint = args.checkpoints / model
    if not checkpoint.exists():
        args.checkpoints.mkdir(parents=True, exist_ok=True)
        _command("helm-make-checkpoint", "--model", model, "--seed", 1, "-q", "-o", checkpoint)
    size = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    rows = []
    for vram, ram in SIZES:
        rows.append(_measure(model, record, checkpoint, (int(vram * size) + 1, int(ram * size)), args))
        print(_line(rows[-1]), flush=True)
    return rows


def _measure(
    model: str, record: Path, checkpoint: Path, memory: tuple[int, int], args: argparse.Namespace
) -> dict[str, Any]:
    work = args.work
    plan, trace, tokens = work / "plan.json", work / "measured.parquet", work / "tokens.json"
    tokens.write_text(json.dumps([(37 * i) % 256 for i in range(PROMPT)]))
    shape = ("--prompt-tokens", PROMPT, "--output-tokens", args.output_tokens, "--format", "bf16")
    sizes = ("--vram-avail", memory[0], "--ram-avail", memory[1])
    _command("helm-plan", "--model", model, "--hw", record, *sizes, *shape, "-q", "-o", plan)
    run = ("helm-run", plan, "--checkpoint", checkpoint, "--tokens", tokens, "--ignore-eos", "--runs", args.runs)
    _command(*run, "-q", "--trace", trace)
    report = json.loads(_command("helm-check", plan, "--measured", trace, "--tolerance", BAR, "--json", allowed=(0, 4)))
    label = json.loads(plan.read_text())["label"]
    return {"model": model, "plan": label, **_figures(report)}


def _figures(report: dict[str, Any]) -> dict[str, Any]:
    step = report["step"]
    keys = ("predicted", "simulated", "measured", "error", "scaled_error", "noise")
    others = {"others_cpu_share": report["others_cpu_share"], "speed_now": report["speed_now"]}
    return {**{key: step[key] for key in keys}, **others, "within": report["passed"]}


def _command(*command: object, allowed: tuple[int, ...] = (0,)) -> str:
    words = [str(word) for word in command]
    program = str(Path(sys.executable).with_name(words[0]))
    done = subprocess.run([program, *words[1:]], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    return done.stdout


def _line(row: dict[str, Any]) -> str:
    times = "".join(f"{1e3 * row[key]:>7.2f} ms" for key in ("predicted", "simulated", "measured"))
    shares = "".join(f"{row[key]:>+10.1%}" for key in ("error", "scaled_error", "noise"))
    return f"{row['model']:<12}{row['plan']:<26}{times}{shares}{'' if row['within'] else '  beyond'}"


if __name__ == "__main__":
    sys.exit(main())
