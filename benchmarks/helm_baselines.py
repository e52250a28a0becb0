"""HELM's baselines (Table 6.1, Fig 6.2): predictions for Accelerate, DeepSpeed and vLLM beside what was published.

    python -m benchmarks.helm_baselines

One prompt of 128 tokens, 128 tokens of output, f16. A row is feasible as published and its decode speed within 20 %,
or it is marked. DeepSpeed's rows are those of resident weights: their speed is 6 to 8 times what the link carries
(printed beside them), and they fail exactly where the weights do not fit (E-HELM-17)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.costs import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.accelerate import Accelerate
from helmsman.planner.strategies.engines.question import Engine, EngineQuestion
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.vllm import Vllm
from helmsman.planner.strategies.zero_inference import ZeroInference
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.workload import Workload

BAR = 0.20
MACHINES = {"4060": "rtx4060-laptop", "3090": "rtx3090-epyc7h12", "L40S": "l40s-epyc7413"}
ENGINES: dict[str, Engine] = {"Accelerate": Accelerate(), "DeepSpeed": ZeroInference(resident=True), "vLLM": Vllm()}
WORK = Workload(prompt_tokens=128, output_tokens=128, batch=1, context=256)


@dataclass(frozen=True)
class Row:
    """`speed`: published tokens/s, None where the engine failed; `fact`: its id (HELM-F103); `ms` per token instead."""

    engine: str
    machine: str
    model: str
    speed: float | None
    fact: str
    ms: float | None = None

    @property
    def published(self) -> float | None:
        """Tokens per second."""
        return self.speed if self.ms is None else 1e3 / self.ms


ROWS = (
    Row("Accelerate", "4060", "Qwen3-8B", 0.8, "F103"),
    Row("Accelerate", "4060", "Qwen3-8B", 0.8, "F213", ms=1209),
    Row("Accelerate", "4060", "Qwen3-32B", None, "F119"),
    Row("Accelerate", "3090", "Qwen3-4B", 26.6, "F127"),
    Row("Accelerate", "3090", "Qwen3-8B", 23.3, "F135"),
    Row("Accelerate", "3090", "Qwen3-14B", 1.3, "F143"),
    Row("Accelerate", "3090", "Qwen3-14B", 1.3, "F215", ms=783),
    Row("Accelerate", "L40S", "Qwen3-4B", 23.9, "F159"),
    Row("Accelerate", "L40S", "Qwen3-14B", 21.2, "F175"),
    Row("DeepSpeed", "4060", "Qwen3-4B", None, "F097"),
    Row("DeepSpeed", "4060", "Qwen3-8B", None, "F105"),
    Row("DeepSpeed", "4060", "Qwen3-14B", None, "F113"),
    Row("DeepSpeed", "4060", "Qwen3-32B", None, "F121"),
    Row("DeepSpeed", "3090", "Qwen3-4B", 24.3, "F129"),
    Row("DeepSpeed", "3090", "Qwen3-8B", 23.8, "F137"),
    Row("DeepSpeed", "3090", "Qwen3-14B", None, "F145"),
    Row("DeepSpeed", "3090", "Qwen3-32B", None, "F153"),
    Row("DeepSpeed", "L40S", "Qwen3-4B", 25.8, "F161"),
    Row("DeepSpeed", "L40S", "Qwen3-32B", None, "F185"),
    Row("vLLM", "4060", "Qwen3-4B", None, "F099"),
    Row("vLLM", "4060", "Qwen3-8B", None, "F107"),
    Row("vLLM", "4060", "Qwen3-14B", None, "F115"),
    Row("vLLM", "4060", "Qwen3-32B", None, "F123"),
    Row("vLLM", "3090", "Qwen3-4B", 86.0, "F131"),
    Row("vLLM", "3090", "Qwen3-8B", 50.6, "F139"),
    Row("vLLM", "3090", "Qwen3-14B", None, "F147"),
    Row("vLLM", "L40S", "Qwen3-4B", 79.4, "F163"),
)


@dataclass(frozen=True)
class Found:
    """What is predicted for a row: tokens/s, None where the engine would fail; `plan`: its label, or what it lacks."""

    row: Row
    speed: float | None
    plan: str

    @property
    def error(self) -> float | None:
        """Predicted over published, less one."""
        published = self.row.published
        return None if published is None or self.speed is None else self.speed / published - 1

    @property
    def holds(self) -> bool:
        """Feasible as published, and within the bar."""
        same = (self.row.published is None) == (self.speed is None)
        return same and (self.error is None or abs(self.error) <= BAR)


@lru_cache(maxsize=64)
def question(engine: Engine, machine: str, model: str) -> EngineQuestion:
    """`engine` on one of HELM's machines."""
    hardware = load_hardware(MACHINES[machine], None)
    return EngineQuestion(Frame(load_model(model), roles(hardware), WORK), engine, CostOptions())


@lru_cache(maxsize=64)
def predicted(engine: Engine, machine: str, model: str) -> tuple[float | None, str]:
    """Tokens per second and the plan's label, or None and why not."""
    try:
        plan = question(engine, machine, model).decide({}).plan
    except InfeasibleError as error:
        return None, str(error.remedy)
    return plan.predicted.tokens_per_second.mid, plan.label


def found() -> Iterator[Found]:
    """Every row with its prediction."""
    for row in ROWS:
        speed, plan = predicted(ENGINES[row.engine], row.machine, row.model)
        yield Found(row, speed, plan)


def main() -> int:
    """Print every row; 4 if one misses."""
    print(f"{'fact':<6}{'engine':<12}{'machine':<8}{'model':<11}{'published':>10}{'predicted':>10}{'error':>8}   plan")
    rows = list(found())
    for each in rows:
        print(_line(each))
    missed = [each.row.fact for each in rows if not each.holds]
    print(f"{len(rows) - len(missed)} of {len(rows)} rows hold" + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 4 if missed else 0


def _line(each: Found) -> str:
    row = each.row
    numbers = "".join(f"{'x' if speed is None else f'{speed:.2f}':>10}" for speed in (row.published, each.speed))
    error = "" if each.error is None else f"{each.error:+.1%}"
    start = (
        f"{row.fact:<6}{row.engine:<12}{row.machine:<8}{row.model:<11}{numbers}{error:>8} {' ' if each.holds else '!'}"
    )
    return f"{start} {each.plan}{_as_described(row)}"


def _as_described(row: Row) -> str:
    """What ZeRO-Inference as the text describes it would reach."""
    if row.engine != "DeepSpeed" or row.published is None:
        return ""
    speed, _ = predicted(ZeroInference(), row.machine, row.model)
    return "; streamed it could not run" if speed is None else f"; streamed it would be {speed:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
