"""What the parameters of faults have in common."""

from typing import Annotated, Literal

import pydantic
from pydantic import Field

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


class ClearedGpu(OneGpu):
    """`cleared_by`: what ends the fault. A reset, or only a reboot, or only power off and on."""

    cleared_by: Literal["reset", "reboot", "power"] = "reset"
