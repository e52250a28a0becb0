"""Describes models of equal blocks, each full attention and one dense network, by a DenseModel."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.assembly import unknown_facts
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.quantisation import native_quantisation
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.described import described
from helmsman.schemas.model import Model

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def described_config(config: Config, dense: DenseModel) -> Model:
    """Return the description of a model of equal blocks, with what its config says about stored weights."""
    model = described(dense)
    more = {"native_quantisation": native_quantisation(config, model.pattern), "unknown": unknown_facts(config)}
    return model.model_copy(update={key: value for key, value in more.items() if value})


def check_dense(fields: Fields, family: str) -> None:
    """Raise BadInputError for structures that no model of equal, dense blocks has."""
    for key in _EXPERTS:
        _check(fields, key, f"mixture of experts ({key}={fields.content.get(key)})"[:120], family)
    _check(
        fields,
        "kv_lora_rank",
        f"multi-head latent attention (kv_lora_rank={fields.content.get('kv_lora_rank')})",
        family,
    )


def _check(fields: Fields, key: str, reason: str, family: str) -> None:
    fields.read.add(key)
    if fields.content.get(key) not in (None, 0, False):
        raise fields.wrong(key, f"not covered in the family {family}: {reason}", "choose another model")
