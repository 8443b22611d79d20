"""Two fleets over five nights: what a sweep read of them, judged by the real judge, and recorded.

The documents are those of two simulated nodes; each host has its own names and serial numbers, each
night other temperatures, clocks and loads. What happens besides:

- `gpu003`: GPU 2 counts errors from night 1 on. In night 2 a row cannot be remapped. It changes
  places with GPU 5 of `gpu007` before night 3, and the fault goes with it; before night 5 a new GPU
  has its place.
- `gpu005`, `gpu006`: somebody lowers the power limit before night 3.
- `gpu009`: a port of its network is down in nights 1, 3 and 5.
- `gpu010` to `gpu012`: before night 4 an upgrade of nvidia-compute-utils turns persistence mode
  off. These get another tuned then, too, as do `gpu001` to `gpu003`, and `gpu002` another kernel:
  that breaks nothing.
- `a100-02`: saves power until a fix sets the governor, before night 4.
- `a100-04`: does not answer in night 2.
- `a100-06`: has the wrong huge pages all the time, and is re-imaged before night 4.
- `gpu001`: GPU 6 replays more PCIe packets from night to night. `gpu008`: a DIMM corrects errors.
"""

import gzip
import json
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nodevet import __version__
from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Severity, Status
from nodevet.model.run import Run
from nodevet.store.records.model import (
    FixHost,
    RecordedAction,
    RecordedFixRun,
    RecordedPlan,
    RecordedRun,
    RunState,
)
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import judge_visit
from nodevet.vet.use.saved import keep

READ = Path(__file__).parent / "five_nights_read"
FIRST = datetime(2026, 11, 16, 2, 0, tzinfo=timezone.utc)
NIGHTS = (1, 2, 3, 4, 5)
SERIES = "nightly"
H100 = tuple(f"gpu{number:03d}" for number in range(1, 13))
A100 = tuple(f"a100-{number:02d}" for number in range(1, 7))
HOSTS = (*H100, *A100)
UNREACHABLE = {("a100-04", 2): "no answer on port 22 within 10 s"}
BAD_GPU = ("gpu003", 2)  # where it was in the first night
NEW_GPU = ("new", 0)
KERNEL = "6.1.0-31-amd64"

Document = dict[str, Any]
Slot = tuple[str, int]


class Met(NamedTuple):
    """A host in one night."""

    host: Host
    visit: Visit


def start_time(night: int) -> datetime:
    return FIRST + timedelta(days=night - 1)


def run_id(night: int) -> str:
    return f"{start_time(night):%Y%m%dT%H%M%S}.000Z-5f1c00{night:02d}"


# --- the parts ---


def board(slot: Slot) -> dict[str, str]:
    """What a GPU is called, by where it was in the first night."""
    named = uuid.uuid5(uuid.NAMESPACE_OID, f"{slot[0]}/{slot[1]}")
    return {"uuid": f"GPU-{named}", "serial": f"16{named.int % 10**11:011d}"}


def gpu_in_slot(slot: Slot, night: int) -> Slot:
    """Which GPU is in a slot."""
    if night >= 3 and slot == BAD_GPU:
        return ("gpu007", 5)
    if slot == ("gpu007", 5):
        return slot if night < 3 else BAD_GPU if night < 5 else NEW_GPU
    return slot


def _age(gpu: Document, slot: Slot, night: int) -> None:
    """What a GPU counts, wherever it is."""
    if slot == BAD_GPU:
        corrected = (40, 310, 512, 890, 0)[night - 1]
        gpu["ecc"] |= {"aggregate_corrected": corrected, "aggregate_dram_corrected": corrected}
        if night >= 2:
            gpu["ecc"] |= {"aggregate_uncorrected": 2, "aggregate_dram_uncorrected": 2}
            gpu["remapping"] |= {"uncorrected": 8, "failure": True, "banks_none": 1}
    if slot == ("gpu001", 6):
        gpu["pcie_replay_counter"] = (3, 11, 30, 62, 118)[night - 1]


# --- what happens to hosts ---


def _power(node: Document, host: str, night: int) -> None:
    if host in ("gpu005", "gpu006") and night >= 3:
        for gpu in node["gpu"]["gpus"]:
            gpu |= {"power_limit_mw": 500_000, "power_limit_enforced_mw": 500_000}


def _governor(node: Document, host: str, night: int) -> None:
    if host == "a100-02" and night < 4:
        for policy in node["cpufreq"]["policies"]:
            policy["governor"] = "powersave"


def _link(node: Document, host: str, night: int) -> None:
    if host != "gpu009":
        return
    (port,) = node["infiniband"]["devices"][3]["ports"]
    for counter in port["counters"]:
        if counter["name"] == "link_downed":
            counter["value"] = (2, 3, 4, 5, 6)[night - 1]
    if night % 2:
        port |= {"state": "DOWN", "phys_state": "Polling", "rate_gbps": 10.0, "speed": "SDR"}


def _upgrade(node: Document, host: str, night: int) -> None:
    if night < 4:
        return
    broken = host in ("gpu010", "gpu011", "gpu012")
    if broken:
        _install(node, "nvidia-compute-utils-580", "580.126.09-1")
        for gpu in node["gpu"]["gpus"]:
            gpu["persistence_mode"] = False
    if broken or host in ("gpu001", "gpu002", "gpu003"):
        _install(node, "tuned", "2.24.1-1")


def _install(node: Document, name: str, version: str) -> None:
    (asked,) = (each for each in node["installed"]["packages"] if each["name"] == name)
    asked["found"][0]["version"] = version


def _pages(node: Document, host: str, night: int) -> None:
    if host == "a100-06":
        node["memory"]["thp_enabled"] = "always"


def _boot(node: Document, host: str, night: int) -> None:
    """Who the node is, and how long it has been up: six days in the first night."""
    machine = 2 if host == "a100-06" and night >= 4 else 1
    boots = {"a100-06": 4, "gpu002": 4, "gpu003": 3, "gpu007": 3}
    since = boots.get(host, 9)
    again = [since, 5] if host == "gpu007" else [since]
    boot = 1 + sum(night >= each for each in again)
    up = (night - max((each for each in again if night >= each), default=-5)) * 86_400.0
    clock = start_time(night).timestamp() + _draw(host, night).uniform(2, 20)
    known = node["host"]
    known["machine_id"] = uuid.uuid5(uuid.NAMESPACE_OID, f"{host} {machine}").hex
    known["boot_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{host} boot {boot}"))
    known["uptime_s"] = round(up + 7_000 + _draw(host, night).uniform(0, 90), 2)
    known["clock_s"], known["asked_s"] = round(clock + 0.02, 3), round(clock, 3)
    node["kernel_log"] |= {"since_s": known["uptime_s"], "covered_s": 1.2}
    if host == "gpu002" and night >= 4:
        known["kernel"] = KERNEL


def _dimm(node: Document, host: str, night: int) -> None:
    for controller in node["edac"]["controllers"]:
        controller["since_s"] = round(node["host"]["uptime_s"])
    if host == "gpu008":
        controller = node["edac"]["controllers"][1]
        controller["corrected"] = controller["dimms"][0]["corrected"] = (0, 1, 1, 4, 9)[night - 1]


EVENTS: Sequence[Callable[[Document, str, int], None]] = (
    _power,
    _governor,
    _link,
    _upgrade,
    _pages,
    _boot,
    _dimm,
)


# --- a night ---


@cache
def _read(kind: str) -> str:
    return gzip.decompress((READ / f"{kind}.json.gz").read_bytes()).decode()


@cache
def _own_document(host: str) -> str:
    """A simulated node's document with names of its own, the same for the same host."""
    text, draw = _read("h100" if host in H100 else "a100"), random.Random(host)
    for name in sorted(_names(json.loads(text)["sections"])):
        text = text.replace(name, "".join(_other_digit(each, draw) for each in name))
    return text


def _names(value: Any, key: str = "") -> set[str]:
    """What tells nodes and parts apart, apart from GPUs."""
    if isinstance(value, dict):
        return set().union(*(_names(part, name) for name, part in value.items()))
    if isinstance(value, list):
        return set().union(*(_names(part, key) for part in value))
    return {value} if key in ("node_guid", "serial") and value else set()


def _other_digit(digit: str, draw: random.Random) -> str:
    for alphabet in ("0123456789", "abcdef", "ABCDEF"):
        if digit in alphabet:
            return draw.choice(alphabet)
    return digit


def _draw(host: str, night: int) -> random.Random:
    return random.Random(f"{host} {night}")


def _wobble(node: Document, draw: random.Random) -> None:
    """What differs between two looks at a quiet node."""
    for gpu in node["gpu"]["gpus"]:
        gpu["temperature_gpu_c"] += draw.randint(-2, 4)
        gpu["temperature_memory_c"] += draw.randint(-2, 4)
        gpu["power_draw_mw"] += draw.randint(-1500, 3000)
        gpu["clock_graphics_mhz"] = gpu["clock_sm_mhz"] = draw.choice((210, 345, 345, 510))
    for drive in node["nvme"]["controllers"]:
        drive["temperature_c"] = drive["health"]["temperature_c"] = draw.randint(33, 39)
    node["memory"]["available_kb"] -= draw.randint(0, 4_000_000)
    node["kernel"]["load_1"] = round(draw.uniform(0.1, 1.2), 2)
    for device in node["infiniband"]["devices"]:
        for counter in device["ports"][0]["counters"]:
            if counter["name"].endswith(("_data", "_packets")):
                counter["value"] += draw.randint(0, 1_000_000)


def document(host: str, night: int) -> Document:
    """What the probe answered."""
    found: Document = json.loads(_own_document(host))
    node = {
        name: each["data"] for name, each in found["sections"].items() if each["status"] == "ok"
    }
    node["host"]["hostname"] = host
    _wobble(node, _draw(host, night))
    for drive in node["nvme"]["controllers"]:
        drive["health"]["power_on_hours"] += 24 * night
    for index, gpu in enumerate(node["gpu"]["gpus"]):
        there = gpu_in_slot((host, index), night)
        gpu.update(board(there))
        _age(gpu, there, night)
    for event in EVENTS:
        event(node, host, night)
    return found


def visits(night: int, hosts: Sequence[str] = HOSTS) -> Iterator[Met]:
    """Every host in this night, as a sweep met it."""
    for number, name in enumerate(hosts):
        host = Host(name=name, groups=frozenset({"h100" if name in H100 else "a100"}))
        moment = start_time(night).timestamp() + 3 + number / 4
        seconds = round(_draw(name, night).uniform(1.1, 2.4), 3)
        if why := UNREACHABLE.get((name, night)):
            yield Met(host, Visit(name, Status.UNREACHABLE, why, None, 10.0, moment + 10))
        else:
            text = json.dumps(document(name, night), separators=(",", ":")).encode()
            yield Met(host, Visit(name, Status.VETTED, "", text, seconds, moment))


def context(night: int = 5) -> VetContext:
    """The two baselines of the site, on that day."""
    catalog = Catalog([], [])
    found = load(sorted(map(str, READ.glob("*.yaml"))), catalog=catalog)
    today: date = start_time(night).date()
    return VetContext(baselines=found, catalog=catalog, today=today)


def judged_reports(
    night: int, hosts: Sequence[str] = HOSTS
) -> Iterator[tuple[HostReport, bytes | None]]:
    """The report of every host, and what it is of."""
    judges = context(night)
    for host, visit in visits(night, hosts):
        yield judge_visit(visit, host, judges).report, visit.evidence


def run(night: int, reports: Sequence[HostReport]) -> Run:
    """The run that these are of."""
    return Run(
        id=run_id(night),
        nodevet=__version__,
        started=start_time(night).isoformat(timespec="seconds"),
        seconds=14.5 + night,
        fail_on=Severity.WARNING,
        baselines={one.name: one.sha256 for one in context(night).baselines},
        hosts=tuple(reports),
    )


def save(folder: Path, night: int) -> None:
    """What `nodevet check --save` would have kept of it."""
    for host, visit in visits(night):
        keep(visit, host, folder)


# --- the store ---


def record(url: str, nights: Sequence[int] = NIGHTS) -> None:
    """All of these nights in the store of this URL."""
    from nodevet.store import open_store

    with open_store(url) as store:
        for night in nights:
            found = list(judged_reports(night))
            seen = run(night, [report for report, _ in found])
            begun = recorded_run(seen, RunState.RUNNING)
            recorder = store.begin(begun)
            for report, evidence in found:
                recorder.take(report, evidence)
            recorder.finish(recorded_run(seen, RunState.COMPLETE))
            assert recorder.broken is None, recorder.broken
            if night == 3:
                store.record_plan(GOVERNOR_PLAN, b"{}")
                store.record_fix_run(*fix_of_the_governor())


GOVERNOR_PLAN = RecordedPlan(
    digest="5f1c00aa" * 8,
    id="5f1c00aa",
    author="ann",
    created="2026-11-18T13:42:00+00:00",
    hosts={"a100-02": ("cpu_governor",)},
)


def fix_of_the_governor() -> tuple[RecordedFixRun, tuple[RecordedAction, ...]]:
    """What `nodevet apply` came to, in the afternoon between night 3 and night 4."""
    run = RecordedFixRun(
        id="20261118T141000.000Z-5f1c00aa-1",
        kind="apply",
        plan="5f1c00aa",
        digest=GOVERNOR_PLAN.digest,
        author="ann",
        approvals=("bob",),
        by="ann@ctl1",
        folder="/home/ann/site/runs/5f1c00aa-1",
        started="2026-11-18T14:10:00+00:00",
        seconds=5.0,
        exit_code=0,
        outcomes={"changed": 1},
        hosts=(FixHost(host="a100-02", outcome="changed"),),
    )
    action = RecordedAction(
        run=run.id,
        kind=run.kind,
        plan=run.plan,
        host="a100-02",
        step="a100-02/cpu_governor/1",
        fix="cpu_governor",
        subjects=("cpufreq 0-31",),
        resource="kernel /sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
        before="powersave",
        after="performance",
        outcome="changed",
        at="2026-11-18T14:10:03+00:00",
    )
    return run, (action,)


def recorded_run(seen: Run, state: RunState) -> RecordedRun:
    """A run as it is recorded when it begins, or when it has ended."""
    ended = state is RunState.COMPLETE
    outcomes = [report.outcome for report in seen.hosts]
    return RecordedRun(
        id=seen.id,
        series=SERIES,
        started=seen.started,
        seconds=seen.seconds if ended else None,
        state=state,
        nodevet=seen.nodevet,
        fail_on=seen.fail_on,
        hosts=len(HOSTS),
        visited=len(outcomes) if ended else 0,
        outcomes={each: outcomes.count(each) for each in set(outcomes)} if ended else {},
        baselines=seen.baselines,
        exit_code=seen.exit_code if ended else None,
    )
