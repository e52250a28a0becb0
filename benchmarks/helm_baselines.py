"""HELM's baselines (Table 6.1, Fig 6.1, Fig 6.2): predictions for Accelerate, DeepSpeed and vLLM beside what was
published.

    python -m benchmarks.helm_baselines

One prompt of 128 tokens, f16, 128 tokens of output where a row does not name its own. A row is feasible as published
and its decode speed, where there is one, within 20 %, or it is marked. The rows of Fig 6.1 are the longest outputs that
engines were seen to support: lower bounds of what fits, not where memory ends (E-HELM-18). DeepSpeed's rows are those
of resident weights: their speed is 6 to 8 times what the link carries (printed beside them), and they fail exactly
where the weights do not fit (E-HELM-17)."""

from dataclasses import dataclass
from functools import lru_cache

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.accelerate import Accelerate
from helmsman.planner.strategies.engines.question import EngineQuestion, EngineRules
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.vllm import Vllm
from helmsman.planner.strategies.zero_inference import ZeroInference
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.workload import Workload

BAR = 0.20
MACHINES = {"4060": "rtx4060-laptop", "3090": "rtx3090-epyc7h12", "L40S": "l40s-epyc7413"}
ENGINES: dict[str, EngineRules] = {
    "Accelerate": Accelerate(),
    "DeepSpeed": ZeroInference(resident=True),
    "vLLM": Vllm(),
}
PROMPT_TOKENS = OUTPUT_TOKENS = 128


@dataclass(frozen=True)
class Row:
    """`speed`: published tokens/s, None where there is none; `fact`: its id (HELM-F103); `ms` per token instead.

    `output_tokens`: of the request; `runs`: whether the engine was seen to run it."""

    engine: str
    machine: str
    model: str
    speed: float | None
    fact: str
    ms: float | None = None
    output_tokens: int = OUTPUT_TOKENS
    runs: bool = True

    @property
    def published(self) -> float | None:
        """Tokens per second."""
        return self.speed if self.ms is None else 1e3 / self.ms


def _failed(engine: str, machine: str, model: str, fact: str) -> Row:
    """A row of an engine that failed."""
    return Row(engine, machine, model, None, fact, runs=False)


def _supported(engine: str, machine: str, model: str, output_tokens: int, fact: str) -> Row:
    """A row of the longest output that an engine was seen to support (Fig 6.1)."""
    return Row(engine, machine, model, None, fact, output_tokens=output_tokens)


ROWS = (
    Row("Accelerate", "4060", "Qwen3-8B", 0.8, "F103"),
    Row("Accelerate", "4060", "Qwen3-8B", 0.8, "F213", ms=1209),
    _failed("Accelerate", "4060", "Qwen3-32B", "F119"),
    Row("Accelerate", "3090", "Qwen3-4B", 26.6, "F127"),
    Row("Accelerate", "3090", "Qwen3-8B", 23.3, "F135"),
    Row("Accelerate", "3090", "Qwen3-14B", 1.3, "F143"),
    Row("Accelerate", "3090", "Qwen3-14B", 1.3, "F215", ms=783),
    Row("Accelerate", "L40S", "Qwen3-4B", 23.9, "F159"),
    Row("Accelerate", "L40S", "Qwen3-14B", 21.2, "F175"),
    _failed("DeepSpeed", "4060", "Qwen3-4B", "F097"),
    _failed("DeepSpeed", "4060", "Qwen3-8B", "F105"),
    _failed("DeepSpeed", "4060", "Qwen3-14B", "F113"),
    _failed("DeepSpeed", "4060", "Qwen3-32B", "F121"),
    Row("DeepSpeed", "3090", "Qwen3-4B", 24.3, "F129"),
    Row("DeepSpeed", "3090", "Qwen3-8B", 23.8, "F137"),
    _failed("DeepSpeed", "3090", "Qwen3-14B", "F145"),
    _failed("DeepSpeed", "3090", "Qwen3-32B", "F153"),
    Row("DeepSpeed", "L40S", "Qwen3-4B", 25.8, "F161"),
    _failed("DeepSpeed", "L40S", "Qwen3-32B", "F185"),
    _failed("vLLM", "4060", "Qwen3-4B", "F099"),
    _failed("vLLM", "4060", "Qwen3-8B", "F107"),
    _failed("vLLM", "4060", "Qwen3-14B", "F115"),
    _failed("vLLM", "4060", "Qwen3-32B", "F123"),
    Row("vLLM", "3090", "Qwen3-4B", 86.0, "F131"),
    Row("vLLM", "3090", "Qwen3-8B", 50.6, "F139"),
    _failed("vLLM", "3090", "Qwen3-14B", "F147"),
    Row("vLLM", "L40S", "Qwen3-4B", 79.4, "F163"),
    _supported("Accelerate", "4060", "Qwen3-4B", 1024, "F191"),
    _supported("Accelerate", "4060", "Qwen3-8B", 128, "F192"),
    _supported("vLLM", "3090", "Qwen3-4B", 8192, "F197"),
    _supported("vLLM", "3090", "Qwen3-8B", 8192, "F198"),
    _supported("Accelerate", "3090", "Qwen3-4B", 4096, "F199"),
    _supported("Accelerate", "3090", "Qwen3-8B", 4096, "F200"),
    _supported("Accelerate", "3090", "Qwen3-14B", 128, "F201"),
    _supported("vLLM", "L40S", "Qwen3-4B", 32768, "F205"),
    _supported("vLLM", "L40S", "Qwen3-8B", 32768, "F206"),
    _supported("vLLM", "L40S", "Qwen3-14B", 32768, "F207"),
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
        same = self.row.runs == (self.speed is not None)
        return same and (self.error is None or abs(self.error) <= BAR)


@lru_cache(maxsize=64)
def question(engine: EngineRules, machine: str, model: str, output_tokens: int) -> EngineQuestion:
    """`engine` on one of HELM's machines."""
    hardware = load_hardware(MACHINES[machine], None)
    context = PROMPT_TOKENS + output_tokens
    work = Workload(prompt_tokens=PROMPT_TOKENS, output_tokens=output_tokens, batch=1, context=context)
    return EngineQuestion(Frame(load_model(model), roles(hardware), work), engine, CostOptions(), objective="latency")


@lru_cache(maxsize=64)
def predicted(engine: EngineRules, machine: str, model: str, output_tokens: int) -> tuple[float | None, str]:
    """Tokens per second and the plan's label, or None and why not."""
    try:
        plan = question(engine, machine, model, output_tokens).decide({}).plan
    except InfeasibleError as error:
        return None, str(error.remedy)
    return plan.predicted.tokens_per_second.mid, plan.label


def found(row: Row, engine: EngineRules | None = None) -> Found:
    """A row with its prediction, by default of the engine that it names."""
    return Found(row, *predicted(engine or ENGINES[row.engine], row.machine, row.model, row.output_tokens))


def main() -> int:
    """Print every row; 4 if one misses."""
    head = f"{'fact':<6}{'engine':<12}{'machine':<8}{'model':<11}{'output':>7}{'published':>10}{'predicted':>10}"
    print(f"{head}{'error':>8}   plan")
    rows = [found(row) for row in ROWS]
    for each in rows:
        print(_line(each))
    missed = [each.row.fact for each in rows if not each.holds]
    print(f"{len(rows) - len(missed)} of {len(rows)} rows hold" + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 4 if missed else 0


def _line(each: Found) -> str:
    row = each.row
    published = _words(row.published) if row.speed is not None else "runs" if row.runs else "x"
    error = "" if each.error is None else f"{each.error:+.1%}"
    start = f"{row.fact:<6}{row.engine:<12}{row.machine:<8}{row.model:<11}{row.output_tokens:>7}{published:>10}"
    rest = f"{_words(each.speed):>10}{error:>8} {' ' if each.holds else '!'}"
    return f"{start}{rest} {each.plan}{_as_described(row)}"


def _words(speed: float | None) -> str:
    return "x" if speed is None else f"{speed:.2f}"


def _as_described(row: Row) -> str:
    """What ZeRO-Inference as the text describes it would reach."""
    if row.engine != "DeepSpeed" or row.published is None:
        return ""
    speed = found(row, ZeroInference()).speed
    return "; streamed it could not run" if speed is None else f"; streamed it would be {speed:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
