"""What every shipped baseline says of kernel logs with errors that were not corrected."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.baseline import load
from nodevet.baseline.library import shipped_folder
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import decode
from nodevet.remote.probe.collectors import kernel_log

CATALOG = Catalog()
NAMES = sorted(path.stem for path in Path(str(shipped_folder())).glob("*.yaml"))
CHECKS = ("machine_check", "pcie_errors")
CAPTURES = Path(__file__).parents[3] / "shared/captures"
COUNTERS = {"correctable": 0, "nonfatal": 0, "fatal": 0}
BOOT = "Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP"

WRONG = {
    "DPC": (
        "pcieport 0000:17:01.0: DPC: containment event, status:0x1f01 source:0x0000",
        "pcieport 0000:17:01.0: DPC: unmasked uncorrectable error detected",
    ),
    "DPC by ERR_FATAL": (
        "pcieport 0000:17:01.0: DPC: containment event, status:0x000d, "
        "ERR_FATAL received from 0000:19:00.0",
    ),
    "AER": (
        "pcieport 0000:17:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:19:00.0",
        "nvidia 0000:19:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), "
        "type=Transaction Layer, (Requester ID)",
    ),
    "GHES, PCIe": (
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 5",
        "{1}[Hardware Error]: event severity: fatal",
        "{1}[Hardware Error]:  Error 0, type: fatal",
        "{1}[Hardware Error]:   section_type: PCIe error",
        "{1}[Hardware Error]:   device_id: 0000:19:00.0",
    ),
    "GHES, memory": (
        "{2}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
        "{2}[Hardware Error]: event severity: fatal",
        "{2}[Hardware Error]:  Error 0, type: fatal",
        "{2}[Hardware Error]:   section_type: memory error",
    ),
    "EDAC": ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",),
    "MCE": (
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bd80000000100134",
        "mce: [Hardware Error]: TSC 0 ADDR 3f4e80 MISC 140400c0c086",
    ),
    "MCE of AMD": (
        "[Hardware Error]: Uncorrected, software restartable error.",
        "[Hardware Error]: CPU:2 (19:1:1) MC0_STATUS[-|UE|MiscV|AddrV|-|-|SyndV|UECC|-|-|-]: "
        "0xbc00080001010135",
    ),
}
FINE = {
    "nothing": (),
    "few corrected": (
        *("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",) * 9,
        "mce: [Hardware Error]: Machine check events logged",
        *("pcieport 0000:17:01.0: AER: Corrected error received: 0000:19:00.0",) * 9,
    ),
    "what recovery says": (
        "pcieport 0000:17:01.0: AER: broadcast error_detected message",
        "pcieport 0000:17:01.0: AER: enabled with IRQ 122",
    ),
}


@pytest.fixture(scope="module")
def baselines() -> Any:
    return load(NAMES, catalog=CATALOG)


def judged(baseline: Any, root: Path, lines: tuple[str, ...], **more: Any) -> Iterator[Any]:
    """The findings of CHECKS about a node with this kernel log since boot."""
    records = [
        f"4,{number},{number * 10**6},-;{line}\n" for number, line in enumerate((BOOT, *lines))
    ]
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/kmsg").write_text("".join(records))
    functions = [
        {"address": "0000:17:01.0", "upstream": [], "aer": COUNTERS},
        {"address": "0000:19:00.0", "upstream": ["0000:17:01.0"], "aer": COUNTERS},
    ]
    sections = {
        "host": {"virtualization": "none", "uptime_s": 864000.0},
        "pci": {
            "aer_ports": ["0000:17:01.0"],
            "firmware_sources": 0,
            "functions": functions,
            **more,
        },
        "kernel_log": kernel_log.collect(str(root.resolve()), {}),
    }
    whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    evidence = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": whole}))
    for check in CHECKS:
        wants = [each.params for each in baseline.expectations if each.check == check]
        assert len(wants) == 1, f"{baseline.name} does not ask for {check}"
        yield from CATALOG.check(check).judge(evidence, wants[0])


@pytest.mark.parametrize("log", WRONG)
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_t2_uncorrected_errors_fail(baselines: Any, number: int, log: str, tmp_path: Path) -> None:
    found = judged(baselines[number], tmp_path, WRONG[log])
    assert "fail" in {finding.verdict.value for finding in found}


@pytest.mark.parametrize("log", FINE)
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_t2_a_healthy_node_stays_ok(baselines: Any, number: int, log: str, tmp_path: Path) -> None:
    found = judged(baselines[number], tmp_path, FINE[log])
    assert [finding.verdict.value for finding in found] == ["ok", "ok"]


@pytest.mark.parametrize(
    "log", ["laptop-gtx850m-nodriver", "x570-rtx3090-xid56", "x99-titanx-driver352"]
)
def test_t2_a_real_log_gives_no_alarm(baselines: Any, log: str, tmp_path: Path) -> None:
    if not CAPTURES.is_dir():
        pytest.skip(f"the captures of real machines are not here: {CAPTURES}")
    text = (CAPTURES / "node-bundle" / log / "log/dmesg-filtered.txt").read_text("latin-1")
    lines = tuple(line.partition("] ")[2] for line in text.splitlines() if line.startswith("["))
    assert len(lines) > 100
    found = judged(baselines[0], tmp_path, lines)
    assert [finding.verdict.value for finding in found] == ["ok", "ok"]


def test_t2_errors_that_keep_coming_fail(baselines: Any, tmp_path: Path) -> None:
    many = ("EDAC MC0: 501 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",)
    found = judged(baselines[0], tmp_path, many)
    assert [finding.verdict.value for finding in found] == ["fail", "ok"]
    counters = {**COUNTERS, "correctable": 961 * 240}
    functions = [{"address": "0000:17:01.0", "upstream": [], "aer": counters}]
    found = judged(baselines[0], tmp_path, (), functions=functions)
    assert [finding.verdict.value for finding in found] == ["ok", "fail"]
