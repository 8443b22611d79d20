"""The most that one machine can have of everything. Evidence with more is refused.

What a node sends is hostile: a list longer than hardware, kernel or driver allow makes its section
an error that says so, so loops over items end. The numbers count items of lists and mappings, and
characters of texts.
"""

from typing import Annotated

from msgspec import Meta


def at_most(number: int) -> Meta:
    """A limit of items, or of characters."""
    return Meta(max_length=number)


NUMBER = 1 << 128  # integers are below it, whatever their sign: NVMe's counters have 128 bits
DOCUMENT = 16 << 20  # bytes, or characters; of evidence as a whole, as the probe's own limit
OBJECTS = 1 << 18  # of one section; a decoder makes all of them before it looks at a list's limit
FIELDS = at_most(256)  # of one record
GPUS = at_most(256)  # minor numbers of /dev/nvidia<N>: 0 to 254, and 255 is nvidiactl
PROCESSES = at_most(1 << 16)  # that use a GPU; the kernel has 32,768 of all by default
FUNCTIONS = at_most(1 << 16)  # bus, device and function are 16 bits: SR-IOV hosts have thousands
BUSES = at_most(256)  # 8 bits, so no function has more ports above it
HIGHEST_CPU = 8191  # NR_CPUS of MAXSMP, the most that the kernel can be built for, less one
CPUS = at_most(HIGHEST_CPU + 1)
NUMA_NODES = at_most(1024)  # MAX_NUMNODES: CONFIG_NODES_SHIFT is 10 at most
MODULES = at_most(1 << 14)  # the largest distribution's kernel brings 7,000
EVENTS = at_most(4096)  # that differ; a broken node has tens, and the probe keeps 1,000
MOUNT_OPTIONS = at_most(256)  # of one mount: a page of text
NFS_MOUNTS = at_most(256)  # the probe keeps 128
QUESTIONS = at_most(1 << 17)  # of one text: a request has 512 KiB, and each of them takes four
ASKED = at_most(512)  # kernel parameters or units; a request has 500 names
INTERFACES = at_most(1024)  # that are read of a machine; the probe reads 512
COUNTERS = at_most(512)  # of an interface or a port; mlx5 has 60
RDMA_DEVICES = at_most(1024)  # as many; with virtual functions a host has hundreds
ADDRESSES = at_most(64)  # of an interface; kube-proxy gives one a thousand, and the rest is counted
LOOKS = at_most(2048)  # of a node that is watched for a while
PACKAGES = at_most(512)  # of the driver, and versions of one that repositories offer
STREAM = at_most(4096)  # packages of a module stream of the driver: 40 of each version

Text = Annotated[str, at_most(4096)]
"""One line: the kernel's command line is the longest."""
LONGEST_LIST = 1 << 15  # characters; every second one of 8,192 CPUs takes 20,000
NumberList = Annotated[str, Meta(max_length=LONGEST_LIST)]
"""A list of CPUs or nodes."""
FileText = Annotated[str, at_most(1 << 18)]
"""A whole small file, /etc/fstab: 64 KiB, of which each byte may be escaped in four."""
Real = Annotated[float, Meta(ge=-1e18, le=1e18)]
"""Any number with a fraction: arithmetic with it stays finite."""
Errors = Annotated[dict[Text, Text], FIELDS]
"""Why a field was not read, by its name."""
