"""--plot of serving runs."""

from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.pictures import write_picture

if TYPE_CHECKING:
    from helmsman.schemas.serving import ServingReport, ServingSweep
    from helmsman.simulator.serving.run import Outcome


def draw_served(path: Path, outcome: "Outcome", found: "ServingReport") -> None:
    """Latencies of one run, and requests and caches over time."""
    from helmsman.analysis.plots.serving_curves import describe
    from helmsman.analysis.plots.serving_run import draw_run

    title = f"{found.run.policy}: {found.throughput.output_tokens:.5g} output tokens/s"
    run = (found.run.policy, outcome.served)
    write_picture(path, draw_run(run, outcome.occupancy, title, describe(found)))


def draw_swept(path: Path, found: "ServingSweep") -> None:
    """What a sweep found."""
    from helmsman.analysis.plots.serving_curves import describe, draw_sweep

    write_picture(path, draw_sweep(found, describe(found.points[0].report)))
