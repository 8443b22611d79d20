"""Counters that are read twice in one visit: from nodes to saved evidence, and judged by both."""

import json

import pytest

from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2}
"""
BASELINE = "nodevet: 1\nexpect: {pcie_errors: {corrected_per_hour: 10}}\n"


def test_counters_are_read_twice_in_one_visit(boot: Boot) -> None:
    fleet = boot("sample", SCENARIO, BASELINE)
    fleet.run_in_project("check", *fleet.reach, "--save", "sampled", "--sample", "2s")
    (saved,) = (fleet.project / "sampled").iterdir()
    evidence = json.loads(saved.read_text())["evidence"]
    assert evidence["earlier"]["pci"]["before_s"] >= 2
    done = fleet.run_in_project("check", "--evidence", "sampled", "-b", "base")
    assert done.returncode == 0, done
    for function in evidence["earlier"]["pci"]["data"]["functions"]:
        function["aer"]["correctable"] = 10**6  # more than now: they were reset
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "evidence": evidence}))
    done = fleet.run_in_project("check", "--evidence", "sampled", "-b", "base")
    assert done.returncode == 3 and "it went back from 1000000 to 0" in done.stdout, done
