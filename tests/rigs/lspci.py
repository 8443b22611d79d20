"""What `lspci` printed, as the /sys of that machine: as much of it as the text tells."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ACS_BITS = (
    "SrcValid",
    "TransBlk",
    "ReqRedir",
    "CmpltRedir",
    "UpstreamFwd",
    "EgressCtrl",
    "DirectTrans",
)
CLASSES = {  # as lspci names them without -n
    "3D controller": "030200",
    "VGA compatible controller": "030000",
    "Bridge": "068000",
    "Ethernet controller": "020000",
    "Host bridge": "060000",
    "Infiniband controller": "020700",
    "Non-Volatile memory controller": "010802",
    "PCI bridge": "060400",
    "SATA controller": "010601",
    "Audio device": "040300",
    "Communication controller": "078000",
    "Generic system peripheral": "080700",
    "IDE interface": "010180",
    "ISA bridge": "060100",
    "Memory controller": "058000",
    "Performance counters": "110100",
    "RAM memory": "050000",
    "SMBus": "0c0500",
    "Serial Attached SCSI controller": "010700",
    "Serial bus controller": "0c8000",
    "System peripheral": "088000",
    "USB controller": "0c0330",
    "Unassigned class": "ff0000",
}
VENDORS = {
    "NVIDIA Corporation": "10de",
    "Mellanox Technologies": "15b3",
    "Intel Corporation": "8086",
    "Advanced Micro Devices, Inc. [AMD]": "1022",
    "Broadcom / LSI": "1000",
    "Broadcom Inc.": "14e4",
    "Samsung Electronics": "144d",
    "ASPEED Technology": "1a03",
    "Cirrus Logic": "1013",
    "XenSource": "5853",
}
HEAD = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[]+?)(?: \[([0-9a-f]{4})\])?: (.*)"
)
IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
DEVICE = re.compile(r" Device ([0-9a-f]{4})\b")


def functions_of(text: str) -> Iterator[tuple[str, str]]:
    """Address and text of every function that lspci printed."""
    for block in re.split(r"\n(?=[0-9a-f:]+\.[0-7] )", text.strip()):
        yield block.split(" ", 1)[0], block


def settings_of(block: str) -> dict[str, Any]:
    """What lspci's text says of a function's settings, in the words of the evidence."""
    found: dict[str, Any] = {}
    control = re.search(r"MaxPayload (\d+) bytes, MaxReadReq (\d+) bytes", block)
    if control:
        found["max_payload_b"], found["max_read_request_b"] = map(int, control.groups())
        found["relaxed_ordering"] = "RlxdOrd+" in block
        most = re.search(r"DevCap:\tMaxPayload (\d+)", block)
        found["max_payload_most_b"] = int(most[1]) if most else 128
        aspm = re.search(r"LnkCtl:\tASPM (.*?)(?: Enabled)?;", block)
        found["aspm"] = aspm[1].replace("Disabled", "disabled") if aspm else "disabled"
    acs = re.search(r"ACSCtl:\t(.*)", block)
    if acs:
        bits = dict(re.findall(r"(\w+)([+-])", acs[1]))
        found["acs_enabled"] = sum(1 << at for at, name in enumerate(ACS_BITS) if bits[name] == "+")
    return found


def dumped_space(block: str) -> bytes:
    """The configuration space that lspci printed as rows of hexadecimal numbers."""
    rows = re.findall(r"^([0-9a-f]{2,3}): ((?:[0-9a-f]{2} ?){16})$", block, re.M)
    space = bytearray(16 * len(rows))
    for at, row in rows:
        space[int(at, 16) : int(at, 16) + 16] = bytes.fromhex(row)
    return bytes(space)


def built_space(block: str) -> bytes:
    """A configuration space with the capabilities that lspci's text names, by the standard."""
    wanted, port = settings_of(block), "PCI bridge" in block
    words = {0x06: 0x10, 0x0E: 1 if port else 0, 0x34: 0x50, 0x50: 0x6001, 0x60: 0x10}
    size = {128 << shift: shift for shift in range(6)}
    if "max_payload_b" in wanted:
        words[0x62] = 2 | (0x6 if port else 0) << 4
        words[0x64] = size[wanted["max_payload_most_b"]]
        control = size[wanted["max_payload_b"]] << 5 | size[wanted["max_read_request_b"]] << 12
        words[0x68] = control | (0x10 if wanted["relaxed_ordering"] else 0)
        words[0x70] = ("disabled", "L0s", "L1", "L0s L1").index(wanted["aspm"])
    words |= {0x100: 0x0001, 0x102: 0x1480 | 2}  # AER, and then what comes at 0x148
    if "acs_enabled" in wanted:
        words |= {0x148: 0x0D, 0x14A: 1, 0x14C: 0x5F, 0x14E: wanted["acs_enabled"]}
    space = bytearray(0x1000)
    for at, word in words.items():
        space[at : at + 2] = word.to_bytes(2, "little")
    return bytes(space)


def values_of(block: str) -> dict[str, str]:
    """The files of a function, and the name of its `driver`; what is not told is left out."""
    head = HEAD.match(block)
    if head is None:
        return {}
    _, _, kind, code, rest = head.groups()
    interface = re.search(r"\(prog-if ([0-9a-f]{2})", rest)
    known = CLASSES.get(kind.strip())
    found = {"class": f"0x{code}{interface[1] if interface else '00'}" if code else f"0x{known}"}
    if not code and known is None:
        del found["class"]
    found |= _ids(rest, "vendor", "device")
    board = re.search(r"^\tSubsystem: (.*)", block, re.M)
    found |= _ids(board[1], "subsystem_vendor", "subsystem_device") if board else {}
    revision = re.search(r"\(rev ([0-9a-f]{2})\)", rest)
    found["revision"] = f"0x{revision[1] if revision else '00'}"
    node = re.search(r"NUMA node: (\d+)", block)
    found["numa_node"] = node[1] if node else "-1"
    for line, speed, width in (
        ("LnkCap", "max_link_speed", "max_link_width"),
        ("LnkSta", "current_link_speed", "current_link_width"),
    ):
        link = re.search(rf"{line}:.*?Speed ([\d.]+)GT/s.*?, Width x(\d+)", block)
        if link:
            found |= {speed: f"{float(link[1])} GT/s PCIe", width: link[2]}
    driver = re.search(r"Kernel driver in use: (\S+)", block)
    return {**found, **({"driver": driver[1]} if driver else {})}


def _ids(text: str, vendor: str, device: str) -> dict[str, str]:
    """The two numbers in what lspci calls a device, with -n or by the vendors' names."""
    both = IDS.findall(text)
    if both:
        return {vendor: f"0x{both[-1][0]}", device: f"0x{both[-1][1]}"}
    number = DEVICE.search(text)
    named = next((code for name, code in VENDORS.items() if text.startswith(name)), None)
    found = {vendor: f"0x{named}"} if named else {}
    return {**found, **({device: f"0x{number[1]}"} if number else {})}


def write(text: str, root: Path, cpus: Mapping[str, str] | None = None) -> dict[str, str]:
    """Write what lspci printed under `root`/sys; `cpus`: the CPUs of each NUMA node. Returns the
    text of each function by its address."""
    blocks = {
        address if address.count(":") == 2 else f"0000:{address}": block
        for address, block in functions_of(text)
    }
    above = {
        (address.rpartition(":")[0].rpartition(":")[0], bus[1]): address
        for address, block in blocks.items()
        if (bus := re.search(r"secondary=([0-9a-f]{2})", block))
    }
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    for address, block in blocks.items():
        path, at = [address], address
        while (port := above.get((at[:-8], at[-7:-5]))) and len(path) < 9:
            at = port
            path.append(at)
        place = root / f"sys/devices/pci{path[-1][:-5]}" / "/".join(reversed(path))
        place.mkdir(parents=True, exist_ok=True)
        values = values_of(block)
        driver = values.pop("driver", None)
        if cpus and values.get("numa_node") in cpus:
            values["local_cpulist"] = cpus[values["numa_node"]]
        for name, value in values.items():
            (place / name).write_text(f"{value}\n", encoding="ascii")
        space = dumped_space(block)
        if space or ("Capabilities: [" in block and "<access denied>" not in block):
            (place / "config").write_bytes(space or built_space(block))
        if driver:
            bound = root / "sys/bus/pci/drivers" / driver
            bound.mkdir(parents=True, exist_ok=True)
            (place / "driver").symlink_to(os.path.relpath(bound, place))
        elif "\n\t" not in block:  # no more was printed of it: a link that cannot be read
            (place / "driver").touch()
        (devices / address).symlink_to(os.path.relpath(place, devices))
    return blocks
