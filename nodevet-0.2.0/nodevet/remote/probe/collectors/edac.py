"""Memory errors by DIMM, counted by the kernel's EDAC drivers: /sys/devices/system/edac/mc.

A controller has dimm<N> or rank<N> since Linux 3.6, and csrow<N>/ch<N>_* before.
See Documentation/ABI/testing/sysfs-devices-edac in the kernel tree.
"""

from nodevet.remote.probe.files import Reading, attempt, integer, line, names, numbered, parsed
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COUNTERS = True
CONTROLLERS = "/sys/devices/system/edac/mc"
MOST = 256  # controllers; a socket has up to 12, and CXL some more
MOST_DIMMS = 64  # of a controller
DIMM = Pattern(r"(?:dimm|rank)[0-9]{1,3}\Z")
ROW = Pattern(r"csrow[0-9]{1,3}\Z")
CHANNEL = Pattern(r"(ch[0-9]{1,2})_ce_count\Z")
COUNTS = (("corrected", "ce"), ("uncorrected", "ue"))


def dimm(root: str, folder: str, name: str) -> "Reading":
    record = Reading(id=name)
    for field, kind in COUNTS:
        record.take(field, parsed, root, "{}dimm_{}_count".format(folder, kind), integer)
    record.take("label", line, root, folder + "dimm_label")
    record.take("size_mib", parsed, root, folder + "size", integer)
    return record


def channel(root: str, folder: str, row: "Any", prefix: str) -> "Reading":
    """A channel of a row, in older kernels; most count uncorrected errors by row."""
    record = Reading(id="{}/{}".format(row, prefix))
    for field, kind in COUNTS:
        record.take(field, parsed, root, "{}{}_{}_count".format(folder, prefix, kind), integer)
    record.take("label", line, root, "{}{}_dimm_label".format(folder, prefix))
    record.fail("size_mib", "the kernel has the size of a row only")
    return record


def dimms(root: str, folder: str) -> "list[Reading]":
    """The DIMMs of a controller. Raises OSError, ValueError."""
    entries = names(root, folder)
    records = [
        dimm(root, "{}{}/".format(folder, name), name) for name in entries if DIMM.match(name)
    ]
    for row in entries if not records else ():
        if ROW.match(row):
            row_folder = "{}{}/".format(folder, row)
            matches = [CHANNEL.match(name) for name in names(root, row_folder)]
            records += [
                channel(root, row_folder, row, match.group(1)) for match in matches if match
            ]
    if len(records) > MOST_DIMMS:
        raise ValueError("more than {} DIMMs".format(MOST_DIMMS))
    return records


def controller(root: str, number: int) -> "Reading":
    folder = "{}/mc{}/".format(CONTROLLERS, number)
    record = Reading(id=number)
    record.take("driver", line, root, folder + "mc_name")
    for field, kind in COUNTS:
        record.take(field, parsed, root, "{}{}_count".format(folder, kind), integer)
    record.take("since_s", parsed, root, folder + "seconds_since_reset", integer)
    record.take("dimms", dimms, root, folder)
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    numbers, why = attempt(numbered, root, CONTROLLERS, "mc", MOST)
    edac = Reading()
    if why == "ENOENT":
        numbers = []
    elif numbers is None:
        edac.fail("controllers", why)
        return edac
    edac["controllers"] = [controller(root, number) for number in numbers]
    return edac
