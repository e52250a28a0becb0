"""What runs an iteration on a kind of device: the native submitter, or PyTorch's streams."""

from functools import partial

from helmsman.executor._kernels import Cohort, ServingPass, StreamedWeights
from helmsman.executor.devices.accelerators import KINDS
from helmsman.executor.devices.iterations import Driver


def driver_of(kind: str, weights: StreamedWeights | None) -> Driver:
    """For devices of a kind, to which `weights` come in every pass; PyTorch is only loaded for those that it drives,
    where none do."""
    if kind not in KINDS:
        return Driver(Cohort.size, Cohort, partial(ServingPass, weights=weights))
    from helmsman.executor.serving.torch_driver import DRIVER

    return DRIVER
