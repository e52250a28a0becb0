"""Which plans run: those whose decode steps read keys and values of every past token, in parts that kernels compute."""

from collections.abc import Iterator, Sequence

from helmsman.executor.devices.accelerators import OPENERS
from helmsman.executor.passes.block_check import check_blocks
from helmsman.executor.passes.phase_pass import MOVES, PhasePass, carry_alike
from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.operation import DIVIDED, PANEL
from helmsman.lowering.ops import LINEAR_OPS
from helmsman.lowering.rules import homes, places
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import runs
from helmsman.schemas.plan import Plan


def check_executed(plan: Plan) -> None:
    """Raise UsageError for a plan that is planned and simulated only: with a variant of what caches hold or give, or
    with a part of a matrix that begins within a panel of rows, or where a window meets what attends over all that is
    past."""
    _check_windows(plan)
    if plan.workload.prefix_tokens:
        raise UsageError(
            "prompts that are known in part are planned and simulated, not executed",
            field="workload.prefix_tokens",
            value=plan.workload.prefix_tokens,
            remedy="plan without `prefix_tokens`",
        )
    use = plan.schedule.cache
    if not use.plain:
        raise UsageError(
            "caches of activations and chosen tokens are planned and simulated, not executed",
            field="schedule.cache",
            value=use.label,
            remedy="plan without the options kv_keep and activation_cache",
        )
    managed = next((index for index, rule in enumerate(plan.residence) if rule.path == "managed"), None)
    if managed is not None:
        raise UsageError(
            "pages that migrate on touch are planned and simulated, not executed",
            field=f"residence.{managed}.path",
            value="managed",
            remedy="plan without `managed`",
        )
    for tensor in tensors(plan.model):
        _check_multiplied(plan, tensor)
        if len(tensor.shape) == 2:
            _check_panels(plan, tensor)


def _check_windows(plan: Plan) -> None:
    """Raise UsageError for a window of attention whose cache is in pages."""
    windows = [attention.window for attention in _attentions(plan) if _cut(plan, attention)]
    paged = next((rule.cache for rule in plan.kv if rule.cache is not None), None)
    if paged is not None and windows:
        raise UsageError(
            f"{plan.model.name} attends over a window, and its cache would be in pages",
            field="kv",
            value=paged.memory,
            remedy="plan without windows of caches (kv_cache)",
        )


def _attentions(plan: Plan) -> Iterator[Attention]:
    kinds = (layout.attention for layout in plan.model.layouts)
    return (attention for attention in kinds if attention is not None)


def _cut(plan: Plan, attention: Attention) -> bool:
    """Whether there are positions beyond a window."""
    return attention.window is not None and attention.window < plan.workload.context


def check_no_slots(plan: Plan) -> None:
    """Raise UsageError for a plan with slots for experts, which passes look up that devices compute, not modules."""
    if plan.expert_slots:
        remedy = "run it without its module (`backend`), or plan without slots"
        message = "a module computes its experts by itself, and looks up no slots"
        raise UsageError(message, field="expert_slots", remedy=remedy)


def _check_prompt(passes: Sequence[PhasePass]) -> None:
    """Raise UsageError where prompts take several passes on top of keys and values that move."""
    stated = passes[0].plan.schedule.pass_tokens
    moves = (task for one_pass in passes for task in one_pass.tasks if task.kind in MOVES)
    if stated is not None and any(move.payload in CACHED for move in moves):
        message, remedy = "prompts take one pass here", "leave it out, or keep keys and values where they are used"
        raise UsageError(message, field="schedule.pass_tokens", value=stated, remedy=remedy)


def check_passes(passes: Sequence[PhasePass]) -> None:
    """Raise UsageError where a device has two parts of an operation that do not follow each other, where weights leave
    a PyTorch device, which keeps them as its own products read them, where what is computed reaches another device
    through a third memory, or where blocks are divided otherwise than devices compute them."""
    check_blocks(passes)
    _check_prompt(passes)
    for one_pass in passes:
        _check_whole_blocks(one_pass)
        _check_undivided(one_pass)
        own = {device.memory for device in one_pass.plan.hardware.devices if device.kind in OPENERS}
        seen = set[tuple[object, ...]]()
        for index, task in enumerate(one_pass.tasks):
            if index in one_pass.uses:
                hits_or_misses = task.rows if task.layer in one_pass.slotted else None
                part = task.op, task.layer, task.resource, task.batch, hits_or_misses
                if part in seen:
                    raise _two_parts(task)
                seen.add(part)
            elif task.kind == "transfer" and task.payload == "weights":
                if task.memories[0] in own:
                    raise _leaves(task)
            elif task.kind == "transfer":
                for before in (one_pass.tasks[dep] for dep in task.deps):
                    follows = before.kind == "transfer" and before.memories[1] == task.memories[0]
                    if follows and carry_alike(before, task):
                        raise _passes_through(before, task)


def _check_whole_blocks(one_pass: PhasePass) -> None:
    """Raise UsageError for several devices in a block with norms after bodies, whose outcomes move nowhere."""
    devices: dict[tuple[int, int], str] = {}
    for index, use in one_pass.uses.items():
        if use.layer is None or not one_pass.plan.model.blocks[use.layer].normed_after:
            continue
        first = devices.setdefault((use.layer, one_pass.tasks[index].batch), use.device)
        if use.device != first:
            raise UsageError(
                f"{first} and {use.device} share block {use.layer}, whose outcomes are normed before they are added",
                field="compute",
                value=use.device,
                remedy="let one device compute all of a block",
            )


def _check_undivided(one_pass: PhasePass) -> None:
    """Raise UsageError for divided attention of a model with windows, sinks or caps."""
    plan = one_pass.plan
    special = any(
        _cut(plan, attention) or attention.sinks or attention.softcap is not None for attention in _attentions(plan)
    )
    divided = next((task for task in one_pass.tasks if special and task.kind in DIVIDED), None)
    if divided is not None:
        raise UsageError(
            f"{plan.model.name} attends over windows, with sinks or caps, which attention in parts does not",
            field="compute",
            value=divided.resource,
            remedy="plan with attention as one operation",
        )


def _two_parts(task: Task) -> UsageError:
    return UsageError(
        f"{task.resource} has two parts of {_place(task)}, and a device computes one",
        field="compute",
        value=task.resource,
        remedy="let the rows or heads of each device follow each other",
    )


def _leaves(task: Task) -> UsageError:
    return UsageError(
        f"{_place(task)} leave a device that keeps them as its own products read them",
        field="residence",
        value=task.memories[0],
        remedy="keep weights in host memory, or where they are used",
    )


def _passes_through(first: Task, second: Task) -> UsageError:
    (origin, through), (_, target) = first.memories, second.memories
    return UsageError(
        f"{second.op} of block {second.layer} would go from {origin} to {target} through {through}",
        field="compute",
        value=origin,
        remedy="link the two memories, or let one accelerator do what reads each other's values",
    )


def _place(task: Task) -> str:
    return task.op if task.layer is None else f"{task.op} of block {task.layer}"


def _check_multiplied(plan: Plan, tensor: Tensor) -> None:
    """Raise UsageError for a matrix in a format that no kernel multiplies."""
    used = {piece.rule.used for piece in homes(plan, tensor)} if tensor.quantised else set()
    for fmt in used:
        if not runs(fmt):
            raise UsageError(
                f"{tensor.name} is kept in a format that is planned and simulated, not executed",
                field="residence",
                value=fmt,
                remedy="name a `format` that it is to become, such as q4_0",
            )


def _check_panels(plan: Plan, tensor: Tensor) -> None:
    """Parts of a matrix begin with a panel, where they are kept and where they are computed."""
    begins = [("residence", piece.start) for piece in homes(plan, tensor) if not tensor.stacked]
    if tensor.op in LINEAR_OPS or tensor.op == "head":
        for phase in PHASES:
            parts = places(plan, tensor.op, tensor.layer, phase, tensor.shape[0], "rows")
            begins += [("compute", part.start) for part in parts]
    for field, row in begins:
        if row % PANEL:
            place = tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
            raise UsageError(
                f"a part of {place} begins at row {row}, and rows are kept and computed by {PANEL}",
                field=field,
                value=row,
                remedy=f"begin and end parts at multiples of {PANEL} rows",
            )
