"""Network interfaces are up, as fast as expected, with the expected MTU and ring sizes.

**Why it matters.** If a NIC falls back to a tenth of its speed, a bond loses half of its links, or
one interface has an MTU of 1500 among jumbo frames, the node still answers, but storage,
checkpoints and NCCL over TCP crawl or hang at large messages. Small receive rings overflow in
bursts: the NIC drops packets (rx_missed_errors, rx_out_of_buffer), and TCP slows down.

**Read from** `/sys/class/net/*/{operstate,carrier,speed,duplex,mtu,master,statistics}`,
carrier_changes, and the driver of the device; the driver's ring sizes by the ioctl of `ethtool -g`;
the kernel log since boot; the drivers of NICs in `/sys/bus/pci/devices`.

**Verdicts.** A key of `interfaces` is a name or a pattern (`ens*`), which at least one interface
must match; a key of `drivers` stands for all physical interfaces of a kernel driver, without
virtual functions. If an interface has an entry under its exact name, patterns and drivers do not
apply to it. Each interface must be up unless `state` says otherwise: dormant (802.1X) is not up,
unknown is up if it has a carrier. A faster link than expected is ok. The check does not judge speed
and duplex of an interface that is down. Without `interfaces` and `drivers`, no physical interface
that is up may run at half duplex, and every member of a bond that is up must be up. A NIC on the
PCI bus then fails if it has no driver: nodevet cannot tell whether the node needs it, and without
mlx5_core eight NICs look like none. vfio-pci and similar modules count as drivers. If they keep a
NIC for guests, the check judges no NIC of that model; nor does it judge virtual functions and Wi-Fi
cards. If a NIC is unused on purpose, turn it off in the BIOS or waive it. In a virtual machine
speed and duplex are not applicable for a NIC that reports neither. A count since boot is not a
fault by itself: `maximum` judges the counters that it names: rx_errors, tx_errors, rx_dropped,
tx_dropped, rx_crc_errors, rx_missed_errors, carrier_changes, carrier_down_count, link_failure_count
for members of a bond, and any counter that `ethtool -S` lists (rx_discards_phy,
link_down_events_phy, on EC2 bw_in_allowance_exceeded). For the latter, ethtool must be installed.
`maximum_per_hour` limits the growth of a counter per hour since boot, and with `--sample` during
the sample if that is long enough. If carrier_changes grows during the sample, an interface that
must be up fails, unless the baseline sets a limit for it; errors and drops fail only with a limit.
With `--since` the check judges the growth since the last look like the growth during a sample. If a
counter of an interface went back, all its counters began again at 0. If another NIC has the name
now, the earlier counters are not used.

`ring_rx` and `ring_tx` are numbers of descriptors, or `maximum`: as many as the driver allows. A
driver may round a number up, often to a power of two: write the number that `ethtool -g` then
shows. No number is right for every NIC: Red Hat's networking guide advises larger rings if a NIC
drops packets. In Linux, mlx5_core begins with 1024 and allows 8192 (its `en.h` and `en_ethtool.c`).
If the driver does not report ring sizes, they are unknown.

`maximum_outage_s` limits how long a link was down before it came back, by its driver's lines in the
kernel log since boot; with `--since` only outages that ended since the last look count. NVIDIA's
Health Validation fails a link that was down for 30 s. Training while the driver loads is not an
outage, and `state` judges a link that is still down. Only the lines of mlx5_core and bnxt_en
distinguish a lost link from an interface that was turned off: these drivers log nothing when an
interface is turned off, and log `down` when it is turned on, until it has trained. So allow more
time than training takes. The outage is unknown for other drivers, for bonds and for InfiniBand
ports, whose links the kernel does not log. It is also unknown if the log has gaps or no line of a
link that is up. If the beginning of the log is gone, the check judges the rest, and the finding
says when the log begins, as `xid` does.

**To fix it** down: check cable, transceiver and switch port, then `ip link set NAME up`. Slow:
`ethtool NAME` shows what both ends offer. MTU: set it in netplan, NetworkManager or
systemd-networkd, the same on all hosts and switches of the network. Rings: `ethtool -G NAME rx N tx
N` until the next boot; then `ethtool.ring-rx` of NetworkManager's profile, or `RxBufferSize=` in a
.link file of systemd. If the carrier still changes,
reseat or replace the cable.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.counts import Counted, CountWish, counts, counts_since_sample
from nodevet.checking.named import reads_of
from nodevet.checking.one_value import values_at
from nodevet.checking.outages import READS, outage
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import KernelLog
from nodevet.evidence.last_look import differ
from nodevet.evidence.network import Interface, Network, is_up
from nodevet.evidence.pci import KEPT_FOR_GUESTS, UNBOUND, Pci
from nodevet.evidence.rates import earlier_sample
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

HERE = ("none", "container")
LOWEST_MTU, HIGHEST_MTU = 68, 1 << 17
MOST_SECONDS = 366 * 86400
PATTERN = re.compile(r"[*?\[]")
CABLE = (
    "check cable, transceiver and switch port (`ethtool NAME`, `ethtool -m NAME`, and the "
    "switch's own view of the port)"
)
STATES = {
    "dormant": "802.1X has not authenticated it: check the supplicant (`wpa_cli status`)",
    "lowerlayerdown": "the interface below it is down",
    "notpresent": "its device is gone: see `dmesg` and the PCI bus",
}
TURNED_OFF = "`ip link set dev NAME up`, and find out why it was not turned on at boot"
TURNED_ON = "`ip link set dev NAME down`, and find out what turned it on"
SLOW = (
    f"both ends agreed on a lower speed: {CABLE}; both need the same autonegotiation and FEC "
    "settings"
)
MTU = "set it where the interface is configured (netplan, NetworkManager, systemd-networkd, udev)"
RINGS = (
    "`ethtool -G NAME rx N tx N` sets it until the next boot; then ethtool.ring-rx of "
    "NetworkManager or RxBufferSize= of a .link file"
)
TOO_LARGE = "its driver allows fewer: `ethtool -g NAME`"
MISSING = "`ip -d link` and `dmesg` show the interfaces: a driver, a NIC or a name may be missing"
COUNTS = (
    "it counts since the interface was created: see whether it still grows (`ip -s link show "
    f"NAME`, `ethtool -S NAME`); if so, {CABLE}"
)
STILL = ("carrier_changes",)
OUTAGE = (
    "`journalctl -k -g 'link.(up|down)'` shows when, and what else happened then: if the switch "
    f"or its port was down, find out why; if not, {CABLE}"
)
NO_DRIVER = (
    "`lspci -k -s ADDRESS` names the driver: load it if `lsmod` does not list it; if it does, "
    "the kernel log says why it gave up (`dmesg | grep ADDRESS`), often the firmware: power the "
    "node off and on, then replace the NIC. If nobody uses the NIC, turn it off in the BIOS, or "
    "waive it"
)
BOND = (
    "`cat /proc/net/bonding/NAME` shows which member is missing and why: link, LACP partner, speed"
)

Number = Annotated[int, Meta(ge=0, le=1024)]
Count = Annotated[int, Meta(ge=0)]
Name = Annotated[
    str, Meta(pattern=r"^[^/\s]{1,64}$", title="the name of a network interface, such as ens1f0")
]
RingSize = Annotated[int, Meta(ge=1, le=1 << 20)] | Literal["maximum"]
Word = Annotated[str, Meta(min_length=1, max_length=128)]


class LinkWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is expected of an interface."""

    state: Literal["up", "down", "any"] = "up"
    speed_gbps: Annotated[float, Meta(gt=0, le=1e5)] | None = None
    duplex: Literal["full", "half"] | None = None
    mtu: Annotated[int, Meta(ge=LOWEST_MTU, le=HIGHEST_MTU)] | None = None
    ring_rx: RingSize | None = None  # descriptors of each receive ring
    ring_tx: RingSize | None = None  # of each transmit ring
    members: Number | None = None  # of a bond that must be up
    count: Number | None = None  # interfaces of the pattern or the driver
    maximum: Mapping[Word, Count] = {}
    maximum_per_hour: Mapping[Word, Annotated[float, Meta(ge=0)]] = {}
    maximum_outage_s: Annotated[float, Meta(gt=0, le=MOST_SECONDS)] | None = None


class Params(CheckParams):
    """`network_link: {interfaces: {bond0: {speed_gbps: 200, mtu: 9000, members: 2}}}` or
    `network_link: {drivers: {mlx5_core: {count: 8, speed_gbps: 400, mtu: 9000}}}` or
    `network_link: {interfaces: {"eno*": {speed_gbps: 1}, eno4: {state: any}}}` or
    `network_link: {drivers: {mlx5_core: {ring_rx: 8192, ring_tx: maximum}}}` or
    `network_link: {drivers: {mlx5_core: {maximum_outage_s: 30}}}` or
    `network_link: {}`"""

    interfaces: Mapping[Name, LinkWish] = {}
    """The expected state of interfaces by name; `*` and `?` stand for any text."""
    drivers: Mapping[Word, LinkWish] = {}
    """The expected state of interfaces by kernel driver."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    values = values_at(evidence, (Network, "interfaces"), (Network, "found"))
    if isinstance(values, Finding):
        yield values
        return
    data = evidence[Network].data or Network()
    missing = sorted(set(data.found or ()) - set(data.by_name))
    if missing:
        yield unknown(why=f"interfaces not read: {', '.join(missing[:8])}")
    if params.interfaces or params.drivers:
        yield from judge_wishes(evidence, data, params, unsure=bool(missing))
    else:
        yield from judge_all(evidence, data, unsure=bool(missing))


def judge_wishes(
    evidence: Evidence, data: Network, params: Params, *, unsure: bool
) -> Iterator[Finding]:
    """The findings about the baseline's names and drivers. `unsure`: some interfaces were not
    read."""
    wishes: dict[str, list[LinkWish]] = {}
    for pattern, wish in params.interfaces.items():
        fitting = [
            interface
            for interface in data.by_name.values()
            if is_fit(interface.name, pattern, params)
        ]
        yield from judge_present(pattern, wish, fitting, unsure=unsure)
        for interface in fitting:
            wishes.setdefault(interface.name, []).append(wish)
    physical = [
        interface for interface in data.by_name.values() if interface.kind != "virtual_function"
    ]
    unclear = [
        interface for interface in physical if interface.kind is None or interface.driver is None
    ]
    for driver, wish in params.drivers.items():
        fitting = [
            interface
            for interface in physical
            if interface.driver == driver and interface.kind is not None
        ]
        yield from judge_driver(driver, wish, fitting, unclear, unsure=unsure)
        for interface in fitting:
            if interface.name not in params.interfaces:
                wishes.setdefault(interface.name, []).append(wish)
    for name, wishes_of_name in wishes.items():
        interface = data.by_name[name]
        aspects = (aspect for wish in wishes_of_name
                   for aspect in aspects_of(evidence, data, interface, wish))  # fmt: skip
        yield from aspect_findings(subject_of(name), dict.fromkeys(aspects), details(interface))


def judge_all(evidence: Evidence, data: Network, *, unsure: bool) -> Iterator[Finding]:
    """The findings about all interfaces that are up, and all NICs."""
    unclear = [interface for interface in data.by_name.values() if interface.kind is None]
    for link in unclear:
        yield unknown(subject_of(link.name), why=f"kind: {link.why('kind')}")
    lost = [*without_driver(evidence)]
    yield from lost
    wishes = [
        (interface, own) for interface in data.by_name.values() if (own := by_itself(interface))
    ]
    if not wishes and not unclear and not unsure and not lost:
        yield not_applicable(why="no physical interface and no bond is up")
    for interface, wish in wishes:
        aspects = [*aspects_of(evidence, data, interface, wish)]
        aspects += [full_duplex(interface)] if interface.kind == "physical" else []
        yield from aspect_findings(
            subject_of(interface.name), dict.fromkeys(aspects), details(interface)
        )


def subject_of(name: str) -> Subject:
    return Subject(kind="interface", id=name)


def without_driver(evidence: Evidence) -> Iterator[Finding]:
    """Findings about NICs without a driver, except virtual functions and models kept for guests."""
    section = evidence[Pci]
    if section.status == "absent":
        return
    if section.data is None or section.data.functions is None:
        yield unknown(why=f"PCI: {section.data.why('functions') if section.data else section.why}")
        return
    nics = [nic for nic in section.data.of_kind("nic") if not nic.physfn]
    drivers = {nic.id: nic.driver for nic in nics if nic.driver not in (None, *KEPT_FOR_GUESTS)}
    guest_ids = {nic.id for nic in nics if nic.driver in KEPT_FOR_GUESTS} - drivers.keys()
    bound = any(function.driver for function in section.data.functions)
    log = evidence[KernelLog].data
    given_up = {event.bus_id for event in (log.events if log else None) or ()
                if event.kind == "probe_failed"}  # fmt: skip
    for nic in nics:
        subject = Subject(kind="nic", id=nic.address, bus_id=nic.address)
        if nic.driver is None and not nic.is_unbound:
            yield unread(subject, nic, "driver")
        elif nic.is_unbound and not bound:
            yield unknown(subject, why="no function on the PCI bus shows its driver")
        elif nic.is_unbound and nic.id not in guest_ids:
            driver = drivers.get(nic.id, "a driver")
            cause = f"kernel_faults pci {nic.address}" if nic.address in given_up else UNSET
            yield fail(subject, expected=driver, actual=UNBOUND, advice=NO_DRIVER, cause=cause)


def by_itself(interface: Interface) -> LinkWish | None:
    """The state that is right for any interface that is up or may be; None if it is not judged."""
    if interface.kind not in ("physical", "bond") or is_up(interface) is False:
        return None
    members = len(interface.lower or ()) if interface.kind == "bond" else None
    return LinkWish(members=members)


def full_duplex(interface: Interface) -> Aspect:
    """Whether the interface runs at full duplex, as far as its driver reports it."""
    if interface.duplex is None and not interface.errors.get("duplex", "").startswith("EINVAL"):
        return unread_aspect(interface, "duplex")
    if interface.duplex in (None, "unknown"):
        return Aspect(Verdict.NOT_APPLICABLE, "duplex", why="duplex: the driver does not report it")
    right = interface.duplex == "full"
    return aspect_if("duplex", right, expected="full", actual=interface.duplex, advice=SLOW)


def is_fit(name: str, pattern: str, params: Params) -> bool:
    return name == pattern or (name not in params.interfaces and fnmatchcase(name, pattern))


def judge_present(
    pattern: str, wish: LinkWish, fitting: list[Interface], *, unsure: bool
) -> Iterator[Finding]:
    """Findings if there are fewer interfaces of a name than expected."""
    exact = not PATTERN.search(pattern)
    if exact and wish.count is None:
        if not fitting and wish.state == "up":
            subject = subject_of(pattern)
            if unsure:
                yield unknown(subject, why="it was not read, or does not exist")
            else:
                yield fail(subject, expected="present", actual="missing", advice=MISSING)
        return
    yield number(f"interfaces {pattern}", wish.count, len(fitting), unsure=unsure)


def judge_driver(
    driver: str,
    wish: LinkWish,
    fitting: list[Interface],
    unclear: list[Interface],
    *,
    unsure: bool,
) -> Iterator[Finding]:
    """Whether a driver has as many interfaces as expected. `unclear`: interfaces that may use
    it."""
    for interface in unclear:
        field = "kind" if interface.kind is None else "driver"
        yield unknown(subject_of(interface.name), why=f"{field}: {interface.why(field)}")
    unsure = unsure or bool(unclear)
    yield number(f"interfaces of {driver}", wish.count, len(fitting), unsure=unsure)


def number(what: str, count: int | None, count_read: int, *, unsure: bool) -> Finding:
    """The finding about a number of interfaces: `count`, or at least one."""
    expected: dict[str, Value] = {what: "at least 1" if count is None else count}
    short = count_read < (count or 1) if count is None else count_read <= count
    right = count_read >= 1 if count is None else count_read == count and not unsure
    if unsure and short and not right:
        return unknown(expected=expected, why=f"{count_read} were read; others were not")
    verdict = ok if right else fail
    return verdict(expected=expected, actual={what: count_read}, advice="" if right else MISSING)


def aspects_of(
    evidence: Evidence, data: Network, interface: Interface, wish: LinkWish
) -> Iterator[Aspect]:
    state = link_state(interface, wish)
    if state is not None:
        yield state
    if is_up(interface) is not False:
        yield from speed(evidence, interface, wish)
    if wish.mtu is not None:
        if interface.mtu is None:
            yield unread_aspect(interface, "mtu")
        else:
            right = interface.mtu == wish.mtu
            yield aspect_if("mtu", right, expected=wish.mtu, actual=interface.mtu, advice=MTU)
    yield from ring_sizes(interface, wish)
    if wish.members is not None:
        yield members(data, interface, wish.members)
    if wish.maximum_outage_s is not None:
        yield outage(evidence, interface, wish.maximum_outage_s, OUTAGE)
    still = STILL if wish.state == "up" else ()
    limits = CountWish(wish.maximum, wish.maximum_per_hour, COUNTS, still)
    yield from counts(counters_of(evidence, interface), limits, evidence)


def counters_of(evidence: Evidence, interface: Interface) -> Counted:
    """The counters, with those of an earlier reading. A last look counts only if it saw the same
    NIC."""
    sample = earlier_sample(evidence, Network)
    earlier_interface = sample.data.by_name.get(interface.name) if sample and sample.data else None
    if sample and sample.look and earlier_interface and is_another(earlier_interface, interface):
        earlier_interface = None
    earlier = earlier_interface.counters if earlier_interface else None
    return counts_since_sample(interface.counters, interface.why("counters"), sample, earlier)


def is_another(before: Interface, now: Interface) -> bool:
    """Whether another NIC has the name now."""
    return differ((before.address, now.address), (before.bus_id, now.bus_id))


def link_state(interface: Interface, wish: LinkWish) -> Aspect | None:
    if wish.state == "any":
        return None
    up = is_up(interface)
    if up is None:
        return unread_aspect(interface, "operstate" if interface.operstate is None else "carrier")
    actual = interface.operstate or ""
    if actual == "unknown":
        actual = "up" if up else "no carrier"
    elif actual == "down" and interface.admin_up is False:
        actual = "turned off"
    advice = TURNED_ON if wish.state == "down" else STATES.get(actual, CABLE)
    if actual == "turned off":
        advice = TURNED_OFF
    return aspect_if("state", up is (wish.state == "up"), expected=wish.state, actual=actual,
               advice=advice)  # fmt: skip


def speed(evidence: Evidence, interface: Interface, wish: LinkWish) -> Iterator[Aspect]:
    if wish.speed_gbps is not None:
        if interface.speed_mbps is None:
            yield unread_or_virtual(evidence, interface, "speed_mbps")
        else:
            actual = interface.speed_mbps / 1000
            yield aspect_if(
                "speed",
                actual >= wish.speed_gbps,
                expected=f"{wish.speed_gbps:g} Gb/s",
                actual=f"{actual:g} Gb/s",
                advice=SLOW,
            )
    if wish.duplex is not None:
        if interface.duplex in (None, "unknown"):
            yield unread_or_virtual(evidence, interface, "duplex")
        else:
            right = interface.duplex == wish.duplex
            yield aspect_if(
                "duplex", right, expected=wish.duplex, actual=interface.duplex, advice=SLOW
            )


def unread_or_virtual(evidence: Evidence, interface: Interface, field: str) -> Aspect:
    """A field that the NIC does not report: not applicable in a virtual machine, else unknown."""
    host = evidence[HostInfo].data
    if host and host.virtualization and host.virtualization not in HERE:
        why = "the NIC of a virtual machine does not report it"
        return Aspect(Verdict.NOT_APPLICABLE, field, why=f"{field}: {why}")
    if getattr(interface, field) is not None:
        return Aspect(Verdict.UNKNOWN, field, why=f"{field}: the driver does not report it")
    return unread_aspect(interface, field)


def ring_sizes(interface: Interface, wish: LinkWish) -> Iterator[Aspect]:
    """Whether the rings have as many descriptors as expected."""
    for name, field, wanted in (("ring_rx", "rx", wish.ring_rx), ("ring_tx", "tx", wish.ring_tx)):
        if wanted is None:
            continue
        if interface.rings is None:
            yield unread_aspect(interface, "rings")
            continue
        size, most = getattr(interface.rings, field), getattr(interface.rings, f"{field}_max")
        if not size or not most:
            yield unknown_aspect(name, f"{name}: its driver reports no such ring")
            continue
        expected = most if wanted == "maximum" else wanted
        advice = RINGS if expected <= most else TOO_LARGE
        yield aspect_if(name, size == expected, expected=expected, actual=size, advice=advice)


def members(data: Network, interface: Interface, required: int) -> Aspect:
    """Whether at least `required` interfaces of a bond are up."""
    if interface.lower is None:
        return unread_aspect(interface, "lower")
    states = {name: is_up(data.by_name[name]) if name in data.by_name else None
              for name in interface.lower}  # fmt: skip
    up = sum(state is True for state in states.values())
    unread = [name for name, state in states.items() if state is None]
    if up < required <= up + len(unread):
        return Aspect(Verdict.UNKNOWN, "members", why=f"{', '.join(unread[:8])} were not read")
    down = sorted(name for name, state in states.items() if state is False)
    actual = f"{up} up" + (f", down: {', '.join(down)}" if down else "")
    return aspect_if(
        "members", up >= required, expected=f"{required} up", actual=actual, advice=BOND
    )


def details(interface: Interface) -> Mapping[str, str]:
    known = {
        "bus id": interface.bus_id,
        "MAC": interface.address,
        "driver": interface.driver,
        "member of": interface.master,
    }
    return {what: text for what, text in known.items() if text}


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    wishes = (*params.interfaces.values(), *params.drivers.values())
    counters = {
        f"counter:{name}": None
        for wish in wishes
        for name in (*wish.maximum, *wish.maximum_per_hour)
    }
    return {"network": (*params.interfaces, *counters)}


def learn(evidence: Evidence) -> Value:
    """The common state of all physical interfaces of a driver, if they are up."""
    data = evidence[Network].data
    up = [
        interface
        for interface in (data.interfaces if data else None) or ()
        if interface.kind == "physical" and interface.driver and is_up(interface)
    ]
    by_driver: dict[str, dict[str, Value]] = {}
    for driver in sorted({interface.driver or "" for interface in up}):
        of_driver = [interface for interface in up if interface.driver == driver]
        all_of_driver = [interface for interface in (data.interfaces if data else None) or ()
                 if interface.driver == driver and interface.kind == "physical"]  # fmt: skip
        if len(of_driver) < len(all_of_driver):
            continue  # one is down, which an entry by driver cannot express
        by_driver[driver] = {"count": len(of_driver)}
        speeds = [interface.speed_mbps or 0 for interface in of_driver]
        if all(0 < mbps < 10**8 for mbps in speeds):
            by_driver[driver]["speed_gbps"] = min(speeds) / 1000
        mtus = {interface.mtu or 0 for interface in of_driver}
        if len(mtus) == 1 and LOWEST_MTU <= min(mtus) <= HIGHEST_MTU:
            by_driver[driver]["mtu"] = min(mtus)
        for field in ("rx", "tx"):
            sizes = {getattr(interface.rings, field, None) or 0 for interface in of_driver}
            if len(sizes) == 1 and min(sizes) > 0:
                by_driver[driver][f"ring_{field}"] = min(sizes)
    return {"drivers": by_driver} if by_driver else None


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *READS,
        *reads_of("earlier.network.interfaces[]", "address", "bus_id"),
        *reads_of("earlier.network.interfaces[].counters[]", "name", "value"),
        "earlier.network.interfaces[].name",
        *reads_of("host", "uptime_s", "virtualization"),
        "network.found[]",
        *reads_of("network.interfaces[]", "address", "bus_id", "carrier"),
        *reads_of("network.interfaces[].counters[]", "name", "value"),
        *reads_of("network.interfaces[]", "driver", "duplex", "kind", "lower[]", "mtu", "name"),
        *reads_of("network.interfaces[]", "operstate", "speed_mbps"),
        *reads_of("network.interfaces[].rings", "rx", "rx_max", "tx", "tx_max"),
        *reads_of("pci.functions[]", "address", "class_code", "device", "driver", "physfn"),
        "pci.functions[].vendor",
    ),
    judge=judge,
    unasked="for servers: judges links that are up; only the site knows how many there are and "
    "how fast",
    asks=asks,
    learn=learn,
)
