"""Whose BMC it is: what real BMC software says of its machine, and what that allows."""

import json
from uuid import UUID

import msgspec
import pytest
from bmcs import (
    BOARD_SERIAL,
    OF_IPMI,
    OF_REDFISH,
    PRODUCT_SERIAL,
    SYSTEM,
    Emulator,
    members,
)
from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.bmc.beside import joined
from nodevet.bmc.powering import powers
from nodevet.checking.bmc_identity import MachineIds, confirmed_ids, machine_ids, match
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.document import open_evidence
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.settings import Rollout
from nodevet.fix.use.power import with_identities
from nodevet.fixing.model import Risk
from nodevet.fleet import Visit
from nodevet.model import Host, Status

OTHER = MachineIds(uuid="4c4c4544-0051-3510-8052-b4c04f4e4d32", serials=("J5Q8M2",))
THIRD = MachineIds(uuid="4c4c4544-0051-3510-8052-b4c04f4e4d33", serials=("J5Q8M3",))
OWN = {
    "redfish": MachineIds(uuid=str(OF_REDFISH)),
    "ipmi": MachineIds(uuid=str(OF_IPMI), serials=(PRODUCT_SERIAL,)),
}
NAMES = ("127.0.0.1", "localhost")  # of one machine
HGX = "/redfish/v1/Systems/HGX_Baseboard_0"


def power_of(simulated, **changes):
    return powers([Host(name="gpu1", bmc=replace(simulated.bmc, **changes))], 4, 1)["gpu1"]


def test_the_section_says_what_identifies_the_machine(bmc, read):
    found = read(bmc.bmc)["data"]
    ids = {"redfish": str(OF_REDFISH), "ipmi": str(OF_IPMI)}
    own = machine_ids(found["system_uuid"], *found["serials"])
    assert match(OWN[bmc.bmc.kind], own, kind=bmc.bmc.kind).text.endswith(ids[bmc.bmc.kind])
    if bmc.bmc.kind == "ipmi":
        assert found["serials"] == [PRODUCT_SERIAL, BOARD_SERIAL]


@pytest.mark.parametrize("kind", ["redfish", "ipmi"])
def test_placeholder_ids_prove_nothing(kind):
    """As in a plan that someone edited."""
    ids = MachineIds(uuid="x", serials=("To be filled by O.E.M.", "0000000"))
    assert match(ids, ids, kind=kind).is_own is None


AMI = "03000200-0400-0500-0006-000700080009"
ORDERS = [
    AMI,
    str(UUID(bytes=UUID(AMI).bytes_le)),
    str(UUID(bytes=UUID(AMI).bytes[::-1])),
    str(UUID(bytes=UUID(bytes=UUID(AMI).bytes[::-1]).bytes_le)),
]


@pytest.mark.parametrize(
    "uuid",
    [
        *ORDERS,
        *("78563412-3412-7856-90ab-cddeefaabbcc", "44454c4c-0000-1020-8020-80c04f202020"),
        *("00112233-4455-6677-8899-aabbccddeeff", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        *("FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE", "deadbeef-dead-beef-dead-beefdeadbeef"),
    ],
)
def test_a_placeholder_uuid_is_ignored_in_any_byte_order(uuid):
    assert machine_ids(uuid) == MachineIds(uuid="")
    assert match(machine_ids(uuid), machine_ids(uuid), kind="ipmi").is_own is None


@pytest.mark.parametrize(
    "serial",
    [
        *("To Be Filled By O.E.M. by More String", "Chassis Serial Number", "$(DEFAULT_STRING)"),
        *("Base Board Serial Number", "Default_string", "MB-1234567890", "SYS-1234567890"),
        *("<BAD INDEX>", "INVALID", "Serial number xxxxxx", "12345678", "EMPTY", "Not Set"),
    ],
)
def test_a_placeholder_serial_number_is_ignored(serial):
    assert machine_ids("", serial).serials == ()


def test_nodes_of_one_enclosure_differ_by_the_serial_numbers_of_their_boards():
    """All report the serial number of the enclosure as the product's."""
    enclosure = "S452392X1"
    node, other = (MachineIds(serials=(enclosure, f"BOARD-{n}")) for n in (1, 2))
    assert match(node, node, kind="ipmi").is_own is True
    found = match(node, other, kind="ipmi")
    assert found.is_own is None
    assert found.text.endswith("but the BMC also reports BOARD-2, which the node does not")
    assert match(node, MachineIds(serials=("BOARD-1",)), kind="ipmi").is_own is True


def test_the_bmc_of_the_node_is_proven(bmc):
    found = power_of(bmc).identity(OWN[bmc.bmc.kind])
    assert found.is_own is True and power_of(bmc).refusal(found) == ""


def test_fru_serial_numbers_prove_the_bmc_of_the_node(ipmi):
    both = (PRODUCT_SERIAL, BOARD_SERIAL)
    found = power_of(ipmi).identity(replace(OTHER, serials=both))
    assert found == (True, f"the same serial number {PRODUCT_SERIAL}")
    for serial, other in (both, both[::-1]):
        found = power_of(ipmi).identity(replace(OTHER, serials=(serial, "J5Q8M2")))
        assert found.is_own is None and f"also reports {other}" in found.text


@pytest.mark.parametrize("identity", [None, "unproven"])
def test_another_machine_is_never_switched(redfish, identity):
    """Whatever the inventory says, whether it is on or off."""
    node, requests = power_of(redfish, identity=identity), []
    for power in ("1", "0"):
        (redfish.folder / "power").write_text(f"{power}\n")
        with pytest.raises(UserError, match=f"another machine: its system UUID is {OF_REDFISH}"):
            node.cycle(requests.append, node=OTHER, runs=power == "1")
        assert (redfish.folder / "power").read_text() == f"{power}\n"
    with pytest.raises(UserError, match="it is the BMC of another machine"):
        powers_off(redfish, identity).switch_on_if_off(requests.append, node=OTHER)
    assert requests == [] and (redfish.folder / "power").read_text() == "0\n"


def powers_off(simulated: Emulator, identity):
    (simulated.folder / "power").write_text("0\n")
    return power_of(simulated, identity=identity)


def test_an_unproven_bmc_needs_identity_unproven_in_the_inventory(ipmi):
    (ipmi.folder / "power").write_text("1\n")
    requests = []
    with pytest.raises(UserError, match=r"nothing proves .*{identity: unproven}"):
        power_of(ipmi).cycle(requests.append, node=OTHER, runs=True)
    assert requests == []
    allowed = power_of(ipmi, identity="unproven")
    assert allowed.refusal(allowed.identity(OTHER)) == ""


def test_the_board_of_the_gpus_is_not_the_machine(redfish):
    board = {"Id": "HGX_Baseboard_0", "UUID": OTHER.uuid, "SerialNumber": "J5Q8M2"}
    redfish.say({"/redfish/v1/Systems": members(HGX, SYSTEM), HGX: board})
    assert power_of(redfish).identity(OWN["redfish"]).is_own is True
    assert power_of(redfish).identity(OTHER).is_own is False


@pytest.mark.parametrize("hostile", [None, 7, {"a": 1}, "x\x1b[2J\n" * 99_999, [str(OF_REDFISH)]])
def test_an_invalid_id_proves_nothing(redfish, read, hostile):
    redfish.say({SYSTEM: {"UUID": hostile, "SerialNumber": hostile, "SKU": hostile}})
    found = power_of(redfish).identity(OTHER)
    assert found.is_own is None and found.text.isprintable() and len(found.text) < 400
    data = read(redfish.bmc)["data"]
    assert all(len(text) <= 400 for text in (data["system_uuid"], *data["serials"]))


def plan(*ids):
    step = {"fix": "x", "subjects": (), "expected": 1, "actual": 2, "reason": "", "actions": ()}
    facts = {"machine_id": "m", "boot_id": "b", "baseline": "base"}
    return Plan(
        id="7f3a91c2",
        author="ann",
        created="",
        expires="",
        baselines={},
        nodes={f"gpu{n}": PlannedNode(**facts, ids=one) for n, one in enumerate(ids)},
        steps=tuple(
            Step(id=f"gpu{n}/x/1", host=f"gpu{n}", risk=Risk.LIVE, resources=(), **step)
            for n in range(len(ids))
        ),
        rollout=Rollout(power_cycle=True, drain_hook="h"),
    )


def test_a_plan_says_how_each_bmc_is_proven(redfish, ipmi):
    allowed = replace(ipmi.bmc, identity="unproven")
    gone = replace(redfish.bmc, password=("env", "NODEVET_NO_SUCH"), address="localhost")
    hosts = [Host(name=f"gpu{n}", bmc=one) for n, one in enumerate((redfish.bmc, allowed, gone))]
    made = with_identities(plan(OWN["redfish"], OTHER, THIRD), hosts)
    own, unproven, unread = (node.bmc for node in made.nodes.values())
    assert own == f"the same system UUID {OF_REDFISH}"
    assert unproven.startswith("not proven, as the inventory allows: the BMC reports UUID ")
    assert unread.startswith("not compared yet: BMC localhost: the variable NODEVET_NO_SUCH")


def test_an_id_of_two_hosts_identifies_neither(ipmi):
    """An enclosure's serial number, a cloned image, or one BMC under two addresses."""
    hosts = [
        Host(name=f"gpu{n}", bmc=replace(ipmi.bmc, address=one)) for n, one in enumerate(NAMES)
    ]
    shared = MachineIds(uuid=str(OF_IPMI), serials=(PRODUCT_SERIAL, "J5Q8M2"))
    with pytest.raises(UserError) as error:
        with_identities(plan(shared, shared), hosts)
    assert str(error.value).count("nothing proves that it belongs to the node") == 2
    allowed = [replace(host, bmc=replace(host.bmc, identity="unproven")) for host in hosts]
    made = with_identities(
        plan(shared, replace(shared, serials=(PRODUCT_SERIAL, "J5Q8M3"))), allowed
    )
    own = [node.ids for node in made.nodes.values()]
    assert own == [
        MachineIds(uuid="", serials=(serial,), shared=(PRODUCT_SERIAL,))
        for serial in ("J5Q8M2", "J5Q8M3")
    ]


def test_nodes_of_one_enclosure_in_one_plan_are_proven_by_their_boards(ipmi):
    nodes = [MachineIds(serials=(PRODUCT_SERIAL, one)) for one in (BOARD_SERIAL, "J5Q8M3")]
    bmcs = (ipmi.bmc, replace(ipmi.bmc, address="localhost", identity="unproven"))
    made = with_identities(
        plan(*nodes), [Host(name=f"gpu{n}", bmc=bmc) for n, bmc in enumerate(bmcs)]
    )
    own, other = (node.bmc for node in made.nodes.values())
    assert own == f"the same serial number {BOARD_SERIAL}"
    assert other.startswith("not proven, as the inventory allows: ")


@pytest.mark.parametrize(
    ("now", "uuid", "serials"),
    [
        (OTHER, OTHER.uuid, OTHER.serials),
        (MachineIds(uuid=OTHER.uuid, serials=("NEW01",)), OTHER.uuid, ()),
        (replace(OTHER, uuid=str(OF_IPMI)), "", OTHER.serials),
        (replace(OTHER, uuid=None), None, OTHER.serials),
    ],
)
def test_only_ids_of_the_plan_that_the_node_still_reports_count(now, uuid, serials):
    planned = replace(OTHER, shared=("ENC01",))
    assert confirmed_ids(planned, now) == MachineIds(uuid=uuid, serials=serials)
    also = confirmed_ids(planned, replace(now, serials=("ENC01",)))
    assert also == MachineIds(uuid=uuid, shared=("ENC01",))


def test_no_plan_switches_another_machine(redfish, ipmi):
    hosts = [Host(name="gpu0", bmc=redfish.bmc), Host(name="gpu1", bmc=ipmi.bmc)]
    with pytest.raises(UserError) as error:
        with_identities(plan(OTHER, THIRD), hosts)
    first, second = str(error.value).splitlines()
    assert first.startswith("gpu0: BMC 127.0.0.1: it is the BMC of another machine")
    assert second.startswith("gpu1: BMC 127.0.0.1: nothing proves that it belongs to the node")


@pytest.mark.parametrize("is_own", [True, False])
def test_readings_of_another_machines_bmc_are_not_judged(redfish, read, is_own):
    (redfish.folder / "power").write_text("1\n")
    ids = {"system_uuid": str(OF_REDFISH) if is_own else OTHER.uuid}
    sections = {"host": {"status": "ok", "data": ids}}
    evidence = msgspec.json.encode({"schema": 1, "probe": "0", "sections": sections})
    visit = Visit(host="gpu1", status=Status.VETTED, evidence=evidence)
    bmc = open_evidence(joined(visit, read(redfish.bmc)).evidence)[BmcInfo].data
    assert bmc.system_uuid == str(OF_REDFISH)
    if is_own:
        assert bmc.power == "on" and bmc.parts
    else:
        assert bmc.power is None and bmc.parts is None and bmc.events is None
        assert bmc.why("parts").startswith("it is the BMC of another machine: its system UUID is")
        assert json.loads(evidence)["sections"].keys() == {"host"}
