"""What the parameters of faults have in common."""

from dataclasses import replace
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from nodevet_sim.faults.patch import Patch

Gpu = Annotated[int, Field(ge=0, le=63)]


class FaultParams(pydantic.BaseModel):
    """The parameters of a fault; each has a default."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


class NoParams(FaultParams):
    """A fault without parameters."""


class OneGpu(FaultParams):
    """`gpu` is NVML's index; without it GPU 3, or the last one if there are fewer."""

    gpu: Gpu | None = None


class SomeGpus(FaultParams):
    gpu: Gpu | Literal["all"] = "all"


BootClears = Literal["reboot", "power", "nothing"]
"""What ends a fault: a reboot, only power off and on, or nothing."""


class ClearedByBoot(OneGpu):
    cleared_by: BootClears = "nothing"


class ClearedGpu(OneGpu):
    """`cleared_by`: a reset ends the fault, or only a reboot, or only power off and on, or
    nothing does."""

    cleared_by: Literal["reset", "reboot", "power", "nothing"] = "reset"

    def until_cleared(self, patch: Patch) -> Patch:
        """The patch of the GPU, which also says what ends it."""
        if self.cleared_by == "reset":
            return patch
        key = f"gpu.{patch.gpu}.cleared_by"
        return replace(patch, state={**patch.state, key: self.cleared_by})
