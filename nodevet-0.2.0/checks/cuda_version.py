"""The driver supports the CUDA version that the baseline asks for.

**Why it matters.** A container or framework that was built for a newer CUDA than the driver
supports does not start, or falls back to the CPU.

**Read from** NVML, nvmlSystemGetCudaDriverVersion: the newest CUDA version that libcuda of this
driver supports. nodevet does not read the CUDA toolkit, which containers bring themselves.

**Verdicts.** A version below `minimum`, or not in `one_of`, fails. A node without libcuda.so.1
fails, too: no CUDA program starts there. Write versions as texts, in quotes: 12.10 is newer than
12.4.

**To fix it** install a driver of a newer branch; see `driver_version`. On data centre GPUs a
compatibility package (cuda-compat) may be enough; NVML does not report it. Without libcuda: install
the driver's compute libraries (Ubuntu and Debian: libnvidia-compute of its branch; RHEL:
nvidia-driver-cuda-libs).
"""

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.one_value import ok_if
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.model import Area, Check, CheckParams, Finding, fail, unknown

PATTERN = r"^[0-9]{1,3}\.[0-9]{1,3}$"
NO_LIBCUDA = "NVML_ERROR_LIBRARY_NOT_FOUND"
OLDER = (
    "install a driver of a branch that supports this CUDA version (see driver_version); on data "
    "centre GPUs a cuda-compat package of that CUDA release may be enough"
)
INSTALL = (
    "install the compute libraries of the driver's own version (Ubuntu and Debian: "
    "libnvidia-compute of the branch, RHEL: nvidia-driver-cuda-libs), then run ldconfig"
)
OTHER = "install a driver of a branch that has one of these versions, or correct the baseline"

Version = Annotated[str, Meta(pattern=PATTERN)]


class Params(CheckParams):
    """`cuda_version: {minimum: "12.4"}` or `cuda_version: {one_of: ["12.4", "12.8"]}`"""

    minimum: Version | None = None
    one_of: Annotated[tuple[Version, ...], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if (self.minimum is None) == (self.one_of is None):
            raise ValueError("give either minimum or one_of")


def parts(version: str) -> tuple[int, ...]:
    """
    >>> parts("12.10") > parts("12.4")
    True
    """
    return tuple(map(int, version.split(".")))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    data = evidence[Gpus].data
    expected = f"at least {params.minimum}" if params.minimum else list(params.one_of or ())
    if data is None:
        yield unknown(why=f"NVML: {evidence[Gpus].why}")
    elif data.cuda_version is None and data.errors.get("cuda_version") == NO_LIBCUDA:
        yield fail(
            expected=expected, actual="no libcuda.so.1", why=f"NVML: {NO_LIBCUDA}", advice=INSTALL
        )
    elif data.cuda_version is None:
        yield unknown(why=f"cuda_version: {data.why('cuda_version')}")
    elif not re.match(PATTERN, data.cuda_version):
        yield unknown(actual=data.cuda_version, why="not a version")
    elif params.minimum is not None:
        enough = parts(data.cuda_version) >= parts(params.minimum)
        yield ok_if(enough, expected=expected, actual=data.cuda_version, advice=OLDER)
    else:
        fits = data.cuda_version in (params.one_of or ())
        yield ok_if(fits, expected=expected, actual=data.cuda_version, advice=OTHER)


def learn(evidence: Evidence) -> dict[str, str] | None:
    data = evidence[Gpus].data
    version = data.cuda_version if data else None
    return {"minimum": version} if version and re.match(PATTERN, version) else None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=("gpu.cuda_version",),
    judge=judge,
    learn=learn,
    unasked='only a site knows what its jobs need: say cuda_version: {minimum: "12.4"}',
)
