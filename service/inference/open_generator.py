"""The generator that `helm-serve` serves with: the plan's engine under a policy, on this machine."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from helmsman.analysis.ask_serving import setup_of
from helmsman.executor.serving.block_hashes import BlockHashes
from helmsman.executor.serving.engine import ServingEngine
from helmsman.executor.serving.loop import ServingLoop
from helmsman.executor.system.machine import Machine
from helmsman.planner.serving.native_room import fitted, native_device
from helmsman.planner.serving.served_rules import served_plan
from helmsman.scheduler._scheduling import Scheduler
from helmsman.scheduler.limits import HOST_ORDERS, HostOrder, Limits
from helmsman.scheduler.policies import policy_maker, policy_options
from helmsman.schemas.plan import Plan
from helmsman.schemas.serving_question import ServingSetting
from helmsman.service.inference.generation import EngineCapacity, Generator
from helmsman.service.inference.loop_generator import LoopGenerator
from helmsman.simulator.serving.run import Setup


def open_generator(plan: Plan, checkpoint: Path, setting: ServingSetting, *, prefix_cache: bool) -> Generator:
    """Load the plan's weights, and start the loop that serves it, with the costs and limits that helm-sim has, but for
    the context: here it is the plan's, for which positions are made.

    Raises UsageError for policies that there are not, HardwareUnavailableError for devices that are not there,
    InfeasibleError where weights or caches have no room, BadInputError for the checkpoint."""
    plan = served_plan(plan)
    setup = setup_of(plan, setting)
    snapshots = setup.limits.snapshots if prefix_cache else 0
    setup = replace(setup, limits=replace(setup.limits, context=plan.workload.context, snapshots=snapshots))
    if native_device(plan) is None:
        setup = replace(setup, limits=fitted(plan, setup.limits))
    engine = ServingEngine.load(plan, checkpoint, Machine.this(), setup.limits, _order(setup))
    try:
        return _started(engine, setup, prefix_cache=prefix_cache)
    except BaseException:
        engine.close()
        raise


def _order(setup: Setup) -> HostOrder:
    """Return the policy's order, if it has one."""
    return next((order for order in HOST_ORDERS if order == setup.options.get("order")), HOST_ORDERS[0])


def _started(engine: ServingEngine, setup: Setup, *, prefix_cache: bool) -> Generator:
    shares = prefix_cache and (not setup.limits.states or setup.limits.snapshots > 0)
    block = setup.limits.block if shares else 0
    policy = policy_maker(setup.policy, setup.options)
    scheduler = Scheduler(setup.believed, setup.limits, policy, setup.options, block)
    loop = ServingLoop(engine, scheduler, hashes=BlockHashes(block) if shares else None)
    capacity = capacity_of(setup.limits, setup.policy)
    return LoopGenerator(loop, capacity, lambda: share_of(engine.occupancy, capacity.homes), engine.close)


def capacity_of(limits: Limits, policy: str) -> EngineCapacity:
    """Return what a replica holds under a policy, as requests see it."""
    tokens = {"gpu": limits.gpu_tokens, "cpu": limits.cpu_tokens}
    homes: dict[str, int] = {home: tokens[home] for home in policy_options(policy).homes}
    return EngineCapacity(limits.context, homes, limits.block, limits.sequences)


def share_of(occupancy: Mapping[str, tuple[int, int]], homes: Collection[str]) -> float:
    """Return the share in use of the blocks of those caches; `occupancy`: by home, blocks in use and blocks there
    are."""
    counts = [counts_of_home for home, counts_of_home in occupancy.items() if home in homes]
    total = sum(total for _, total in counts)
    return sum(used for used, _ in counts) / total if total else 0.0
