"""Describes what engines' kernels are faster or slower for in a model: the shape of its attention, and its size."""

from dataclasses import dataclass
from functools import lru_cache

from helmsman.hwdb.engine_constants import size_scale
from helmsman.lowering.tensors import active_parameters
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.model import Model
from helmsman.schemas.same import Same


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A model to an engine: values of a head's key, on average with those of its value, heads that share keys, whether
    it attends over latent vectors, and the logarithm of its size over that of models which constants are meant for
    (`size_scale`)."""

    width: float = 128.0
    sharing: int = 1
    latent: bool = False
    scale: float = 0.0


def engine_model(model: Model) -> EngineModel:
    """Return what engines see of a model: its first attention of its own, 128 values that share nothing without any."""
    return _engine_model(Same(model))


@lru_cache(maxsize=64)
def _engine_model(same: Same[Model]) -> EngineModel:
    model = same.document
    scale = size_scale(active_parameters(model))
    ops = [body.op for block in model.blocks for body in block.bodies]
    latent = any(isinstance(op, LatentAttention) for op in ops)
    own = next((op for op in ops if isinstance(op, Attention)), None)
    if own is None:
        return EngineModel(latent=latent, scale=scale)
    return EngineModel((own.head_dim + own.value_dim) / 2.0, own.heads // own.kv_heads, latent, scale)
