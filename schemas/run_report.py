"""RunReport: the tokens, texts and times of a plan that was run."""

from typing import Annotated, Literal

from pydantic import Field

from helmsman.schemas.base import Frozen, Index, Name, NonNegative, Report, absent, version
from helmsman.schemas.engine_settings import Difference


class RunTimes(Frozen):
    """The times of one run: seconds until the first token (`ttft_s`), seconds of each later token (`tpot_s`), and
    tokens/s of all sequences in decode steps. The last two are null where one token was made, the last also where the
    clock stood still over the others."""

    ttft_s: NonNegative
    tpot_s: NonNegative | None
    tokens_per_second: NonNegative | None


class DraftCounts(Frozen):
    """Counts tokens that were drafted, of all runs and sequences, those that were accepted, and the decode steps that
    verified them."""

    drafted: Index
    accepted: Index
    passes: Index


class EngineUse(Frozen):
    """An engine that ran instead of Helm's executor: what ran it, with which settings, what of the plan they cannot
    say, and bytes of resident memory once the model had been loaded, where its process says them."""

    name: Name
    program: Name
    settings: Annotated[str, Field(max_length=2**16)]
    differences: tuple[Difference, ...] = ()
    resident_bytes: Index | None = None


class RunReport(Report):
    """The answer of `helm-run`: tokens and texts of the first run (texts are null without a tokenizer), the medians of
    the times of all runs, and each of them; `engine`: of others, where one ran."""

    schema_id: Literal["helm.run/1"] = version("helm.run/1")
    tokens: tuple[tuple[Index, ...], ...]
    text: tuple[str, ...] | None
    ttft_s: NonNegative
    tpot_s: NonNegative | None
    tokens_per_second: NonNegative | None
    runs: Annotated[tuple[RunTimes, ...], Field(min_length=1)]
    drafts: Annotated[DraftCounts | None, Field(exclude_if=absent)] = None
    engine: Annotated[EngineUse | None, Field(exclude_if=absent)] = None
