"""Prompts: token ids from a file or a text, checked against the plan that will run them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.placement import batches_together
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import JSON_LIMIT, parse_json, read_bytes

Tokens = NDArray[np.int32]


def read_tokens(path: Path) -> list[list[int]]:
    """Sequences of token ids from a JSON list, a JSON list of lists, or integers between white space.

    Raises BadInputError for anything else."""
    data = read_bytes(path, JSON_LIMIT)
    if data.lstrip()[:1] == b"[":
        content = parse_json(data, str(path))
        sequences = content if content and isinstance(content[0], list) else [content]
    else:
        sequences = [[_integer(word, path) for word in data.split()]]
    for sequence in sequences:
        _check_integers(sequence, path)
    return sequences


def as_batch(sequences: Sequence[Sequence[int]], plan: Plan, file: str | None = None) -> Tokens:
    """int32 (batch, prompt) of `sequences`; those of every batch that a pass takes together.

    Raises UsageError for an empty prompt, another number of sequences than the plan's batch or unequal
    lengths; BadInputError for ids outside the vocabulary."""
    if not all(sequences) or not sequences:
        raise UsageError("the prompt is empty", file=file, remedy="give at least one token per sequence")
    wanted = plan.workload.batch * batches_together(plan)
    if len(sequences) != wanted:
        raise UsageError(
            f"the plan runs a batch of {wanted}",
            file=file,
            field="batch",
            value=len(sequences),
            remedy="give as many sequences, or plan with `batch`",
        )
    lengths = {len(sequence) for sequence in sequences}
    if len(lengths) > 1:
        raise UsageError(
            "the sequences of a batch must be equally long",
            file=file,
            value=sorted(lengths),
            remedy="cut or extend the prompts",
        )
    _check_vocabulary(sequences, plan.model.vocab, file)
    return np.array(sequences, np.int32)


def check_context(plan: Plan) -> None:
    """That the model can attend to the plan's whole context. Raises UsageError."""
    model, context = plan.model, plan.workload.context
    longest = model.max_context
    if context > longest:
        raise UsageError(
            f"{model.name} attends to at most {longest} tokens",
            field="workload.context",
            value=context,
            remedy=f"plan with `context` {longest} or less",
        )


def check_tokens(tokens: Tokens, plan: Plan, output_tokens: int, past: int = 0) -> None:
    """That `tokens` (batch, prompt), `output_tokens` more and the `past` before them fit the plan: see `as_batch`.

    Raises UsageError also when the context is too short."""
    as_batch(tokens.tolist(), plan)
    _check_length(past + tokens.shape[1], output_tokens, plan)


def _check_length(prompt: int, output_tokens: int, plan: Plan) -> None:
    total = prompt + output_tokens
    if total > plan.workload.context:
        raise UsageError(
            f"{prompt} prompt and {output_tokens} output tokens exceed the plan's context of {plan.workload.context}",
            field="context",
            value=total,
            remedy=f"plan with `context` {total} or shorten the prompt",
        )


def check_request(prompt: Sequence[int], output_tokens: int, plan: Plan) -> None:
    """That a prompt of one request and `output_tokens` more fit the plan's context. Raises UsageError when it is empty
    or they do not, BadInputError for ids outside the vocabulary."""
    if not prompt or output_tokens < 1:
        remedy = "give a prompt, and ask for one token or more"
        raise UsageError("nothing to do", field="max_tokens", value=output_tokens, remedy=remedy)
    _check_vocabulary([prompt], plan.model.vocab, None)
    _check_length(len(prompt), output_tokens, plan)


def _check_vocabulary(sequences: Sequence[Sequence[int]], vocab: int, file: str | None) -> None:
    for row, sequence in enumerate(sequences):
        for column, token in enumerate(sequence):
            if not 0 <= token < vocab:
                raise BadInputError(
                    f"a token id outside the vocabulary of {vocab}",
                    file=file,
                    field=f"sequence {row}, token {column}",
                    value=token,
                    remedy=f"use ids from 0 to {vocab - 1}",
                )


def _integer(word: bytes, path: Path) -> int:
    try:
        return int(word)
    except ValueError:
        raise _not_tokens(path, word.decode("utf-8", "replace")) from None


def _check_integers(sequence: Any, path: Path) -> None:
    if not isinstance(sequence, list):
        raise _not_tokens(path, sequence)
    for token in sequence:
        if type(token) is not int:
            raise _not_tokens(path, token)


def _not_tokens(path: Path, value: Any) -> BadInputError:
    return BadInputError(
        "not a token id",
        file=str(path),
        value=value,
        remedy="write a JSON list of integers, one list per sequence, or integers between spaces",
    )
