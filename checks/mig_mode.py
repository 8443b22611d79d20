"""Every GPU has MIG on or off, as expected.

**Why it matters.** A GPU in MIG mode offers only its slices: a job that expects the whole GPU finds
no device, or a seventh of the memory, and has no NVLink peers. If a scheduler hands out slices and
MIG is off, it has none.

**Read from** NVML, nvmlDeviceGetMigMode: the current mode and the mode after the next reset.

**Verdicts.** A GPU whose mode will change at the next reset fails, whichever mode is expected:
`now` is the mode before the reset, `pending` the mode after it. A GPU that does not support MIG is
not applicable if off is expected; otherwise it fails.

**To fix it** end all work on the GPU, then `nvidia-smi -i BUS_ID -mig 0` (or `-mig 1`); if the
change stays pending, reset the GPU or reboot. NVIDIA's mig-parted manages layouts.
"""

from nodevet.checking.gpu_mode import OnOrOff, gpu_mode


class Params(OnOrOff):
    """`mig_mode: false`"""


CHECK = gpu_mode(
    Params,
    current="mig_current",
    pending="mig_pending",
    lacking="this GPU does not support MIG",
    unasked="for data center GPUs and workstations: GeForce and RTX servers do not support MIG",
)
