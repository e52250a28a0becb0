"""Checkpoints of tiny models with experts, to run plans on."""

from pathlib import Path
from typing import Any

from expert_models import COMMON, FAMILIES

from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.model import Model


def written_checkpoint(family: str, directory: Path, **changes: Any) -> tuple[Path, Model]:
    """Write a random checkpoint of a family, as helm-make-checkpoint does."""
    from transformers import AutoConfig

    described = directory / "config"
    sizes: dict[str, Any] = {**COMMON, **FAMILIES[family], "max_position_embeddings": 256, "vocab_size": 512, **changes}
    AutoConfig.for_model(family, **sizes, eos_token_id=None).save_pretrained(described)
    model = load_model(str(described / "config.json"))
    write_checkpoint(model, directory / "checkpoint", fmt="f32")
    return directory / "checkpoint", load_model(str(directory / "checkpoint" / "config.json"))
