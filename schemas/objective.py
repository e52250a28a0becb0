"""The objective that a plan is to be best at."""

from typing import Literal, get_args

Objective = Literal["request", "latency", "ttft", "throughput"]
"""request: seconds of the whole request, or of all batches asked for, prompts and decode steps; latency: seconds of one
decode step; ttft: seconds of the prompt pass; throughput: output tokens/s of the whole workload."""

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

DEFAULT_OBJECTIVE: Objective = "request"
