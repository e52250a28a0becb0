"""Models that kernels do not compute are refused before anything is loaded or written, with one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from family_models import family_model
from layer_machines import two_cpus
from plans import make_plan
from shapes import small_model

from helmsman.cli import run, serve
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.passes.model_check import check_native
from helmsman.executor.passes.plan_check import check_executed
from helmsman.schemas.blocks.positions import LongRope, ProportionalScaling, Rope, YarnScaling
from helmsman.schemas.described import reshaped
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model
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


def test_a_context_up_to_the_window_runs_and_one_beyond_is_refused() -> None:
    model = reshaped(small_model("llama"), sliding_window=WORK.context)
    check_executed(make_plan(model, workload=WORK))
    longer = WORK.model_copy(update={"context": WORK.context + 1})
    with pytest.raises(BadInputError, match="attends over a window of 16 tokens") as caught:
        check_executed(make_plan(model, workload=longer))
    error = caught.value
    assert (error.field, error.value, error.exit_code) == ("workload.context", 17, 5)
    assert error.remedy == "plan for a context of at most 16"


def test_a_plan_of_different_blocks_is_refused_before_its_weights_are_looked_for(tmp_path: Path) -> None:
    plan = make_plan(small_model("llama"), workload=WORK).model_copy(update={"model": mixed()})
    with pytest.raises(BadInputError, match="2 kinds of blocks") as caught:
        check_executed(plan)
    assert (caught.value.field, caught.value.exit_code) == ("model", 5)
    with pytest.raises(BadInputError, match="2 kinds of blocks"):
        Engine.load(plan, tmp_path / "nothing", two_cpus())


@pytest.mark.parametrize(("command", "options"), [(run.main, ("--tokens", "[[1, 2]]")), (serve.main, ())])
def test_commands_refuse_a_context_beyond_the_window_with_one_line(
    command: Callable[[list[str]], int], options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = reshaped(small_model("llama"), sliding_window=WORK.context - 1)
    (tmp_path / "plan.json").write_text(make_plan(model, workload=WORK).to_json())
    code = command([str(tmp_path / "plan.json"), "--checkpoint", str(tmp_path / "nothing"), *options])
    error = capsys.readouterr().err
    assert code == 5 and error.count("\n") == 1
    assert "workload.context" in error and "plan for a context of at most 15" in error


def test_weights_of_different_blocks_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="2 kinds of blocks"):
        write_checkpoint(mixed(), tmp_path / "c")
    with pytest.raises(BadInputError, match="2 kinds of blocks"):
        write_gguf(mixed(), tmp_path / "c.gguf")
    assert not any(tmp_path.iterdir())


def test_families_without_kernels_are_refused() -> None:
    with pytest.raises(UsageError, match="no kernels for the family gpt_neox"):
        check_native(reshaped(small_model("llama"), family="gpt_neox"))


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"scaling": YarnScaling(factor=4.0, original_context=256)}, "yarn"),
        ({"scaling": ProportionalScaling(share=0.25)}, "proportional"),
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
