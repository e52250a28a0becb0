"""A loopback accelerator owns a CPU and the host computes on another: with one CPU there is no such machine to test."""

import pytest

from helmsman.executor.system.machine import Machine

TWO_CPUS = pytest.mark.skipif(len(Machine.this().cpus) < 2, reason="accelerator and host each need a CPU of their own")
