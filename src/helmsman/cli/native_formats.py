"""`--format native`: every tensor as the model's file has it, which is what GGUF files are planned with by default."""

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.best import BEST_STRATEGY
from helmsman.schemas.errors import BadInputError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.formats import STORED_FORMATS, StoredFormat

if TYPE_CHECKING:
    from helmsman.cli.strategies import Decided
    from helmsman.planner.decide import Decision
    from helmsman.planner.tensor_formats import Formats
    from helmsman.schemas.model import Model
    from helmsman.schemas.objective import Objective
    from helmsman.schemas.plan import Plan

NATIVE = "native"
DEFAULT: StoredFormat = "f16"


def resolve_formats(args: argparse.Namespace, model: "Model") -> "Formats":
    """Set `args.format` to the format of most weights where none, or native, is asked for; what each tensor of a GGUF
    file is kept in where that is to be, else nothing.

    Raises UsageError for native formats of anything but GGUF files, BadInputError for types that are not read."""
    from helmsman.hwdb.gguf_files import is_gguf

    if args.format not in (None, NATIVE):
        return {}
    if not is_gguf(Path(args.model)):
        if args.format == NATIVE:
            raise UsageError("only GGUF files say it", field="--format", value=NATIVE, remedy="name a format")
        args.format = DEFAULT
        return {}
    formats = file_formats(Path(args.model), model)
    args.format = next(iter(_sizes(model, formats)))
    return formats if len(set(formats.values())) > 1 else {}


def file_formats(path: Path, model: "Model") -> "Formats":
    """The formats of the matrices of a GGUF file."""
    from helmsman.executor.weights.names import gguf_name
    from helmsman.hwdb.gguf_files import gguf_places
    from helmsman.lowering.tensors import tensors

    places, found = gguf_places(path), {}
    for tensor in tensors(model):
        if len(tensor.shape) == 2 and tensor.tied_to is None:
            name = gguf_name(model.family, tensor)
            kept = places[name].type.name if name in places else None
            fmt = next((each for each in STORED_FORMATS if each == kept), None)
            if fmt is None:
                remedy = "quantise the model again, or name a --format that it is to become"
                raise BadInputError("a type that is not read", file=str(path), field=name, value=kept, remedy=remedy)
            found[tensor.name, tensor.layer] = fmt
    return found


def decide_mixed(
    args: argparse.Namespace,
    model: "Model",
    formats: "Formats",
    decide: Callable[[], "Decided"],
) -> "Decided":
    """The decision of `decide`; where tensors have `formats` of their own, the fastest of the plans that it makes for
    weights in one of them, each with all formats then. `optimal` compares with all formats from the start, and the
    recommended plan is chosen among strategies that were each asked about all formats.

    Raises what the last one raises where none fits."""
    from helmsman.analysis.comparison import planned, seconds
    from helmsman.planner.mixed_formats import with_formats
    from helmsman.simulator.pricing import cost_model

    args.tensor_formats = formats
    if not formats or args.strategy == BEST_STRATEGY:
        return decide()
    if args.explain:
        raise UsageError("plans of mixed formats are not explained", field="--explain", remedy="name one --format")
    if args.compress in ("weights", "all", "best"):
        remedy = "leave it out, or name one --format that is not quantised"
        message = "every tensor is kept in the format of the file"
        raise UsageError(message, field="--compress", value=args.compress, remedy=remedy)
    found: list[Decided] = []
    refused: HelmError | None = None
    for args.format in _sizes(model, formats):
        try:
            decision, searched, parts = decide()
            plan = with_formats(decision.plan, formats, cost_model(decision.plan))
        except (InfeasibleError, UsageError) as error:
            refused = error
            continue
        found.append((_mixed(decision, plan, args.objective), searched, parts))
    if not found:
        assert refused is not None
        raise refused
    return min(found, key=lambda each: seconds(planned(each[0].plan), args.objective))


def _mixed(decision: "Decision", plan: "Plan", objective: "Objective") -> "Decision":
    """The decision for a plan with all formats; candidates that were compared in one have no place beside it."""
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.objective import objective_seconds

    if plan is decision.plan:
        return replace(decision, explained=None)
    took = objective_seconds(plan.predicted, plan.workload, batches_together(plan), objective).mid
    return replace(decision, plan=plan, seconds=took, explained=None, runner_ups=(), rejected=())


def _sizes(model: "Model", formats: "Formats") -> dict[StoredFormat, int]:
    """Values of matrices by format, the most first."""
    from helmsman.lowering.tensors import tensors

    counted: Counter[StoredFormat] = Counter()
    for tensor in tensors(model):
        if (tensor.name, tensor.layer) in formats:
            counted[formats[tensor.name, tensor.layer]] += tensor.elements
    return dict(counted.most_common())
