"""The captures of real machines, each met as the probe meets a live node.

An `nvidia-smi` log becomes the answers of a simulated NVML on a made-up host with its GPUs; trees
of /sys and /proc, and what lspci printed, the files of a machine; a kernel log its /dev/kmsg; and
what programs printed becomes programs that print it again.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from xml.etree import ElementTree

import kernel_records
import live_machine
import lspci
import nvidia_smi_text
from msgspec.structs import replace

from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence, decode
from nodevet.evidence.nvme import Nvme
from nodevet.evidence.pci import Pci
from nodevet.fleet.protocol import exchange, payload
from nodevet_sim import nvidia_smi_xml
from nodevet_sim.captured import read as read_tree
from nodevet_sim.library import build, environment
from nodevet_sim.tree import write as write_tree

FOLDER = Path(__file__).parents[2] / ".." / "shared" / "captures"
TREES = ("sysfs/**/*.tar.*", "sysfs/*.ttar", "copyleft/sysfs/**/*.tar.*")
OF_ITS_HOST = frozenset(
    {
        *("gpu_topology", "imex", "leftover_processes", "nic_pairing", "numa_binding"),
        *("numa_locality", "p2p", "slurm_node", "xid", "gpudirect", "dcgm", "device_nodes"),
        *("pcie_errors", "kernel_modules", "cuda_libraries", "framework_cuda", "nvswitch"),
    }
)
UNTOLD = ("nvlinks", "gsp_firmware_enabled", "event_reasons_supported")
OF_THE_LOG = ("xid", "machine_check", "kernel_faults", "storage_errors", "pcie_errors", "reboots")
OF_THE_BUS = ("gpu_count", "gpu_slots", "nvswitch", "nvme_count", "gpu_model")
BEHIND_A_CONTROLLER = "*megaraid*.json"  # logs of smartctl
REFUSED = (  # what smartctl says of a volume
    "Smartctl open device: /dev/sda failed: DELL or MegaRaid controller, "
    "please try adding '-d megaraid,N'"
)
NOT_RUN = ("commands", "framework")
DIAGNOSTIC = "/var/log/dcgm.json"
BOOTED = r"^(?=.*nvidia-nvlink: Nvlink Core is being initialized)"
A100, LINKS_OF_AN_A100 = "0x20B210DE", 12
H100_PORTS = {"count": 8, "rate_gbps": 400, "width": 4, "maximum": {"link_downed": 0}}
PCI_SETTINGS = {"acs": False, "pci_links": {}, "pcie_settings": {"minimum_read_request_b": 512}}
MACHINES = {"gpud": ("Dell Inc.", "PowerEdge XE9680"), "aws": ("Xen", "HVM domU")}
NO_NAMES = ("unknown", "unknown")
NODES = ("nvidiactl", "nvidia0")


class Captured(NamedTuple):
    """One capture as the probe read it. `checks`: those that it tells something of; none: all.
    `params`: what they are asked, where that is a value of the site."""

    name: str
    evidence: Evidence
    checks: tuple[str, ...] = ()
    params: Mapping[str, Any] = {}


def asks(said: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What all checks that need no value of the site want read besides, and those with `said`."""
    catalog = Catalog()
    found: dict[str, dict[str, Any]] = {}
    for name in catalog.ids:
        check = catalog.check(name)
        params = params_of(check, said.get(name, {}))
        for section, asked in (check.asks(params) if check.asks and params else {}).items():
            if section not in NOT_RUN:
                found.setdefault(section, {}).update({json.dumps(each): each for each in asked})
    return {section: list(asked.values()) for section, asked in found.items()}


def captured(folder: Path = FOLDER, names: str = "*") -> Iterator[Captured]:
    """Every capture that tells something of a node which nodevet reads; `names`: of these."""
    with TemporaryDirectory() as scratch:
        library = build(Path(scratch, "nvml"))
        for pattern, reader in READERS:
            for path in sorted(folder.glob(pattern)):
                name = str(path.relative_to(folder))
                if not fnmatch(name, names):
                    continue
                with TemporaryDirectory(dir=scratch) as place:
                    root = Path(place, "root")
                    root.mkdir()
                    found = reader(path, root, library)
                    if isinstance(found, Captured):
                        yield found._replace(name=name)
                    else:
                        yield from (each._replace(name=f"{name}/{each.name}") for each in found)


def left_out(folder: Path = FOLDER) -> Iterator[tuple[str, str]]:
    """(name, why) of every other file; why is empty for one that nobody thought of."""
    read = [path for pattern, _ in READERS for path in folder.glob(pattern)]
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        if not any(path == each or each in path.parents for each in read):
            name = str(path.relative_to(folder))
            whys = (why for pattern, why in OTHERS if fnmatch(name, pattern))
            yield name, next(whys, "")


def probed(root: Path, variables: Mapping[str, str] | None = None) -> Evidence:
    """What the payload reads of a machine's files in a folder."""
    wish = exchange.request(
        nonce="captured",
        root=str(root.resolve()),
        whole_machine=True,
        deadline=60,
        asked_s=None,
        asks=asks({}),
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", payload.BOOT],
        input=payload.payload() + wish,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        check=True,
    )
    return decode(exchange.unframe(done.stdout, "captured"))


def live(root: Path, sections: Sequence[str], checks: Sequence[str], **params: Any) -> Captured:
    """What the payload reads of the machine that these files are laid over: these sections."""
    found = live_machine.evidence(root, [*sections, "host"], asks(params))
    return Captured("", found, (*checks, *params), params)


def of_xml(path: Path, root: Path, library: Path) -> Captured:
    return of_gpus(nvidia_smi_xml.read(path), root, library)


def of_gpus(node: nvidia_smi_xml.XmlNode, root: Path, library: Path, more: str = "") -> Captured:
    """GPUs on a made-up host. `more`: lines of the NVML state that nvidia-smi -q does not print."""
    machine = root / "machine"
    write_tree(node.machine(), machine)
    state = root / "nvml.state"
    untold = "".join(f"gpu.*.{key} = NVML_ERROR_UNKNOWN\n" for key in UNTOLD)
    state.write_text(untold + node.state() + more, encoding="utf-8")
    return Captured("", probed(machine, environment(library, state)), of_a_gpu())


@cache
def of_a_gpu() -> tuple[str, ...]:
    """The checks of GPUs that need nothing of the host which nvidia-smi does not tell."""
    catalog = Catalog()
    reading = (name for name in catalog.ids
               if any(each.startswith("gpu.") for each in catalog.check(name).reads))  # fmt: skip
    return tuple(name for name in reading if name not in OF_ITS_HOST)


def of_text(path: Path, root: Path, library: Path) -> Captured:
    text = path.read_text(encoding="utf-8")
    log = root / "log.xml"
    log.write_text(nvidia_smi_text.to_xml(text), encoding="utf-8")
    return of_gpus(nvidia_smi_xml.read(log), root, library, nvidia_smi_text.nvlinks(text))


def unpack(path: Path, root: Path) -> None:
    """Write a captured tree under `root`."""
    found = read_tree(path)
    for name, content in found.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    for name, target in found.links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not (root / name).exists():
            (root / name).symlink_to(target)


def of_tree(path: Path, root: Path, _: Path) -> Captured:
    unpack(path, root)
    return Captured("", probed(root))


def of_nvlinks(path: Path, root: Path, library: Path) -> Captured:
    """The GPUs of `nvidia-smi nvlink --status`, of which nothing else is known but their name."""
    text = path.read_text(encoding="utf-8")
    numbers = re.findall(r"^GPU (\d+): ([^(]+) \(", text, re.MULTILINE)
    rows = []
    for index, (number, name) in enumerate(numbers):
        text = text.replace(f"GPU {number}: ", f"GPU {index}: ", 1)
        rows += [f"Product Name : {name}", "PCI", f"    Device Id : {A100}"]
        rows[-3:-3] = [f"GPU 00000000:{index + 1:02X}:00.0"]
    log = root / "log.xml"
    log.write_text(nvidia_smi_text.to_xml(_log(rows, len(numbers))), encoding="utf-8")
    links = nvidia_smi_text.nvlinks(text)
    found = of_gpus(nvidia_smi_xml.read(log), root, library, links)
    return found._replace(checks=("nvlink",), params={"nvlink": {"active": LINKS_OF_AN_A100}})


def of_excerpt(path: Path, root: Path, library: Path) -> Captured:
    """A part of `nvidia-smi -q` about one GPU, below the command that printed a part of it."""
    rows = path.read_text(encoding="utf-8").partition("\n\n")[2].splitlines()
    log = root / "log.xml"
    log.write_text(nvidia_smi_text.to_xml(_log(["GPU 00000000:01:00.0", *rows], 1)))
    found = of_gpus(nvidia_smi_xml.read(log), root, library)
    return found._replace(checks=("ecc_errors",))


def _log(rows: Sequence[str], gpus: int) -> str:
    """Rows about GPUs as the whole that nvidia-smi -q prints."""
    head = f"{nvidia_smi_text.HEAD}\nDriver Version : 470.57.02\nAttached GPUs : {gpus}\n"
    return head + "\n".join(rows)


def of_bundle(path: Path, root: Path, library: Path) -> Captured:
    """What nvidia-bug-report.sh gathered of a machine, put together again."""
    for dump in (*path.glob("cmd/lspci-nnDvvvxxxx.txt"), *path.glob("cmd/lspci-nn.txt")):
        lspci.write(dump.read_text(encoding="utf-8"), root)
        break
    unpack(path / "root", root)
    (root / "dev").mkdir(exist_ok=True)
    log = (path / "log/dmesg-filtered.txt").read_text(encoding="utf-8")
    (root / "dev/kmsg").write_text(kernel_records.to_records(log, step=2), encoding="utf-8")
    if (path / "root/proc/driver/nvidia/version").exists():  # so its programs could open them
        for name in NODES:
            (root / "dev" / name).touch()
    variables = {}
    for smi in path.glob("cmd/nvidia-smi-q.txt"):
        document = root / "nvidia-smi.xml"
        document.write_text(nvidia_smi_text.to_xml(smi.read_text(encoding="utf-8")))
        state = root / "nvml.state"
        state.write_text(nvidia_smi_xml.read(document).state(), encoding="utf-8")
        variables = environment(library, state)
    return Captured("", probed(root, variables))


def of_log(path: Path, root: Path, _: Path) -> Captured:
    text = path.read_text(encoding="utf-8")
    (root / "dev").mkdir()
    (root / "dev/kmsg").write_text(kernel_records.to_records(text), encoding="utf-8")
    if "pstore" in path.name:
        record = root / "sys/fs/pstore/dmesg-erst-1"
        record.parent.mkdir(parents=True)
        record.write_text(text, encoding="utf-8")
    return live(root, ("kernel_log", "gpu"), OF_THE_LOG)


def of_journal(path: Path, root: Path, _: Path) -> Captured:
    """The longest boot of a log of several, as systemd's journal has it of a node whose /dev/kmsg
    is empty."""
    parts = re.split(BOOTED, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    records = kernel_records.to_records(max(parts, key=len))
    journald = root / "proc/100/comm"
    journald.parent.mkdir(parents=True)
    journald.write_text("systemd-journal\n", encoding="ascii")
    entries = kernel_records.to_entries(records)
    live_machine.write_program(root, "journalctl", entries.encode())
    return live(root, ("kernel_log", "gpu"), OF_THE_LOG)


def of_drives(folder: Path, root: Path, _: Path) -> Iterator[Captured]:
    """A machine with a drive for each log of smartctl, one after the other as if it were alone."""
    logs = sorted(set(folder.glob("*.json")) - set(folder.glob(BEHIND_A_CONTROLLER)))
    cases = []
    for number, path in enumerate(logs):
        told = json.loads(path.read_text(encoding="utf-8"))
        _write_drive(root, number, told)
        live_machine.write_program(root, f"log{number}", path.read_bytes())
        code = told["smartctl"]["exit_status"]
        shown = f"cat /{live_machine.PROGRAMS}/.log{number}; exit {code}"
        cases.append(f"*/dev/nvme{number}) {shown} ;;\n")
    live_machine.write_script(root, "smartctl", f'case "$*" in\n{"".join(cases)}esac\n')
    whole = live(root, ("nvme", "pci"), ("nvme_health",))
    nvme, bus = whole.evidence[Nvme].data, whole.evidence[Pci].data
    assert nvme is not None and bus is not None
    controllers = {each.address: each for each in nvme.controllers or ()}
    for number, path in enumerate(logs):
        alone = [each for each in bus.functions or () if each.address == _slot(number)]
        drive = replace(nvme, controllers=(controllers[_slot(number)],))
        evidence = whole.evidence.with_data(drive).with_data(replace(bus, functions=tuple(alone)))
        yield whole._replace(name=path.name, evidence=evidence)


def of_raid_member(path: Path, root: Path, _: Path) -> Captured:
    """A drive behind a RAID controller, below the controller's only volume."""
    told = json.loads(path.read_text(encoding="utf-8"))
    kind = told["device"]["type"].partition("+")[2]
    volume = root / "sys/devices/pci0000:00/0000:03:00.0/host0/target0:2:0/0:2:0:0/block/sda"
    (volume / "device").mkdir(parents=True)
    block = root / "sys/block"
    block.mkdir()
    (block / "sda").symlink_to(os.path.relpath(volume, block))
    lines = {"size": "7812939776", "removable": "0", "device/state": "running"}
    for name, text in {**lines, "device/vendor": "DELL", "device/model": "PERC H330 Mini"}.items():
        (volume / name).write_text(f"{text}\n", encoding="utf-8")
    outputs = {
        "scan": json.dumps({"devices": [{"name": "/dev/bus/0", "type": kind}]}),
        "volume": json.dumps({"smartctl": {"messages": [{"string": REFUSED}]}}),
        "member": path.read_text(encoding="utf-8"),
    }
    for name, text in outputs.items():
        live_machine.write_program(root, name, text.encode())
    shown = f"cat /{live_machine.PROGRAMS}/."
    code = told["smartctl"]["exit_status"]
    cases = f"--scan*) {shown}scan ;;\n*{kind}*) {shown}member; exit {code} ;;\n"
    cases += f"*) {shown}volume; exit 2 ;;\n"
    live_machine.write_script(root, "smartctl", f'case "$*" in\n{cases}esac\n')
    return live(root, ("drives",), ("drive_health",))


def _slot(number: int) -> str:
    return f"0000:{number + 1:02x}:00.0"


def _write_drive(root: Path, number: int, told: Mapping[str, Any]) -> None:
    """A controller, on the PCI bus."""
    place = root / f"sys/class/nvme/nvme{number}"
    function = root / "sys/bus/pci/devices" / _slot(number)
    place.mkdir(parents=True)
    function.mkdir(parents=True)
    lines = {
        "model": told.get("model_name", "unknown"),
        "serial": told.get("serial_number", "unknown"),
        "firmware_rev": told.get("firmware_version", "unknown"),
        "state": "live",
        "transport": "pcie",
        "address": _slot(number),
    }
    for name, text in lines.items():
        (place / name).write_text(f"{text}\n", encoding="utf-8")
    for name, text in {"class": "0x010802", "vendor": "0x144d", "device": "0xa80a"}.items():
        (function / name).write_text(f"{text}\n", encoding="utf-8")


def of_diagnostic(path: Path, root: Path, _: Path) -> Captured:
    place = root / DIAGNOSTIC[1:]
    place.parent.mkdir(parents=True)
    place.write_bytes(path.read_bytes())
    return live(root, ("dcgm", "gpu"), (), dcgm={"health": False, "diag": DIAGNOSTIC})


def of_rdma(path: Path, root: Path, _: Path) -> Captured:
    """The captured /sys/class/infiniband, with made-up functions of the devices."""
    subprocess.run(["tar", "-xzf", str(path), "-C", str(root)], check=True)
    (folder,) = (each for each in root.glob("*") if (each / "mlx5_0").is_dir())
    (root / "sys/class").mkdir(parents=True)
    folder.rename(root / "sys/class/infiniband")
    make_functions(root)
    return live(root, ("infiniband",), (), infiniband=H100_PORTS)


def make_functions(root: Path) -> None:
    """A PCI function below each RDMA device of a capture of the class alone."""
    for number, device in enumerate(sorted((root / "sys/class/infiniband").iterdir())):
        function = root / f"sys/devices/pci0000:00/0000:{number + 1:02x}:00.0"
        function.mkdir(parents=True)
        (device / "device").symlink_to(os.path.relpath(function, device))


def of_ibstatus(path: Path, root: Path, _: Path) -> Captured:
    """The files that ibstatus(8) prints, a script that does nothing else."""
    text = path.read_text(encoding="utf-8")
    for block in re.split(r"(?=Infiniband device)", text)[1:]:
        device, port = re.findall(r"'(\S+)' port (\d+)", block)[0]
        place = root / "sys/class/infiniband" / device / "ports" / port
        (place / "gids").mkdir(parents=True)
        told = dict(re.findall(r"^\s+([\w ]+):\s+(.*?)\s*$", block, re.MULTILINE))
        names = {"base lid": "lid", "phys state": "phys_state", "sm lid": "sm_lid"}
        for name, value in told.items():
            if name != "default gid":
                (place / names.get(name, name)).write_text(f"{value}\n", encoding="utf-8")
        (place / "gids/0").write_text(f"{told['default gid']}\n", encoding="utf-8")
    make_functions(root)
    return live(root, ("infiniband",), (), infiniband={"count": 1, "rate_gbps": 200})


def of_ethtool(path: Path, root: Path, _: Path) -> Captured:
    name = path.stem.rpartition("-")[2]
    place = root / "sys/devices/pci0000:00/0000:00:05.0/net" / name
    (place / "statistics").mkdir(parents=True)
    (place / "device").symlink_to("../..")
    for file, text in {"flags": "0x1003", "operstate": "up", "carrier": "1", "type": "1"}.items():
        (place / file).write_text(f"{text}\n", encoding="utf-8")
    (root / "sys/class/net").mkdir(parents=True)
    (root / "sys/class/net" / name).symlink_to(f"../../devices/pci0000:00/0000:00:05.0/net/{name}")
    live_machine.write_program(root, "ethtool", path.read_bytes(), 0, name)
    wanted = {name: {"maximum": {"bw_in_allowance_exceeded": 0, "tx_timeout": 0}}}
    return live(root, ("network",), (), network_link={"interfaces": wanted})


def of_lspci(path: Path, root: Path, _: Path) -> Captured:
    lspci.write(path.read_text(encoding="utf-8"), root)
    name_machine(root, MACHINES.get(path.name.split("-")[0], NO_NAMES))
    return live(root, ("pci", "pci_settings"), OF_THE_BUS, **PCI_SETTINGS)


def name_machine(root: Path, names: tuple[str, str]) -> None:
    """What DMI says of who made it, and as what."""
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, value in zip(("sys_vendor", "product_name"), names, strict=True):
        (folder / name).write_text(f"{value}\n", encoding="utf-8")


def of_devices(path: Path, root: Path, _: Path) -> Captured:
    """Some devices of a machine that may have no GPU."""
    lspci.write(path.read_text(encoding="utf-8"), root)
    name_machine(root, NO_NAMES)
    params = {name: said for name, said in PCI_SETTINGS.items() if name != "acs"}
    return live(root, ("pci", "pci_settings"), (), **params)


def of_nccl(path: Path, root: Path, _: Path) -> Captured:
    """The functions of an NCCL topology, which names of each switch the upper port alone."""
    cpus = ElementTree.parse(path).findall("cpu")

    def walk(parent: ElementTree.Element, folder: Path, numa: str) -> None:
        for each in parent.findall("pci"):
            values = {
                "class": each.get("class", ""),
                **({"vendor": "0x10de"} if each.get("class", "").startswith("0x03") else {}),
                "current_link_speed": each.get("link_speed", ""),
                "current_link_width": each.get("link_width", ""),
                "numa_node": numa,
            }
            place = _function(root, folder, each.get("busid", "").lower(), values)
            walk(each, place, numa)

    for number, cpu in enumerate(cpus):
        top = root / f"sys/devices/pci0000:{number:02x}"
        walk(cpu, top, cpu.get("numaid", "-1"))
    return live(root, ("pci",), ("nic_pairing", "gpu_count"))


def of_hwloc(path: Path, root: Path, _: Path) -> Captured:
    """The functions of an lstopo XML, with the bridges above them."""

    def walk(parent: ElementTree.Element, folder: Path, numa: str) -> None:
        node = next((each.get("os_index", numa) for each in parent.findall("object")
                     if each.get("type") == "NUMANode"), numa)  # fmt: skip
        for each in parent.findall("object"):
            below = folder
            if busid := each.get("pci_busid"):
                kind = re.findall(r"[0-9a-f]{4}", each.get("pci_type", ""))
                revision = each.get("pci_type", "").split(" ")[-2]
                values = {"class": f"0x{kind[0]}00", "numa_node": node, "revision": f"0x{revision}"}
                if len(kind) >= 3:
                    values |= {"vendor": f"0x{kind[1]}", "device": f"0x{kind[2]}"}
                below = _function(root, folder, busid, values)
            elif each.get("type") == "Bridge":
                below = root / f"sys/devices/pci{each.get('bridge_pci', '0000:[00')[:7]}"
                below = Path(str(below).replace("[", ""))
            walk(each, below, node)

    walk(ElementTree.parse(path).getroot(), root / "sys/devices/pci0000:00", "-1")
    return live(root, ("pci",), ("gpu_count", "nvswitch"))


def _function(root: Path, folder: Path, address: str, values: Mapping[str, str]) -> Path:
    """Write a PCI function below a port, or a host bridge."""
    place = folder / address
    place.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (place / name).write_text(f"{value}\n", encoding="ascii")
    if "class" in values and not (place / "driver").exists():
        (place / "driver").touch()  # which it has is not told: a link that cannot be read
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    if not (devices / address).is_symlink():
        (devices / address).symlink_to(os.path.relpath(place, devices))
    return place


def of_mounts(path: Path, root: Path, _: Path) -> Captured:
    place = root / "proc/self/mountinfo"
    place.parent.mkdir(parents=True)
    place.write_bytes(path.read_bytes())
    return live(root, ("mounts",), (), mounts={"/": "ext4", "/scratch": "absent"})


READERS: tuple[tuple[str, Callable[[Path, Path, Path], Captured | Iterator[Captured]]], ...] = (
    ("nvidia-smi-xml/*.xml", of_xml),
    ("nvidia-smi-text/*.txt", of_text),
    ("copyleft/nvidia-smi-text/*.txt", of_excerpt),
    ("nvlink/*.txt", of_nvlinks),
    *((pattern, of_tree) for pattern in TREES),
    ("node-bundle/*", of_bundle),
    ("node-bundle/*/log/kernlog-nvidia.txt", of_journal),
    ("dmesg/[!g]*", of_log),
    ("dmesg/gpud-[!f]*", of_log),
    ("smart", of_drives),
    (f"smart/{BEHIND_A_CONTROLLER}", of_raid_member),
    ("dcgmi/gcm-*.json", of_diagnostic),
    ("ib/*.tar.gz", of_rdma),
    ("ib/*ibstatus.txt", of_ibstatus),
    ("net/*ethtool*.txt", of_ethtool),
    ("lspci/*vvv.txt", of_lspci),
    ("lspci/*2xlarge.txt", of_lspci),
    ("lspci/*nn*.txt", of_lspci),
    ("copyleft/lspci/pciutils/*", of_devices),
    ("topo/nccl-*.xml", of_nccl),
    ("sysfs/hwloc-xml/*.xml", of_hwloc),
    ("disk/*mountinfo", of_mounts),
)
OTHERS = (
    ("MANIFEST.md", "what is known of the captures"),
    ("*.facts.json", "what tests compare a capture with"),
    ("*.expected", "what tests compare a capture with"),
    ("*e2e-output.txt", "what tests compare a capture with"),
    ("lspci/*dmidecode.txt", "what tests compare a capture with"),
    ("bench/*", "what a benchmark printed: nodevet runs none"),
    ("dcgmi/*schema.json", "a schema"),
    ("tables/*", "a table of error codes"),
    ("mock-nvml/*", "what a mock is to answer, which is of no machine"),
    ("ib/*", "of a fabric, not of a node"),
    ("disk/*", "nodevet reads /proc/1/mountinfo and /sys/class/nvme themselves"),
    ("dmesg/*fabricmanager.log", "a log of the fabric manager: NVML tells its state"),
    ("copyleft/topo/*", "nodevet reads the PCI bus and NVML themselves"),
    ("copyleft/nvlink/*", "an excerpt with links left out"),
)
