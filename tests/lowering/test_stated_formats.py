"""Formats that a config states: bytes of released files, and what is refused."""

import pytest

from helmsman.hwdb.load_model import load_model
from helmsman.library import plan
from helmsman.lowering.stated_formats import stated_formats
from helmsman.lowering.tensors import tensors
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.native_quantisation import NativeQuantisation, StoredModules


@pytest.mark.parametrize(
    ("name", "gigabytes", "fmt"),
    [("gpt-oss-20b", 13.76, "mxfp4"), ("gpt-oss-120b", 65.25, "mxfp4"), ("Kimi-K2.5", 594.2, "int4_g32")],
)
def test_bytes_are_those_of_the_released_files(name: str, gigabytes: float, fmt: str) -> None:
    model = load_model(name)
    formats = stated_formats(model)
    size = sum(t.size(formats.get((t.name, t.layer), "bf16")) for t in tensors(model) if t.tied_to is None)
    assert size / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    assert formats["experts_up.weight", model.layers - 1] == fmt and formats["embedding.weight", None] == "bf16"


def test_parts_of_a_model_have_formats_of_their_own() -> None:
    formats = stated_formats(load_model("Qwen3.6-35B-A3B-NVFP4"))
    stated = [formats[key] for key in (("delta_in.weight", 0), ("experts_up.weight", 0), ("router.weight", 0))]
    assert stated == ["fp8", "nvfp4", "bf16"]
    assert stated_formats(load_model("Qwen3-8B")) == {}


def test_numbers_of_other_kinds_are_refused() -> None:
    odd = NativeQuantisation(method="awq", stored=(StoredModules(values="int", bits=3, group=128),))
    with pytest.raises(BadInputError, match="int 3 bits"):
        stated_formats(load_model("Qwen3-8B").model_copy(update={"native_quantisation": odd}))


def test_a_released_model_is_planned_as_it_is_stored() -> None:
    question = {"model": "gpt-oss-20b", "hardware": "a4000-7950x", "format": "native", "strategy": "llama-cpp"}
    made = plan({**question, "prompt_tokens": 64, "output_tokens": 8}).plan
    assert {rule.format for rule in made.residence} == {"mxfp4", "bf16"}
    assert sum(use.weights for use in made.predicted.memory) == pytest.approx(13.76e9, rel=1e-3)
    with pytest.raises(UsageError, match="configs of quantised models"):
        plan({**question, "model": "Qwen3-8B", "prompt_tokens": 64, "output_tokens": 8})
