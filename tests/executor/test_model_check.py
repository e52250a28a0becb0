"""Models that kernels do not compute are refused before anything is loaded or written, with one line."""

from pathlib import Path
from typing import Any

import pytest
from family_models import family_model
from plans import make_plan
from shapes import small_model

from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.passes.model_check import check_native
from helmsman.executor.passes.phase_pass import passes_of
from helmsman.executor.passes.plan_check import check_executed, check_passes
from helmsman.schemas.blocks.positions import LongRope, Rope
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.page_cache import PageCache
from helmsman.schemas.workload import Workload

WORK = Workload(prompt_tokens=8, output_tokens=4, context=16)
FACTORS = (1.0,) * 12
LOUD = LongRope(short_factor=FACTORS, long_factor=FACTORS, original_context=9, long_magnitude=2.0)


def mixed() -> Model:
    """The second of three layers attends over a window."""
    model = small_model("llama")
    whole = model.layouts[0]
    attends, network = whole.residuals
    body = attends.bodies[0]
    near = body.model_copy(update={"op": body.op.model_copy(update={"window": 8})})
    other = whole.model_copy(
        update={"letter": "B", "residuals": (attends.model_copy(update={"bodies": (near,)}), network)}
    )
    return model.model_copy(update={"layouts": (whole, other), "pattern": "ABA"})


def test_a_window_whose_cache_is_in_pages_is_refused() -> None:
    """A context up to the window is attended to in full; beyond it, pages that leave do not know of windows."""
    model = reshaped(small_model("llama"), sliding_window=WORK.context)
    check_executed(make_plan(model, workload=WORK))
    longer = WORK.model_copy(update={"context": WORK.context + 1})
    plan = make_plan(model, 0, workload=longer)
    check_executed(plan)
    window = PageCache(memory="vram", window_tokens=64, page_tokens=32)
    paged = tuple(rule.model_copy(update={"memory": "dram", "cache": window}) for rule in plan.kv)
    with pytest.raises(UsageError, match="attends over a window, and its cache would be in pages") as caught:
        check_executed(plan.model_copy(update={"kv": paged}))
    assert (caught.value.field, caught.value.value) == ("kv", "vram")


def test_windows_are_not_attended_to_in_parts() -> None:
    plan = make_plan(mixed(), workload=WORK)
    check_passes(passes_of(plan))
    divided = plan.schedule.model_copy(update={"attention": "divided"})
    with pytest.raises(UsageError, match="windows, with sinks or caps, which attention in parts does not"):
        check_passes(passes_of(plan.model_copy(update={"schedule": divided})))


def test_weights_of_different_blocks_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="2 kinds of blocks"):
        write_checkpoint(mixed(), tmp_path / "c")
    with pytest.raises(BadInputError):
        write_gguf(mixed(), tmp_path / "c.gguf")
    assert not any(tmp_path.iterdir())


def test_families_without_kernels_are_refused() -> None:
    with pytest.raises(UsageError, match="no kernels for the family gpt_neox"):
        check_native(reshaped(small_model("llama"), family="gpt_neox"))


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        (
            {"scaling": LongRope(short_factor=FACTORS, long_factor=FACTORS, original_context=9, long_magnitude=2.0)},
            "long",
        ),
        ({"pairs": "interleaved"}, "interleaved"),
        ({"at": "trailing"}, "trailing"),
    ],
)
def test_positions_without_kernels_are_refused(changes: dict[str, Any], shown: str) -> None:
    with pytest.raises(BadInputError, match=f"no kernels for these positions .*{shown}") as caught:
        check_native(reshaped(small_model("llama"), position=Rope(theta=1e4, rotary_dim=24, **changes)))
    assert (caught.value.field, caught.value.exit_code) == ("model.position", 5)


@pytest.mark.parametrize("family", ["llama", "mistral", "opt", "phi3", "qwen2", "qwen3"])
def test_positions_of_every_family_run(family: str) -> None:
    check_native(family_model(family))
