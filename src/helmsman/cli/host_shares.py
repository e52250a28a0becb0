"""Strategies whose host computes from its own memory while weights come to the accelerator: their plans."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helmsman.planner.decide import Decision
    from helmsman.planner.strategies.streaming.place import Frame

Recorded = dict[str, str | int | float | bool]

HOST_SHARES: Mapping[str, Mapping[str, object]] = {"hetegen": {"table": None}, "twinpilots": {"table": None}}
"""By strategy, the options that it has, with their defaults."""


def shared(args: argparse.Namespace, frame: "Frame", recorded: Recorded) -> "Decision":
    """The plan of the strategy that the arguments name."""
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.strategies.hetegen import HeteGen
    from helmsman.planner.strategies.streaming.question import Question
    from helmsman.planner.strategies.twinpilots import TwinPilots

    question = Question(frame, CostOptions(not args.no_corrections, args.l3_blend), args.objective)
    strategy = HeteGen(question) if args.strategy == "hetegen" else TwinPilots(question)
    return strategy.decide(recorded)
