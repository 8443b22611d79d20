"""What is read over IPMI: OpenIPMI's ipmi_sim, by the real ipmitool."""

import subprocess
import time

import pytest
from bmcs import PASSWORD
from msgspec.structs import replace

from nodevet.bmc.fields import FULL_LOG
from nodevet.bmc.ipmi import Ipmi

AC_LOST = "sel_add 0x20 0x02 0 0 0 0x65 0x20 0 0x04 0x08 0x03 0x6f {} 0xff 0xff"


def test_sensors_and_events_of_a_node_before_and_after_it_fails(ipmi, read):
    data = read(ipmi.bmc)["data"]
    assert (data["kind"], data["power"], data["firmware"]) == ("ipmi", "on", "9.08")
    assert (data["events"], data["events_found"], data["inlet_c"]) == ([], 0, 24.0)
    parts = {part["name"]: (part["health"], part["state"]) for part in data["parts"]}
    assert parts == {
        "Inlet Temp": ("ok", "ok"),
        "FAN1": ("ok", "ok"),
        r"PSU1 \x1b[31m": (None, "Presence detected"),
    }
    ipmi.tell(
        "sensor_set_value 0x20 0 1 46 1",
        "sensor_set_value 0x20 0 2 7 0",
        "sensor_set_bit 0x20 0 3 3 1 0",
        AC_LOST.format("0x03"),
        AC_LOST.format("0x01"),
        AC_LOST.format("0x01").replace("0x6f", "0xef"),
    )
    data = read(ipmi.bmc)["data"]
    parts = {part["name"]: (part["health"], part["state"]) for part in data["parts"]}
    assert parts["Inlet Temp"] == ("critical", "ucr")
    assert parts["FAN1"] == ("critical", "lcr")
    assert parts[r"PSU1 \x1b[31m"][0] == "critical"
    assert "Power Supply AC lost" in parts[r"PSU1 \x1b[31m"][1]
    critical = [event for event in data["events"] if event["severity"] == "critical"]
    assert [(event["text"], event["ended"]) for event in critical] == [
        ("Failure detected", True),
        ("Failure detected", True),
        ("Power Supply AC lost", False),
        ("Upper Critical going high", False),
    ]
    assert all(0 <= event["age_s"] < 300 for event in data["events"])
    assert data["events_found"] == len(data["events"])


def test_events_total_counts_a_log_until_it_is_full(ipmi, read):
    ipmi.tell(*[AC_LOST.format("0x01")] * 300)
    data = read(ipmi.bmc)["data"]
    assert data["events_total"] >= 300
    assert data["events_found"] == len(data["events"]) == 256
    ipmi.tell(*[AC_LOST.format("0x01")] * 30)  # more than the log takes
    data = read(ipmi.bmc)["data"]
    assert (data["events_total"], data["errors"]["events_total"]) == (None, FULL_LOG)
    assert len(data["events"]) == 256


def test_a_log_that_takes_too_long_leaves_other_values_read(ipmi, read, monkeypatch):
    """ipmitool reads a log of 16,000 entries from its first one, for minutes."""
    run = subprocess.run

    def slow(words, **options):
        if words[-4:-1] == ("sel", "elist", "last"):
            raise subprocess.TimeoutExpired(words, options["timeout"])
        return run(words, **options)

    ipmi.tell(AC_LOST.format("0x01"))
    before = read(ipmi.bmc)["data"]["parts"]
    monkeypatch.setattr("nodevet.bmc.ipmi.subprocess.run", slow)
    data = read(ipmi.bmc)["data"]
    assert (data["events"], data["errors"]["events"]) == (None, "no answer in time")
    assert data["parts"] == before != []


def test_power_off(ipmi, read):
    (ipmi.folder / "power").write_text("0\n")
    try:
        assert read(ipmi.bmc)["data"]["power"] == "off"
    finally:
        (ipmi.folder / "power").write_text("1\n")


def test_the_password_is_in_no_command_line_or_environment(ipmi, read, monkeypatch):
    """ipmitool hides a password of its command line, so /proc is too late to look."""
    calls = []
    run = subprocess.run

    def spied(words, **options):
        calls.append(f"{words} {options['env']}")
        return run(words, **options)

    monkeypatch.setattr("nodevet.bmc.ipmi.subprocess.run", spied)
    assert read(ipmi.bmc)["status"] == "ok"
    assert calls and all(str(ipmi.port) in call for call in calls)
    assert not [call for call in calls if PASSWORD in call]


@pytest.mark.parametrize(("timeout", "waits"), [(60.0, False), (300.0, True)])
def test_ipmitool_waits_longer_for_a_bmc_that_is_slow(ipmi, monkeypatch, timeout, waits):
    calls = []
    run = subprocess.run

    def spied(words, **options):
        calls.append(words)
        return run(words, **options)

    monkeypatch.setattr("nodevet.bmc.ipmi.subprocess.run", spied)
    service = Ipmi(replace(ipmi.bmc, timeout=timeout), PASSWORD, time.monotonic() + 60)
    assert "System Power" in service.run("chassis", "status")
    service.order("chassis", "status")
    *_, read, order = calls
    assert ("60" in read, "60" in order, "10" in order) == (waits, waits, not waits)
