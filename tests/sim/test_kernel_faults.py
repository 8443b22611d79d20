"""What the kernel log of a faulty node tells is found by its check: probed, not booted."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import decode
from nodevet.model import Verdict
from nodevet.remote.probe.collectors import kernel_log
from nodevet_sim.faults.kernel import FAULTS
from nodevet_sim.scenario import describe
from nodevet_sim.scenario.format import NodePart
from nodevet_sim.scenario.spec import NodeSpec, Origin

CATALOG = Catalog()
BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)
GPUS = [{"index": index, "bus_id": f"0000:{bus:02x}:00.0"} for index, bus in enumerate(BUSES)]
SAID: dict[str, dict[str, Any]] = {  # check -> its params
    "kernel_faults": {"allow": []},
    "machine_check": {},
    "storage_errors": {},
    "xid": {"repeats": {"31": 2}},
}
FOUND = {  # fault -> the checks and subjects that fail
    "": set(),
    "ata-error": {("storage_errors", "ata1")},
    "crash-recorded": {("kernel_faults", "crash")},
    "disk-io-error": {("storage_errors", "sdb")},
    "file-system-read-only": {("storage_errors", "nvme0")},
    "hard-lockup": {("kernel_faults", "hard lockup")},
    "job-oom-kill": {("kernel_faults", "OOM kill in a cgroup")},
    "kernel-panic": {("kernel_faults", "panic")},
    "library-segfault": {("kernel_faults", "segfault")},
    "array-disk-failed": {("storage_errors", "sdb")},
    "file-system-error": {("storage_errors", "nvme0")},
    "hung-task": {("kernel_faults", "hung task")},
    "kernel-oops": {("kernel_faults", "oops")},
    "mce-uncorrected": {("machine_check", "")},
    "nfs-server-down": {("storage_errors", "filer")},
    "nic-failed": {("kernel_faults", "0000:1a:00.0")},
    "nvme-timeout": {("storage_errors", "nvme0")},
    "oom-kill": {("kernel_faults", "OOM kill")},
    "rcu-stall": {("kernel_faults", "RCU stall")},
    "soft-lockup": {("kernel_faults", "soft lockup")},
    "sxid": {("xid", "0000:83:00.0")},
    "xid-recovery": {("xid", "3")},
    "xid-repeated": {("xid", "3")},
}


def test_every_fault_is_tried() -> None:
    assert FOUND.keys() - {""} == FAULTS.keys()


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_that_the_kernel_logs_is_found_and_nothing_else(fault: str, tmp_path: Path) -> None:
    known = {"gpus": "h100-sxm", "cores": 1, "faults": [fault] if fault else []}
    part = NodePart.model_validate(known)
    node = describe(NodeSpec("n1", part, known, Path(), {"": Origin("here")}))
    lines = [(0.0, "Linux version 6.8.0"), *((line.seconds, line.text) for line in node.kernel_log)]
    (tmp_path / "dev").mkdir()
    rows = [
        f"4,{at},{round((seconds or 0) * 1e6) + at},-;{line}\n"
        for at, (seconds, line) in enumerate(lines)
    ]
    (tmp_path / "dev/kmsg").write_text("".join(rows))
    for path, content in node.root_files.items():
        if "pstore" in path:
            (tmp_path / path.lstrip("/")).parent.mkdir(parents=True)
            (tmp_path / path.lstrip("/")).write_text(str(content))
    log = kernel_log.collect(str(tmp_path.resolve()), {})
    host = {"status": "ok", "data": {"clock_s": time.time(), "uptime_s": 3600.0}}
    gpu = {"status": "ok", "data": {"count": len(GPUS), "gpus": GPUS}}
    sections = {"kernel_log": {"status": "ok", "data": log}, "host": host, "gpu": gpu}
    evidence = decode(msgspec.json.encode({"schema": 1, "probe": "0", "sections": sections}))
    found = {
        (name, finding.subject.id)
        for name, params in SAID.items()
        for finding in CATALOG.check(name).judge(
            evidence, params_of(CATALOG.check(name).params, params)
        )
        if finding.verdict is not Verdict.OK
    }
    assert found == FOUND[fault]
