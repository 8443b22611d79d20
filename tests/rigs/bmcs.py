"""Real BMC software on loopback: OpenIPMI's ipmi_sim and sushy-tools' Redfish emulator, both with
one power state, which a hook holds in a file."""

import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from free_ports import free_port

from nodevet.model import Bmc
from nodevet_sim.machine import system_uuid

USER, PASSWORD = "ADMIN", "s3cret-of-a-bmc"
HOOK = """#!/bin/sh
case "$2 $3" in
"get power") echo "power:$(cat "{0}/power")" ;;
"get boot") echo boot:default ;;
"set power") echo "$4" > "{0}/power" ;;
"set shutdown") echo 0 > "{0}/power" ;;
esac
"""
NODE_HOOK = '#!/bin/sh\nexec {} "$@"\n'
OF_IPMI = UUID("a1234567-89ab-4def-a123-456789abcdef")  # of the machine of an ipmi_sim
OF_REDFISH = UUID("27946b59-9e44-4fa7-8e91-f3527a1ef094")  # of the one of the emulator
SYSTEM = "/redfish/v1/Systems/27946b59-9e44-4fa7-8e91-f3527a1ef094"
CHASSIS = "/redfish/v1/Chassis/15693887-7984-9484-3272-842188918912"
MANAGER = SYSTEM.replace("Systems", "Managers")
LOGS = f"{SYSTEM}/LogServices"
NOW = datetime(2026, 11, 28, 12, 0, tzinfo=timezone.utc)  # by the BMC's clock


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def members(*paths: str) -> dict[str, Any]:
    return {"Members": [link(path) for path in paths], "Members@odata.count": len(paths)}


def entry(number: int, severity: str, text: str, minutes: int = 5, **more: Any) -> dict[str, Any]:
    """An entry of the event log, so many minutes old."""
    created = (NOW - timedelta(minutes=minutes)).isoformat()
    return {"Id": str(number), "Severity": severity, "Message": text, "Created": created, **more}


def log(*entries: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    """The resources of an event log."""
    return {
        SYSTEM: {"LogServices": link(LOGS)},
        MANAGER: {"DateTime": NOW.isoformat()},
        LOGS: members(f"{LOGS}/SEL", f"{LOGS}/Audit"),
        f"{LOGS}/SEL": {"Id": "SEL", "Entries": link(f"{LOGS}/SEL/Entries")},
        f"{LOGS}/SEL/Entries": {"Members": entries, **more},
    }


def hook(folder: Path, fleet: str, node: str) -> Path:
    """A power hook: of a simulated node, or whose state is in the file `power` of a folder."""
    (folder / "power").write_text("1\n")
    path = folder / "hook"
    words = (sys.executable, "-m", "nodevet_sim.chassis", fleet, node)
    path.write_text(NODE_HOOK.format(shlex.join(words)) if fleet else HOOK.format(folder))
    path.chmod(0o755)
    return path


def certificate(folder: Path, name: str = "bmc") -> Path:
    """A new self-signed certificate for 127.0.0.1, and its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / f"{name}.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return pem


def secret_file(folder: Path, text: str = PASSWORD) -> tuple[str, str]:
    path = folder / f"password-{len(text)}"
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return "file", str(path)


@contextmanager
def _running(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def settings_of(bmc: Bmc, **changed: Any) -> dict[str, Any]:
    """A BMC as an inventory has it."""
    fields = {name: getattr(bmc, name) for name in ("kind", "address", "port", "user")}
    more = {"ca": bmc.ca} if bmc.ca else {}
    return {**fields, **more, "password": {bmc.password[0]: bmc.password[1]}, **changed}


class Emulator:
    """A running Redfish emulator."""

    def __init__(self, folder: Path, port: int, node: str = "") -> None:
        self.folder, self.port, self._node = folder, port, node

    def say(self, resources: dict[str, Any] | None = None, **broken: str) -> None:
        """What it answers from now on."""
        own = {SYSTEM: {"UUID": system_uuid(self._node)}} if self._node else {}
        settings = {
            "power": str(self.folder / "hook"),
            "resources": {**own, **(resources or {})},
            "broken": {path or "*": how for path, how in broken.items()},
        }
        partial = self.folder / "settings.new"
        partial.write_text(json.dumps(settings))
        partial.replace(self.folder / "settings.json")

    def connect(self) -> None:
        """Raises OSError if nobody listens."""
        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()

    def breaks(self, how: str, path: str = "*") -> None:
        self.say(**{path: how})

    @property
    def bmc(self) -> Bmc:
        return Bmc(
            kind="redfish",
            address="127.0.0.1",
            port=self.port,
            user=USER,
            password=secret_file(self.folder),
            ca=str(self.folder / "bmc.pem"),
        )


CONFIG = """
SUSHY_EMULATOR_LISTEN_IP = "127.0.0.1"
SUSHY_EMULATOR_LISTEN_PORT = {port}
SUSHY_EMULATOR_SSL_CERT = "{folder}/bmc.pem"
SUSHY_EMULATOR_SSL_KEY = "{folder}/bmc.key"
SUSHY_EMULATOR_AUTH_FILE = "{folder}/htpasswd"
SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_STATE_DIR = "{folder}"
"""


@contextmanager
def redfish_emulator(folder: Path, fleet: str = "", node: str = "") -> Iterator[Emulator]:
    """An emulator on a free port of loopback; its power is that of `hook`."""
    hook(folder, fleet, node)
    certificate(folder)
    emulator = Emulator(folder, free_port(), node)
    emulator.say()
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    (folder / "emulator.conf").write_text(CONFIG.format(port=emulator.port, folder=folder))
    program = str(Path(__file__).with_name("redfish_emulator.py"))
    words = [sys.executable, "-W", "ignore", program, str(folder / "settings.json")]
    with _running(words, folder / "emulator.log") as process:
        _await(process, folder / "emulator.log", emulator.connect)
        yield emulator


def _await(process: subprocess.Popen[bytes], log: Path, is_there: Callable[[], object]) -> None:
    """Until a call raises no OSError. Raises AssertionError if the program ends."""
    while process.poll() is None:
        with suppress(OSError):
            is_there()
            return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


LAN = """
name "n1"
set_working_mc 0x20
 startlan 1
  addr 127.0.0.1 {port}
  priv_limit admin
  allowed_auths_callback none md2 md5 straight
  allowed_auths_user none md2 md5 straight
  allowed_auths_operator none md2 md5 straight
  allowed_auths_admin none md2 md5 straight
  guid {guid}
 endlan
 chassis_control "{folder}/hook 0x20"
 user 2 true "{user}" "{password}" admin 10 none md2 md5 straight
 console 127.0.0.1 {console}
"""
STATES = "enable scanning per-state"
ALL = " ".join(["000111111111111"] * 4)
PSU = " ".join(["111111110000000"] * 4)


def _full_sdr(number: int, kind: int, unit: int, name: str, limits: list[int]) -> str:
    """A full sensor record (IPMI 2.0, 43.1) as a command of ipmi_sim. `limits`: unr ucr unc lnr
    lcr lnc."""
    head = [0x20, 0, number, 7, number, 0x7F, 0x68, kind, 1, 0xFF, 0x7F, 0xFF, 0x7F]
    scale = [0x3F, 0x3F, 0, unit, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0]
    return _sdr(1, [*head, *scale, *limits, 2, 2, 0, 0, 0], name)


def _compact_sdr(number: int, kind: int, name: str) -> str:
    """A compact sensor record (43.2) of a discrete sensor."""
    head = [0x20, 0, number, 10, number, 0x67, 0x40, kind, 0x6F, 0xFF, 0, 0xFF, 0, 0xFF, 0]
    return _sdr(2, [*head, 0xC0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], name)


def _sdr(kind: int, body: list[int], name: str) -> str:
    record = [*body, 0xC0 | len(name), *name.encode()]
    words = [0, 0, 0x51, kind, len(record), *record]
    return "main_sdr_add 0x20 " + " ".join(f"{word:#04x}" for word in words)


def _fru_field(text: str) -> list[int]:
    return [0xC0 | len(text), *text.encode()]


def _fru_area(head: list[int], *texts: str) -> list[int]:
    """An area of Platform Management FRU Information Storage Definition 1.0."""
    body = [*head, *(byte for text in texts for byte in _fru_field(text)), 0xC1]
    words = -(-(len(body) + 3) // 8)
    area = [1, words, *body] + [0] * (8 * words - len(body) - 3)
    return [*area, -sum(area) & 0xFF]


def _fru(board: str, product: str) -> str:
    """The FRU of a BMC, with two serial numbers, as a command of ipmi_sim."""
    boards = _fru_area([0] * 4, "ACME", "Board", board, "PN", "-")
    products = _fru_area([0], "ACME", "Node", "PN", "1", product, "-", "-")
    head = [1, 0, 0, 1, 1 + len(boards) // 8, 0, 0]
    data = [*head, -sum(head) & 0xFF, *boards, *products]
    return f"mc_add_fru_data 0x20 0 {len(data)} data " + " ".join(f"{byte:#04x}" for byte in data)


BOARD_SERIAL, PRODUCT_SERIAL = "BRD0012345", "SYS0098765"
COMMANDS = [
    "mc_setbmc 0x20",
    "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02",
    "sel_enable 0x20 320 0x0a",
    _full_sdr(1, 0x01, 1, "Inlet Temp", [50, 45, 40, 0, 0, 0]),
    _full_sdr(2, 0x04, 18, "FAN1", [255, 254, 253, 5, 10, 12]),
    _compact_sdr(3, 0x08, "PSU1 \x1b[31m"),
    "sensor_add 0x20 0 1 0x01 0x01",
    "sensor_set_value 0x20 0 1 24 0",
    "sensor_set_threshold 0x20 0 1 settable 111000 50 45 40 0 0 0",
    f"sensor_set_event_support 0x20 0 1 {STATES} {ALL}",
    "sensor_add 0x20 0 2 0x04 0x01",
    "sensor_set_value 0x20 0 2 100 0",
    "sensor_set_threshold 0x20 0 2 settable 111111 255 254 253 5 10 12",
    f"sensor_set_event_support 0x20 0 2 {STATES} {ALL}",
    "sensor_add 0x20 0 3 0x08 0x6f",
    f"sensor_set_event_support 0x20 0 3 {STATES} {PSU}",
    "sensor_set_bit 0x20 0 3 0 1 0",
    _fru(BOARD_SERIAL, PRODUCT_SERIAL),
    "mc_enable 0x20",
]


class IpmiSim:
    """A running ipmi_sim."""

    def __init__(self, folder: Path, port: int, console: int) -> None:
        self.folder, self.port, self._console = folder, port, console

    def tell(self, *commands: str) -> None:
        """Commands for its console, each until its prompt: it dies of a connection that is closed
        before."""
        with socket.create_connection(("127.0.0.1", self._console), timeout=60) as console:
            self._prompt(console)
            for command in commands:
                console.sendall(command.encode() + b"\n")
                self._prompt(console)

    def chassis(self, verb: str) -> None:
        """`ipmitool chassis power VERB`: accepted, not done."""
        address = ("-H", "127.0.0.1", "-p", str(self.port), "-U", USER, "-f", "/dev/stdin")
        words = ("ipmitool", "-I", "lanplus", "-C", "3", *address, "chassis", "power", verb)
        subprocess.run(words, input=PASSWORD, text=True, check=True, stdout=subprocess.DEVNULL)

    def _prompt(self, console: socket.socket) -> None:
        said = b""
        while not said.endswith(b"> "):
            said += console.recv(4096)

    @property
    def bmc(self) -> Bmc:
        return Bmc(
            kind="ipmi",
            address="127.0.0.1",
            port=self.port,
            user=USER,
            password=secret_file(self.folder),
        )


@contextmanager
def ipmi_sim(folder: Path, fleet: str = "", node: str = "") -> Iterator[IpmiSim]:
    """An ipmi_sim on free ports of loopback; its power is that of `hook`."""
    hook(folder, fleet, node)
    port, console = free_port(socket.SOCK_DGRAM), free_port()
    guid = (UUID(system_uuid(node)) if node else OF_IPMI).bytes_le.hex()  # as SMBIOS has it
    words = {"port": port, "console": console, "guid": guid, "folder": folder}
    lan = LAN.format(**words, user=USER, password=PASSWORD)
    (folder / "lan.conf").write_text(lan)
    (folder / "commands").write_text("\n".join(COMMANDS) + "\n")
    (folder / "state").mkdir()
    files = ["-c", folder / "lan.conf", "-f", folder / "commands", "-s", folder / "state"]
    with _running(["ipmi_sim", "-n", *map(str, files)], folder / "ipmi.log") as process:
        simulator = IpmiSim(folder, port, console)
        _await(process, folder / "ipmi.log", simulator.tell)
        yield simulator
