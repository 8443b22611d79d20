"""A simulated node whose power two BMCs switch, one by IPMI and one by Redfish."""

import base64
import json
import ssl
import time
import urllib.request

import pytest
from bmcs import PASSWORD, SYSTEM, USER, ipmi_sim, redfish_emulator

from nodevet.bmc.use import read_all
from nodevet.model import Host
from nodevet_sim.nspawn.control import ask

pytestmark = pytest.mark.timeout(1200)
SCENARIO = """\
sim: 1
nodes: {gpu1: {gpus: l40s, cores: 2, faults: [{gpu-lost: {gpu: 0, cleared_by: power}}]}}
"""
BASELINE = "nodevet: 1\nexpect: {bmc_sensors: {}}\n"


def settings(bmc):
    fields = {name: getattr(bmc, name) for name in ("kind", "address", "port", "user")}
    return {**fields, "password": {bmc.password[0]: bmc.password[1]}}


def reset(redfish, how):
    """Asks the emulator as any Redfish client does."""
    token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(
        f"https://127.0.0.1:{redfish.port}{SYSTEM}/Actions/ComputerSystem.Reset",
        data=json.dumps({"ResetType": how}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Basic {token}"},
        method="POST",
    )
    context = ssl.create_default_context(cafile=redfish.bmc.ca)
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:
        assert answer.status == 204


def power(bmc):
    section = read_all([Host(name="gpu1", bmc=bmc)])["gpu1"]
    assert section.data, section
    return section.data.power


def wait(is_done):
    """Until a condition holds; the timeout of the test is the limit."""
    while not is_done():
        time.sleep(0.2)


def status(fleet):
    (node,) = ask(fleet.place, {"do": "list"})["nodes"]
    return node["state"], node["boots"]


def is_lost(fleet):
    """Whether NVML or PCI says that the GPU is lost."""
    place = "/sys/bus/pci/devices/0000:01:00.0/config"
    is_off = fleet.run_on("gpu1", f"head -c 4 {place} | od -An -tx1").split() == ["ff"] * 4
    done = fleet.run_on("gpu1", "nvidia-smi -L 2>&1; true")
    assert is_off == ("lost" in done.lower()), (is_off, done)
    return is_off


def test_ipmi_and_redfish_switch_the_same_simulated_node(boot, tmp_path_factory):
    fleet = boot("bmc", SCENARIO, BASELINE)
    with (
        ipmi_sim(tmp_path_factory.mktemp("ipmi"), fleet.name, "gpu1") as ipmi,
        redfish_emulator(tmp_path_factory.mktemp("redfish"), fleet.name, "gpu1") as redfish,
    ):
        hosts = {"gpu1": {"bmc": settings(ipmi.bmc)}}
        (fleet.project / "bmcs.yaml").write_text(json.dumps({"nodevet": 1, "hosts": hosts}))
        assert power(ipmi.bmc) == power(redfish.bmc) == "on"
        vetted = fleet.vetted(*fleet.reach, "-i", "bmcs.yaml")["gpu1"]
        (found,) = [each for each in vetted["findings"] if each["check"] == "bmc_sensors"]
        assert found["verdict"] == "ok"

        ipmi.chassis("reset")
        wait(lambda: status(fleet) == ("running", 2))
        assert is_lost(fleet)  # no boot repairs it while the power is on

        reset(redfish, "ForceOff")
        wait(lambda: status(fleet) == ("off", 2))
        assert power(ipmi.bmc) == power(redfish.bmc) == "off"
        words = ("--format", "json", "--connect-timeout", "2s")
        done = fleet.run_in_project("check", *fleet.reach, "-i", "bmcs.yaml", *words)
        (host,) = json.loads(done.stdout)["hosts"]
        assert host["why"].endswith("; its BMC says that the power is off"), host

        ipmi.chassis("on")
        wait(lambda: status(fleet) == ("running", 3))
        assert power(redfish.bmc) == "on"
        assert not is_lost(fleet)
        ipmi.chassis("soft")
        wait(lambda: status(fleet) == ("off", 3))
