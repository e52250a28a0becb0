"""Plans that divide the experts of a tiny model between a host and an accelerator, and checkpoints to run them on."""

from pathlib import Path
from typing import Any

from expert_models import COMMON, FAMILIES
from plans import make_hardware, make_plan

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.planner.machine import roles
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, place
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload


def written_checkpoint(family: str, directory: Path, **changes: Any) -> tuple[Path, Model]:
    """Write a random checkpoint of a family, as helm-make-checkpoint does."""
    from transformers import AutoConfig

    described = directory / "config"
    sizes: dict[str, Any] = {**COMMON, **FAMILIES[family], "max_position_embeddings": 256, "vocab_size": 512, **changes}
    AutoConfig.for_model(family, **sizes, eos_token_id=None).save_pretrained(described)
    model = load_model(str(described / "config.json"))
    write_checkpoint(model, directory / "checkpoint", fmt="f32")
    return directory / "checkpoint", load_model(str(directory / "checkpoint" / "config.json"))


def divided_plan(model: Model, layout: ExpertLayout, workload: Workload, hardware: Hardware | None = None) -> Plan:
    """Return the plan of a layout of `expert-split`, everything in f32."""
    plan = make_plan(model, 0, workload=workload, hardware=hardware or make_hardware())
    placed = place(Frame(model, roles(plan.hardware), workload, "f32", "f32", fused=True), layout)
    rules = {name: getattr(placed, name) for name in ("residence", "kv", "compute", "schedule")}
    return plan.model_copy(update=rules)
