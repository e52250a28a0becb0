"""A planning question as one frozen value: a model, a machine, a workload, a strategy with its options, and what is
best."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from helmsman.hwdb.percentiles import End
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.options import Recorded, recorded
from helmsman.planner.tensor_formats import Formats
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.workload import Workload

if TYPE_CHECKING:
    from helmsman.planner.prediction.drafts import DraftQuestion

BatchChoice = Literal["max", "best"]
"""max: as many sequences as fit; best: as many as make the most tokens/s."""

Tell = Callable[[str], None]
"""Takes a few words about the work at hand, for people who wait."""

OptionsT = TypeVar("OptionsT")


def say_nothing(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class PlanRequest(Generic[OptionsT]):
    """A question to a strategy.

    `options`: of that strategy, an instance of its dataclass; `weights`, `kv`: formats; `formats`: of tensors that have
    one of their own, as files mix them; `prices`: what the cost model leaves out; `batch`, `batches`: how to choose
    those of `workload`, None where it says them; `drafts`: how tokens are drafted, if they are; `kernels`: at which end
    of what is known of them kernels of engines are taken; `tell`: hears what a search is doing."""

    model: Model
    hardware: Hardware
    workload: Workload
    strategy: str
    options: OptionsT
    objective: Objective = DEFAULT_OBJECTIVE
    weights: StoredFormat = "f16"
    kv: KvFormat = "f16"
    formats: Formats = field(default_factory=dict)
    prices: CostOptions = field(default_factory=CostOptions)
    batch: BatchChoice | None = None
    batches: Literal["best"] | None = None
    drafts: "DraftQuestion | None" = None
    kernels: End = "mid"
    tell: Tell = field(default=say_nothing, compare=False)

    def of(self, strategy: str, options: object) -> "PlanRequest[Any]":
        """Return the same question for another strategy."""
        other: PlanRequest[Any] = self
        return replace(other, strategy=strategy, options=options)

    def sized(self, **counts: int) -> "PlanRequest[OptionsT]":
        """Return the same question with other counts in its workload, and none of them to choose."""
        return replace(self, workload=self.workload.model_copy(update=counts), batch=None, batches=None)

    def check_undrafted(self, what: str) -> None:
        """Raise UsageError for a request with drafts, where `what` is asked of plans without them."""
        if self.drafts is not None:
            raise UsageError(f"{what} is of plans without drafts", field="draft", remedy="leave drafts out")

    def recorded(self, *without: str) -> Recorded:
        """Return the options that the plan records, but for those named in `without`."""
        kept = {name: value for name, value in recorded(self.options).items() if name not in without}
        prices = {"corrections": self.prices.corrections, "l3_blend": self.prices.l3_blend}
        return {"objective": self.objective, **kept, "paper": getattr(self.options, "paper", False), **prices}
