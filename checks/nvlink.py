"""Every GPU has as many active NVLinks as expected, at full speed and within error limits.

**Why it matters.** A job does not fail when a link is down: it copies over fewer links, or over
PCIe, and every other GPU of the job waits for the slow one. Load tests pass with all links down.

**Read from** NVML: nvmlDeviceGetNvLinkState of each link, NVML_FI_DEV_NVLINK_GET_SPEED,
nvmlDeviceGetNvLinkRemotePciInfo and the error counters of each link, which begin at the last reset
of the GPU; from NVLink 5 on its bit error rates, NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER and
..._SYMBOL_BER; the capabilities of each link, nvmlDeviceGetNvLinkCapability. nodevet reads rates
and capabilities only if the baseline asks for them.

**Verdicts.** `active` is the expected number of links, 18 on H100 SXM, 12 of 18 on H100 NVL; any
other number fails, and the finding names the inactive links. Without `active` a GPU is ok if all
its links are active, and fails if it has fewer than another GPU of the node. If each GPU lacks some
links and none has more than the others, the GPUs are unknown: set `active`. If two GPUs that are
bridged to one another lack the same number of links, the second finding has the first as its cause:
both GPUs are ends of the same links. A GPU without an active link is not applicable if no GPU of
the node has one, or if the other GPUs are bridged to one another: it may have no bridge. A link
fails if it is slower than another link of the same GPU or than `minimum_speed_mbps` (MB/s). A link
fails if its bit error rate, after forward error correction, is above the baseline's; GPUs before
NVLink 5 do not report this rate, which is then not applicable. A link fails if it lacks a
capability that the baseline names. The check judges error counts if the baseline sets a maximum per
link. It judges the growth per hour (`crc_flit_errors_per_hour`) since boot, and with `--sample`
during the sample if that is long enough. A link that recovers during the sample always fails,
unless the baseline sets a limit for it; other errors without a limit do not fail, because they are
corrected. A count that went back during the sample is unknown. With `--since` the check judges the
growth since the last look like the growth during a sample; if one count of a GPU went back, all its
counts began again at 0. Shipped baselines set no limit for counts. The health watch of NVIDIA's
DCGM fails a link with 100 CRC errors per second (`crc_flit_errors_per_hour: 360000`) or with any
replay. A vGPU, a GPU in MIG mode and a GPU without NVLink are not applicable; a GPU without NVLink
fails if `active` is set.

**To fix it** on a node with NVSwitch, see `fabric`, `journalctl -u nvidia-fabricmanager` and SXid
in the kernel log (`dmesg | grep SXid`); drain the node and reset all GPUs together (`nvidia-smi
--gpu-reset` without `-i`), or power cycle it (`ipmitool chassis power cycle`). With bridges, power
off and reseat them. If a link stays down or its errors return, replace bridge, GPU or baseboard.
From Hopper on, NVML can also reduce the bandwidth of NVLink and set when links save power
(nvmlSystemSetNvlinkBwMode, nvmlDeviceSetNvLinkDeviceLowPowerThreshold); `nvidia-smi nvlink --help`
lists the options for both. nodevet reads neither, so it cannot tell that one is wrong, and sets
neither.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import lt
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from msgspec import Meta

from nodevet.checking.before import Counts, CountsBefore, counts_before
from nodevet.checking.named import reads_of
from nodevet.checking.pace import Pace, none_meanwhile, pace, standstill
from nodevet.checking.sampled_gpus import SAMPLED_GPUS, gpu_before
from nodevet.evidence.across import IN_HAND, each_gpu, every_gpu
from nodevet.evidence.core import NOT_SUPPORTED, unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, NvLink, board, have_same_features, subject_of
from nodevet.evidence.lists import spans
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

NOT_REPORTED = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND")
COUNTERS = ("replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors")
BIT_ERROR_RATES = ("effective_ber", "symbol_ber")
RECOVERIES = "recovery_errors"  # links that trained again
NO_NVLINK = "this GPU has no NVLink"
NOT_REPORTED_HERE = "not reported by this GPU or driver"
FABRIC = "fabric"  # the check whose failure explains links that are down
GIVE = "give `active` if that is right"

DOWN = (
    "with NVSwitch look at fabric and at SXid in `dmesg`, drain the node and reset all GPUs "
    "together, or power cycle; with a bridge power off and reseat it. If the fault stays, RMA "
    "the part"
)
WEAK = (
    "drain the node and reset its GPUs: the links train again and the counts begin at 0. If the "
    "fault returns, reseat or replace the bridge; on an HGX board RMA the GPU, then the "
    "baseboard"
)
OTHER_BOARD = "see gpu_model, and check that the baseline is for this GPU"

Capability = Literal["p2p", "sysmem_access", "p2p_atomics", "sysmem_atomics"]
CAPABILITIES = get_args(Capability)
Most = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0, lt=1)]
PerHour = Annotated[float, Meta(ge=0)]


class Params(CheckParams):
    """`nvlink: {}` or `nvlink: 18` or `nvlink: {active: 12, crc_flit_errors: 100}` or
    `nvlink: {active: 18, crc_flit_errors_per_hour: 100, replay_errors_per_hour: 10}` or
    `nvlink: {active: 18, maximum_effective_ber: 0.000000000001}` or
    `nvlink: {active: 18, capabilities: [p2p, p2p_atomics]}`"""

    bare: ClassVar[str] = "active"

    active: Annotated[int, Meta(ge=0, le=64)] | None = None
    """The number of active links of each GPU; if not set, all of them."""
    minimum_speed_mbps: Annotated[int, Meta(ge=1)] | None = None
    """The lowest speed of an active link in MB/s; if not set, that of the fastest link of its
    GPU."""
    maximum_effective_ber: Rate | None = None
    """The most errors per bit of an active link, after forward error correction."""
    maximum_symbol_ber: Rate | None = None
    """The most errors per symbol of an active link."""
    capabilities: tuple[Capability, ...] = ()
    """Capabilities that each active link must have."""
    replay_errors: Most | None = None
    """The most errors of each active link; the same holds for the counts below."""
    recovery_errors: Most | None = None
    crc_flit_errors: Most | None = None
    crc_data_errors: Most | None = None
    replay_errors_per_hour: PerHour | None = None
    """The largest growth per hour of each active link, since boot and while sampled; the same holds
    for the fields below."""
    recovery_errors_per_hour: PerHour | None = None
    crc_flit_errors_per_hour: PerHour | None = None
    crc_data_errors_per_hour: PerHour | None = None


class Links(NamedTuple):
    """The links of one GPU; `doubt`: why the state of some is unknown."""

    active: tuple[NvLink, ...]
    down: tuple[NvLink, ...]
    unread: tuple[NvLink, ...]

    @property
    def doubt(self) -> str:
        return "; ".join(f"link {link.link}: {link.why('active')}" for link in self.unread[:4])


def links_of(gpu: Gpu) -> Links:
    """The links of a GPU; none if NVML supports none of them, as on boards that do not use the
    links of their chip."""
    active: list[NvLink] = []
    down: list[NvLink] = []
    unread: list[NvLink] = []
    for link in gpu.nvlinks or ():
        (active if link.active else unread if link.active is None else down).append(link)
    if not active and not down and all(unsupported(link, "active") for link in unread):
        unread = []
    return Links(tuple(active), tuple(down), tuple(unread))


def link_count(gpu: Gpu) -> int:
    """The number of links of a GPU, as in `links_of`."""
    links = gpu.nvlinks or ()
    return 0 if all(unsupported(link, "active") for link in links) else len(links)


class NodeLinks(NamedTuple):
    """The links of a node's GPUs together."""

    most: tuple[int, int]  # active links of the two GPUs with the most
    ends: frozenset[str]  # PCI addresses at the other end of active links
    unread_end: str  # why an end that NVML could report is unknown; empty if none is
    others: bool  # NVML does not report the address of some other end
    gpus: frozenset[str | None]  # PCI addresses


def of_node(gpus: Sequence[Gpu]) -> NodeLinks:
    counts, ends, is_unreported, others = [0, 0], set(), "", False
    for gpu in gpus:
        active = links_of(gpu).active
        counts.append(len(active))
        for link in active:
            if link.remote_bus_id is not None:
                ends.add(link.remote_bus_id)
            elif link.errors.get("remote_bus_id") in NOT_REPORTED:
                others = True
            else:
                is_unreported = is_unreported or f"remote_bus_id: {link.why('remote_bus_id')}"
    first, second = sorted(counts)[:-3:-1]
    addresses = frozenset(gpu.bus_id for gpu in gpus)
    return NodeLinks((first, second), frozenset(ends), is_unreported, others, addresses)


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    entries = tuple(each_gpu(evidence))
    gpus = [gpu for gpu in entries if isinstance(gpu, Gpu)]
    node, firsts, every = of_node(gpus), first_ends(gpus), every_gpu(evidence)
    short: set[int] = set()  # GPUs that lack links
    for gpu in entries:
        if isinstance(gpu, Finding):
            yield gpu
        elif why_not := exemption(gpu):
            yield why_not
        elif not any(links := links_of(gpu)):
            yield without_links(gpu, params, node, with_links(gpu, gpus))
        else:
            expected = expected_among(gpu, links, gpus, node, params, every)
            if isinstance(expected, int) and len(links.active) < expected:
                short.add(gpu.index)
            cause = cause_of(gpu, firsts.get(gpu.index), short)
            yield from judge_gpu(evidence, gpu, links, params, expected, cause)


def exemption(gpu: Gpu) -> Finding | None:
    """The finding of a GPU whose links are not judged or were not read; None for others."""
    if gpu.virtualization_mode == "VGPU":
        return not_applicable(subject_of(gpu), why="a vGPU has no NVLink of its own")
    if gpu.mig_current and not links_of(gpu).active:
        return not_applicable(subject_of(gpu), why="NVLink is not used in MIG mode")
    if gpu.nvlinks is None and not unsupported(gpu, "nvlinks"):
        return unread(subject_of(gpu), gpu, "nvlinks")
    return None


def cause_of(gpu: Gpu, first: Gpu | None, short: Collection[int]) -> str:
    """The finding that explains the missing links. `first`: the GPU at their other end."""
    if first is not None and first.index in short and gpu.index in short:
        return f"nvlink {subject_of(first).label}"
    return FABRIC


def expected_among(
    gpu: Gpu,
    links: Links,
    gpus: Iterable[Gpu],
    node: NodeLinks,
    params: Params,
    every: Iterable[Gpu],
) -> int | Finding:
    """Like `expected_of`, unless the baseline says it; unknown if it equals the active links and
    another GPU may have more."""
    if params.active is not None:
        return params.active
    possible = max(link_count(other) for other in gpus if have_same_features(other, gpu))
    expected = expected_of(gpu, links, possible, node)
    doubt = unlisted_links(gpu, every)
    return doubt if doubt and expected == len(links.active) else expected


def unlisted_links(gpu: Gpu, others: Iterable[Gpu]) -> Finding | None:
    """The unknown finding if another GPU of this model, whose links were not read, may have
    more."""
    for other in others:
        has_links = "handle" not in other.errors and (
            other.nvlinks is not None or unsupported(other, "nvlinks")
        )
        if other is not gpu and not has_links and have_same_features(other, gpu):
            label = subject_of(other).label
            why = (
                f"the links of {label} were not read, so a GPU of this model may have more: {GIVE}"
            )
            return unknown(subject_of(gpu), why=why)
    return None


def with_links(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu | None:
    """A GPU of the same model that has active links."""
    return next(
        (other for other in gpus if have_same_features(other, gpu) and links_of(other).active), None
    )


def without_links(gpu: Gpu, params: Params, node: NodeLinks, like: Gpu | None) -> Finding:
    """The finding of a GPU without links; `like`: a GPU of its model that has active links."""
    active = params.active
    if active is None and like is not None:
        if bridged := unbridged(gpu, node):
            return bridged
        active = len(links_of(like).active)
    if not active:
        return not_applicable(subject_of(gpu), why=NO_NVLINK)
    return fail(
        subject_of(gpu),
        expected={"active": active},
        actual={"active": 0},
        why=f"{subject_of(like).label} of the same model has active links" if like else NO_NVLINK,
        advice=OTHER_BOARD,
        details=board(gpu),
    )


def expected_of(gpu: Gpu, links: Links, possible: int, node: NodeLinks) -> int | Finding:
    """How many links must be active, or the finding if this is unknown. `possible`: the most links
    of a GPU of its model."""
    now = len(links.active)
    first, second = node.most
    most = min(second if now == first else first, possible)  # another model may have more links
    if now + len(links.unread) < most:
        bridged = None if now or links.unread else unbridged(gpu, node)
        return bridged or most
    if links.unread:
        return unknown(subject_of(gpu), why=links.doubt)
    if now == possible:
        return possible
    if now:
        why = f"{now} of {possible} links are active, and no GPU here has more: {GIVE}"
        return unknown(subject_of(gpu), why=why)
    return none_active(gpu, possible)


def unbridged(gpu: Gpu, node: NodeLinks) -> Finding | None:
    """The finding of a GPU without active links, if the others' links are bridges between them."""
    if node.unread_end:
        return unknown(subject_of(gpu), why=node.unread_end)
    if node.others or gpu.bus_id in node.ends or not node.ends <= node.gpus:
        return None
    why = f"no active link; the other GPUs here are bridged to one another: {GIVE}"
    return not_applicable(subject_of(gpu), why=why)


def none_active(gpu: Gpu, possible: int) -> int | Finding:
    """The expected links of a node without an active link: all if it has a fabric."""
    subject, state = subject_of(gpu), gpu.fabric.state
    if state == "COMPLETED":
        return possible
    if (
        state in (None, "NOT_SUPPORTED")
        and gpu.fabric.errors.get("state", NOT_REPORTED[0]) in NOT_REPORTED
    ):
        return not_applicable(subject, why=f"no link of any GPU here is active: {GIVE}")
    why = f"no link of any GPU here is active, and the fabric's state is {state or 'unknown'}"
    return unknown(subject, why=f"{why}: see fabric")


def first_ends(gpus: Sequence[Gpu]) -> dict[int, Gpu]:
    """For each GPU whose inactive links lead to an earlier GPU with as many inactive links: that
    GPU. Both see the same links from their ends."""
    firsts: dict[int, Gpu] = {}
    by_address = {gpu.bus_id: gpu for gpu in gpus if gpu.bus_id is not None}
    for gpu in gpus:
        first = by_address.get(leads_to(gpu) or "")
        if first is None or first.index >= gpu.index or leads_to(first) != gpu.bus_id:
            continue
        if len(links_of(first).down) == len(links_of(gpu).down):
            firsts[gpu.index] = first
    return firsts


def leads_to(gpu: Gpu) -> str | None:
    """The PCI address to which all inactive links lead, or, if NVML reports none for them, all
    active links; None if there is not exactly one."""
    links = links_of(gpu)
    if links.unread or not links.down:
        return None
    ends_of_down = {link.remote_bus_id for link in links.down}
    ends = {link.remote_bus_id for link in links.active} if ends_of_down == {None} else ends_of_down
    return ends.pop() if len(ends) == 1 else None


def judge_gpu(
    evidence: Evidence,
    gpu: Gpu,
    links: Links,
    params: Params,
    expected: int | Finding,
    cause: str,
) -> Iterator[Finding]:
    """The finding about the number of active links; findings about speed and errors only if they
    are not fine."""
    yield expected if isinstance(expected, Finding) else judge_active(gpu, links, expected, cause)
    if links.active:
        for limit in limits(links.active, params):
            yield from judge_limit(gpu, links.active, limit)
        yield from judge_growth(evidence, gpu, links.active, params)


def judge_active(gpu: Gpu, links: Links, expected: int, cause: str) -> Finding:
    subject, now = subject_of(gpu), len(links.active)
    if now <= expected <= now + len(links.unread) and links.unread:
        return unknown(subject, why=links.doubt)
    if now == expected:
        return ok(subject, expected={"active": expected}, actual={"active": now})
    inactive = {"inactive links": spans(link.link for link in links.down)} if links.down else {}
    return fail(
        subject,
        expected={"active": expected},
        actual={"active": now, **inactive},
        advice=DOWN if now < expected else OTHER_BOARD,
        details=board(gpu),
        cause=cause,
    )


class Limit(NamedTuple):
    """The limit of one value of each active link."""

    field: str
    expected: Value
    is_wrong: Callable[[Any], bool]
    show: Callable[[Any], Value] = lambda value: value
    advice: str = WEAK
    unit: str = ""

    @property
    def name(self) -> str:
        return "speed" if self.field == "speed_mbps" else self.field


def limits(active: Sequence[NvLink], params: Params) -> Iterator[Limit]:
    """The baseline's limits for the active links of one GPU."""
    speeds = (link.speed_mbps for link in active if link.speed_mbps is not None)
    least = params.minimum_speed_mbps or max(speeds, default=0)
    yield Limit("speed_mbps", f"at least {least}", lambda mbps: mbps < least, unit="MB/s")
    for rate in BIT_ERROR_RATES:
        if (most := getattr(params, f"maximum_{rate}")) is not None:
            yield Limit(rate, f"at most {most:g}", partial(lt, most), show="{:g}".format)
    for capability in params.capabilities:
        yield Limit(capability, True, lambda has: has is False, advice=DOWN)
    for counter in COUNTERS:
        if (most := getattr(params, counter)) is not None:
            yield Limit(counter, f"at most {most}", partial(lt, most))


def judge_limit(gpu: Gpu, active: Sequence[NvLink], limit: Limit) -> Iterator[Finding]:
    """One failure for all links beyond the limit, and one unknown finding if some were not read."""
    if is_unreported(active, limit.field):
        yield not_applicable(subject_of(gpu), why=f"{limit.name}: {NOT_REPORTED_HERE}")
        return
    values = [(link, getattr(link, limit.field)) for link in active]
    wrong = [(link, limit.show(value)) for link, value in values
             if value is not None and limit.is_wrong(value)]  # fmt: skip
    if wrong:
        yield of_links(gpu, limit.name, limit.expected, wrong, advice=limit.advice, unit=limit.unit)
    if doubt := why_unread(active, limit.field):
        yield unknown(subject_of(gpu), why=doubt)


def judge_growth(
    evidence: Evidence, gpu: Gpu, active: Sequence[NvLink], params: Params
) -> Iterator[Finding]:
    """How fast errors come. A link that recovers during the sample fails without a limit, too."""
    earlier = before_of(evidence, gpu, active)
    for counter in COUNTERS:
        most = getattr(params, f"{counter}_per_hour")
        fresh = counter == RECOVERIES and earlier is not None and getattr(params, counter) is None
        if most is None and not fresh:
            continue
        if is_unreported(active, counter):
            yield not_applicable(subject_of(gpu), why=f"{counter}: {NOT_REPORTED_HERE}")
        elif doubt := why_unread(active, counter):
            yield unknown(subject_of(gpu), why=doubt)
        else:
            link_paces = paces(evidence, active, counter, most, earlier)
            yield from judge_paces(gpu, counter, most, earlier, list(link_paces))


def before_of(evidence: Evidence, gpu: Gpu, active: Sequence[NvLink]) -> CountsBefore | None:
    """The counters of the active links at an earlier reading, by counter and link."""
    reading = gpu_before(evidence, gpu)
    earlier_links = (reading.gpu.nvlinks if reading and reading.gpu else None) or ()
    return counts_before(reading, counts_of(earlier_links), counts_of(active)) if reading else None


def counts_of(links: Iterable[NvLink]) -> Counts:
    return {(counter, link.link): getattr(link, counter) for link in links for counter in COUNTERS}


def paces(
    evidence: Evidence,
    active: Sequence[NvLink],
    counter: str,
    most: float | None,
    earlier: CountsBefore | None,
) -> Iterator[tuple[NvLink, Pace]]:
    """How fast a counter of each link grows; without a maximum per hour it may not grow at all."""
    for link in active:
        grown = earlier.growth_of((counter, link.link)) if earlier else None
        if most is not None:
            yield link, pace(getattr(link, counter), grown, most, evidence)
        elif grown is not None and not grown.again:
            yield link, standstill(grown)


def judge_paces(
    gpu: Gpu,
    counter: str,
    most: float | None,
    earlier: CountsBefore | None,
    link_paces: Sequence[tuple[NvLink, Pace]],
) -> Iterator[Finding]:
    too_fast = [
        (link, link_pace.actual) for link, link_pace in link_paces if link_pace.right is False
    ]
    if too_fast and most is None:
        expected = none_meanwhile(look=earlier is not None and earlier.reading.look)
        yield of_links(gpu, counter, expected, too_fast)
    elif too_fast:
        yield of_links(gpu, f"{counter} per hour", f"at most {most:g}", too_fast)
    doubts = [f"link {link.link}: {counter}: {link_pace.why}" for link, link_pace in link_paces
              if link_pace.right is None]  # fmt: skip
    if doubts:
        yield unknown(subject_of(gpu), why="; ".join(doubts[:4]))


def of_links(
    gpu: Gpu,
    name: str,
    expected: Value,
    values_by_link: Iterable[tuple[NvLink, Value]],
    *,
    advice: str = WEAK,
    unit: str = "",
) -> Finding:
    """The failure of links of a GPU: values by name and links; links with the same value
    together."""
    links: dict[Value, list[int]] = {}
    for link, value in values_by_link:
        links.setdefault(value, []).append(link.link)
    actual = {f"{name} of link {spans(numbers)}": value for value, numbers in links.items()}
    return fail(
        subject_of(gpu),
        expected=dict.fromkeys(actual, expected),
        actual=actual,
        unit=unit,
        advice=advice,
        details=board(gpu),
    )


def is_unreported(links: Sequence[NvLink], field: str) -> bool:
    return all(getattr(link, field) is None and link.errors.get(field) in NOT_REPORTED
               for link in links)  # fmt: skip


def why_unread(links: Sequence[NvLink], field: str) -> str:
    """Why a value of the first such link is unknown; empty if all are known."""
    for link in links:
        value = getattr(link, field)
        if value is None or value < 0:
            why = link.why(field) if value is None else f"{value} is not valid"
            return f"link {link.link}: {field}: {why}"
    return ""


def learn(evidence: Evidence) -> dict[str, int] | None:
    """The number of active links, if all GPUs have the same; None without NVLink."""
    counts = {len(links_of(gpu).active) for gpu in each_gpu(evidence) if isinstance(gpu, Gpu)}
    return {"active": counts.pop()} if len(counts) == 1 and counts != {0} else None


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    rates = params.maximum_effective_ber is not None or params.maximum_symbol_ber is not None
    needed = {"nvlink_ber": rates, "nvlink_capabilities": bool(params.capabilities)}
    names = tuple(name for name, is_needed in needed.items() if is_needed)
    return {"gpu": names} if names else {}


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *SAMPLED_GPUS,
        *reads_of("earlier.gpu.gpus[].nvlinks[]", "crc_data_errors", "crc_flit_errors", "link"),
        *reads_of("earlier.gpu.gpus[].nvlinks[]", "recovery_errors", "replay_errors"),
        "gpu.gpus[].bus_id",
        "gpu.gpus[].fabric.state",
        *reads_of("gpu.gpus[]", "mig_current", "virtualization_mode"),
        *reads_of("gpu.gpus[].nvlinks[]", "active", "crc_data_errors", "crc_flit_errors"),
        *reads_of("gpu.gpus[].nvlinks[]", "effective_ber", "link", "recovery_errors"),
        *reads_of("gpu.gpus[].nvlinks[]", "remote_bus_id", "replay_errors", "speed_mbps"),
        "gpu.gpus[].nvlinks[].symbol_ber",
        *(f"gpu.gpus[].nvlinks[].{name}" for name in CAPABILITIES),
        "host.uptime_s",
    ),
    judge=judge,
    asks=asks,
    learn=learn,
    actions={DOWN: NeededAction.GPU_RESET, WEAK: NeededAction.GPU_RESET},
)
