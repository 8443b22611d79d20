"""Power cycles with real BMC software: which requests it gets, their order, and what stops them."""

import threading
from dataclasses import replace as with_times

import pytest
from bmcs import (
    OF_IPMI,
    OF_REDFISH,
    PASSWORD,
    SYSTEM,
    certificate,
    link,
    members,
    secret_file,
)
from msgspec.structs import replace
from slow_machine import slowness
from switched_bmcs import HANGS, OBEYS, STAYS_ON, TIMES, asked_of, behave, is_on, off_of, switch

from nodevet.base.errors import NothingDoneError, UserError
from nodevet.bmc.errors import BmcError
from nodevet.bmc.ipmi import Ipmi
from nodevet.bmc.power import cycle, refusal, switch_of
from nodevet.bmc.powering import BmcPower, powers
from nodevet.bmc.secrets import read_secrets
from nodevet.checking.bmc_identity import MachineIds
from nodevet.model import Host

RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
IDS = {"redfish": MachineIds(uuid=str(OF_REDFISH)), "ipmi": MachineIds(uuid=str(OF_IPMI))}
OWN = IDS["redfish"]
CHASSIS = "/redfish/v1/Chassis"
THERMAL = f"{CHASSIS}/1/ThermalSubsystem"
LEAKS = f"{THERMAL}/LeakDetection"
DROPS_ONE = f'if [ "$3 $4" = "power 1" ] && mkdir dropped 2>/dev/null; then exit; fi\n{OBEYS}'


def late(request, value):
    """The power changes 3 s after this request."""
    others = f'test "$3 $4" = "{request}" || {{ {OBEYS}\nexit; }}'
    return f"{others}\n(sleep 3; echo {value} > power) >&- 2>&- &"


GOES_LATE, COMES_LATE = late("power 0", 0), late("power 1", 1)


def cycled(simulated, times=TIMES):
    """What was journaled."""
    requests = []
    cycle(switch(simulated.bmc), requests.append, times)
    return requests


def test_shuts_down_and_switches_on(bmc):
    assert cycled(bmc) == ["soft off", "on"]
    assert asked_of(bmc) == [off_of(bmc), "power 1"]
    assert is_on(bmc)


def test_switches_on_a_node_that_is_off(bmc):
    behave(bmc, power="0")
    assert cycled(bmc) == ["on"]
    assert asked_of(bmc) == ["power 1"]


def test_switches_a_node_that_does_not_shut_down_hard_off(ipmi):
    behave(ipmi, HANGS)
    assert cycled(ipmi, with_times(TIMES, soft=1)) == ["soft off", "off", "on"]
    assert asked_of(ipmi) == ["shutdown 1", "power 0", "power 1"]


def test_goes_hard_off_at_once_if_no_shutdown_is_allowed(redfish):
    behave(redfish)
    resets = {"target": RESET, "ResetType@Redfish.AllowableValues": ["ForceOff", "ForceOn"]}
    redfish.say({SYSTEM: {"Actions": {"#ComputerSystem.Reset": resets}}})
    assert cycled(redfish) == ["off", "on"]
    assert asked_of(redfish) == ["power 0", "power 1"]


def test_reads_what_is_allowed_from_action_info(redfish):
    info = f"{SYSTEM}/ResetActionInfo"
    parameters = [{"Name": "ResetType", "AllowableValues": ["ForceOff", "On"]}]
    resets = {"target": RESET, "@Redfish.ActionInfo": info}
    actions = {"Actions": {"#ComputerSystem.Reset": resets}}
    redfish.say({SYSTEM: actions, info: {"Parameters": parameters}})
    assert switch(redfish.bmc).allows() == {"off", "on"}
    for values in (5, "On", {"On": 1}, None):
        odd = [{"Name": "ResetType", "AllowableValues": values}]
        redfish.say({SYSTEM: actions, info: {"Parameters": odd}})
        with pytest.raises(BmcError, match="does not say which resets it allows"):
            switch(redfish.bmc).allows()
    redfish.say({SYSTEM: actions, info: {"Parameters": []}})
    with pytest.raises(BmcError, match="does not say which resets it allows"):
        switch(redfish.bmc).allows()


def test_a_node_that_never_goes_off_is_an_error(bmc):
    behave(bmc, STAYS_ON)
    requests = []
    with pytest.raises(BmcError, match="does not report Off after 1 s"):
        cycle(switch(bmc.bmc), requests.append, with_times(TIMES, soft=1, off=1))
    assert requests == ["soft off", "off"]
    assert len(asked_of(bmc)) == 2  # each once


def test_waits_for_a_node_that_comes_on_late(bmc):
    behave(bmc, COMES_LATE, power="0")
    cycled(bmc, with_times(TIMES, again=30))
    assert asked_of(bmc) == ["power 1"]
    assert is_on(bmc)


def test_repeats_an_on_request_that_the_bmc_dropped(bmc):
    behave(bmc, DROPS_ONE)
    cycled(bmc)
    assert asked_of(bmc)[1:] == ["power 1", "power 1"]
    assert is_on(bmc)


def test_a_node_that_never_comes_on_is_an_error(bmc):
    behave(bmc, STAYS_ON, power="0")
    with pytest.raises(BmcError, match="does not report On after 1 s"):
        cycled(bmc, with_times(TIMES, on=1))


def test_repeats_an_on_request_that_the_bmc_refused_at_first(redfish):
    """As iDRAC10 does for a minute after Off."""
    behave(redfish, power="0")
    redfish.breaks("once 409", RESET)
    cycled(redfish)
    assert asked_of(redfish) == ["power 1"]


def test_a_refused_shutdown_is_followed_by_off_at_once(redfish):
    behave(redfish)
    redfish.breaks("once 400", RESET)
    assert cycled(redfish, with_times(TIMES, soft=1000)) == ["soft off", "off", "on"]


def test_one_answer_is_not_enough_to_be_off(redfish):
    """A BMC may say Off as soon as it accepted the request, while the node still shuts down."""
    found = redfish.folder / "found"
    behave(redfish, f"cat power >> {found}\n{GOES_LATE}")
    redfish.say()
    redfish.breaks("off once", SYSTEM)
    assert cycled(redfish) == ["soft off", "on"]
    assert asked_of(redfish) == ["power 0", "power 1"]
    assert found.read_text() == "1\n0\n"  # the power, as each was asked


def test_a_slow_bmc_is_asked_once(redfish):
    behave(redfish)
    answer = 2 * slowness()
    redfish.breaks(f"slow {1.5 * answer:.1f}", RESET)
    slow = replace(redfish.bmc)
    impatient = switch_of(
        slow, read_secrets([slow])[slow.password], with_times(TIMES, answer=answer)
    )
    requests = []
    cycle(impatient, requests.append, TIMES)
    assert requests == ["soft off", "on"]
    assert asked_of(redfish)[0] == "power 0"
    assert is_on(redfish)


def test_an_order_over_ipmi_is_sent_once(ipmi):
    """ipmi_sim has one thread: a packet that is sent again would be done again."""
    behave(ipmi, f"sleep 4\n{OBEYS}", power="0")
    switch(ipmi.bmc).ask("on")
    assert asked_of(ipmi) == ["power 1"]


def test_no_power_request_is_sent_with_a_wrong_password(bmc, tmp_path):
    wrong = replace(bmc.bmc, password=secret_file(tmp_path, "wrong"))
    requests = []
    with pytest.raises(BmcError, match=r"refuses the (session|user)"):
        cycle(switch_of(wrong, "wrong", TIMES), requests.append, TIMES)
    assert requests == [] == asked_of(bmc)


def test_a_user_who_may_only_read_is_refused_once(redfish):
    behave(redfish)
    redfish.say()
    redfish.breaks("once 403", RESET)
    requests = []
    node = powers([Host(name="gpu1", bmc=redfish.bmc)], 4, 1)["gpu1"]
    with pytest.raises(NothingDoneError, match=r"BMC .*: its user may not do this \(HTTP 403\)"):
        node.cycle(requests.append, node=OWN, runs=True)
    assert requests == ["soft off"]
    assert asked_of(redfish) == []


def test_no_power_request_is_sent_to_a_bmc_with_another_certificate(redfish, tmp_path):
    behave(redfish)
    other = switch(redfish.bmc, ca=str(certificate(tmp_path, "other")))
    requests = []
    with pytest.raises(BmcError, match="certificate is not trusted"):
        cycle(other, requests.append, TIMES)
    assert requests == [] == asked_of(redfish)


def test_a_redirect_of_a_power_request_is_an_error(redfish):
    behave(redfish)
    redfish.breaks("redirect https://127.0.0.1:1/", RESET)
    with pytest.raises(BmcError, match="HTTP 307"):
        switch(redfish.bmc).ask("on")


def test_a_target_elsewhere_is_refused(redfish):
    behave(redfish)
    resets = {"target": "https://evil/reset", "ResetType@Redfish.AllowableValues": ["On"]}
    redfish.say({SYSTEM: {"Actions": {"#ComputerSystem.Reset": resets}}})
    with pytest.raises(BmcError, match="not a path of Redfish"):
        switch(redfish.bmc).ask("on")


def test_the_password_is_never_shown(redfish, ipmi):
    for simulated in (redfish, ipmi):
        assert PASSWORD not in repr(switch(simulated.bmc))


def leaking(*detectors, **broken):
    """A chassis with leak detectors."""
    paths = [f"{LEAKS}/Detectors/{number}" for number in range(len(detectors))]
    return {
        CHASSIS: members(f"{CHASSIS}/1"),
        f"{CHASSIS}/1": {"Id": "1", "ThermalSubsystem": link(THERMAL)},
        THERMAL: {"LeakDetection": link(LEAKS)},
        LEAKS: {"LeakDetectors": link(f"{LEAKS}/Detectors")},
        f"{LEAKS}/Detectors": members(*paths),
        **dict(zip(paths, detectors, strict=True)),
        **broken,
    }


@pytest.mark.parametrize(
    ("detectors", "why"),
    [
        ([{"Name": "Tray", "DetectorState": "OK"}], ""),
        (
            [
                {"Name": "Tray", "DetectorState": "OK"},
                {"Name": "Hose", "DetectorState": "Critical"},
            ],
            "a leak detector does not report OK: Hose: critical",
        ),
        (
            [{"Name": "Tray", "DetectorState": None, "Status": {"State": "Enabled"}}],
            "a leak detector does not report OK: Tray: Enabled",
        ),
        ([{"Name": "Tray", "Status": {"State": "Absent"}}], ""),
    ],
)
def test_refuses_to_switch_if_a_leak_detector_reports_a_leak(redfish, detectors, why):
    redfish.say(leaking(*detectors))
    assert refusal(switch(redfish.bmc)) == why


def test_refuses_to_switch_if_a_leak_detector_cannot_be_read(redfish):
    resources = leaking({"Name": "Tray", "DetectorState": "OK"})
    del resources[f"{LEAKS}/Detectors/0"]
    redfish.say(resources)
    with pytest.raises(BmcError, match="no such resource"):
        refusal(switch(redfish.bmc))


@pytest.mark.parametrize(
    "broken",
    [
        {CHASSIS: {"Members@odata.count": 0, "Members": None}},
        {CHASSIS: {"Members@odata.count": 0, "Members": f"{CHASSIS}/1"}},
        {CHASSIS: {"Members@odata.count": 1, "Members": [link(f"{CHASSIS}/1"), "x"]}},
        {f"{CHASSIS}/1": {"Id": "1", "ThermalSubsystem": THERMAL}},
        {THERMAL: {"LeakDetection": [link(LEAKS)]}},
        {LEAKS: {"LeakDetectors": {"@odata.id": 5}}},
        {f"{LEAKS}/Detectors": {"Members": {}}},
    ],
)
def test_refuses_to_switch_if_links_to_leak_detectors_are_broken(redfish, broken):
    """A BMC that answers nonsense has not said that nothing leaks."""
    redfish.say(leaking({"Name": "Tray", "DetectorState": "Critical"}, **broken))
    with pytest.raises(BmcError, match=r"its \w+ is not a link|does not list the members"):
        refusal(switch(redfish.bmc))


def test_refuses_to_switch_if_leak_detectors_are_on_an_unread_page(redfish):
    """Some BMCs count the members of the page only."""
    detectors = f"{LEAKS}/Detectors"
    page = {**members(f"{detectors}/0"), "Members@odata.nextLink": f"{detectors}?$skip=1"}
    redfish.say(leaking({"Name": "Tray", "DetectorState": "OK"}, **{detectors: page}))
    with pytest.raises(BmcError, match="it shows 1 of the members of a collection"):
        refusal(switch(redfish.bmc))


@pytest.mark.parametrize("path", [f"{CHASSIS}/1", THERMAL, LEAKS])
def test_refuses_to_switch_if_leak_detection_answers_an_error_with_status_200(redfish, path):
    message = "The service is not ready.\x1b[2J"
    error = {"error": {"code": "Base.1.8.ServiceTemporarilyUnavailable", "message": message}}
    redfish.say(leaking({"Name": "Tray", "DetectorState": "Critical"}, **{path: error}))
    with pytest.raises(BmcError, match="it answers an error: The service is not ready") as caught:
        refusal(switch(redfish.bmc))
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Hose Leak,30h,ok,7.1,", ""),
        ("Hose Leak,30h,ok,7.1,State Deasserted", ""),
        ("Hose Leak,30h,ns,7.1,Disabled", ""),
        ("Hose Leak,30h,ok,7.1,State Asserted", "Hose Leak: State Asserted"),
        ("Hose Leak,30h,ns,7.1,No Reading", "Hose Leak: no reading"),
        ("LEAK_DETECT,na,,ns", "LEAK_DETECT: no reading"),
        ("LEAK_DETECT,3,Volts,unr", "LEAK_DETECT: critical"),
    ],
)
def test_refuses_to_switch_if_a_leak_sensor_is_asserted_or_has_no_reading(
    ipmi, line, why, monkeypatch
):
    monkeypatch.setattr("nodevet.bmc.ipmi._sensors", lambda service: ["FAN1,90,RPM,ok", line])
    said = refusal(switch(ipmi.bmc))
    assert said.partition(";")[0] == (f"a leak detector does not report OK: {why}" if why else "")
    assert ("disable the sensor in the BMC" in said) is ("no reading" in said)


def test_a_bmc_without_leak_detectors_may_switch(redfish, ipmi):
    redfish.say()
    assert refusal(switch(redfish.bmc)) == "" == refusal(switch(ipmi.bmc))


def test_a_node_that_leaks_gets_no_power_request(redfish):
    behave(redfish)
    redfish.say(leaking({"Name": "Hose", "DetectorState": "Warning"}))
    node = powers([Host(name="gpu1", bmc=redfish.bmc)], 4, 1)["gpu1"]
    requests = []
    with pytest.raises(UserError, match=r"BMC 127.0.0.1: .* Hose: warning"):
        node.cycle(requests.append, node=OWN, runs=True)
    assert requests == [] == asked_of(redfish)


def test_a_bmc_that_reports_off_while_the_node_runs_is_refused(bmc):
    """A wrong address in the inventory: that machine may be off for a reason."""
    behave(bmc, power="0")
    node, requests = powers([Host(name="gpu1", bmc=bmc.bmc)], 4, 1)["gpu1"], []
    with pytest.raises(UserError, match="it reports Off, but the node runs: is this another"):
        node.cycle(requests.append, node=IDS[bmc.bmc.kind], runs=True)
    assert requests == [] == asked_of(bmc)


@pytest.mark.parametrize(("how", "not_asked"), [(STAYS_ON, "off"), (OBEYS, "on")])
def test_a_bmc_that_took_over_the_address_gets_no_further_request(redfish, how, not_asked):
    """BMCs that reboot may exchange their addresses."""
    behave(redfish, how)
    host = Host(name="gpu1", bmc=redfish.bmc)
    node = with_times(powers([host], 4, 1)["gpu1"], times=with_times(TIMES, soft=1))
    requests = []

    def asked(what):
        requests.append(what)
        redfish.say({SYSTEM: {"UUID": str(OF_IPMI)}})

    with pytest.raises(UserError, match=f"not asked for `{not_asked}`: the BMC of another machine"):
        node.cycle(asked, node=OWN, runs=True)
    assert requests == ["soft off"] and asked_of(redfish) == ["power 0"]


def test_a_node_that_leaks_stays_off(redfish):
    behave(redfish, power="0")
    redfish.say(leaking({"Name": "Hose", "DetectorState": "Critical"}))
    node, requests = powers([Host(name="gpu1", bmc=redfish.bmc)], 4, 1)["gpu1"], []
    with pytest.raises(UserError, match="does not report OK: Hose: critical"):
        node.switch_on_if_off(requests.append, node=OWN)
    assert requests == [] == asked_of(redfish)


@pytest.mark.parametrize(("groups", "most"), [(("pdu2", "pdu2"), 4), (("", ""), 1)])
def test_only_one_node_of_a_power_group_is_switched_at_a_time(redfish, ipmi, groups, most):
    story = []
    hosts = [
        Host(name=simulated.bmc.kind, bmc=replace(simulated.bmc, power_group=group))
        for simulated, group in zip((redfish, ipmi), groups, strict=True)
    ]
    for simulated in (redfish, ipmi):
        behave(simulated)
    redfish.say()
    nodes = powers(hosts, most, 1)
    threads = [
        threading.Thread(target=slowly, args=(nodes[host.name], host.name, story)) for host in hosts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = story[0][0]
    assert [name for name, _ in story] == [first] * 2 + [({"redfish", "ipmi"} - {first}).pop()] * 2


def slowly(node: BmcPower, name, story):
    with_times_of = BmcPower(node.bmc, node.secrets, node.turns, TIMES)
    with_times_of.cycle(lambda what: story.append((name, what)), node=IDS[name], runs=True)


def test_describes_the_power_of_the_node(bmc):
    node = powers([Host(name="gpu1", bmc=bmc.bmc)], 4, 1)["gpu1"]
    assert node.text() == "its BMC says that the power is on"
    gone = powers([Host(name="gpu1", bmc=replace(bmc.bmc, address="name.invalid"))], 4, 1)["gpu1"]
    assert gone.text().startswith("its power is not known: BMC name.invalid: ")


def test_the_local_machine_cannot_be_power_cycled(redfish):
    assert powers([Host(name="here", local=True, bmc=redfish.bmc)], 4, 1) == {}


@pytest.mark.parametrize("info", ["", "Record Count : \n", "SDR Version : 0x51\n"])
def test_refuses_to_switch_if_the_number_of_sensors_is_unknown(ipmi, info, monkeypatch):
    """ipmitool ended well and said nothing: there may be leak detectors."""
    run, said = Ipmi.run, {("sdr", "info"): info or "\n"}
    monkeypatch.setattr(Ipmi, "run", lambda self, *words: said.get(words) or run(self, *words))
    with pytest.raises(BmcError, match="does not say how many sensors there are"):
        refusal(switch(ipmi.bmc))
