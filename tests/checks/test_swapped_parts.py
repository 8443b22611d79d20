"""Who accepts a finding about many parts accepts those: with one part more, or another one in
place of one, it fails again."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nodevet.evidence.lists import spans
from nodevet.model import Verdict
from tests.checks import test_soundness as soundness

Sections = dict[str, Any]
MANY = 24  # more parts than any value ever listed
UUID = "b1f0d7a2-7a1c-4a4e-9d4b-3f6f0c0a9e{:02d}"


def nics(parts: Sequence[int]) -> Sections:
    events = [
        {"kind": "nic_failed", "bus_id": f"0000:{part:02x}:00.0", "count": 1, "last_s": 9.0}
        for part in parts
    ]
    return {"kernel_log": {"complete": True, "crashes": [], "events": events}}


def logged(kind: str, parts: Sequence[int], **rest: Any) -> Sections:
    events = [
        {"kind": kind, "detail": f"part{part}", "count": 1, "last_s": 9.0, **rest} for part in parts
    ]
    return {"kernel_log": {"complete": True, "crashes": [], "events": events}}


def hung(parts: Sequence[int]) -> Sections:
    return logged("hung_task", parts)


def killed(parts: Sequence[int]) -> Sections:
    return logged("oom", parts)


def crashes(parts: Sequence[int]) -> Sections:
    records = [{"path": f"/{part}", "at_s": 1e6, "reason": "Panic"} for part in parts]
    log = {"complete": True, "crashes": records, "events": []}
    return {"kernel_log": log, "host": {"clock_s": 1e6, "uptime_s": 9.0}}


def machine_checks(parts: Sequence[int]) -> Sections:
    return logged("mce", parts, severity="nonfatal")


def corrected(parts: Sequence[int]) -> Sections:
    return logged("mce", parts, severity="corrected")


def results(parts: Sequence[int]) -> Sections:
    failed = [
        {"test": "PCIe", "part": f"GPU {part}", "status": "Fail", "ran": True, "text": ""}
        for part in parts
    ]
    told = {"path": "/d", "age_s": 1, "results": 99, "passed": 99 - len(parts), "serials": []}
    return {"dcgm": {"diagnostics": [{**told, "driver_version": "", "not_passed": failed}]}}


def rdma(ports: list[dict[str, Any]]) -> Sections:
    up = {"state": "ACTIVE", "phys_state": "LinkUp", "link_layer": "InfiniBand"}
    devices = [
        {
            "name": f"mlx5_{at}",
            "physfn": "",
            "board_id": "MT_1",
            "fw_ver": "1.0",
            "ports": [{"number": 1, "rate_gbps": 400, "width": 4, **up, **port}],
        }
        for at, port in enumerate(ports)
    ]
    return {"infiniband": {"found": [each["name"] for each in devices], "devices": devices}}


def keys(parts: Sequence[int]) -> Sections:
    return rdma([{"pkeys": [f"{0x8000 + part:x}" for part in range(50) if 49 - part not in parts]}])


def slow_ports(parts: Sequence[int]) -> Sections:
    return rdma([{"rate_gbps": 200 if at in parts else 400} for at in range(80)])


def domains(parts: Sequence[int]) -> Sections:
    gpus = [
        {"index": at, "fabric": {"cluster_uuid": UUID.format(part)}}
        for at, part in enumerate(parts)
    ]
    gpus.append({"index": 99, "fabric": {"cluster_uuid": UUID.format(0)}})
    return {"gpu": {"gpus": gpus}, "imex": {"nodes": []}}


def outside(parts: Sequence[int]) -> Sections:
    found = domains([0] * 50)
    for part in parts:
        found["gpu"]["gpus"][part]["fabric"]["cluster_uuid"] = UUID.format(0).translate(
            {ord(digit): "0" for digit in "123456789abcdef"}
        )
    return found


def peers_of_imex(parts: Sequence[int]) -> Sections:
    nodes = [f"10.0.0.{part}" for part in parts]
    return {**domains([]), "imex": {"nodes": [*nodes, *nodes]}}


def members(parts: Sequence[int]) -> Sections:
    names = [f"eth{at}" for at in range(50)]
    lower = [
        {
            "name": name,
            "kind": "physical",
            "operstate": "down" if at in parts else "up",
            "carrier": at not in parts,
            "admin_up": True,
        }
        for at, name in enumerate(names)
    ]
    bond = {"name": "bond0", "kind": "bond", "operstate": "up", "carrier": True, "lower": names}
    return {"network": {"found": [*names, "bond0"], "interfaces": [*lower, bond]}}


def leftovers(parts: Sequence[int]) -> Sections:
    known = [
        {"pid": part, "command": "python3", "uid": 7, "cgroup": "/", "gpu_minors": [0]}
        for part in parts
    ]
    gpu = {"index": 0, "minor_number": 0, "memory_used_b": 0}
    users = [{"pid": part, "memory_used_b": 0} for part in parts]
    return {
        "gpu": {"gpus": [{**gpu, "processes": users}]},
        "processes": {"complete": True, "processes": known},
    }


def offline(parts: Sequence[int]) -> Sections:
    """A list of CPUs that is longer than 200 characters."""
    out = {20 * at for at in range(80)} | {2000 + 20 * part for part in parts}
    online = spans(at for at in range(8192) if at not in out)
    return {"cpu": {"present": "0-8191", "online": online, "offline": spans(out)}}


def cdi(spec: dict[str, Any], gpus: int = 1) -> Sections:
    found = {"path": "/a", "kind": "nvidia.com/gpu", "paths": 99, "missing": 0, "examples": []}
    listed = [{"index": at, "uuid": f"GPU-{at:02d}", "mig_current": False} for at in range(gpus)]
    spec = {**found, "devices": ["all"], "driver_version": "", **spec}
    containers = {"mode": "auto", "engines": [], "toolkit": "a", "specifications": [spec]}
    return {"gpu": {"gpus": listed}, "containers": containers}


def missing_paths(parts: Sequence[int]) -> Sections:
    return cdi({"missing": len(parts), "examples": [f"/{part}" for part in parts]})


def strange_devices(parts: Sequence[int]) -> Sections:
    return cdi({"devices": [f"GPU-{part:02d}" for part in parts if part]}, gpus=1)


def variable(values: Sequence[str]) -> Sections:
    places = [
        {"name": "LD_PRELOAD", "value": value, "place": f"/etc/environment:{at}"}
        for at, value in enumerate(values)
    ]
    return {"environment": {"variables": places, "unread": "", "units": []}}


def preloads(parts: Sequence[int]) -> Sections:
    return variable([f"/{part}.so" for part in parts])


def long_preload(parts: Sequence[int]) -> Sections:
    return variable([":".join(f"/usr/lib/{part}.so" for part in parts)])


def complaint(parts: Sequence[int]) -> Sections:
    failed = "ImportError: " + ", ".join(f"/usr/lib/{part}.so" for part in parts)
    return {"framework": {"interpreters": [{"name": "/usr/bin/python3", "failed": failed}]}}


def parameters(parts: Sequence[int]) -> Sections:
    return {"host": {"cmdline": " ".join(f"pci=resource_alignment={part}" for part in parts)}}


def output(parts: Sequence[int]) -> Sections:
    """The probe sends back 1,000 characters of it."""
    text = ", ".join(f"link {part} of the switch of this rack is down" for part in parts)[:1000]
    said = {"kind": "equals", "text": "fine", "found": False}
    known = {"name": "tool", "exit": 0, "matches": [said], "values": []}
    return {"commands": {"commands": [{**known, "text": text}]}}


def packages(parts: Sequence[int]) -> Sections:
    found = [
        {"name": f"nvidia-{part}", "version": "1-1" if part in parts else "2-1"}
        for part in range(50)
    ]
    states = [{**each, "state": "installed", "held": False} for each in found]
    return {"installed": {"manager": "dpkg", "packages": [{"name": "nvidia-*", "found": states}]}}


def addresses(parts: Sequence[int]) -> Sections:
    listed = [f"10.0.0.{part}/24" for part in parts]
    interface = {"name": "eth0", "addresses": listed, "count": len(listed)}
    return {"routes": {"interfaces": [interface], "unplaced": []}}


def array(parts: Sequence[int]) -> Sections:
    failed = [f"sd{part}" for part in parts]
    known = {"name": "md0", "level": "raid6", "active": True, "array_state": "clean"}
    found = {**known, "container": False, "devices": 50, "devices_active": 40, "failed": failed}
    return {"raid": {"arrays_found": 1, "arrays": [found], "pools_found": 0, "pools": []}}


def nvlinks(values: dict[str, Any], parts: Sequence[int]) -> Sections:
    fine = {"active": True, "speed_mbps": 26562, "crc_flit_errors": 0, "p2p": True}
    links = [{"link": at, **fine, **(values if at in parts else {})} for at in range(40)]
    return {"gpu": {"gpus": [{"index": 0, "nvlinks": links}]}}


def slow_links(parts: Sequence[int]) -> Sections:
    return nvlinks({"speed_mbps": 13281}, parts)


def link_errors(parts: Sequence[int]) -> Sections:
    return nvlinks({"crc_flit_errors": 500}, parts)


def lacking_links(parts: Sequence[int]) -> Sections:
    return nvlinks({"p2p": False}, parts)


def links_down(parts: Sequence[int]) -> Sections:
    return nvlinks({"active": False}, parts)


def xid_links(parts: Sequence[int]) -> Sections:
    events = [
        {
            **{"kind": "xid", "code": 149, "bus_id": "0000:19:00.0", "severity": "fatal"},
            **{"detail": f"NETIR_LINK_EVT link {part} 0x021425c6 0x00000000", "count": 1},
            **{"first_s": 600.0, "last_s": 600.0, "times_s": [600.0]},
        }
        for part in parts
    ]
    gpu = {"index": 0, "bus_id": "0000:19:00.0"}
    return {
        "gpu": {"count": 1, "gpus": [gpu]},
        "kernel_log": {"complete": True, "crashes": [], "events": events},
    }


def dimms(parts: Sequence[int], field: str = "uncorrected") -> Sections:
    """A count of a boot before may be the same, of other DIMMs."""
    none = {"corrected": 0, "uncorrected": 0}
    listed = [{"id": f"dimm{part}", **none, field: 1} for part in parts]
    return {"edac": {"controllers": [{"id": 0, **none, field: 24, "dimms": listed}]}}


def weak_dimms(parts: Sequence[int]) -> Sections:
    return dimms(parts, "corrected")


PKEYS = [f"0x{0x8000 + part:x}" for part in range(50)]
BOND = {"interfaces": {"bond0": {"members": 50}}}
ROWS: dict[str, tuple[str, Any, Callable[[Sequence[int]], Sections]]] = {
    "nics": ("kernel_faults", {}, nics),
    "hung": ("kernel_faults", {}, hung),
    "killed": ("kernel_faults", {}, killed),
    "crashes": ("kernel_faults", {}, crashes),
    "machine-checks": ("machine_check", {}, machine_checks),
    "corrected": ("machine_check", {"corrected": 0}, corrected),
    "results": ("dcgm", {"health": False, "diag": "/d"}, results),
    "keys": ("infiniband", {"count": 1, "pkeys": PKEYS}, keys),
    "slow-ports": ("infiniband", {"count": 80, "uniform": True}, slow_ports),
    "domains": ("imex", {"service": False, "channel": False}, domains),
    "outside": ("imex", {"service": False, "channel": False}, outside),
    "peers-of-imex": ("imex", {"service": False, "channel": False}, peers_of_imex),
    "members": ("network_link", BOND, members),
    "leftovers": ("leftover_processes", {}, leftovers),
    "offline": ("cpu_topology", {}, offline),
    "not-online": ("cpu_topology", {"online": False, "possible": True}, offline),
    "missing-paths": ("container_runtime", {}, missing_paths),
    "strange-devices": ("container_runtime", {}, strange_devices),
    "preloads": ("environment", {}, preloads),
    "long-preload": ("environment", {}, long_preload),
    "complaint": ("framework_cuda", "/usr/bin/python3", complaint),
    "parameters": ("kernel_cmdline", {"absent": ["pci"]}, parameters),
    "output": ("command", {"a": {"run": ["tool"], "text": "fine"}}, output),
    "packages": ("packages", {"installed": {"nvidia-*": {"minimum": "2"}}}, packages),
    "removed-packages": ("packages", {"absent": ["nvidia-*"]}, packages),
    "addresses": ("routes", {"addresses": {"eth0": "192.0.2.0/24"}}, addresses),
    "array": ("raid", {}, array),
    "xid-links": ("xid", {}, xid_links),
    "links-down": ("nvlink", {"active": 40}, links_down),
    "slow-links": ("nvlink", {"active": 40}, slow_links),
    "link-errors": ("nvlink", {"active": 40, "crc_flit_errors": 1}, link_errors),
    "lacking-links": ("nvlink", {"active": 40, "capabilities": ["p2p"]}, lacking_links),
    "dimms": ("memory_errors", {"if_possible": True}, dimms),
    "weak-dimms": ("memory_errors", {"corrected": 9}, weak_dimms),
}


@pytest.mark.parametrize("many", [1, MANY])
@pytest.mark.parametrize("row", ROWS)
def test_e06_a_waiver_for_some_parts_covers_no_other(
    row: str, many: int, ask: Any, make_params: Any, make_document: Any
) -> None:
    check, params, sections = ROWS[row]

    def said(parts: Sequence[int]) -> list[Any]:
        found: list[Any] = ask(check, make_params(check, params), make_document(sections(parts)))
        return found

    parts = range(1, many + 1)
    accepted = soundness.waivers(said(parts))

    def verdicts(parts: Sequence[int]) -> set[Verdict]:
        return {each.verdict for each in soundness.waived(said(parts), accepted)}

    assert accepted
    unread = verdicts(parts) & {Verdict.UNKNOWN}
    assert bool(unread) is (row == "output" and many == MANY)
    for others in ([*parts[:-1], many + 9], [*parts, many + 9]):
        assert verdicts(others) & {Verdict.FAIL, *unread}, others
