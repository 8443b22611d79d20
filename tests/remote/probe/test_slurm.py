"""What scontrol prints of a node, and every other answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote import program
from nodevet.remote.probe.collectors import slurm
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]

ROW = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 CPUTot=224 CPULoad=0.10 "
    "AvailableFeatures=(null) Gres=gpu:h100:8(S:0-1) NodeAddr=10.0.0.7 NodeHostName={name} "
    "Version=23.11.4 OS=Linux 5.15.0-105-generic #115-Ubuntu SMP Mon Apr 15 09:52:04 UTC 2024 "
    "RealMemory=2000000 State=IDLE+DRAIN ThreadsPerCore=2 Partitions=gpu "
    "CfgTRES=cpu=224,mem=2000000M,billing=224,gres/gpu=8,gres/gpu:h100=8 AllocTRES= "
    "Reason=Xid 79 a=b on GPU 3 [root@2026-11-20T02:11:00]"
)


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.setattr(program, "FOLDERS", (str(tmp_path),))

    def install(text: str) -> None:
        path = tmp_path / "scontrol"
        path.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "show node -o" ] || exit 9\n{text}\n')
        path.chmod(0o755)

    return install


def asked(check: Check, name: str = "gpu-07") -> Any:
    (found,) = check("slurm", slurm.collect("/", {"asks": {"slurm": [name]}})).nodes
    return found


def test_a_node_with_a_reason(scontrol: Callable[[str], None], check: Check) -> None:
    scontrol("echo '" + ROW.format(name="gpu-07") + "'")
    found = asked(check)
    assert (found.node, found.state, found.gpus) == ("gpu-07", "IDLE+DRAIN", 8)
    assert found.reason == "Xid 79 a=b on GPU 3 [root@2026-11-20T02:11:00]"


def test_a_reason_does_not_change_the_state(scontrol: Callable[[str], None], check: Check) -> None:
    row = ROW.format(name="gpu-07").replace("Xid 79 a=b", "set State=IDLE CfgTRES=x when fixed")
    scontrol(f"echo '{row}'")
    found = asked(check)
    assert (found.state, found.gpus) == ("IDLE+DRAIN", 8)


def test_this_machine_is_asked_for_by_its_short_name(
    scontrol: Callable[[str], None], check: Check
) -> None:
    scontrol("echo NodeName=$4 State=IDLE")
    found = asked(check, slurm.SELF)
    name = Path("/proc/sys/kernel/hostname").read_text().strip().split(".")[0]
    assert (found.node, found.state, found.gpus, found.reason) == (name, "IDLE", 0, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo Node gpu-07 not found; exit 1", "scontrol ended with 1: 'Node gpu-07 not found'"),
        ("echo NodeName=gpu-08 State=IDLE", "none or another one"),
        ("echo slurm is down", "none or another one"),
        ("echo NodeName=gpu-07", "scontrol does not say it"),
    ],
)
def test_any_other_answer_of_scontrol_is_an_error(
    scontrol: Callable[[str], None], check: Check, text: str, why: str
) -> None:
    scontrol(text)
    assert why in asked(check).errors["state"]


def test_scontrol_is_not_run_for_an_invalid_node_name(check: Check, tmp_path: Path) -> None:
    assert asked(check, "--x").errors["state"] == "not a valid node name"
    with pytest.raises(Absent):
        slurm.collect(str(tmp_path), {})
