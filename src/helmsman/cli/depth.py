"""Which questions `helm-run --depth` can answer."""

import argparse
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.schemas.plan import Plan


def check_depth(args: argparse.Namespace, plan: "Plan") -> None:
    """Refuse before anything is loaded what has no caches that noise may stand in. Raises UsageError."""
    if not args.depth:
        return
    if reason := _reason(args, plan):
        raise UsageError(
            reason, field="--depth", value=args.depth, remedy="leave it out, or give a prompt of that length"
        )
    if args.trace is not None and (args.output_tokens or plan.workload.output_tokens) < 2:
        message = "the trace at a depth is of decode steps, and one token takes none"
        raise UsageError(message, field="--output-tokens", value=1, remedy="make 2 or more")


def _reason(args: argparse.Namespace, plan: "Plan") -> str | None:
    """Why this plan needs a prompt to fill its caches."""
    from helmsman.executor.passes.phase_pass import caches_native, caches_stay, page_links, passes_of

    if args.chat:
        return "a conversation begins with what is said in it"
    if args.backend == "torch" or args.kv_cache == "growing":
        return "only native caches that are allocated in full can be taken for filled"
    passes = passes_of(plan)
    if not caches_native(passes):
        return "caches of these devices cannot be taken for filled"
    if not caches_stay(passes) and not page_links(plan):
        return "keys and values of this plan move between memories, so a prompt cannot continue there"
    return None
