"""How long GPUs are waited for: by their number, and again just after boot."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import main, settle
from nodevet.remote.probe.sections import limits
from nodevet.remote.request import checked_request

ADDRESSES = ("0000:19:00.0", "0000:3b:00.0")
NOT_LOADED = "NVML_ERROR_DRIVER_NOT_LOADED: the NVIDIA kernel driver is not loaded"


def function(address: str, **other: Any) -> dict[str, Any]:
    known = {"class_code": "030200", "vendor": "10de", "revision": "a1", "physfn": ""}
    return {"address": address, **known, "driver": "nvidia", **other}


def sections(
    *, uptime: float | None = 20.0, gpus: int = 2, nodes: int = 2, nvml: str = "", **other: Any
) -> dict[str, Any]:
    """A node with two GPUs on the bus, of which NVML and /dev show so many."""
    listed = {"gpus": [{"index": index, "errors": {}} for index in range(gpus)]}
    paths = ["/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in range(nodes))]
    functions = [function(address, **other) for address in ADDRESSES]
    return {
        "host": {"status": "ok", "data": {"uptime_s": uptime}},
        "pci": {"status": "ok", "data": {"functions": functions}},
        "gpu": {"status": "error", "why": nvml} if nvml else {"status": "ok", "data": listed},
        "modules": {
            "status": "ok",
            "data": {"device_nodes": [{"path": path} for path in paths]},
        },
    }


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (sections(), False),
        (sections(gpus=1), True),
        (sections(nodes=0), True),
        (sections(nvml=NOT_LOADED), True),
        (sections(nvml="NVML_ERROR_NO_PERMISSION: this user may not open"), True),
        (sections(nvml="NVML_ERROR_LIB_RM_VERSION_MISMATCH: differ"), False),
        (sections(nvml=NOT_LOADED, uptime=301.0), False),
        (sections(nvml=NOT_LOADED, uptime=None), False),
        (sections(gpus=0, nodes=0, driver="vfio-pci"), False),
        (sections(gpus=0, nodes=0, physfn="0000:18:00.0"), False),
        (sections(gpus=0, nodes=0, revision="ff"), False),
        (sections(gpus=0, nodes=0, class_code=None), False),
    ],
)
def test_read_sections_that_may_still_settle_are_recognized(
    node: dict[str, Any], wanted: bool
) -> None:
    assert settle.unsettled(node) is wanted


def test_read_a_gpu_that_nvml_gave_up_is_not_waited_for() -> None:
    node = sections()
    node["gpu"]["data"]["gpus"][1]["errors"]["handle"] = "NVML_ERROR_GPU_IS_LOST"
    assert not settle.unsettled(node)
    node["gpu"]["data"]["gpus"][1]["errors"]["handle"] = "NVML_ERROR_IN_USE"
    assert settle.unsettled(node)


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`main.probe` over what `gather` finds in turn; each call's sections, and the time in all."""

    def of(*found: dict[str, Any], deadline: float = 120.0) -> Any:
        calls: list[Any] = []
        now = [1000.0]

        def gather(wanted: Any, root: str, request: Any, seconds: Any) -> dict[str, Any]:
            node = found[min(len(calls), len(found) - 1)]
            calls.append(set(wanted))
            now[0] += 3.0
            return {name: node.get(name, {"status": "absent", "why": "-"}) for name in wanted}

        monkeypatch.setattr(main, "gather", gather)
        monkeypatch.setattr(main.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(main.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
        wanted = ["host", "gpu", "pci", "modules", "cpu"]
        request = checked_request({"do": "probe", "deadline": deadline, "sections": wanted})
        return main.probe(request)["sections"], [call for call in calls if call], now[0] - 1003.0

    return of


def test_read_a_node_that_is_booting_is_looked_at_again_in_the_same_visit(visits: Any) -> None:
    found, calls, _ = visits(sections(nvml=NOT_LOADED), sections(gpus=1, nodes=1), sections())
    assert calls[1:] == [{"gpu", "pci", "modules"}] * 2
    assert found["gpu"]["status"] == "ok" and len(found["gpu"]["data"]["gpus"]) == 2
    assert found["cpu"]["status"] == "absent"  # as the first look found it


def test_read_a_gpu_that_does_not_come_is_reported_in_time(visits: Any) -> None:
    found, calls, seconds = visits(sections(gpus=1))
    assert len(found["gpu"]["data"]["gpus"]) == 1
    assert 2 < len(calls) < 20
    assert seconds <= 3 + main.PATIENCE


def test_read_a_node_that_has_been_up_is_looked_at_once(visits: Any) -> None:
    _, calls, _ = visits(sections(gpus=1, uptime=86400.0))
    assert len(calls) == 1


def test_e14_a_transient_state_is_read_again_within_the_deadline(visits: Any) -> None:
    passing = {"status": "error", "why": "the package manager is at work", "transient": True}
    quiet = sections(uptime=86400.0)
    found, calls, _ = visits({**quiet, "cpu": passing}, {**quiet, "cpu": passing}, quiet)
    assert calls[1:] == [{"cpu"}] * 2
    assert "transient" not in found["cpu"]
    found, calls, seconds = visits({**quiet, "cpu": passing})
    assert found["cpu"]["transient"] is True
    assert 2 < len(calls) < 20 and seconds <= 3 + main.PATIENCE


def on_a_bus(root: Path, gpus: int) -> str:
    for number in range(gpus):
        place = root / f"sys/bus/pci/devices/0000:{number:02x}:00.0"
        place.mkdir(parents=True)
        (place / "vendor").write_text("0x10de\n")
        (place / "class").write_text("0x030200\n")
    return str(root)


@pytest.mark.parametrize(("gpus", "wanted"), [(0, 32.0), (1, 36.0), (8, 64.0), (16, 64.0)])
def test_read_eight_gpus_have_more_time_than_one(gpus: int, wanted: float, tmp_path: Path) -> None:
    root = on_a_bus(tmp_path, gpus)
    assert limits(("cpu", "gpu"), root, 64.0) == {"cpu": 32.0, "gpu": wanted}
    assert limits(("cpu", "gpu"), root, 5.0) == {"cpu": 5.0, "gpu": 5.0}
    assert limits(("processes",), root, 70.0) == {"processes": 70.0}, "nothing waits for it"


def test_read_the_gpus_on_the_bus_are_counted(tmp_path: Any) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    nvidia, aspeed = "0x10de", "0x1a03"
    kinds = ((nvidia, "0x030200"), (nvidia, "0x030000"), (nvidia, "0x040300"), (aspeed, "0x030000"))
    for number, (vendor, code) in enumerate(kinds):
        place = bus / f"0000:0{number}:00.0"
        place.mkdir(parents=True)
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{code}\n")
    (bus / "0000:09:00.0").mkdir()
    assert settle.gpus_on_bus(str(tmp_path)) == 2
    assert settle.gpus_on_bus(str(tmp_path / "none")) == 0


def test_read_each_section_has_a_time_limit_of_its_own(tmp_path: Any) -> None:
    """One that hangs ends at its own limit, and the other answers."""
    (tmp_path / "slow.py").write_text(
        "import time\ndef collect(root, request):\n    time.sleep(60)\n"
    )
    script = (
        "import json, sys, nodevet.remote.probe.collectors\n"
        f"nodevet.remote.probe.collectors.__path__.append({str(tmp_path)!r})\n"
        "from nodevet.remote.probe import children\n"
        "found = children.gather(('slow', 'memory'), '/', {}, {'slow': 0.5, 'memory': 60.0})\n"
        "print(json.dumps({name: each['status'] for name, each in found.items()}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120)
    assert json.loads(done.stdout) == {"slow": "timeout", "memory": "ok"}, done.stderr
