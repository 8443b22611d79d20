"""BMCs that take half a minute for each answer, or never answer: by real software on a clock that
the test turns, and by a port that accepts and says nothing."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace as with_times
from http.client import HTTPSConnection
from types import SimpleNamespace

import pytest
from bmcs import PASSWORD, hook, settings_of
from msgspec.structs import replace
from switched_bmcs import TIMES, asked_of, behave, is_on, switch

from nodevet.base.errors import UserError
from nodevet.bmc import https
from nodevet.bmc.errors import BmcError
from nodevet.bmc.power import cycle, switch_of
from nodevet.bmc.powering import powers
from nodevet.checking.bmc_identity import MachineIds
from nodevet.model import Host

HASTY = with_times(TIMES, answer=0.2)
EACH = 30.0  # seconds for one answer


@pytest.fixture
def slow(redfish, monkeypatch):
    """The emulator, each of whose answers takes EACH seconds by the clock of the connection."""
    now = [time.monotonic()]
    ask = https.Redfish._ask

    def turn(seconds):
        now[0] += seconds

    def later(self, connection, path):
        turn(EACH)
        return ask(self, connection, path)

    monkeypatch.setattr(https, "time", SimpleNamespace(monotonic=lambda: now[0], turn=turn))
    monkeypatch.setattr(https.Redfish, "_ask", later)
    behave(redfish)
    yield redfish
    hook(redfish.folder, "", "")


def test_a_power_cycle_by_a_slow_bmc_ends(slow):
    """Each answer has its own limit: together those of one request take longer."""
    requests = []
    cycle(switch(slow.bmc), requests.append, with_times(TIMES, answer=40))
    assert requests == ["soft off", "on"] and is_on(slow)


def test_a_handshake_that_outlasts_the_limit_is_not_followed_by_a_request(slow, monkeypatch):
    """Nothing would end the answer: the watchdog is over, and each byte resets the socket's."""
    connect = HTTPSConnection.connect

    def later(self):
        connect(self)
        https.time.turn(EACH)

    monkeypatch.setattr(HTTPSConnection, "connect", later)
    with pytest.raises(BmcError, match=r"^no answer in time$"):
        switch_of(slow.bmc, PASSWORD, with_times(TIMES, answer=EACH - 1)).power()


def test_a_bmc_that_is_slower_than_its_limit_gets_no_request(redfish):
    behave(redfish)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bmc = replace(redfish.bmc, port=silent.getsockname()[1], timeout=0.2)
        node, requests = powers([Host(name="gpu1", bmc=bmc)], 4, 1)["gpu1"], []
        with pytest.raises(UserError, match=r"BMC 127\.0\.0\.1: no answer in time"):
            node.cycle(requests.append, node=MachineIds(), runs=True)
    assert requests == [] == asked_of(redfish)


def test_a_request_that_was_not_sent_is_reported(redfish):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = switch_of(replace(redfish.bmc, port=silent.getsockname()[1]), "x", HASTY)
        with pytest.raises(BmcError, match=r"^the request was not sent: no answer in time$"):
            mute.ask("off")


def test_a_bmc_that_falls_silent_midway_says_how_far_it_came(redfish):
    behave(redfish)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        once = switch(redfish.bmc)
        mute = switch_of(replace(redfish.bmc, port=silent.getsockname()[1]), "x", HASTY)

        class Falling:
            """Answers until it was asked for something."""

            def __getattr__(self, name):
                return getattr(mute if requests else once, name)

        requests = []
        with pytest.raises(BmcError) as error:
            cycle(Falling(), requests.append, with_times(TIMES, soft=0.1, off=0.1))
    why = "no answer since it was asked for `soft off`: no answer in time"
    assert (str(error.value), requests) == (why, ["soft off"])
    assert asked_of(redfish) == [] and is_on(redfish)


def test_a_check_loses_no_host_to_a_bmc_that_never_answers(redfish, tmp_path):
    """The limit is that of the inventory."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bmc = settings_of(redfish.bmc, port=silent.getsockname()[1], timeout="1s")
        fleet = {"nodevet": 1, "hosts": {"@local": {"bmc": bmc}}}
        (tmp_path / "fleet.yaml").write_text(json.dumps(fleet))
        (tmp_path / "site.yaml").write_text(
            "nodevet: 1\nexpect: {bmc_sensors: {}, uptime: {minimum_s: 1}}\n"
        )
        words = ("check", "-i", "fleet.yaml", "-b", "site.yaml", "--format", "json", "--all")
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", *words, "--store", "none"],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
    (host,) = json.loads(done.stdout)["hosts"]
    found = {each["check"]: (each["verdict"], each.get("why")) for each in host["findings"]}
    assert host["status"] == "vetted" and found["uptime"][0] == "ok"
    assert found["bmc_sensors"] == ("unknown", "BMC 127.0.0.1: no answer in time")
