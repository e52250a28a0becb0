"""Products of experts that a stage does as one operation: their tasks run in one piece, after all that they read."""

from collections.abc import Mapping, Sequence

from helmsman.executor.passes.halves import served
from helmsman.executor.passes.phase_pass import PhasePass

Group = tuple[int, ...]
"""Tasks of a block's experts on one device for one batch, in the order of their stage: gate, up and down, or up and
down; where misses come to slots, first those of hits."""


def expert_groups(phase_pass: PhasePass) -> dict[int, Group]:
    """Return by task of experts the group to which it belongs."""
    groups: dict[object, list[int]] = {}
    for index, use in phase_pass.uses.items():
        task = phase_pass.tasks[index]
        if task.kind == "experts":
            groups.setdefault((use.layer, use.device, task.batch), []).append(index)
    ordered = (tuple(sorted(group, key=lambda index: _place(phase_pass, index))) for group in groups.values())
    return {task: group for group in ordered for task in group}


def in_stage_order(phase_pass: PhasePass, tasks: Sequence[int]) -> tuple[int, ...]:
    """Return tasks in the order in which a stage does them: of experts with slots the hits before the misses."""
    group_of, result = expert_groups(phase_pass), dict[int, None]()
    for task in tasks:
        result.update(dict.fromkeys(group_of.get(task, (task,))))
    return tuple(result)


def _place(phase_pass: PhasePass, index: int) -> tuple[bool, int]:
    """Return the place of a task in its group: a part of misses comes after all of hits."""
    rows = phase_pass.tasks[index].rows
    return phase_pass.tasks[index].layer in phase_pass.slotted and rows is not None and rows[0] > 0, index


def gather_experts(phase_pass: PhasePass, deps: list[set[int]]) -> None:
    """Change `deps` so that the first task of a group waits for what any of them needs, what comes for them waits for
    none of them, and others wait for the last."""
    group_of = expert_groups(phase_pass)
    if not group_of:
        return
    serving = served(phase_pass, group_of)
    for index, waiting in serving.items():
        for group in waiting:
            if inside := deps[index].intersection(group):
                before = {dep for dep in phase_pass.tasks[group[0]].deps if dep < index and dep not in serving}
                deps[index] = (deps[index] - inside) | before
    for group in set(group_of.values()):
        needed = set[int]().union(*(deps[member] for member in group))
        deps[group[0]] = needed - set(group)
    for index, waits in enumerate(deps):
        deps[index] = {_done(dep, group_of, index) for dep in waits}


def _done(dep: int, group_of: Mapping[int, Group], index: int) -> int:
    """Return the task after which `dep` is done for task `index`."""
    group = group_of.get(dep)
    return dep if group is None or index in group else group[-1]
