"""Captured machines as trees, and the probe run on them as a node would run it."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec
import pytest

from nodevet.evidence.core import Section
from nodevet.evidence.sections import sections
from nodevet.fleet.protocol import exchange, payload
from nodevet.remote.probe import messages
from nodevet_sim.machine import SimulatedMachine, SimulatedProcess, hgx
from nodevet_sim.tree import write

CAPTURES = Path(__file__).parents[3] / ".." / "shared" / "captures"
WANTED = re.compile(
    r"(proc/(cpuinfo|meminfo|cmdline|loadavg|buddyinfo)|proc/sys/(fs|kernel)/[a-z_-]+"
    r"|sys/devices/system/(clocksource|edac|cpu/cpuidle|cpu/cpu\d+/cpuidle)/.*|sys/(class|devices/virtual)/dmi/id/\w+"
    r"|sys/devices/system/node/(online|node\d+/(cpulist|meminfo|distance))"
    r"|sys/devices/system/cpu/(online|offline|present|smt/.*|intel_pstate/(status|no_turbo))"
    r"|sys/devices/system/cpu/(cpu\d+|cpufreq)/.*(_list|_id|_freq|governors?|_driver|_cpus|prefer.*)"
    r"|sys/devices/pci.*/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d/[^/]+"
    r"|sys/bus/pci/devices/.*"
    r"|proc/mdstat|proc/\d+/mountstats|sys/block/[^/]+/md/array_state"
    r"|sys/class/nvme/.*|sys/devices/pci.*/nvme/nvme\d+/([^/]+|hwmon\d+/temp1_input)"
    r"|sys/(class|devices/pci.*)/(net|infiniband)/.*)$"
)
TTAR_HEAD = re.compile(r"(Path|Directory|SymlinkTo|Lines|Mode): ?(.*)$")

Entry = tuple[PurePosixPath, "bytes | PurePosixPath"]


def from_tar(archive: Path) -> Iterator[Entry]:
    """The files and symbolic links of a tar archive."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.issym():
                yield PurePosixPath(member.name), PurePosixPath(member.linkname)
            elif member.isfile():
                content = tar.extractfile(member)
                assert content is not None
                yield PurePosixPath(member.name), content.read()


def from_ttar(archive: Path) -> Iterator[Entry]:
    """The files and symbolic links of a ttar archive: `Path:`, then `Lines: n` or `SymlinkTo:`."""
    rows = iter(archive.read_text(encoding="utf-8").split("\n"))
    path = PurePosixPath()
    for row in rows:
        head = TTAR_HEAD.match(row)
        if head is None:
            continue
        key, value = head.groups()
        if key == "Path":
            path = PurePosixPath(value)
        elif key == "SymlinkTo":
            yield path, PurePosixPath(value)
        elif key == "Lines":
            lines = [next(rows) for _ in range(int(value))]
            text = "".join(f"{line}\n" for line in lines)
            if text.endswith("EOF\n"):  # the file's last line has no newline
                text = text[:-4]
            yield path, text.replace("NULLBYTE", "\0").encode()


def unpack(entries: Iterator[Entry], into: Path) -> None:
    """Write what the probe may read. Nothing is written outside `into`, nor through a link."""
    links = []
    for path, content in entries:
        match = WANTED.search(str(path))
        if match is None or ".." in path.parts:
            continue
        place = into / match[0]
        if isinstance(content, PurePosixPath):
            links.append((place, content))
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    for place, target in links:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(target)


@pytest.fixture(scope="session")
def captures() -> Path:
    if not CAPTURES.is_dir():
        pytest.skip(f"the captures of real machines are not here: {CAPTURES}")
    return CAPTURES


@pytest.fixture(scope="session")
def capture(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Unpack one archive, named by its path among the captures; each once per session."""
    unpacked: dict[str, str] = {}

    def root_of(name: str) -> str:
        if name not in unpacked:
            into = tmp_path_factory.mktemp("capture").resolve()
            archive = captures / name
            unpack((from_ttar if archive.suffix == ".ttar" else from_tar)(archive), into)
            unpacked[name] = str(into)
        return unpacked[name]

    return root_of


@pytest.fixture(scope="session")
def check() -> Callable[[str, dict[str, Any]], Any]:
    """A collector's answer as the evidence has it; fails where it does not decode strictly."""
    types = {name: Section[record] for name, record in sections().items()}

    def decoded(section: str, data: dict[str, Any]) -> Any:
        text = messages.encode({"status": "ok", "data": data})
        found = msgspec.json.decode(text, type=types[section])
        unknown = strange_keys(data, found.data)
        assert not unknown, f"not in the evidence: {unknown}"
        return found.data

    return decoded


def strange_keys(data: Any, struct: Any) -> list[str]:
    """Keys of the answer that the evidence does not know, and nulls without a reason."""
    if isinstance(data, list):
        return [
            key for item, part in zip(data, struct, strict=True) for key in strange_keys(item, part)
        ]
    if not isinstance(struct, msgspec.Struct):
        return []
    names = struct.__struct_fields__
    strange = [key for key in data if key not in names]
    strange += [
        f"{name} without a reason"
        for name in names
        if getattr(struct, name) is None and not data["errors"].get(name)
    ]
    for name in names:
        if name in data:
            strange += strange_keys(data[name], getattr(struct, name))
    return strange


@pytest.fixture(scope="session")
def machine() -> SimulatedMachine:
    """A healthy two-GPU node with one job on GPU 0."""
    job = SimulatedProcess(4242, "python (train)", gpus=(0,), cpus_allowed="0-3", mems_allowed="0")
    return replace(hgx("gpu001", gpus=2, cores_per_socket=2), processes=(job,))


@pytest.fixture
def node(machine: SimulatedMachine, tmp_path: Path) -> Path:
    """The tree of `machine`, to break."""
    root = tmp_path.resolve() / "node"
    write(machine, root)
    return root


class Tree(NamedTuple):
    """Files of /sys that a test writes."""

    root: Path

    def put(self, folder: str, **files: object) -> None:
        """Files of one line each."""
        place = self.root / folder
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name).write_text(f"{text}\n")

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target, place.parent))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path.resolve())


@pytest.fixture(scope="session")
def run_payload() -> Callable[..., dict[str, Any]]:
    """Run the shipped payload in another Python; returns the evidence document."""

    def run(
        root: str = "/", python: str = sys.executable, deadline: float = 60, *, whole: bool = False
    ) -> dict[str, Any]:
        wish = exchange.request(
            nonce="test", root=root, whole_machine=whole, deadline=deadline, asked_s=None
        )
        done = subprocess.run(
            [python, "-I", "-c", payload.BOOT],
            input=payload.payload() + wish,
            capture_output=True,
            timeout=deadline + 40,
        )
        assert done.returncode == 0, done.stderr.decode()
        document: dict[str, Any] = json.loads(exchange.unframe(done.stdout, "test"))
        return document

    return run
