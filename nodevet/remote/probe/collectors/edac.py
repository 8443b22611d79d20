"""Memory errors as the kernel's EDAC drivers count them, by DIMM: /sys/devices/system/edac/mc.

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


def dimm(root: str, place: str, name: str) -> "Reading":
    record = Reading(id=name)
    for field, kind in COUNTS:
        record.take(field, parsed, root, "{}dimm_{}_count".format(place, kind), integer)
    record.take("label", line, root, place + "dimm_label")
    record.take("size_mib", parsed, root, place + "size", integer)
    return record


def channel(root: str, place: str, row: "Any", prefix: str) -> "Reading":
    """One channel of a row, as older kernels have it; most count uncorrected errors by row."""
    record = Reading(id="{}/{}".format(row, prefix))
    for field, kind in COUNTS:
        record.take(field, parsed, root, "{}{}_{}_count".format(place, prefix, kind), integer)
    record.take("label", line, root, "{}{}_dimm_label".format(place, prefix))
    record.fail("size_mib", "the kernel tells it of a row")
    return record


def dimms(root: str, place: str) -> "list[Reading]":
    """The DIMMs of a controller. Raises OSError, ValueError."""
    entries = names(root, place)
    found = [dimm(root, "{}{}/".format(place, name), name) for name in entries if DIMM.match(name)]
    for row in entries if not found else ():
        if ROW.match(row):
            folder = "{}{}/".format(place, row)
            matches = [CHANNEL.match(name) for name in names(root, folder)]
            found += [channel(root, folder, row, match.group(1)) for match in matches if match]
    if len(found) > MOST_DIMMS:
        raise ValueError("more than {} DIMMs".format(MOST_DIMMS))
    return found


def controller(root: str, number: int) -> "Reading":
    place = "{}/mc{}/".format(CONTROLLERS, number)
    record = Reading(id=number)
    record.take("driver", line, root, place + "mc_name")
    for field, kind in COUNTS:
        record.take(field, parsed, root, "{}{}_count".format(place, kind), integer)
    record.take("since_s", parsed, root, place + "seconds_since_reset", integer)
    record.take("dimms", dimms, root, place)
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
