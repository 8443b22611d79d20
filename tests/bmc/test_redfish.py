"""What is read of a Redfish service: sushy-tools' emulator, with the resources that it lacks."""

from datetime import datetime, timedelta, timezone

import pytest
from bmcs import CHASSIS, LOGS, MANAGER, SYSTEM, entry, link, log, members

from nodevet.bmc.fields import FULL_LOG
from nodevet.bmc.read import read_section
from nodevet.bmc.secrets import read_secrets

BIOS = f"{SYSTEM}/Bios"
SEL = f"{LOGS}/SEL".removeprefix("/redfish/v1")


@pytest.fixture
def data(redfish, read):
    """The data that is read if the emulator has these resources, too."""

    def of(resources):
        redfish.say(resources)
        section = read(redfish.bmc)
        assert section["status"] == "ok", section
        return section["data"]

    return of


def test_the_resources_of_the_emulator_are_read(data, redfish):
    found = data({})
    assert (found["kind"], found["power"], found["firmware"]) == ("redfish", "on", "1.00")
    assert found["inlet_c"] == 25.0
    assert found["boot_override"] == "Continuous Hdd"
    assert found["errors"] == {"events": "it has no log of hardware events"}
    kinds = {part["kind"]: part for part in found["parts"]}
    assert kinds["fan"]["health"] == "ok" and kinds["fan"]["reading"] > 0
    (redfish.folder / "power").write_text("0\n")
    try:
        assert data({})["power"] == "off"
    finally:
        (redfish.folder / "power").write_text("1\n")


def test_events(data):
    found = data(
        log(
            entry(1, "Critical", "PSU 1 lost AC", 60),
            entry(2, "OK", "Power on", 1),
            entry(3, "Critical", "Fan 3\x1b[2J failed\r\nhost gpu9: ok", 5),
            entry(4, "Warning", "Fan 4", 2, Resolved=True),
            {"Id": "5", "Message": "no time, no severity"},
        )
    )
    events = found["events"]
    assert found["events_found"] == 5
    assert [event["id"] for event in events] == [f"{SEL}/{number}" for number in (3, 1, 5, 2, 4)]
    assert events[0]["text"] == r"Fan 3\x1b[2J failed\r\nhost gpu9: ok"
    assert [event["age_s"] for event in events] == [300, 3600, None, 60, 120]
    assert [event["severity"] for event in events] == ["critical", "critical", "", "ok", "warning"]
    assert [event["ended"] for event in events] == [False, False, False, False, True]


def test_entries_that_a_log_only_links_to_are_read(data):
    resources = log(link(f"{LOGS}/SEL/Entries/1"))
    resources[f"{LOGS}/SEL/Entries/1"] = entry(1, "Critical", "PSU 1 lost AC")
    (event,) = data(resources)["events"]
    assert (event["severity"], event["text"]) == ("critical", "PSU 1 lost AC")


def test_an_entry_without_an_id_or_a_link_makes_the_log_unread(data):
    found = data(log({"Message": "PSU 1 lost AC", "Severity": "Critical"}))
    assert found["events"] is None and "not a path of Redfish" in found["errors"]["events"]


def test_more_critical_entries_than_are_kept_are_counted(data):
    found = data(log(*(entry(number, "Critical", "x", number) for number in range(300))))
    assert (found["events_found"], found["events_total"]) == (256, 300)
    assert found["events"][-1]["age_s"] == 255 * 60


def test_further_pages_of_a_log_are_read(data):
    resources = log(
        entry(1, "OK", "old"),
        **{"Members@odata.count": 2, "Members@odata.nextLink": f"{LOGS}/SEL/Page2"},
    )
    resources[f"{LOGS}/SEL/Page2"] = {"Members": [entry(2, "Critical", "new")]}
    assert [event["id"] for event in data(resources)["events"]] == [f"{SEL}/2", f"{SEL}/1"]


def test_a_log_with_missing_entries_is_unknown(data):
    found = data(log(entry(1, "OK", "old"), **{"Members@odata.count": 500}))
    assert found["events"] is None
    assert found["errors"]["events"] == "1 of 500 entries of its log were read"


@pytest.mark.parametrize(
    ("service", "why"),
    [
        ({"OverWritePolicy": "NeverOverWrites", "MaxNumberOfRecords": 1}, FULL_LOG),
        ({"OverWritePolicy": "NeverOverWrites", "MaxNumberOfRecords": 2}, None),
        ({"OverWritePolicy": "WrapsWhenFull", "MaxNumberOfRecords": 1}, None),
        ({"ServiceEnabled": False}, f"{LOGS}/SEL is switched off: turn it on in the BMC"),
    ],
)
def test_a_log_that_is_full_or_disabled_has_no_total(data, service, why):
    resources = log(entry(1, "OK", "old"), **{"Members@odata.count": 1})
    resources[f"{LOGS}/SEL"] |= service
    found = data(resources)
    assert found.get("errors", {}).get("events_total") == why
    assert (found["events_total"], len(found["events"])) == (None if why else 1, 1)


def test_a_clock_that_was_never_set_gives_no_age(data):
    resources = log(entry(1, "Critical", "x"))
    resources[MANAGER] = {"DateTime": "1970-01-01T00:10:00Z"}
    assert data(resources)["events"][0]["age_s"] is None


def test_an_old_time_that_contradicts_the_order_of_the_log_is_not_believed(data):
    """The BMC's clock was at 2019 when it logged the second entry."""
    second = {**entry(2, "Critical", "PSU 1 lost AC"), "Created": "2019-02-03T04:05:06Z"}
    found = data(log(entry(1, "OK", "boot", 43200), second, entry(3, "OK", "boot", 30)))
    (event, *rest) = found["events"]
    assert event["id"] == f"{SEL}/2" and event["age_s"] > 86400 > event["least_s"] == 1800
    assert [each["least_s"] for each in rest] == [None, None]


def test_a_clock_that_is_ahead_makes_no_earlier_entry_old(data):
    """The BMC logged it two hours ago, and its clock jumped ahead by years since."""
    resources = log(entry(1, "Critical", "PSU 1 lost AC", 120))
    resources[MANAGER] = {"DateTime": "2099-01-01T00:10:00Z"}
    resources[f"{LOGS}/SEL/Entries"]["Members"][0]["Created"] = now_text(7200)
    (event,) = data(resources)["events"]
    assert event["age_s"] > 86400 and event["least_s"] == pytest.approx(7200, abs=60)


def now_text(seconds_ago):
    moment = datetime.now(timezone.utc) - timedelta(seconds=seconds_ago)
    return moment.isoformat(timespec="seconds")


def test_power_and_thermal_subsystems_are_read(data):
    power, thermal = f"{CHASSIS}/PowerSubsystem", f"{CHASSIS}/ThermalSubsystem"
    found = data(
        {
            CHASSIS: {
                "PowerSubsystem": link(power),
                "ThermalSubsystem": link(thermal),
                "EnvironmentMetrics": link(f"{CHASSIS}/EnvironmentMetrics"),
            },
            power: {
                "PowerSupplies": link(f"{power}/PowerSupplies"),
                "PowerSupplyRedundancy": [{"Name": "N+1", "Status": {"Health": "Warning"}}],
            },
            f"{power}/PowerSupplies": members(
                f"{power}/PowerSupplies/0", f"{power}/PowerSupplies/1"
            ),
            f"{power}/PowerSupplies/0": {"Name": "PSU", "Status": {"Health": "OK"}},
            f"{power}/PowerSupplies/1": {
                "Name": "PSU",
                "Status": {"Health": "Critical", "State": "UnavailableOffline"},
            },
            thermal: {
                "Fans": link(f"{thermal}/Fans"),
                "ThermalMetrics": link(f"{thermal}/ThermalMetrics"),
                "LeakDetection": link(f"{thermal}/LeakDetection"),
            },
            f"{thermal}/Fans": members(f"{thermal}/Fans/0", f"{thermal}/Fans/1"),
            f"{thermal}/Fans/0": {
                "Name": "Fan 0",
                "SpeedPercent": {"Reading": 42},
                "Status": {"Health": "OK", "State": "Enabled"},
            },
            f"{thermal}/Fans/1": {"Name": "Fan 1", "Status": {"State": "Absent"}},
            f"{thermal}/ThermalMetrics": {"TemperatureSummaryCelsius": {"Intake": {"Reading": 23}}},
            f"{thermal}/LeakDetection": {"LeakDetectors": link(f"{thermal}/Leaks")},
            f"{thermal}/Leaks": members(f"{thermal}/Leaks/0"),
            f"{thermal}/Leaks/0": {"Name": "Tray", "DetectorState": "Critical"},
            f"{CHASSIS}/EnvironmentMetrics": {
                "PowerWatts": {"Reading": 6400},
                "PowerLimitWatts": {"SetPoint": 8000},
            },
        }
    )
    shown = [(part["kind"], part["name"], part["health"]) for part in found["parts"]]
    assert shown == [
        ("psu", "PSU", "ok"),
        ("psu", "PSU #2", "critical"),
        ("redundancy", "N+1", "warning"),
        ("fan", "Fan 0", "ok"),
        ("temperature", "Inlet", None),
        ("leak", "Tray", "critical"),
    ]
    assert (found["inlet_c"], found["power_w"], found["power_limit_w"]) == (23.0, 6400.0, 8000.0)
    assert found["parts_found"] == 6


def test_parts_of_an_incomplete_collection_are_unknown(data):
    power = f"{CHASSIS}/PowerSubsystem"
    found = data(
        {
            CHASSIS: {"PowerSubsystem": link(power)},
            power: {"PowerSupplies": link(f"{power}/All")},
            f"{power}/All": {"Members": [link(f"{power}/0")], "Members@odata.count": 2},
            f"{power}/0": {"Name": "PSU 0", "Status": {"Health": "OK"}},
        }
    )
    assert found["parts"] is None
    assert found["errors"]["parts"] == "it shows 1 of 2 members of a collection"


@pytest.mark.parametrize(
    "name", ["PowerSupplies", "LeakDetectors", "Power", "LeakDetection", "ThermalSubsystem"]
)
def test_parts_behind_a_broken_link_are_unknown(data, name):
    """A leak detector that nobody can read is none that says OK."""
    power, thermal = f"{CHASSIS}/PowerSubsystem", f"{CHASSIS}/ThermalSubsystem"
    resources = {
        CHASSIS: {"PowerSubsystem": link(power), "ThermalSubsystem": link(thermal)},
        power: {"PowerSupplies": link(f"{power}/PowerSupplies")},
        f"{power}/PowerSupplies": members(),
        thermal: {"LeakDetection": link(f"{thermal}/LeakDetection")},
        f"{thermal}/LeakDetection": {"LeakDetectors": link(f"{thermal}/LeakDetectors")},
        f"{thermal}/LeakDetectors": members(),
    }
    assert data(resources)["parts"] == []
    if name == "Power":
        resources[CHASSIS] = {"Power": link(f"{CHASSIS}/Power")}
    else:
        del resources[next(path for path in resources if path.endswith(name))]
    found = data(resources)
    assert found["parts"] is None
    assert found["errors"]["parts"] == f"its link to {name} leads nowhere"


def test_the_older_power_resource_is_read(data):
    power = f"{CHASSIS}/Power"
    found = data(
        {
            CHASSIS: {"Power": link(power)},
            power: {
                "PowerControl": [
                    {"PowerConsumedWatts": 700, "PowerLimit": {"LimitInWatts": 1200}},
                ],
                "PowerSupplies": [{"Name": "PSU 1", "Status": {"Health": "Critical"}}],
                "Redundancy": [{"Name": "PSUs", "Status": {"Health": "Critical"}}],
            },
        }
    )
    assert (found["power_w"], found["power_limit_w"]) == (700.0, 1200.0)
    shown = [(part["kind"], part["health"]) for part in found["parts"][:2]]
    assert shown == [("psu", "critical"), ("redundancy", "critical")]


def test_the_board_of_the_gpus_is_not_the_node(redfish, read):
    systems, board = "/redfish/v1/Systems", "/redfish/v1/Systems/HGX_Baseboard_0"
    both = {systems: members(board, SYSTEM), board: {"Id": "HGX_Baseboard_0", "PowerState": "Off"}}
    redfish.say(both)
    assert read(redfish.bmc)["data"]["power"] == "on"
    redfish.say({**both, board: {"Id": "Node2", "PowerState": "Off"}})
    section = read(redfish.bmc)
    assert section["status"] == "error"
    assert "it should list exactly one system, but lists: Node2, " in section["why"]


@pytest.mark.parametrize(
    "wrong",
    [
        {SYSTEM: {"PowerState": None, "Boot": 7, "BootProgress": [], "Model": {"x": 1}}},
        {CHASSIS: {"Thermal": 5, "Power": {"@odata.id": ["x"]}}},
        {f"{CHASSIS}/Thermal": {"Fans": [1, None, {"Status": "x", "Reading": "fast"}]}},
        {f"{CHASSIS}/Thermal": {"Temperatures": {"a": 1}, "Fans": [{"Reading": 1e400}]}},
        {"/redfish/v1/Managers": {"Members": "x"}},
    ],
)
def test_invalid_values_do_not_fail_the_read(data, wrong):
    assert data(wrong)["kind"] == "redfish"


def test_bios_attributes_that_baselines_name(redfish):
    attributes = {
        "Sriov": "Enabled",
        "Sockets": 4,
        "Cap": True,
        "Null": None,
        "X": "a\nb",
        "SRIOV": 1,
    }
    redfish.say({SYSTEM: {"Bios": link(BIOS)}, BIOS: {"Attributes": attributes}})
    names = ("Sriov", "Sockets", "Cap", "Null", "X", "sriov")
    section = read_section(redfish.bmc, read_secrets([redfish.bmc]), attributes=names)
    found = {each["name"]: each["value"] for each in section["data"]["attributes"]}
    assert found == {
        **{"Sriov": "Enabled", "Sockets": "4", "Cap": "True", "Null": None},
        **{"X": "a\\nb", "sriov": None},
    }
    assert section["data"]["bios"] == {}
    none = [each for each in section["data"]["attributes"] if each["value"] is None]
    assert {each["errors"]["value"] for each in none} == {"the BMC has no attribute of this name"}


@pytest.mark.parametrize("bios", [{}, {"Attributes": "x"}])
def test_missing_bios_attributes_are_reported_as_unread(redfish, bios):
    redfish.say({SYSTEM: {"Bios": link(BIOS)}, BIOS: bios})
    section = read_section(redfish.bmc, read_secrets([redfish.bmc]), attributes=("Sriov",))
    assert section["data"]["attributes"] is None
    assert section["data"]["errors"]["attributes"] == "nodevet read no BIOS settings from it"


def test_a_link_to_another_host_is_refused(data):
    found = data({f"{SYSTEM}": {"LogServices": link("http://evil/redfish/v1")}})
    assert "is not a path of Redfish" in found["errors"]["events"]


def test_a_log_that_takes_too_long_leaves_other_values_read(redfish, read):
    resources = log(entry(1, "Critical", "PSU 1 lost AC"))
    redfish.say(resources)
    before = read(redfish.bmc)["data"]
    redfish.say(resources, **{f"{LOGS}/SEL/Entries": "slow 60"})
    data = read(redfish.bmc, 10)["data"]
    assert (data["events"], data["errors"]["events"]) == (None, "no answer in time")
    assert data["parts"] == before["parts"] != [] and data["power_w"] == before["power_w"]
