"""Executable plans of operation splits on small models, for tests."""

from plans import make_hardware, predicted
from splits import make_frame, make_layout

from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.streaming.place import label, place
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan, Strategy
from helmsman.schemas.read import digest
from helmsman.schemas.workload import Workload


def make_op_split_plan(
    model: Model,
    start: int,
    stop: int,
    chunks: dict[str, int] | None = None,
    *,
    workload: Workload | None = None,
    hardware: Hardware | None = None,
    ends: str = "host",
    prefetch: int = 1,
    overlap: str = "next-layer",
    reshape: bool = False,
    **layout,
) -> Plan:
    """Units [start, stop) of every block on the loopback accelerator, f32 throughout."""
    workload = workload or Workload(prompt_tokens=8, output_tokens=8, context=96)
    settings = {"prefetch": prefetch, "overlap": overlap, "reshape": reshape}
    frame = make_frame(model, workload, hardware or make_hardware(), **settings)
    found = make_layout(model, start, stop, chunks, ends=ends, **layout)
    return as_plan(place(frame, found), label(frame, found))


def as_plan(placement: Placement, name: str = "by hand") -> Plan:
    """A placement as a document, with predictions that mean nothing."""
    return Plan(
        label=name,
        model=placement.model,
        model_sha256=digest(placement.model),
        hardware=placement.hardware,
        hardware_sha256=digest(placement.hardware),
        workload=placement.workload,
        workload_sha256=digest(placement.workload),
        strategy=Strategy(name="op-split"),
        residence=placement.residence,
        kv=placement.kv,
        compute=placement.compute,
        activations=placement.activations,
        schedule=placement.schedule,
        predicted=predicted(placement.workload),
    )
