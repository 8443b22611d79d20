"""Every GPU has MIG on or off, as expected.

**Why it matters.** A GPU in MIG mode offers only its slices: a job that expects the whole GPU
finds no device, or a seventh of the memory, and NVLink peers are gone. The other way round a
scheduler that hands out slices has none.

**Read from** NVML, nvmlDeviceGetMigMode: the mode now and the one after the next reset.

**Verdicts.** A mode that is to change at the next reset fails, whichever of the two is expected:
`now` is the mode until then, `pending` the one after it.
A GPU that cannot do MIG is not applicable if off is expected, else it fails.

**To fix it** end all work on the GPU, then `nvidia-smi -mig 0` (or `-mig 1`); if the change stays
pending, reset the GPU or reboot. Layouts are kept with NVIDIA's mig-parted.
"""

from nodevet.checking.gpu_mode import OnOrOff, gpu_mode


class Params(OnOrOff):
    """`mig_mode: false`"""


CHECK = gpu_mode(
    Params,
    current="mig_current",
    pending="mig_pending",
    lacking="this GPU cannot do MIG",
    unasked="for data center GPUs and workstations: GeForce and RTX servers cannot do MIG",
)
