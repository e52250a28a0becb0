"""`helm-sim PLAN --requests`: a serving run, a sweep of them, or how much can be served under an SLO."""

import argparse
import json
from typing import TYPE_CHECKING

from helmsman.cli.output import emit, show, write_text
from helmsman.cli.pictures import write_picture
from helmsman.cli.progress import bars
from helmsman.cli.serving_arguments import FINDS, is_table
from helmsman.schemas.errors import HelmError, TargetMissedError
from helmsman.schemas.write import whole_file

if TYPE_CHECKING:
    from tqdm import tqdm

    from helmsman.analysis.ask_serving import ServingStudy
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.serving import ServingReport
    from helmsman.simulator.serving.run import Outcome


def execute_serving(args: argparse.Namespace, plan: "Plan") -> int:
    """Serve, study, write, print. Raises TargetMissedError where a run, or all runs of a sweep, miss their SLO."""
    from helmsman.analysis.ask_serving import study_of
    from helmsman.cli.serving_setup import question_of

    study = study_of(plan, question_of(args))
    if args.sweep is not None:
        return _sweep(args, study)
    return _find(args, study) if any(getattr(args, name) for name in FINDS) else _serve(args, plan, study)


def _serve(args: argparse.Namespace, plan: "Plan", study: "ServingStudy") -> int:
    from helmsman.analysis.ask_serving import served
    from helmsman.schemas.served_table import write_served
    from helmsman.simulator.serving.text import report_text, slo_text

    outcome, report = served(study)
    _export(args, outcome, report)
    timeline = _write_timeline(args, outcome, f"{plan.model.name} under {report.run.policy}") if args.timeline else ""
    if args.plot:
        from helmsman.analysis.plots.figures import served_figure

        write_picture(args.plot, served_figure(outcome, report))
    if is_table(args.out):
        with whole_file(args.out) as stream:
            write_served(outcome.served, stream)
        show(args, report.to_json(), lambda: report_text(report) + timeline)
    else:
        emit(args, report.to_json(), lambda: report_text(report) + timeline)
    if report.goodput is None or report.goodput.met:
        return 0
    raise _missed(f"kept by {report.goodput.share:.2%} of the requests: {slo_text(report.goodput.slo)}")


def _write_timeline(args: argparse.Namespace, outcome: "Outcome", title: str) -> str:
    """Write it, and return the line that says so."""
    from helmsman.simulator.serving.timeline import serving_timeline

    timeline = serving_timeline(outcome.served, outcome.occupancy, title)
    write_text(args.timeline, timeline.text)
    dropped = f", without the last {timeline.dropped} requests" if timeline.dropped else ""
    return f"\n{'timeline':<14}{args.timeline}{dropped} (open it at https://ui.perfetto.dev)"


def _missed(how: str) -> HelmError:
    """Return the error of a missed SLO, after the report."""
    remedy = "lower --rate, add --replicas, or allow more time"
    return TargetMissedError(how, field="--slo", remedy=remedy).after_report()


def _export(args: argparse.Namespace, outcome: "Outcome", serving_report: "ServingReport") -> None:
    from helmsman.simulator.serving.exports import aiperf_records, vllm_bench

    if args.export_vllm:
        write_text(args.export_vllm, json.dumps(vllm_bench(outcome.served, serving_report), allow_nan=False) + "\n")
    if args.export_aiperf:
        records = (json.dumps(record, allow_nan=False) for record in aiperf_records(outcome.served))
        write_text(args.export_aiperf, "".join(f"{record}\n" for record in records))


def _sweep(args: argparse.Namespace, study: "ServingStudy") -> int:
    from helmsman.analysis.ask_serving import swept
    from helmsman.cli.serving_setup import policies
    from helmsman.simulator.serving.sweep import keeps_somewhere, parse_sweep
    from helmsman.simulator.serving.text import slo_text, sweep_text

    names, over = policies(args), parse_sweep(args.sweep)
    several = {*names, *([args.relative_to] if args.relative_to is not None else [])}
    with _progress(args, len(over.values) * len(several)) as bar:
        sweep = swept(study, over, names, args.relative_to, bar.update)
    if args.plot:
        from helmsman.analysis.plots.figures import sweep_figure

        write_picture(args.plot, sweep_figure(sweep))
    emit(args, sweep.to_json(), lambda: sweep_text(sweep))
    if study.slo is None or keeps_somewhere(sweep, names):
        return 0
    raise _missed(f"no point of the sweep keeps it: {slo_text(study.slo)}")


def _find(args: argparse.Namespace, study: "ServingStudy") -> int:
    from helmsman.analysis.ask_capacity import capacity, fewest_replicas, most_users
    from helmsman.simulator.serving.capacity_text import capacity_text, count_text

    with _progress(args, None) as bar:
        if args.find_capacity:
            result = capacity(study, args.seeds, bar.update)
            emit(args, result.to_json(), lambda: capacity_text(result))
        else:
            find = most_users if args.find_users else fewest_replicas
            count = find(study, args.seeds, bar.update)
            emit(args, count.to_json(), lambda: count_text(count))
    return 0


def _progress(args: argparse.Namespace, runs: int | None) -> "tqdm[None]":
    """Return a bar over runs, on a terminal and after a second only."""
    hidden = True if args.quiet or args.json else None
    return bars()(total=runs, desc="serve", unit="run", delay=1.0, disable=hidden, leave=False)
