"""Two runs that switch one node by one real BMC: a run that sees that another acts stops."""

import threading
from dataclasses import replace

import pytest
from bmcs import SYSTEM
from switched_bmcs import HANGS, STAYS_ON, TIMES, asked_of, behave, is_on, off_of, switch

from nodevet.bmc.errors import BmcError, SwitchedElsewhereError
from nodevet.bmc.power import cycle

SHORT = replace(TIMES, soft=1)


class Meanwhile:
    """A switch, and another run that asks the BMC for On after this many answers of Off."""

    def __init__(self, simulated, after):
        self._own, self._other, self._left = switch(simulated.bmc), switch(simulated.bmc), after

    def __getattr__(self, name):
        return getattr(self._own, name)

    def power(self):
        state = self._own.power()
        self._left -= state == "off"
        if self._left == 0 and state == "off":
            self._other.ask("on")
        return state


def test_a_node_that_another_run_switched_on_is_not_touched(bmc):
    requests = []
    with pytest.raises(SwitchedElsewhereError, match="it reports on before this run asked for On"):
        cycle(Meanwhile(bmc, after=2), requests.append, TIMES)
    assert requests == ["soft off"] and is_on(bmc)
    assert asked_of(bmc) == [off_of(bmc), "power 1"]  # the On is the other run's


def test_a_node_that_was_off_and_is_on_is_not_switched_hard_off(bmc):
    """The other run's On is faster than the second look: a hard Off would hit its boot."""
    requests = []
    with pytest.raises(SwitchedElsewhereError, match="it reported Off, and then on; another run"):
        cycle(Meanwhile(bmc, after=1), requests.append, SHORT)
    assert requests == ["soft off"] and is_on(bmc)


def test_a_node_in_another_boot_is_not_switched_hard_off(ipmi):
    """No look saw it off, but the node itself answers."""
    behave(ipmi, HANGS)
    requests = []
    with pytest.raises(SwitchedElsewhereError, match="the node booted before this run sent On"):
        cycle(switch(ipmi.bmc), requests.append, SHORT, lambda: True)
    assert requests == ["soft off"] and asked_of(ipmi) == ["shutdown 1"]


def test_a_node_whose_bmc_tells_of_another_reset_is_not_switched_hard_off(redfish):
    behave(redfish, STAYS_ON)
    redfish.say({SYSTEM: {"LastResetTime": "2026-11-28T12:00:00Z"}})

    def asked(what):
        requests.append(what)
        redfish.say({SYSTEM: {"LastResetTime": "2026-11-28T12:09:00Z"}})

    requests = []
    with pytest.raises(SwitchedElsewhereError, match="the node booted before this run sent On"):
        cycle(switch(redfish.bmc), asked, SHORT)
    assert requests == ["soft off"] and len(asked_of(redfish)) == 1


def test_two_runs_at_the_same_time_leave_the_node_on(bmc):
    """Each ends its cycle or stops; neither switches hard off what the other switched on."""
    ends, begin = [], threading.Barrier(2)

    def run():
        requests = []
        begin.wait()
        try:
            cycle(switch(bmc.bmc), requests.append, TIMES)
        except BmcError:  # the other run switches, or the BMC refuses two sessions at once
            requests.append("stopped")
        ends.append(requests)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 2 and is_on(bmc)
    assert {what for requests in ends for what in requests} <= {"soft off", "on", "stopped"}
