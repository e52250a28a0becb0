"""What tests of kernels and of the executor share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from shapes import small_model

from helmsman.executor import _kernels as kernels
from helmsman.executor.checkpoint.write import write_checkpoint


@pytest.fixture(params=[*kernels.supported_isas(), *kernels.emulated_isas()])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every instruction set of this CPU in turn, and what it can imitate."""
    before = kernels.isa()
    kernels.select_isa(request.param)
    yield request.param
    kernels.select_isa(before)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The f32 checkpoint of a small model of a family."""
    written: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in written:
            written[family] = tmp_path_factory.mktemp("checkpoints") / family
            write_checkpoint(small_model(family), written[family], seed=1, fmt="f32")
        return written[family]

    return get
