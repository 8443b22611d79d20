"""Two sweeps of a simulated node with a fault between: what came since, and what is there still."""

import json

import pytest

from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes: {n1: {gpus: {profile: h100-sxm, count: 2}, cores: 4}}
"""
BASELINE = """\
nodevet: 1
expect: {ecc_errors: {}, gpu_count: 2, kernel_faults: {}, row_remapping: {}, xid: {}}
"""


def test_a_fault_between_two_sweeps(boot: Boot) -> None:
    fleet = boot("since", SCENARIO, BASELINE)
    nightly = ("--since", "evidence", "--save", "evidence", "--all", "--format", "json")

    def sweep() -> tuple[int, dict[str, set[str]], str]:
        done = fleet.run_in_project("check", *fleet.reach, *nightly)
        (host,) = json.loads(done.stdout)["hosts"]
        found: dict[str, set[str]] = {}
        for finding in host["findings"]:
            found.setdefault(finding["check"], set()).add(finding["verdict"])
        return done.returncode, found, done.stderr

    code, found, said = sweep()
    assert code == 0 and "no earlier evidence (1 host, n1)" in said, found
    faults = ("oom-kill", "{xid: {gpu: 0, code: 61}}", "{xid: {gpu: 1, code: 48}}")
    for fault in (*faults, "{ecc-uncorrected: {gpu: 1}}"):
        fleet.sim("set", "n1", f"fault={fault}")
    code, found, said = sweep()
    assert (code, said) == (1, ""), said
    fresh = [name for name, verdicts in found.items() if "fail" in verdicts]
    assert fresh == ["ecc_errors", "kernel_faults", "xid"], found
    code, found, _ = sweep()
    assert code == 1, found
    assert found["ecc_errors"] == found["kernel_faults"] == {"ok"}, found
    assert found["xid"] == {"ok", "fail"}, "Xid 48 lasts until the GPU is reset"
    fleet.sim("set", "n1", "fault={row-remap-pending: {gpu: 1}}")
    _, found, _ = sweep()
    _, again, _ = sweep()
    assert found == again and "fail" in again["row_remapping"] & again["ecc_errors"], again
    fleet.sim("reboot", "n1")
    code, found, said = sweep()
    assert code == 0 and "rebooted since (1 host, n1)" in said, said
