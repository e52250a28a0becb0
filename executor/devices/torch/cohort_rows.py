"""A cohort's rows in one iteration of a PyTorch device."""

from dataclasses import dataclass

import numpy as np
import torch

from helmsman.executor._kernels import Ragged
from helmsman.executor.devices.iterations import Joining
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.torch.cohort import TorchCohort
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.executor.devices.torch.serving_lanes import TorchLanes


@dataclass
class TorchJoining:
    """`joint`: a sub-batch's rows and behind them the cohort's, `apart`: those as the host's caches have them, or all
    of the joint rows that the host attends to where they stay; `kept`: which of the rows under way they are; `at`: the
    layer after whose attention they join, None: with the embedding; `waits`: whether there is nothing else to do;
    `stays`: in sub-batch 1, else they join sub-batch 0 and leave again; `joined`: whether the cohort went on."""

    cohort: TorchCohort
    joint: Ragged
    apart: Ragged
    kept: torch.Tensor
    waits: bool
    stays: bool
    at: int | None
    joined: bool = False
    host_seconds: float = 0.0

    @classmethod
    def of(cls, native: Joining) -> "TorchJoining":
        """As native passes take it."""
        cohort, joint, apart, kept, waits, stays = native
        mine = of_kind(cohort, TorchCohort)
        places = torch.from_numpy(np.array(kept, np.int64).reshape(-1))
        return cls(mine, joint, apart, places, waits or stays, stays, mine.layer)

    @property
    def batch(self) -> int:
        """The sub-batch."""
        return 1 if self.stays else 0

    def enter(self, stage: RaggedStage) -> None:
        """Join, if what they wait for has landed."""
        if self.waits:
            self.cohort.wait()
        self.joined = self.cohort.landed
        if self.joined:
            self.host_seconds = self.cohort.host_seconds
            self.cohort.enter(stage, self.joint.rows - len(self.kept), self.kept)

    def leave(self, lanes: TorchLanes, stage: RaggedStage, layer: int) -> None:
        """Rows that went on to `layer` leave."""
        self.cohort.leave(lanes, stage, self.joint.rows - self.apart.rows, self.apart, layer)
        self.joined = True
