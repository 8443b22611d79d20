"""Losing evidence never makes a check say ok.

Every value of every case is taken away, spoiled and changed in turn, in the JSON that
the probe sends. A value is decisive for a subject that is ok when some other value in
its place would make it not ok; then the check may not say ok without knowing it.
"""

import copy
from collections.abc import Container, Iterator
from datetime import date
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.expected import matches
from nodevet.evidence.across import IN_HAND
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import LIKENESS
from nodevet.evidence.lists import numbers, spans
from nodevet.evidence.sections import key_paths, sections
from nodevet.model import Verdict, show
from nodevet.model.baseline import Waiver
from nodevet.vet.use.asks import ALWAYS
from tests.checks.every_case import every_case

pytestmark = pytest.mark.timeout(600)
CATALOG = Catalog()

WORDS = ("other", "", "0", "1", "ff", "a1", "none", "kvm", "0-1", "10de", "030200", "/dev/nvidia7")
NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 8, 16, 32)
REASONS = ("EIO", "NVML_ERROR_UNKNOWN", "NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_GPU_IS_LOST")
SECTIONS = [name for name in Evidence.__struct_fields__ if name not in ("schema", "probe")]
IDENTITIES = (  # a record needs it
    *("address", "gateway", "gid", "id", "index", "link", "number", "path", "pid", "policies"),
)
GONE = object()
BESIDE = {  # what may be one more fault of a subject that has one, and need not be unknown then
    "filesystems.filesystems[].missing": "its size was read: it is there",
    "gpu.gpus[].mig_devices[].remapping.failure": "NVML may not tell it in MIG mode",
    "gpu.gpus[].pcie_generation_max": "an idle link's generation is not judged",
    "gpu.gpus[].serial": "whether it is the GPU of the last look, as its UUID says too",
    "gpu.gpus[].uuid": "whether it is the GPU of the last look, as its serial number says too",
    "kernel_log.events[].first_s": "which of two Xids came first: both are told",
    "pci.functions[].link_gts_max": "an idle link's generation is not judged",
}


class Place(NamedTuple):
    """A value in the document, and its name as `reads` spells it."""

    keys: tuple[Any, ...]
    name: str


def places(value: Any, keys: tuple[Any, ...], name: str) -> Iterator[Place]:
    """Every value below, containers too; `errors` are reasons, not evidence."""
    items: Any = ()
    if isinstance(value, dict):
        items = [(key, f"{name}.{key}", below) for key, below in value.items() if key != "errors"]
    elif isinstance(value, list):
        items = [(index, f"{name}[]", below) for index, below in enumerate(value)]
    for key, below_name, below in items:
        place = Place((*keys, key), below_name)
        if not isinstance(key, int) or not isinstance(below, dict):
            yield place
        yield from places(below, place.keys, place.name)


def since_places(document: dict[str, Any]) -> list[Place]:
    """Every value of the last look. To lose one makes it a look that did not read it, which says
    nothing: a check judges as without."""
    return [
        place
        for name, section in document.get("since", {}).get("sections", {}).items()
        if section["status"] == "ok"
        for place in places(section["data"], ("since", "sections", name, "data"), f"earlier.{name}")
    ]


def evidence_places(document: dict[str, Any]) -> list[Place]:
    return [
        place
        for part, prefix in (("sections", ""), ("earlier", "earlier."))
        for name, section in document.get(part, {}).items()
        if section["status"] == "ok"
        for place in places(section["data"], (part, name, "data"), f"{prefix}{name}")
    ]


def with_section(
    document: dict[str, Any], name: str, section: Any, part: str = "sections"
) -> dict[str, Any]:
    """A copy with another section."""
    return {**document, part: {**document[part], name: section}}


def at(document: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        document = document[key]
    return document


def changed(document: dict[str, Any], place: Place, value: Any, why: str = "") -> dict[str, Any]:
    """A copy with another value in the place, or with none."""
    copied = parent = copy.copy(document)
    for key in place.keys[:-1]:  # what is beside the way is shared
        parent[key] = copy.copy(parent[key])
        parent = parent[key]
    if value is not GONE:
        parent[place.keys[-1]] = value
    elif isinstance(parent, dict):
        del parent[place.keys[-1]]
    if why and isinstance(parent, dict):
        parent["errors"] = {**parent.get("errors", {}), place.keys[-1]: why}
    return copied


def lost(document: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    """The document without the value: null, removed, of another type, failed to be read."""
    value = at(document, place.keys)
    yield changed(document, place, None)
    yield changed(document, place, [["spoiled"]])
    yield changed(document, place, {"spoiled": 1})
    yield changed(document, place, 7 if isinstance(value, str) else "spoiled")
    if not isinstance(place.keys[-1], int):
        yield changed(document, place, GONE)
        for why in REASONS:
            yield changed(document, place, None, why)


def others(document: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    """The document with other values of the same type in the place."""
    value = at(document, place.keys)
    values: list[Any] = []
    if isinstance(value, bool):
        values = [not value]
    elif isinstance(value, (int, float)):
        values = [*NUMBERS, value + 1, value * 2, value // 2, value * 1000]
    elif isinstance(value, str):
        values = [*WORDS, f"{value}0", value[:-1]]
    taken = names_beside(document, place)
    for other in values:
        if other != value and other not in taken:
            yield changed(document, place, other)


UNIQUE = {
    f"{section}.{path}"
    for section, record in sections().items()
    for path in chain.from_iterable(map(key_paths, record.unique))
}


def is_name(place: Place) -> bool:
    """Whether it tells an item of a list from the others."""
    return place.name.removeprefix("earlier.") in UNIQUE


def names_beside(document: dict[str, Any], place: Place) -> list[Any]:
    """What the other items of the list are called; nothing of a value that is no name."""
    if not is_name(place):
        return []
    return [item.get(place.keys[-1]) for item in at(document, place.keys[:-2])]


def oks(findings: list[Any]) -> set[str]:
    """The subjects that are ok and nothing else; a process and its node are two."""
    return {f.subject.label for f in findings if f.verdict is Verdict.OK} - {
        f.subject.label for f in findings if f.verdict is not Verdict.OK
    }


def verdicts(findings: list[Any]) -> list[tuple[str, str]]:
    return sorted((finding.subject.label, finding.verdict.value) for finding in findings)


def faults(findings: list[Any]) -> set[tuple[str, str]]:
    """What fails of each subject, whatever was found instead: by the name of a value that differs,
    by an item of a list that is to be empty, else by what was expected."""
    found = set()
    for each in findings:
        if each.verdict is not Verdict.FAIL:
            continue
        if isinstance(each.expected, dict):
            said = [f"{name}: {show(value)}" for name, value in each.expected.items()]
        else:
            said = map(show, each.actual if isinstance(each.actual, list) else [each.expected])
        found.update((each.subject.label, text) for text in said)
    return found


@every_case
def test_no_ok_without_a_decisive_value(case):
    say, fine = case.ask, oks(case.said)
    check_decisive_values(case.document, say, fine, lambda told: fine - oks(told))


def check_decisive_values(
    whole: dict[str, Any], say: Any, fine: set[str], spoilt: Any, but: Container[str] = ()
) -> None:
    """No subject stays ok without a value in whose place another one would spoil it."""
    if not fine:
        return
    every = [place for place in evidence_places(whole) if place.name not in but]
    needs = {place: decided(map(say, others(whole, place)), fine, spoilt) for place in every}
    for place in every:
        needed = needed_below(place.keys, needs)
        for document in lost(whole, place) if needed else ():
            assert not needed & oks(say(document)), (place.name, document)
    for part in ("sections", "earlier"):
        for name in whole.get(part, {}):
            needed = needed_below((part, name), needs)
            for section in broken_sections():
                document = with_section(whole, name, section, part)
                assert not needed & oks(say(document)), (part, name, section)


def decided(answers: Iterator[Any], fine: set[str], spoilt: Any) -> set[str]:
    """The subjects that one of these answers spoils. The rest is not asked for once it is all."""
    found: set[str] = set()
    for told in answers:
        found |= fine & spoilt(told)
        if found == fine:
            break
    return found


def waived(findings: list[Any], accepted: dict[str, list[Any]]) -> list[Any]:
    """The findings, those ok that a person accepted as they were shown."""
    return [
        msgspec.structs.replace(each, verdict=Verdict.OK)
        if each.verdict is Verdict.FAIL
        and any(waiver.admits(each) for waiver in accepted.get(each.subject.label, ()))
        else each
        for each in findings
    ]


def waivers(findings: list[Any]) -> dict[str, list[Waiver]]:
    """By subject, of all that fails, as it is."""
    found: dict[str, list[Waiver]] = {}
    for each in findings:
        if each.verdict is Verdict.FAIL:
            bare = each.expected is each.actual is None
            accepts = each.why if bare else each.actual
            until = date(2026, 12, 31)
            waiver = Waiver(check="", owner="", reason="", until=until, accepts=accepts)
            found.setdefault(each.subject.label, []).append(waiver)
    return found


@every_case
def test_a_waiver_does_not_hide_unread_values(case):
    """Who waives all that fails waives no more: what was not read beside it, and might have been
    one fault more, is unknown."""
    say, found = case.ask, case.said
    accepted, known, doubts = waivers(found), faults(found), of_the_node(found)

    def told(document: dict[str, Any]) -> list[Any]:
        after = say(document)
        return waived(after, accepted) if of_the_node(after) <= doubts else []

    def spoilt(after: list[Any]) -> set[str]:
        return {subject for subject, fault in faults(after) - known}

    if accepted:
        check_decisive_values(case.document, told, oks(told(case.document)), spoilt, BESIDE)


def of_the_node(findings: list[Any]) -> set[str]:
    """Why something of the node as a whole is unknown."""
    return {f.why for f in findings if f.verdict is Verdict.UNKNOWN and not f.subject.label}


def needed_below(keys: tuple[Any, ...], needs: dict[Place, set[str]]) -> set[str]:
    """The subjects for which this value, or one inside it, is decisive."""
    inside = (subjects for place, subjects in needs.items() if place.keys[: len(keys)] == keys)
    return set().union(*inside)


@every_case
def test_losing_evidence_never_makes_ok(case):
    say, fine = case.ask, oks(case.said)
    for place in evidence_places(case.document):
        for document in lost(case.document, place):
            assert oks(say(document)) <= fine, (place.name, document)


@every_case
def test_a_failed_section_never_makes_ok(case):
    say, fine = case.ask, oks(case.said)
    for name in SECTIONS:
        for section in broken_sections():
            document = with_section(case.document, name, section)
            assert oks(say(document)) <= fine, (name, section)
        document = copy.deepcopy(case.document)
        document["sections"].pop(name, None)
        assert oks(say(document)) <= fine, name


def broken_sections() -> list[Any]:
    return [
        *(
            {"status": status, "why": "spoiled"}
            for status in ("absent", "denied", "error", "timeout")
        ),
        {"status": "ok"},
        {"status": "ok", "data": None},
        {"status": "ok", "data": []},
        {"status": "ok", "data": {}},
        {"status": "splendid", "data": {}},
        {"status": "error"},
        "spoiled",
        None,
    ]


@every_case
def test_nothing_outside_reads_changes_a_verdict(case):
    say, told = case.ask, [finding.verdict for finding in case.said]
    for place in (*evidence_places(case.document), *since_places(case.document)):
        if is_read(place.name, case.check.reads):
            continue
        documents = list(others(case.document, place))
        named = place.keys[-1] in IDENTITIES or (place.name.endswith("[].name") and is_name(place))
        if not named and not isinstance(place.keys[-1], int):
            documents.append(changed(case.document, place, None))
        for document in documents:
            after = [finding.verdict for finding in say(document)]
            assert after == told, (place.name, document)


def is_read(name: str, reads: tuple[str, ...]) -> bool:
    """Whether `reads` names this place or something in it; whoever reads a GPU, reads which others
    are like it."""
    if name in LIKENESS and any(read.startswith("gpu.gpus[].") for read in reads):
        return True
    return any(read == name or read.startswith((f"{name}.", f"{name}[")) for read in reads)


def test_everything_in_reads_changes_a_verdict(own_cases):
    reads = frozenset(own_cases[0].check.reads)
    needed = set()
    for case in own_cases:
        say, told = case.ask, verdicts(case.said)
        for place in (*evidence_places(case.document), *since_places(case.document)):
            if place.name in reads - needed and any(
                verdicts(say(other)) != told for other in others(case.document, place)
            ):
                needed.add(place.name)
    assert reads <= needed, "delete these from `reads`, or add a case that one of them decides"


@every_case
def test_a_gpu_without_a_handle_is_never_ok(case):
    say, fine = case.ask, oks(case.said)
    gpus = case.document["sections"].get("gpu", {}).get("data", {}).get("gpus") or []
    for index in range(len(gpus)):
        for why in REASONS:
            document = copy.deepcopy(case.document)
            gpu = document["sections"]["gpu"]["data"]["gpus"][index]
            gpu["errors"] = {**gpu.get("errors", {}), "handle": why}
            after = oks(say(document))
            assert after <= fine
            assert f"GPU {gpu['index']}" not in after


def data_of(document: dict[str, Any], section: str) -> dict[str, Any]:
    """What a collector found; nothing where its section failed."""
    return document["sections"].get(section, {}).get("data") or {}


def counted_by_nvml(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """NVML counts all the GPUs that it lists."""
    data = data_of(document, "gpu")
    if data:
        data["count"] = len(data["gpus"])
        yield from range(len(data["gpus"]))


def seen_on_the_bus(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """Every GPU that NVML lists is on the PCI bus."""
    data = data_of(document, "gpu")
    data.pop("count", None)
    section = document["sections"].setdefault("pci", {"status": "ok", "data": {}})
    functions = section.setdefault("data", {}).setdefault("functions", [])
    for index, gpu in enumerate(data.get("gpus") or ()):
        address = gpu.setdefault("bus_id", f"0000:e{index}:00.0")
        found = [function for function in functions if function["address"] == address]
        functions += [] if found else [{"address": address}]
        for function in found or functions[-1:]:
            function.update(class_code="030200", vendor="10de")
        yield index


def online(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """Every CPU of a policy is online."""
    policies = data_of(document, "cpufreq").get("policies") or ()
    cpus = [numbers(policy.get("cpus")) or frozenset() for policy in policies]
    listed = spans(frozenset().union(*cpus))
    document["sections"]["cpu"] = {"status": "ok", "data": {"online": listed}}
    yield from (index for index, own in enumerate(cpus) if own)


def nodes_online(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    data = data_of(document, "numa")
    data["online"] = spans(node["id"] for node in data.get("nodes") or ())
    yield from range(len(data.get("nodes") or ()))


def named(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """The functions that NVML names, and the ports that are above one."""
    functions = data_of(document, "pci").get("functions") or ()
    gpus = data_of(document, "gpu").get("gpus") or ()
    names = set()
    paired = ("gpu_topology", "nic_pairing")  # by paths that name the ports, themselves not read
    if check_id in (
        *("gpu_count", "gpu_lost", "gpu_model", "health_validation"),
        *("numa_locality", "pcie_link", *paired),
    ):
        names.update(gpu.get("bus_id") for gpu in gpus)
    if check_id == "numa_binding":
        names.update(gpu.get("bus_id") for gpu in gpus if gpu.get("processes"))
    bare = data_of(document, "host").get("virtualization") == "none" and check_id not in (
        *paired,
        "pci_links",
    )
    if check_id == "nvme_health":
        drives = (each for each in functions if each.get("driver") == "nvme")
        names.update(each["address"] for each in drives)
    if check_id == "pcie_errors" or bare:
        names.update(port for each in functions for port in each.get("upstream") or ())
    yield from (at for at, function in enumerate(functions) if function["address"] in names)


def computing(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """The processes that NVML names."""
    gpus = data_of(document, "gpu").get("gpus") or ()
    pids = {process["pid"] for gpu in gpus for process in gpu.get("processes") or ()}
    processes = data_of(document, "processes").get("processes") or ()
    yield from (at for at, process in enumerate(processes) if process["pid"] in pids)


def found(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    data = data_of(document, "filesystems")
    data["found"] = [each["path"] for each in data.get("filesystems") or ()]
    yield from range(len(data["found"]))


def devices_found(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    data = data_of(document, "infiniband")
    data["found"] = [each["name"] for each in data.get("devices") or ()]
    ignored = getattr(wanted, "ignore", ())
    yield from (
        at
        for at, name in enumerate(data["found"])
        if not any(fnmatchcase(name, pattern) for pattern in ignored)
    )


def links_found(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """Those that the baseline names."""
    data = data_of(document, "mlxlink")
    data["found"] = [each["device"] for each in data.get("links") or ()]
    yield from (at for at, each in enumerate(data["found"]) if matches(each, wanted.devices))


def interfaces_found(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """Those of RDMA ports, and those that are listed as found."""
    data = data_of(document, "network")
    data["found"] = [each["name"] for each in data.get("interfaces") or ()]
    devices = data_of(document, "infiniband").get("devices") or ()
    used = {port.get("netdev") for each in devices for port in each.get("ports") or ()}
    names = used if check_id == "rdma" else set(data["found"])
    yield from (at for at, name in enumerate(data["found"]) if name in names)


def bound(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """A PCI function is bound to each module that is asked for."""
    modules = data_of(document, "modules").get("loaded") or []
    peermem = ("nvidia_peermem",) if check_id == "gpudirect" else ()
    asked = [*getattr(wanted, "loaded", peermem), *getattr(wanted, "absent", ())]
    functions = [{"address": f"0000:e{at}:00.0", "driver": name} for at, name in enumerate(modules)]
    document["sections"]["pci"] = {"status": "ok", "data": {"functions": functions}}
    yield from (at for at, name in enumerate(modules) if name in asked)


def asked(section: str, listed: str, key: str = "name") -> Any:
    """The baseline asks for each by name."""

    def tell(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
        names = CATALOG.check(check_id).asks(wanted).get(section, ())
        items = data_of(document, section).get(listed) or ()
        asked_for = {name if isinstance(name, str) else name[key] for name in names}
        yield from (at for at, item in enumerate(items) if item[key] in asked_for)

    return tell


def settings_counted(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    data = data_of(document, "pci_settings")
    data["count"] = len(data.get("functions") or ())
    yield from range(data["count"])


def failed_counted(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    data = data_of(document, "failed_units")
    data["count"] = len(data.get("units") or ())
    yield from range(data["count"])


def drives_on_the_bus(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    """Every NVMe controller is that of a drive on the PCI bus."""
    drives = data_of(document, "nvme").get("controllers") or ()
    on_bus = {"class_code": "010802", "driver": "nvme"}
    functions = [{"address": each.get("address", "0000:e0:00.0"), **on_bus} for each in drives]
    document["sections"]["pci"] = {"status": "ok", "data": {"functions": functions}}
    yield from range(len(drives))


def said_to_be_there(section: str, listed: str, count: str) -> Any:
    """The section says how many it found."""

    def tell(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
        data = data_of(document, section)
        data[count] = len(data.get(listed) or ())
        yield from range(data[count])

    return tell


def states_counted(document: dict[str, Any], check_id: str, wanted: Any) -> Iterator[int]:
    data = data_of(document, "cpuidle")
    data["count"] = len(data.get("states") or ())
    yield from range(data["count"] if data.get("latency_limit_us", 0) > 1000 else 0)


COUNTED = {  # section, list: what else in the evidence says which items there are
    ("gpu", "gpus"): (counted_by_nvml, seen_on_the_bus),
    ("pci", "functions"): (named,),
    ("cpufreq", "policies"): (online,),
    ("numa", "nodes"): (nodes_online,),
    ("processes", "processes"): (computing,),
    ("filesystems", "filesystems"): (found,),
    ("infiniband", "devices"): (devices_found,),
    ("mlxlink", "links"): (links_found,),
    ("network", "interfaces"): (interfaces_found,),
    ("modules", "loaded"): (bound,),
    ("services", "units"): (asked("services", "units"),),
    ("files", "files"): (asked("files", "files", "path"),),
    ("commands", "commands"): (asked("commands", "commands"),),
    ("sysctl", "parameters"): (asked("sysctl", "parameters"),),
    ("pci_settings", "functions"): (settings_counted,),
    ("failed_units", "units"): (failed_counted,),
    ("limits", "limits"): (asked("limits", "limits"),),
    ("dns", "names"): (asked("dns", "names"),),
    ("cpuidle", "states"): (states_counted,),
    ("installed", "packages"): (asked("installed", "packages"),),
    ("dcgm", "diagnostics"): (asked("dcgm", "diagnostics", "path"),),
    ("framework", "interpreters"): (asked("framework", "interpreters"),),
    ("slurm", "nodes"): (asked("slurm", "nodes"),),
    ("environment", "units"): (asked("environment", "units"),),
    ("libraries", "libraries"): (asked("libraries", "libraries"),),
    ("mounts", "mounts"): (asked("mounts", "mounts"),),
    ("nvme", "controllers"): (drives_on_the_bus,),
    ("drives", "drives"): (said_to_be_there("drives", "drives", "found"),),
    ("nfs", "mounts"): (said_to_be_there("nfs", "mounts", "found"),),
    ("bmc", "events"): (said_to_be_there("bmc", "events", "events_found"),),
    ("bmc", "parts"): (said_to_be_there("bmc", "parts", "parts_found"),),
    ("raid", "arrays"): (said_to_be_there("raid", "arrays", "arrays_found"),),
    ("raid", "pools"): (said_to_be_there("raid", "pools", "pools_found"),),
}
SAID_OTHERWISE = {  # why no count beside these lists is needed
    ("bmc", "serials"): "one that is not there is equal to nothing, so it proves nothing",
    ("bmc", "attributes"): "one that a baseline names and that is not there is unknown",
    (
        "boots",
        "boots",
    ): "`since_s` and `whole` say how far it reaches, and uptime which is the last",
    ("stuck", "blocked"): "`blocked_count` says how many there are",
    ("edac", "controllers"): "each counts for itself, and nothing else says how many there are",
    ("pci", "aer_ports"): "what is below a port that is left out is not believed",
    ("kernel_log", "events"): "`complete` and `dropped` say whether lines are missing",
    ("memory", "hugepages"): "a size that is not there is never ok",
    ("infiniband", "devices"): "without one there is nothing to judge: not applicable, not ok",
    ("kernel_log", "links"): "in a log from boot on each NIC that is up has a line",
    ("kernel_log", "crashes"): "a directory's names: one that is not there was not listed",
    ("modules", "builtin"): "one that is not there can only be called not loaded",
    ("modules", "mig_capabilities"): "read whole or not at all",
    ("modules", "on_demand"): "one that is not there can only be called not loaded",
    ("modules", "device_nodes"): "gpu_count compares them with NVML and the bus",
    ("filesystems", "found"): "it is such a count itself",
    ("dcgm", "incidents"): "`overall` says whether there are any",
    ("environment", "variables"): "`unread` says which files were not read",
    ("dns", "nameservers"): "read whole or not at all",
    ("dns", "search"): "read whole or not at all",
    ("dkms", "kernels"): "read whole or not at all",
    ("dkms", "modules"): "read whole or not at all",
    ("imex", "nodes"): "the baseline says how many there are",
    ("containers", "engines"): "one that is not there can only be called not installed",
    ("containers", "specifications"): "read whole or not at all",
    ("mlxlink", "found"): "it is such a count itself",
    ("infiniband", "found"): "it is such a count itself",
    ("network", "found"): "it is such a count itself",
    ("routes", "default_ipv4"): "one that is not there can only be called missing",
    ("routes", "default_ipv6"): "one that is not there can only be called missing",
    ("routes", "interfaces"): "one that is not there can only be called missing",
    ("routes", "unplaced"): "an address of these can only be called unknown",
}
SAID_WITHIN = {  # what says of a record's own list whether an item is missing
    "commands.commands[].matches": "the baseline asks for each",
    "commands.commands[].values": "the baseline asks for each",
    "containers.specifications[].devices": "NVML lists the GPUs",
    "containers.specifications[].examples": "`missing` says how many there are",
    "dcgm.diagnostics[].not_passed": "`results` and `passed` say how many there are",
    "dcgm.diagnostics[].serials": "NVML lists the GPUs",
    "dkms.modules[].builds": "one that is not there can only be called not built",
    "dns.names[].addresses": "one answer, read whole or not at all",
    "edac.controllers[].dimms": "the controller counts the errors of all of them",
    "environment.units[].variables": "one answer, read whole or not at all",
    "files.files[].matches": "the baseline asks for each",
    "gpu.gpus[].mig_devices": "they tell a part: without a sign there is no ok",
    "gpu.gpus[].nvlinks": "the baseline, or another GPU of the model, says how many there are",
    "gpu.gpus[].peers": "NVML lists the GPUs",
    "gpu.gpus[].processes": "one answer of NVML's, read whole or not at all",
    "infiniband.devices[].ports": "each device has one, and the baseline says how many there are",
    "infiniband.devices[].ports[].counters": "one that is not there is unknown",
    "infiniband.devices[].ports[].gids": "one that is not there can only be called missing",
    "infiniband.devices[].ports[].pkeys": "one that is not there can only be called missing",
    "installed.packages[].found": "one answer of the package manager's",
    "kernel_log.events[].times_s": "`count` says how many lines there are",
    "kernel_log.links[].outages": "`count` says whether there was one: the last is always told",
    "mounts.mounts[].options": "read whole or not at all",
    "mounts.mounts[].super_options": "read whole or not at all",
    "network.interfaces[].counters": "one that is not there is unknown",
    "network.interfaces[].lower": "the baseline says how many are up",
    "nfs.mounts[].options": "read whole or not at all",
    "numa.nodes[].distances": "one for each node that is online",
    "pci.functions[].upstream": "one path, read whole or not at all",
    "pci_settings.functions[].above": "one path, read whole or not at all",
    "processes.processes[].gpu_minors": "`complete` says whether all were seen",
    "raid.arrays[].failed": "the array says how many are active",
    "routes.interfaces[].addresses": "`count` says how many there are",
}
BUS = ("pci", "functions")
NO_MORE_OF_THE_BUS = (
    "kernel_faults",  # a device that is not there only keeps the failure that the log tells
    "gpudirect",  # with an RDMA device the bus is not asked
    "network_link",  # the baseline counts its interfaces
    "nvme_count",  # the baseline counts them
    "nvswitch",  # the baseline counts them, or /dev
    "pci_links",  # nvme_count and nic_pairing count them
    "xid",  # than how many GPUs there are, and where a lost one is
)


def fewer(case: Any, make_params: Any, listed: tuple[str, str]) -> Iterator[tuple[Any, Any]]:
    """The case's document with a count of the list's items, and it with an item less."""
    section, name = listed
    for tell in COUNTED[listed]:
        document = copy.deepcopy(case.document)
        params = make_params(case.check_id, case.params)
        for index in list(tell(document, case.check_id, params)):
            without = copy.deepcopy(document)
            del without["sections"][section]["data"][name][index]
            yield document, without


def is_fine(findings: list[Any]) -> bool:
    """Whether a check is ok: what it judged is, and nothing is unknown."""
    seen = {finding.verdict for finding in findings}
    return Verdict.OK in seen and seen <= {Verdict.OK, Verdict.NOT_APPLICABLE}


@every_case
def test_d15_more_gpus_than_nvml_lists_is_never_ok(case):
    if ("gpu", "gpus") not in lists_read(case.check_id) or not is_fine(case.said):
        return
    say = case.ask
    document = copy.deepcopy(case.document)
    data_of(document, "gpu")["count"] = len(data_of(document, "gpu")["gpus"]) + 1
    assert not is_fine(say(document))
    document = copy.deepcopy(case.document)
    list(seen_on_the_bus(document, case.check_id, None))
    one_more = {"address": "0000:ef:00.0", "class_code": "030200", "vendor": "10de"}
    data_of(document, "pci")["functions"].append(one_more)
    assert not is_fine(say(document))


def lists_read(check_id: str) -> set[tuple[str, str]]:
    """The lists whose items a check reads, by section and name; those of a sample are the same."""
    reads = CATALOG.check(check_id).reads
    found = {read.removeprefix("earlier.").partition("[]")[0] for read in reads if "[]" in read}
    return {tuple(name.split(".")) for name in found}


def test_d15_every_list_is_counted_by_something_else(check_id):
    assert lists_read(check_id) <= COUNTED.keys() | SAID_OTHERWISE.keys()


def lists_within(check_id: str) -> set[str]:
    """The lists of a record's own that a check reads."""
    reads = [read.removeprefix("earlier.") for read in CATALOG.check(check_id).reads]
    paths = [read.split("[]") for read in reads]
    return {"[]".join(path[:depth]) for path in paths for depth in range(2, len(path))}


def test_e10_every_list_within_a_record_is_counted_by_something_else(check_id):
    assert lists_within(check_id) <= SAID_WITHIN.keys()


def test_d15_a_list_with_missing_items_is_never_ok(check_id, own_cases, make_params):
    tried = set()
    for case in own_cases:
        say = case.ask
        for listed in lists_read(check_id) & COUNTED.keys():
            for whole, without in fewer(case, make_params, listed):
                if is_fine(say(whole)):
                    tried.add(listed)
                    assert not is_fine(say(without)), (case.name, without)
    needed = lists_read(check_id) & COUNTED.keys()
    beyond = [read for read in CATALOG.check(check_id).reads if read not in IN_HAND]
    if check_id in NO_MORE_OF_THE_BUS or not any(read.startswith("pci.") for read in beyond):
        needed.discard(BUS)
    assert tried == needed


@every_case
def test_a_check_says_the_same_if_only_the_sections_it_reads_are_there(case):
    read = ALWAYS | case.check.sections
    there = {name: part for name, part in case.document["sections"].items() if name in read}
    assert case.ask({**case.document, "sections": there}) == case.said
