"""An interpreter with PyTorch on a node with GPUs, as far as it reports them. Pure."""

FOLDER = "/opt/pytorch"
PYTHON = f"{FOLDER}/bin/python"
TORCH = f"{FOLDER}/lib/torch.py"
VERSION, CUDA = "2.4.1", "12.4"
PYTHON_TEXT = f"""\
#!/bin/sh
# python -I -c CODE, with this torch; nothing else
[ "$1 $2" = "-I -c" ] || exit 2
exec python3 -I -c 'import sys; sys.path.insert(0, "{FOLDER}/lib"); exec(sys.argv[1])' "$3"
"""
TORCH_TEXT = '''\
"""Says of CUDA what PyTorch does: available if the driver supports it, as many devices as NVML
counts. Nothing computes."""
import ctypes

__version__ = "{version}"


class version:
    cuda = {cuda!r}


class cuda:
    @staticmethod
    def device_count():
        driver, count = ctypes.c_int(0), ctypes.c_uint(0)
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return 0
        if version.cuda is None or nvml.nvmlInit_v2() != 0:
            return 0
        nvml.nvmlSystemGetCudaDriverVersion(ctypes.byref(driver))  # 12040 of 12.4
        if driver.value // 1000 >= int(version.cuda.split(".")[0]):
            nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        nvml.nvmlShutdown()
        return count.value

    @staticmethod
    def is_available():
        return cuda.device_count() > 0
'''


def root_files() -> dict[str, str]:
    return {PYTHON: PYTHON_TEXT, TORCH: torch(f"{VERSION}+cu124", CUDA)}


def torch(version: str, cuda: str | None) -> str:
    """The module of a wheel; one for CPUs has no CUDA."""
    return TORCH_TEXT.format(version=version, cuda=cuda)
