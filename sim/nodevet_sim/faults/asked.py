"""Faults of things that a site's own baseline names: files, units, modules that DKMS builds,
results of a diagnostic, libraries, PyTorch, Docker. A function's docstring is the fault's
documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim import torch_files
from nodevet_sim.faults.change import inside
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import Healthy, Patch
from nodevet_sim.software_files import DAEMON, DIAG, DPKG, daemon, driver_package

Path = Annotated[str, Field(pattern=r"^/etc/[A-Za-z0-9_./-]{1,100}$")]


class OneFile(FaultParams):
    path: Path = "/etc/security/limits.d/90-rdma.conf"


class OtherMode(OneFile):
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3}$")] = "0666"


def file_mode_other(healthy: Healthy, want: OtherMode) -> Patch:
    """Everyone may write a file of the site. A node must be booted for this.

    `path`, below /etc: /etc/security/limits.d/90-rdma.conf; `mode`, 0666.
    """
    return inside(f"chmod {want.mode} {want.path}")


class OtherOwner(OneFile):
    uid: Annotated[int, Field(ge=0, le=65534)] = 65534
    gid: Annotated[int, Field(ge=0, le=65534)] = 65534


def file_owner_other(healthy: Healthy, want: OtherOwner) -> Patch:
    """A file of the site belongs to another user and group. A node must be booted for this.

    `path`, below /etc: /etc/security/limits.d/90-rdma.conf; `uid` and `gid`, 65534.
    """
    return inside(f"chown {want.uid}:{want.gid} {want.path}")


AGENT = """\
[Unit]
Description=An agent that an earlier owner of the node left

[Service]
ExecStart=/bin/sleep infinity

[Install]
WantedBy=multi-user.target
"""


def unit_unwanted(healthy: Healthy, want: NoParams) -> Patch:
    """A unit runs and starts at every boot, but should do neither: site-agent.service.

    A node must be booted to have it.
    """
    files = {"/etc/systemd/system/site-agent.service": AGENT}
    return Patch(root_files=files, services={"site-agent.service": True})


def unit_not_enabled(healthy: Healthy, want: NoParams) -> Patch:
    """A unit runs, but will not start at the next boot: nvidia-persistenced.service.

    A node must be booted for this.
    """
    healthy.gpu(None)
    return inside("systemctl --quiet disable nvidia-persistenced.service")


BUILD = """\
kernel=$(cat /proc/sys/kernel/osrelease) && built=nvidia/{version}/$kernel/$(uname -m) &&
modules=/lib/modules/$kernel/updates/dkms &&
mkdir -p /boot $modules /var/lib/dkms/$built/module &&
touch /boot/vmlinuz-$kernel /var/lib/dkms/$built/module/nvidia.ko {object} &&
ln -sfn ${{built#nvidia/}} /var/lib/dkms/nvidia/kernel-$kernel-$(uname -m)"""
NEWER = (
    "next=${kernel%%.*}.999.0-1-generic && mkdir -p /lib/modules/$next && touch /boot/vmlinuz-$next"
)


def dkms_next_not_built(healthy: Healthy, want: NoParams) -> Patch:
    """DKMS built the driver for the running kernel, but not for the newer one that boots next.

    A node must be booted for this.
    """
    return inside(f"{_build(healthy, '$modules/nvidia.ko')} && {NEWER}".replace("\n", " "))


def dkms_files_gone(healthy: Healthy, want: NoParams) -> Patch:
    """DKMS built the driver for the running kernel, but the kernel's module folder lacks it.

    A node must be booted for this.
    """
    return inside(_build(healthy, ""))


def _build(healthy: Healthy, installed: str) -> str:
    """A shell command that creates the files of a DKMS build; `installed`, where the kernel finds
    it.
    """
    healthy.gpu(None)
    version = healthy.state.get("driver_version", "550.90.07")
    return BUILD.format(version=version, object=installed).replace("\n", " ")


def package_not_held(healthy: Healthy, want: NoParams) -> Patch:
    """The package of the driver is not held: an unattended upgrade may replace it.

    It needs dpkg.
    """
    healthy.gpu(None)
    package = driver_package(healthy.state.get("driver_version", ""))
    loose = "s/^Status: hold ok installed$/Status: install ok installed/"
    return inside(f"[ -f {DPKG} ] && sed -i '/^Package: {package}$/,/^$/{loose}' {DPKG}")


class Age(FaultParams):
    days: Annotated[int, Field(ge=1, le=3650)] = 90


def diag_old(healthy: Healthy, want: Age) -> Patch:
    """The results of DCGM's last diagnostic are old. nodevet calls them unknown then.

    `days`, 90. A node must be booted for this. Only a baseline that limits their age detects it.
    """
    return inside(f"touch -d '{want.days} days ago' {DIAG}")


STUBS = "/usr/local/cuda/lib64/stubs"
STUBBED = (
    f"mkdir -p {STUBS} && cp -L /usr/lib*/libcuda.so.1 /usr/lib/*/libcuda.so.1 {STUBS} 2>&-; "
    f"echo {STUBS} >/etc/ld.so.conf.d/000-site-cuda.conf && ldconfig"
)


def stubs_in_loader_path(healthy: Healthy, want: NoParams) -> Patch:
    """The dynamic linker finds CUDA's stub of libcuda.so.1 before the driver's own library.

    A node must be booted for this.
    """
    healthy.gpu(None)
    return inside(STUBBED)


def torch_broken(healthy: Healthy, want: NoParams) -> Patch:
    """The torch of /opt/pytorch/bin/python cannot be imported: a library is not found."""
    missing = "libcudnn.so.9: cannot open shared object file: No such file or directory"
    return _torch(healthy, f"raise ImportError({missing!r})\n")


class OldTorch(FaultParams):
    version: Annotated[str, Field(pattern=r"^[0-9][0-9.]{1,20}$")] = "1.13.1"


def torch_old(healthy: Healthy, want: OldTorch) -> Patch:
    """The torch of /opt/pytorch/bin/python is an old one.

    `version`, 1.13.1.
    """
    version = f"{want.version}+cu{torch_files.CUDA.replace('.', '')}"
    return _torch(healthy, torch_files.torch(version, torch_files.CUDA))


class OtherCuda(FaultParams):
    cuda: Annotated[str, Field(pattern=r"^[0-9]{1,2}[.][0-9]{1,2}$")] = "11.8"


def torch_cuda_other(healthy: Healthy, want: OtherCuda) -> Patch:
    """The torch of /opt/pytorch/bin/python is built for another CUDA, which the driver supports.

    `cuda`, 11.8.
    """
    version = f"{torch_files.VERSION}+cu{want.cuda.replace('.', '')}"
    return _torch(healthy, torch_files.torch(version, want.cuda))


def torch_gpus_hidden(healthy: Healthy, want: NoParams) -> Patch:
    """The torch of /opt/pytorch/bin/python sees one GPU: the others do not come up."""
    files = torch_files.torch(f"{torch_files.VERSION}+cu124", torch_files.CUDA)
    return _torch(healthy, files.replace("return count.value", "return min(count.value, 1)"))


def _torch(healthy: Healthy, text: str) -> Patch:
    healthy.gpu(None)
    return Patch(root_files={torch_files.TORCH: text})


def docker_without_gpus(healthy: Healthy, want: NoParams) -> Patch:
    """Docker does not know NVIDIA's runtime: its configuration is empty."""
    return _docker(healthy, "{}\n")


def docker_runtime_gone(healthy: Healthy, want: NoParams) -> Patch:
    """Docker's NVIDIA runtime is a program that no longer exists."""
    return _docker(healthy, daemon(program="/usr/local/nvidia/toolkit/nvidia-container-runtime"))


def docker_default_other(healthy: Healthy, want: NoParams) -> Patch:
    """Docker knows NVIDIA's runtime, but its default is runc.

    Only a baseline that asks for the default detects it.
    """
    return _docker(healthy, daemon(default="runc"))


def _docker(healthy: Healthy, text: str) -> Patch:
    healthy.gpu(None)
    return Patch(root_files={DAEMON: text})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "diag-old": (Age, diag_old),
    "dkms-files-gone": (NoParams, dkms_files_gone),
    "dkms-next-not-built": (NoParams, dkms_next_not_built),
    "docker-default-other": (NoParams, docker_default_other),
    "docker-runtime-gone": (NoParams, docker_runtime_gone),
    "docker-without-gpus": (NoParams, docker_without_gpus),
    "file-mode-other": (OtherMode, file_mode_other),
    "file-owner-other": (OtherOwner, file_owner_other),
    "package-not-held": (NoParams, package_not_held),
    "stubs-in-loader-path": (NoParams, stubs_in_loader_path),
    "torch-broken": (NoParams, torch_broken),
    "torch-cuda-other": (OtherCuda, torch_cuda_other),
    "torch-gpus-hidden": (NoParams, torch_gpus_hidden),
    "torch-old": (OldTorch, torch_old),
    "unit-not-enabled": (NoParams, unit_not_enabled),
    "unit-unwanted": (NoParams, unit_unwanted),
}
