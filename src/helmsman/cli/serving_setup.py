"""The arguments about serving, as the question that the library answers."""

import argparse
from math import isfinite
from typing import Any

from helmsman.cli.serving_arguments import STAGES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.serving_question import POLICY, ServingQuestion, ServingSetting, Stage

_READ_BY_THEMSELVES = ("policy", "policy_options", "mispredict")
_OPTIONAL = tuple(name for name in ServingSetting.model_fields if name not in _READ_BY_THEMSELVES)
_REQUESTS = ("rate", "arrivals", "limit", "users", "think", "seed", "slo")


def setting_of(args: argparse.Namespace) -> ServingSetting:
    """How the plan is served. Raises UsageError for options and factors that are none."""
    return ServingSetting.model_construct(**_setting(args))


def question_of(args: argparse.Namespace) -> ServingQuestion:
    """That and who asks, of arguments whose ranges have been checked."""
    said = {name: getattr(args, name) for name in _REQUESTS if getattr(args, name) is not None}
    return ServingQuestion.model_construct(requests=args.requests, sort=args.sort, **said, **_setting(args))


def policies(args: argparse.Namespace) -> list[str]:
    """Return the policies that --policy names, each once."""
    return list(dict.fromkeys((POLICY if args.policy is None else args.policy).split(",")))


def _setting(args: argparse.Namespace) -> dict[str, Any]:
    said = {name: getattr(args, name) for name in _OPTIONAL if getattr(args, name) is not None}
    options, factors = _pairs(args.policy_option, "--policy-option"), _factors(args.mispredict)
    return {"policy": policies(args)[0], "policy_options": options, "mispredict": factors, **said}


def _factors(given: list[str]) -> dict[Stage, float]:
    """How many times as long stages take as the policy believes."""
    factors: dict[Stage, float] = {}
    for name, text in _pairs(given, "--mispredict").items():
        stage = next((known_stage for known_stage in STAGES if known_stage == name), None)
        if stage is None:
            raise UsageError("no such stage", field="--mispredict", value=name, remedy=f"use {', '.join(STAGES)}")
        factors[stage] = _factor(text)
    return factors


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not (isfinite(factor) and 1e-3 <= factor <= 1e3):
        raise UsageError("not a factor", field="--mispredict", value=text, remedy="write cpu-attention=1.3")
    return factor


def _pairs(given: list[str], option: str) -> dict[str, str]:
    """`name=value` of an option that may be given several times."""
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or name in pairs:
            raise UsageError("not name=value, or one twice", field=option, value=text, remedy="write each once")
        pairs[name] = value
    return pairs
