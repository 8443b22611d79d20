"""CPUs and their topology: /sys/devices/system/cpu, /proc/cpuinfo."""

from nodevet.remote.probe.cpulist import (
    format_cpulist,
    normal,
    normal_mask,
    normal_some,
    parse_cpulist,
)
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    first_readable,
    flag,
    head,
    integer,
    line,
    parse_rows,
    parsed,
    pick,
    reason,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

CPUS = "/sys/devices/system/cpu/"
CPUINFO = "/proc/cpuinfo"


def siblings(root: str, folder: str) -> str:
    """The threads of a CPU's core, as a cpulist. Raises OSError, ValueError."""
    lists = (
        ("core_cpus_list", normal_some),
        ("thread_siblings_list", normal_some),  # before Linux 5.3
        ("thread_siblings", normal_mask),
    )
    return first_readable(root, folder, *lists)


def topology(root: str, cpus: "Sequence[int]") -> "list[tuple[int, str]]":
    """[(package id, siblings)] of these CPUs. Raises ValueError with the CPU that lacks them.

    It reads one thread of each core. The kernel gives them all one mask and one package: link_mask
    in arch/x86/kernel/smpboot.c, update_siblings_masks in drivers/base/arch_topology.c.
    """
    rows: "dict[int, tuple[int, str]]" = {}
    for cpu in cpus:
        if cpu in rows:
            continue
        folder = "{}cpu{}/topology/".format(CPUS, cpu)
        try:
            package = parsed(root, folder + "physical_package_id", integer)
            row = (package, siblings(root, folder))
        except (OSError, ValueError) as error:
            raise ValueError("cpu{}/topology: {}".format(cpu, reason(error)))
        rows[cpu] = row
        rows.update((thread, row) for thread in parse_cpulist(row[1]))
    return [rows[cpu] for cpu in cpus]


def packages_of(cpus: "Sequence[int]", rows: "Sequence[tuple[int, str]]") -> "dict[str, str]":
    """{package id: cpulist}."""
    members: "dict[str, list[int]]" = {}
    for cpu, (package, _) in zip(cpus, rows):
        members.setdefault(str(package), []).append(cpu)
    return {package: format_cpulist(ids) for package, ids in members.items()}


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    cpu = Reading()
    rows, why = attempt(lambda: parse_rows(head(root, CPUINFO)))
    if rows is None:
        cpu.fail_all(("model_name", "vendor"), why)
    else:
        cpu.take("model_name", pick, rows, CPUINFO, "model name")
        cpu.take("vendor", pick, rows, CPUINFO, "vendor_id", "CPU implementer")
    cpu.take("online", parsed, root, CPUS + "online", normal_some)
    cpu.take("offline", parsed, root, CPUS + "offline", normal)
    cpu.take("present", parsed, root, CPUS + "present", normal_some)
    cpu.take("smt_active", parsed, root, CPUS + "smt/active", flag)
    cpu.take("smt_control", line, root, CPUS + "smt/control")
    if cpu["online"] is None:
        cpu.fail_all(
            ("threads", "cores", "sockets", "packages"), "online: " + cpu["errors"]["online"]
        )
        return cpu
    online = parse_cpulist(cpu["online"])
    cpu["threads"] = len(online)
    rows_by_cpu, why = attempt(topology, root, online)
    if rows_by_cpu is None:
        cpu.fail_all(("cores", "sockets", "packages"), why)
        return cpu
    cpu["cores"] = len(set(rows_by_cpu))
    cpu["packages"] = packages_of(online, rows_by_cpu)
    cpu["sockets"] = len(cpu["packages"])
    return cpu
