"""Devices as vLLM's kernels drive them: what a record with its constants says of products, and of devices without."""

import pytest

from helmsman.hwdb.compose import GIB, compose
from helmsman.hwdb.pass_constants import kernel_of, pass_constants
from helmsman.library import plan
from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.planner.strategies.engines.kernels import EngineBuild, with_kernels
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.formats import StoredFormat, size_of

BANDWIDTH, RATE = 1008e9, 165.2e12
ROWS, COLUMNS = 28672, 4096


def costs(gpu: str, *formats: StoredFormat) -> CostModel:
    bare = compose(gpu, "AMD EPYC 7742", 64 * GIB, None)
    return CostModel(with_kernels(bare, EngineBuild("vllm"), formats))


def product(tokens: int, fmt: StoredFormat = "f16", phase: str = "decode") -> Task:
    size, flops = size_of(ROWS * COLUMNS, fmt), 2 * tokens * ROWS * COLUMNS
    return Task("linear", "gate", phase, "cuda", tokens, size, 0, flops, fmt, ("vram",), columns=COLUMNS)


@pytest.mark.parametrize("tokens", [1, 16, 45, 64, 128])
def test_products_take_what_the_constants_say(tokens: int) -> None:
    """Between the points of curves, too: reading and arithmetic joined, and a time for each product."""
    known = pass_constants("RTX 4090", "geforce-ada", "cuda")
    assert known is not None
    kernel = known.products["16"]
    said = kernel.operation + ROWS * COLUMNS * kernel.seconds(tokens, 2.0, BANDWIDTH, RATE)
    price = costs("RTX 4090", "f16").price(product(tokens))
    assert price.mid == pytest.approx(said, rel=0.03)
    assert price.mid > max(2 * ROWS * COLUMNS / BANDWIDTH, price.memory) - 1e-9


def test_steps_of_many_sequences_take_longer_than_either_bound() -> None:
    model = costs("A100 SXM 80GB", "f16")
    seconds = [model.price(product(tokens)).mid for tokens in (1, 16, 32, 64, 96, 128)]
    assert seconds == sorted(seconds) or max(seconds) / min(seconds) < 1.6
    assert seconds[-1] > 1.05 * seconds[0]
    assert model.price(product(1)).bound == "memory"


@pytest.mark.parametrize(("gpu", "faster"), [("H100 SXM 80GB", True), ("A100 SXM 80GB", False)])
def test_eight_bits_are_multiplied_where_devices_can(gpu: str, faster: bool) -> None:
    """Elsewhere they are expanded: steps read less, prompts gain nothing.

    Where they are, bringing the tokens of a prompt to 8 bits takes most of what faster products save: so the profiles.
    """
    model = costs(gpu, "fp8", "f16")
    prompt = [model.price(product(4096, fmt, "prefill")).mid for fmt in ("f16", "fp8")]
    assert (prompt[1] < 0.95 * prompt[0]) == faster
    assert model.price(product(1, "fp8")).mid < 0.75 * model.price(product(1)).mid


def test_a_device_without_profiles_leans_on_its_kind() -> None:
    known = pass_constants("RTX 5090", "geforce-blackwell", "cuda")
    assert known is not None and known.node == "cuda/gddr"
    assert pass_constants("RX 7900 XTX", "rdna3", "rocm") is None
    kernels = {"bf16": "16", "fp8": "fp8", "uint4_g128": "w4", "mxfp4": "w4", "nvfp4": "fp4"}
    assert {fmt: kernel_of(fmt) for fmt in kernels} == kernels


@pytest.mark.parametrize("fmt", [None, "bf16"])
def test_a_model_that_was_released_in_mxfp4_is_what_the_method_makes(fmt: str | None) -> None:
    """Attention, router and head stay in bf16."""
    machine = compose("H100 SXM 80GB", "AMD EPYC 7742", 256 * GIB, None)
    asked = {"model": "gpt-oss-120b", "hardware": machine, "strategy": "vllm"}
    released = plan(asked).plan.predicted.decode.seconds.mid
    made = plan({**asked, "format": fmt, "options": {"quantization": "mxfp4"}}).plan.predicted.decode.seconds.mid
    assert made == pytest.approx(released, rel=1e-3 if fmt else 1e-12)


def test_what_is_quantised_already_is_not_quantised_in_another_way() -> None:
    """No such format is a remedy, either."""
    machine = compose("H100 SXM 80GB", "AMD EPYC 7742", 256 * GIB, None)
    asked = {"hardware": machine, "strategy": "vllm", "options": {"quantization": "fp8"}, "context": 4096}
    for model, fmt in (("Llama-3.1-8B", "q8_0"), ("gpt-oss-20b", None)):
        with pytest.raises(UsageError, match="quantises plain weights by fp8") as refused:
            plan({**asked, "model": model, "format": fmt})
        assert refused.value.field == "quantization"
    with pytest.raises(InfeasibleError) as lacking:
        plan({**asked, "model": "Llama-3.1-70B"})
    assert "`format`" not in str(lacking.value.remedy) and "another H100" in str(lacking.value.remedy)


@pytest.mark.parametrize("method", ["fp8", "awq", "mxfp4"])
def test_quantised_checkpoints_read_less_in_every_step(method: str) -> None:
    machine = compose("H100 SXM 80GB", "AMD EPYC 7742", 256 * GIB, None)
    model = "gpt-oss-20b" if method == "mxfp4" else "Llama-3.1-8B"
    asked = {"model": model, "hardware": machine, "format": "bf16", "strategy": "vllm"}
    plain, quantised = (plan({**asked, "options": named}).plan for named in ({}, {"quantization": method}))
    assert quantised.predicted.decode.seconds.mid < 0.9 * plain.predicted.decode.seconds.mid
