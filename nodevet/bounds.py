"""How much of everything one machine can have. Evidence with more is not one machine's.

What a node sends is hostile: a list that is longer than hardware, kernel or driver allow makes
its section an error that says so, and what looks at each item in turn comes to an end.
The numbers count items of lists and mappings, and characters of texts.
"""

from typing import Annotated

from msgspec import Meta


def _most(number: int) -> Meta:
    return Meta(max_length=number)


DOCUMENT = 16 << 20  # bytes, or characters; of evidence as a whole, as the probe's own limit
FIELDS = _most(256)  # of one record
GPUS = _most(256)  # minor numbers of /dev/nvidia<N>: 0 to 254, and 255 is nvidiactl
MIG_DEVICES = _most(64)  # of one GPU, which is cut into 7 at most
NVLINKS = _most(64)  # NVML_NVLINK_MAX_LINKS is 18, and 36 in the headers of later drivers
PROCESSES = _most(1 << 16)  # that use a GPU; the kernel has 32,768 processes unless told otherwise
FUNCTIONS = _most(1 << 16)  # bus, device and function are 16 bits: SR-IOV hosts have thousands
BUSES = _most(256)  # 8 bits, so no function has more ports above it
ERROR_KINDS = _most(64)  # of PCIe errors: 16 correctable ones and 27 others, aer.c
HIGHEST_CPU = 8191  # NR_CPUS of MAXSMP, the most that the kernel can be built for, less one
CONTROLLERS = _most(256)  # of memory: 12 in a socket, and those of CXL
DIMMS = _most(64)  # of one controller, or their ranks
CPUS = _most(HIGHEST_CPU + 1)
NUMA_NODES = _most(1024)  # MAX_NUMNODES: CONFIG_NODES_SHIFT is 10 at most
CLOCKSOURCES = _most(64)  # that a kernel offers
GOVERNORS = _most(64)  # or energy preferences, that a frequency driver offers
SWAPS = _most(64)  # MAX_SWAPFILES is 32; and units of type swap
PAGE_SIZES = _most(64)  # of huge pages: HUGE_MAX_HSTATE is 4 at most
MODULES = _most(1 << 14)  # the largest distribution's kernel brings 7,000
DEVICE_NODES = _most(1024)  # /dev/nvidia*
EVENTS = _most(4096)  # that differ; a broken node has tens, and the probe keeps 1,000
TIMES = _most(64)  # of one event: the probe keeps the latest
CRASHES = _most(64)  # that kernels left records of; the probe keeps the latest
IDLE_STATES = _most(1024)  # kinds: a CPU has 10 at most, and a machine a few kinds of CPUs
BOOTS = _most(1024)  # in the records of two months; the probe keeps as many
STUCK = _most(256)  # processes, of those that do not come back; the probe keeps as many
UNITS = _most(1 << 14)  # of systemd; large hosts have 3,000, most of them mounts
FILE_SYSTEMS = _most(512)  # paths that are asked about: 8, and those that a baseline names
MOUNTS = _most(512)  # that hold data; the probe keeps 256
MOUNT_OPTIONS = _most(256)  # of one mount: a page of text
NVME_CONTROLLERS = _most(256)  # a server has 36 slots
DRIVES = _most(512)  # SATA and SAS; the probe reads 256
NFS_MOUNTS = _most(256)  # the probe keeps 128
RAID_ARRAYS = _most(256)  # and ZFS pools
RAID_MEMBERS = _most(1024)  # of an array; md has 1,920 slots with metadata 1.x and nobody uses them
QUESTIONS = _most(1 << 17)  # of one text: a request has 512 KiB, and each of them takes four
ASKED = _most(512)  # kernel parameters or units; a request has 500 names
INTERFACES = _most(1024)  # that are read of a machine; the probe reads 512
COUNTERS = _most(512)  # of an interface or a port; mlx5 has 60
RDMA_DEVICES = _most(1024)  # as many; with virtual functions a host has hundreds
RDMA_PORTS = _most(256)  # of a device: a port's number is a byte
GIDS = _most(1024)  # of a port; the table of mlx5 has 256
PKEYS = _most(1024)  # of a port; the table of mlx5 has 128
ROUTES = _most(256)  # default ones
ADDRESSES = _most(64)  # of an interface; kube-proxy gives one a thousand, and the rest is counted
ADDRESSED = _most(4096)  # interfaces that have addresses
CDI_DEVICES = _most(1024)  # of one specification: GPUs by index and UUID, their MIG devices
ENGINES = _most(16)  # that run containers; seven are looked for
IMEX_NODES = _most(1024)  # of one NVLink domain, which has 18 trays
VARIABLES = _most(1024)  # of a few families, set for every process; the probe reads 500
BUILDS = _most(4096)  # of DKMS: modules, in each version, for each kernel
RESULTS = _most(4096)  # of DCGM's tests and watches; it has some twenty for each GPU
LOOKS = _most(2048)  # of a node that is watched for a while
LOOKS_TEXT = _most(2048)  # a letter for each
ACTIVITY_SAMPLES = _most(1 << 15)  # of one GPU; the driver takes 60 a second at most
THREADS = _most(8192)  # of one process that are watched
STACK = _most(64)  # functions of the kernel; it tells 64 at most
WATCHED = _most(1024)  # processes and cgroups of jobs
DISKS = _most(1024)  # whole block devices
NFS_OPERATIONS = _most(128)  # NFS 4.2 has 70
INTERRUPTS = _most(4096)  # of GPUs, drives and network cards
PACKAGES = _most(512)  # of the driver, and versions of one that repositories offer

Text = Annotated[str, _most(4096)]
"""One line: the kernel's command line is the longest."""
LONGEST_LIST = 1 << 15  # characters; every second one of 8,192 CPUs takes 20,000
NumberList = Annotated[str, Meta(max_length=LONGEST_LIST)]
"""A list of CPUs or nodes."""
FileText = Annotated[str, _most(1 << 18)]
"""A whole small file, /etc/fstab: 64 KiB, of which each byte may be escaped in four."""
Errors = Annotated[dict[Text, Text], FIELDS]
"""Why a field was not read, by its name."""
