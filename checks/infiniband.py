"""The expected number of InfiniBand or RoCE ports is up, at the expected rate and width.

**Why it matters.** A collective is as fast as its slowest link: one port of eight that is down, or
that trained at half its lanes, halves the bandwidth of a job over a thousand nodes, or hangs it.
The node itself goes on as if nothing had happened.

**Read from** `/sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer}`, `counters` and
`hw_counters`, `pkeys`, and `fw_ver`, `board_id`, `hca_type` of the device.

**Verdicts.** A port of the expected `link_layer` counts if it exists, and must be ACTIVE and
LinkUp. Faster than expected is ok. Rate and width of a port that is down say nothing and are not
judged. `ignore` names ports that are down on purpose (storage, management), by device (`mlx5_2`,
`mlx5_bond_*`) or by port (`mlx5_2:1`); they are not counted. Virtual functions are not counted on
the host that has them for its guests; in a guest they are its ports. An Ethernet virtual function
does not report the rate of the NIC below it, so a low rate is not applicable there. `uniform`
compares the ports of adapters of one kind (PSID) with one another: firmware, and rate and width of
the ports that are up. A count since the driver was loaded is not by itself a fault. `maximum`
limits the counters that it names; `maximum_per_hour` limits how much they grow per hour since boot,
and with `--sample` during the sample if it is long enough to tell. A port whose link_downed rises
during the sample fails, unless the baseline limits that counter; errors that were corrected do not
fail. A counter that cannot count any further (link_downed: 255) is unknown if the limit allows that
value. With `--since`, growth since the last look is judged like growth during a sample. If a
counter of a port went back, all its counters began again at 0. If another adapter has that name
now, its old counters are not used.

**To fix it** INIT: look for the subnet manager (`sminfo`). Polling: check the cable, the
transceiver and the switch port (`mlxlink -d mlx5_0 -m`, `iblinkinfo`). Disabled: `ibportstate -C
mlx5_0 -P 1 -D 0 1 enable`, always with device and port, or it takes the first active port. A low
rate or width: reseat or replace the cable, then compare with the switch's own port. To update the
firmware, drain the node and run `mlxfwmanager --query`, `flint -d DEVICE -i FILE burn` and
`mlxfwreset -d DEVICE reset`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unread_aspect
from nodevet.checking.counts import Counted, CountWish, counts, counts_since_sample
from nodevet.checking.expected import Words, matches, words_text
from nodevet.checking.named import reads_of
from nodevet.checking.rdma import DEVICES_READ, NOT_LOADED, each_port, port_name, port_subject
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence, answer_once
from nodevet.evidence.host import HostInfo
from nodevet.evidence.infiniband import Infiniband, RdmaDevice, RdmaPort
from nodevet.evidence.last_look import differ
from nodevet.evidence.rates import earlier_sample
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    Verdict,
    fail,
    ok,
    unknown,
)

GUEST_FUNCTIONS = ("MT4114", "MT4116", "MT4118", "MT4120", "MT4122", "MT4124", "MT4126")
"""The hca_type of mlx5's virtual functions, from mlx5_core's own table."""
HERE = ("none", "container")
MOST_GBPS, MOST_LANES = 1_000_000, 64
CABLE = (
    "reseat the cable at both ends, then swap it with a known-good one; `mlxlink -m` shows the "
    "transceiver, and the switch shows whether its port agrees"
)
STATES = {
    "INIT": "the subnet manager has not brought it up: `sminfo` on a healthy node says whether "
    "one runs; its log says why it leaves this port out",
    "ARMED": "the subnet manager is bringing it up: check again",
    "Polling": f"no link partner answers: {CABLE}",
    "Disabled": "it was disabled: find out who did that, then run `ibportstate -C mlx5_0 -P 1 -D 0 "
    "1 enable` with its device and port; without both it takes the first active port",
}
SET_UP = "its interface was set down: find out who did that, then run `ip link set dev NAME up`"
SLOW = f"it trained below its capability: {CABLE}"
COUNTS = (
    "the counter started when the driver was loaded: see whether it still rises (`perfquery "
    f"-x`), and then {CABLE}"
)
KEYS = "the subnet manager hands out partition keys: see its partitions.conf"
STILL = ("link_downed",)
FIRMWARE = "`mlxfwmanager --query` shows what is installed; new firmware needs a reset of the NIC"

Number = Annotated[int, Meta(ge=0, le=4096)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1, max_length=128)]
PKey = Annotated[
    str,
    Meta(pattern=r"^0x[0-9a-fA-F]{4}$", title="a partition key of four hex digits, such as 0xffff"),
]


class Params(CheckParams):
    """`infiniband: 8` or `infiniband: {count: 8, rate_gbps: 400, width: 4, uniform: true}` or
    `infiniband: {minimum: 4, ignore: [mlx5_2, "mlx5_bond_*"], maximum: {link_downed: 10}}` or
    `infiniband: {count: 8, maximum_per_hour: {symbol_error: 120, link_error_recovery: 5}}`"""

    bare: ClassVar[str] = "count"

    count: Number | None = None
    """The number of ports of this link layer."""
    minimum: Number | None = None
    link_layer: Literal["InfiniBand", "Ethernet"] = "InfiniBand"
    """`Ethernet` stands for RoCE."""
    ignore: Words = ()
    """Devices and ports that are not judged: `mlx5_2` or `mlx5_2:1`; `*` stands for any text."""
    rate_gbps: Annotated[float, Meta(gt=0, le=MOST_GBPS)] | None = None
    width: Annotated[int, Meta(ge=1, le=MOST_LANES)] | None = None
    """The least number of lanes."""
    firmware: Words | None = None
    """The firmware versions that an adapter may have: `28.43.*`."""
    uniform: bool = False
    """Whether adapters of one kind must be alike."""
    pkeys: tuple[PKey, ...] = ()
    """Partition keys that each port must have."""
    maximum: Mapping[Text, Count] = {}
    """The highest allowed value of a counter, by its name in `counters` or `hw_counters`."""
    maximum_per_hour: Mapping[Text, Annotated[float, Meta(ge=0)]] = {}
    """The highest allowed growth per hour, since boot and during a sample."""

    def __post_init__(self) -> None:
        if (self.count is None) == (self.minimum is None):
            raise ValueError("give either count or minimum")


Port = tuple[RdmaDevice, RdmaPort]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    ports: list[Port] = []
    findings: list[Finding] = []
    others: list[str] = []
    for entry in each_port(evidence, params.ignore):
        if isinstance(entry, Finding):
            findings.append(entry)
            continue
        device, port = entry
        if port.link_layer is None:
            findings.append(unread(port_subject(device, port), port, "link_layer"))
        elif port.link_layer == params.link_layer:
            ports.append(entry)
        else:
            others.append(f"{port_name(device, port)} ({port.link_layer})")
    if ports or not any(finding.subject == NODE for finding in findings):
        yield count(len(ports), bool(findings), others, params)
    yield from findings
    for device, port in ports:
        counter_aspects = counts(counters_of(evidence, device, port), wish(params), evidence)
        port_aspects = [*aspects(evidence, device, port, params), *counter_aspects]
        yield from aspect_findings(port_subject(device, port), port_aspects, details(device, port))
    yield from uniform(ports, bool(findings)) if params.uniform else ()


def count(present: int, unsure: bool, others: list[str], params: Params) -> Finding:
    """The finding about the number of ports. `unsure`: whether there may be more."""
    names = f"{params.link_layer} ports"
    if params.count is None:
        least = params.minimum or 0
        expected, right, short = f"at least {least}", present >= least, present < least
    else:
        expected, right = str(params.count), present == params.count and not unsure
        short = present <= params.count
    if short and not right and unsure:
        return unknown(expected={names: expected}, why=f"only {present} were read, not all")
    text = f"not counted: {', '.join(sorted(others)[:16])}" if others and not right else ""
    return (ok if right else fail)(
        expected={names: expected},
        actual={names: str(present)},
        why=text,
        advice="" if right else GONE if present or others else NOT_LOADED,
    )


GONE = (
    "`lspci -d 15b3:` shows which NIC is not on the bus, `dmesg | grep mlx5` why a NIC has no "
    "port; the NIC's own setting gives a port its link layer (`mlxconfig query LINK_TYPE_P1`)"
)


def aspects(
    evidence: Evidence, device: RdmaDevice, port: RdmaPort, params: Params
) -> Iterator[Aspect]:
    yield (state := link_state(port))
    if state.verdict is Verdict.OK:
        yield from speed(evidence, device, port, params)
    if params.firmware:
        if device.fw_ver is None:
            yield unread_aspect(device, "fw_ver")
        else:
            yield aspect_if(
                "firmware",
                matches(device.fw_ver, params.firmware),
                expected=words_text(params.firmware),
                actual=device.fw_ver,
                advice=FIRMWARE,
            )
    yield from partitions(port, params)


def wish(params: Params) -> CountWish:
    return CountWish(params.maximum, params.maximum_per_hour, COUNTS, STILL)


def counters_of(evidence: Evidence, device: RdmaDevice, port: RdmaPort) -> Counted:
    earlier_port = earlier_ports(evidence).get((device.name, port.number))
    earlier, sample = (
        earlier_port.counters if earlier_port else None,
        earlier_sample(evidence, Infiniband),
    )
    return counts_since_sample(port.counters, port.why("counters"), sample, earlier)


@answer_once
def earlier_ports(evidence: Evidence) -> Mapping[tuple[str, int], RdmaPort]:
    """The ports of an earlier reading; from the last look, only those of devices that are still the
    same."""
    sample, now = earlier_sample(evidence, Infiniband), evidence[Infiniband].data
    guids = {device.name: device.node_guid for device in (now.devices if now else None) or ()}
    return {
        (device.name, port.number): port
        for device in (sample.data.devices if sample and sample.data else None) or ()
        for port in device.ports or ()
        if not (sample and sample.look and differ((device.node_guid, guids.get(device.name))))
    }


def link_state(port: RdmaPort) -> Aspect:
    if port.state is None:
        return unread_aspect(port, "state")
    if port.phys_state is None and port.state == "ACTIVE":
        return unread_aspect(port, "phys_state")
    physical = port.phys_state or "physical state not read"
    actual = f"{port.state} ({physical})"
    advice = STATES.get(physical) or STATES.get(port.state) or CABLE
    if physical == "Disabled" and port.link_layer == "Ethernet":
        advice = SET_UP
    right = port.state == "ACTIVE" and port.phys_state == "LinkUp"
    return aspect_if("state", right, expected="ACTIVE (LinkUp)", actual=actual, advice=advice)


def speed(
    evidence: Evidence, device: RdmaDevice, port: RdmaPort, params: Params
) -> Iterator[Aspect]:
    rate_aspects = []
    for field, least in (("rate_gbps", params.rate_gbps), ("width", params.width)):
        actual = getattr(port, field)
        if least is not None and actual is None:
            rate_aspects.append(unread_aspect(port, field))
        elif least is not None:
            expected, shown = unit(field, least), unit(field, actual)
            right = actual >= least
            rate_aspects.append(
                aspect_if(LABELS[field], right, expected=expected, actual=shown, advice=SLOW)
            )
    slow = any(aspect.verdict is Verdict.FAIL for aspect in rate_aspects)
    hidden = hides_rate(evidence, device) if slow and port.link_layer == "Ethernet" else None
    yield from rate_aspects if hidden is None else (hidden,)


def hides_rate(evidence: Evidence, device: RdmaDevice) -> Aspect | None:
    """The aspect if the rate of an Ethernet port is not, or may not be, that of its NIC; else
    None."""
    if device.hca_type is None:
        return unread_aspect(device, "hca_type")
    if device.hca_type not in GUEST_FUNCTIONS:
        return None
    host = evidence[HostInfo].data
    if host is None or not host.virtualization:
        why = evidence[HostInfo].why if host is None else host.why("virtualization")
        return Aspect(Verdict.UNKNOWN, "rate", why=f"virtualization: {why}")
    if host.virtualization in HERE:
        return None
    why = "a virtual function does not report the rate of the host's NIC"
    return Aspect(Verdict.NOT_APPLICABLE, "rate", why=why)


LABELS = {"rate_gbps": "rate", "width": "width", "fw_ver": "firmware"}


def unit(field: str, value: Value) -> Value:
    """The value with its unit: 400 Gb/s, 4X."""
    if field == "rate_gbps":
        return f"{value:g} Gb/s"
    return f"{value}X" if field == "width" else value


def uniform(ports: Iterable[Port], unsure: bool) -> Iterator[Finding]:
    """A finding for each kind of adapter, by its PSID: whether its ports are alike. `unsure`:
    whether there may be more ports."""
    kinds: dict[str, list[Port]] = defaultdict(list)
    for device, port in ports:
        if device.board_id is None:
            unsure = True
            yield unread(port_subject(device, port), device, "board_id")
        else:
            kinds[device.board_id].append((device, port))
    for board, group in kinds.items():
        up = [member for member in group if link_state(member[1]).verdict is not Verdict.FAIL]
        kind_aspects = [
            *uniform_aspects("rate_gbps", up),
            *uniform_aspects("width", up),
            *uniform_aspects("fw_ver", group),
        ]
        if unsure:
            kind_aspects.append(Aspect(Verdict.UNKNOWN, "ports", why="not all ports were read"))
        yield from aspect_findings(Subject(kind="adapter", id=board), kind_aspects, {})


def uniform_aspects(field: str, ports: Sequence[Port]) -> Iterator[Aspect]:
    """The aspects: whether a field of several ports, or of their devices, has one value."""
    names: dict[Value, list[str]] = defaultdict(list)
    for device, port in ports:
        record = device if field == "fw_ver" else port
        value = getattr(record, field)
        if value is None:
            yield unread_aspect(record, field)
        else:
            names[value].append(port_name(device, port))
    ordered = sorted(names, key=lambda value: (len(names[value]), value), reverse=True)
    if ordered:
        advice = FIRMWARE if field == "fw_ver" else SLOW
        texts = [f"{unit(field, ordered[0])} ({len(names[ordered[0]])} ports)"]
        texts += [f"{unit(field, value)} ({', '.join(names[value])})" for value in ordered[1:]]
        yield aspect_if(
            LABELS[field],
            len(ordered) == 1,
            expected=f"{unit(field, ordered[0])} on all",
            actual=", ".join(texts),
            advice=advice,
        )


def partitions(port: RdmaPort, params: Params) -> Iterator[Aspect]:
    if not params.pkeys:
        return
    if port.pkeys is None:
        yield unread_aspect(port, "pkeys")
        return
    expected = [key.lower().removeprefix("0x") for key in params.pkeys]
    missing = [key for key in expected if key not in port.pkeys]
    yield aspect_if(
        "pkeys",
        not missing,
        expected=[f"0x{key}" for key in expected],
        actual=[f"0x{key}" for key in port.pkeys],
        advice=KEYS,
    )


def details(device: RdmaDevice, port: RdmaPort) -> dict[str, str]:
    texts = {
        "bus id": device.bus_id,
        "interface": port.netdev,
        "node GUID": device.node_guid,
        "PSID": device.board_id,
        "firmware": device.fw_ver,
    }
    return {what: text for what, text in texts.items() if text}


def learn(evidence: Evidence) -> Value:
    entries = [entry for entry in each_port(evidence) if not isinstance(entry, Finding)]
    ports = [
        port for _, port in entries if port.link_layer == "InfiniBand" and port.state == "ACTIVE"
    ]
    if not ports:
        return None
    fields: dict[str, Value] = {"count": len(ports)}
    for field, most in (("rate_gbps", MOST_GBPS), ("width", MOST_LANES)):
        values = [getattr(port, field) for port in ports]
        if all(value is not None and 0 < value <= most for value in values):
            fields[field] = min(values)
    down = [port_name(device, port) for device, port in entries
            if port.link_layer == "InfiniBand" and port.state != "ACTIVE"]  # fmt: skip
    return {**fields, "ignore": down} if down else fields


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *DEVICES_READ,
        *reads_of("earlier.infiniband.devices[]", "name", "node_guid"),
        *reads_of("earlier.infiniband.devices[].ports[].counters[]", "name", "value"),
        "earlier.infiniband.devices[].ports[].number",
        *reads_of("host", "uptime_s", "virtualization"),
        *reads_of("infiniband.devices[]", "board_id", "fw_ver", "hca_type", "node_guid"),
        *reads_of("infiniband.devices[].ports[].counters[]", "name", "value"),
        *reads_of("infiniband.devices[].ports[]", "link_layer", "number", "phys_state", "pkeys[]"),
        *reads_of("infiniband.devices[].ports[]", "rate_gbps", "state", "width"),
    ),
    judge=judge,
    unasked="only a site knows how many ports it connected: say infiniband: 8",
    learn=learn,
    actions={
        **dict.fromkeys((CABLE, FIRMWARE, GONE, NOT_LOADED, SET_UP), NeededAction.SITE),
        **dict.fromkeys((STATES["INIT"], STATES["ARMED"]), NeededAction.SITE),
        STATES["Disabled"]: NeededAction.DRAIN_FIX,  # then the port gets its keys, too
        KEYS: NeededAction.SITE,
    },
)
