"""No plan is built on what was not read, and none does anything where nothing is wrong."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.evidence.gpu import Gpu
from nodevet.fixes import gpu_clocks, mig_mode, persistence_mode, power_limit
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.model import FixError


@dataclass(frozen=True)
class Case:
    check: str
    params: Any
    gpu: dict[str, Any]  # of the one that is wrong


CASES = (
    Case("power_limit", 700, {"power_limit_mw": 500_000, "power_limit_enforced_mw": 500_000}),
    Case("power_limit", "default", {"power_limit_mw": 500_000}),
    Case("persistence_mode", True, {"persistence_mode": False}),
    Case("compute_mode", "DEFAULT", {"compute_mode": "PROHIBITED"}),
    Case("ecc_mode", True, {"ecc_current": False, "ecc_pending": False}),
    Case("ecc_mode", True, {"ecc_pending": False}),
    Case("mig_mode", False, {"mig_current": True, "mig_pending": True}),
    Case("gpu_clocks", {"graphics": "max"}, {"app_clock_graphics_mhz": 1200}),
    Case("gpu_clocks", {"memory": 2619}, {"app_clock_memory_mhz": 1593}),
)
SERVICES = {
    "units": [
        {"name": name, "load_state": "not-found", "active_state": "inactive", "file_state": ""}
        for name in ("nvidia-persistenced.service", "nodevet-persistence-mode.service")
    ]
}
FIELDS = [name for name in Gpu.__struct_fields__ if name not in ("index", "errors")]


def actions_of(plan, case, section, findings):
    """None where the fix refuses."""
    try:
        return [change.actions for change in plan(case.check, case.params, section, findings)]
    except FixError:
        return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.params}")
def test_no_plan_relies_on_unread_values(case, plan, wrong, evidence, h100):
    """Whatever is taken away of either GPU: the same actions, or none at all."""
    gpus = (case.gpu, {})
    whole = {"gpu": h100(*gpus), "services": SERVICES}
    findings = wrong(case.check, case.params, evidence(whole))
    assert findings
    actions = [change.actions for change in plan(case.check, case.params, whole)]
    assert actions
    for field in FIELDS:
        for index in range(len(gpus)):
            for why in ("NVML_ERROR_UNKNOWN", "NVML_ERROR_GPU_IS_LOST"):
                section = {"gpu": h100(*gpus), "services": SERVICES}
                gpu = section["gpu"]["gpus"][index]
                gpu.pop(field, None)
                gpu["errors"] = {field: why}
                found = actions_of(plan, case, section, findings)
                assert found in (None, actions), (field, index, why)
    for section in ({}, {"gpu": {"status": "error", "why": "no"}}, {"gpu": {}}, {"gpu": h100()}):
        with pytest.raises(FixError):
            plan(case.check, case.params, section, findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.params}")
def test_nothing_is_planned_if_nothing_is_wrong(case, plan, h100):
    assert plan(case.check, case.params, {"gpu": h100({}, {})}) == []
    assert plan(case.check, case.params, {"gpu": h100(case.gpu, {})}, []) == []
    assert plan(case.check, case.params, {}, []) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.params}")
def test_a_plan_survives_json_and_names_no_other_gpu(case, plan, h100, uuid):
    for change in plan(case.check, case.params, {"gpu": h100({}, case.gpu), "services": SERVICES}):
        text = msgspec.json.encode(change)
        assert msgspec.json.decode(text, type=type(change)) == change
        assert "None" not in json.dumps(json.loads(text))
        assert all(uuid(0) not in resource.name for resource in change.resources)
        assert change.subjects == ("GPU 1",)


@pytest.mark.parametrize("word", ["a b", "$(reboot)", "%n", "a'b", "a\nb", "", "a\\b", '"', "é"])
def test_a_word_that_could_escape_its_unit_is_refused(word):
    with pytest.raises(ValueError, match="cannot be a word of"):
        BootUnit("power_limit").text([("0", ("-pl", word))])
    with pytest.raises(ValueError, match="cannot be a word of"):
        BootUnit("power_limit").text([(word, ("-pl", "700"))])


def test_a_plan_needs_no_pyinfra():
    code = (
        "import sys\n"
        "from nodevet.fixes import compute_mode, cpu_governor, ecc_mode, gpu_clocks, mig_mode\n"
        "from nodevet.fixes import persistence_mode, power_limit\n"
        "sys.exit('pyinfra' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path("/")).returncode == 0


def test_a_gpu_that_fails_does_not_keep_the_setting_from_the_others(tmp_path):
    """What systemd gives to the shell, with an nvidia-smi that knows no GPU 1."""
    unit = BootUnit("power_limit").text([(str(gpu), ("-pl", "700")) for gpu in range(3)])
    command = unit.split("ExecStart=/bin/sh -c '", 1)[1].split("'\n", 1)[0]
    command = command.replace("\\\n", " ").replace("$$", "$")  # systemd.syntax(7), systemd.exec(5)
    told = tmp_path / "told"
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {told}\n[ "$2" != 1 ]\n')
    program.chmod(0o755)
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert told.read_text().splitlines() == [f"-i {gpu} -pl 700" for gpu in range(3)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("fix", [gpu_clocks, power_limit, persistence_mode, mig_mode])
def test_systemd_accepts_a_unit(fix, tmp_path):
    path = tmp_path / fix.BOOT.name
    path.write_text(fix.BOOT.text([("GPU-1", ("-x", "1,2")), ("GPU-2", ("-x", "0.5"))]))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True
    )
    about = [row for row in done.stderr.splitlines() if path.name in row]
    assert done.returncode == 0 and about == []
