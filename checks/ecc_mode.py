"""Every GPU has ECC on or off, as expected.

**Why it matters.** Without ECC a flipped bit in GPU memory silently becomes a wrong result. Boards
of one kind with different ECC modes also differ in usable memory and bandwidth, so a job that fits
on one may not fit on the next.

**Read from** NVML, nvmlDeviceGetEccMode: the current mode and the mode after the next reset.

**Verdicts.** A mode that will change at the next reset fails, whichever of the two is expected:
`now` is the mode until then, `pending` the mode after it. A GPU without ECC is not applicable if
off is expected; otherwise it fails.

**To fix it** `nvidia-smi -i BUS_ID -e 1` (or `-e 0`), then reset the GPU or reboot. The board's
InfoROM keeps the mode.
"""

from nodevet.checking.gpu_mode import OnOrOff, gpu_mode


class Params(OnOrOff):
    """`ecc_mode: true`"""


CHECK = gpu_mode(
    Params,
    current="ecc_current",
    pending="ecc_pending",
    lacking="this GPU has no ECC",
    unasked="for data center GPUs: other GPUs have no ECC, or have it on or off by choice",
)
