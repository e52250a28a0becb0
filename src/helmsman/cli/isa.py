"""HELM_CPU_ISA: the one place that reads it."""

import os

from helmsman.schemas.errors import HardwareUnavailableError


def select_from_environment() -> None:
    """Hold the kernels to the instruction set in HELM_CPU_ISA, if it is set. Raises HardwareUnavailableError."""
    from helmsman.executor._kernels import select_isa, supported_isas

    name = os.environ.get("HELM_CPU_ISA")
    if not name:
        return
    try:
        select_isa(name)
    except ValueError:
        raise HardwareUnavailableError(
            "this processor cannot run that instruction set",
            field="HELM_CPU_ISA",
            value=name,
            remedy=f"use one of {', '.join(supported_isas())}",
        ) from None
