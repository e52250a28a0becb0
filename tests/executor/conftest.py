"""What tests of kernels and of the executor share."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from shapes import small_model

from helmsman.executor import _kernels as kernels
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.lowering import buffers

SHORT_CHUNK = 128
"""Rows of prompts that pass through stages at a time in these tests, so that short prompts pass in several chunks."""


@pytest.fixture(scope="module", autouse=True)
def short_chunks() -> Iterator[None]:
    """Prompts pass in chunks of SHORT_CHUNK rows, unless a command is run in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "CHUNK_ROWS", SHORT_CHUNK)
        yield


ISAS = (*kernels.supported_isas(), *kernels.emulated_isas())
"""Every instruction set of this CPU, and what it can imitate."""
PAIRS = ("avx512bf16", "amx", "neonbf16")
"""Instruction sets whose tables are another's but for products of bf16, of prompts (csrc/kernels/tables)."""
WORDS = ("avxvnni", "avx512vnni", "neondot", "neoni8mm")
"""Instruction sets whose tables are another's but for products of int8 and int16, and attention of single tokens
(csrc/kernels/tables)."""


def isas_but(borrowing: tuple[str, ...]) -> list[ParameterSet]:
    """Return every instruction set for `params`; those that borrow the kernels under test from another run at night."""
    return [pytest.param(isa, marks=pytest.mark.nightly if isa.startswith(borrowing) else ()) for isa in ISAS]


def selected(isa: str) -> Iterator[str]:
    before = kernels.isa()
    kernels.select_isa(isa)
    yield isa
    kernels.select_isa(before)


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every instruction set in turn."""
    yield from selected(request.param)


@pytest.fixture(params=isas_but(PAIRS))
def word_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every instruction set whose products of int8 and int16, or attention of single tokens, are its own."""
    yield from selected(request.param)


@pytest.fixture(params=isas_but((*PAIRS, *WORDS)))
def base_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every instruction set whose kernels beside products of bf16, int8 and int16 are its own."""
    yield from selected(request.param)


@pytest.fixture(scope="module")
def settled() -> None:
    """Whatever there is stays until the end: later collections of garbage look at what tests make, and not at PyTorch
    and transformers, which takes a second."""
    gc.collect()
    gc.freeze()


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
