"""Decoding is validation: what cannot be one machine's evidence is not taken for it."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import nodevet.evidence
from nodevet.base import bounds
from nodevet.evidence.document import EvidenceError, decode
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.lists import numbers
from nodevet.evidence.sections import SectionFileError, sections, unknown_path

GPUS = [
    {"index": 0, "uuid": "GPU-1", "bus_id": "0000:19:00.0"},
    {"index": 1, "uuid": "GPU-2", "bus_id": "0000:3b:00.0"},
    {"index": 2},
    {"index": 3},
]
SECTIONS: dict[str, Any] = {
    "gpu": {"gpus": GPUS},
    "pci": {"functions": [{"address": "0000:19:00.0"}, {"address": "0000:3b:00.0"}]},
    "numa": {"nodes": [{"id": 0}, {"id": 1}]},
    "processes": {"processes": [{"pid": 1}, {"pid": 2}]},
    "filesystems": {"filesystems": [{"path": "/"}, {"path": "/var"}]},
}


def section(name: str, data: Any) -> Any:
    found = {name: {"status": "ok", "data": data}}
    evidence = decode(json.dumps({"schema": 1, "probe": "", "sections": found}))
    return evidence[sections()[name]]


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("numa", {"nodes": [{"id": 0, "memory_total_kb": 10**400}]}, "no counter has the value"),
        ("numa", {"nodes": [{"id": 0, "memory_total_kb": -(2**128)}]}, "no counter has the value"),
        ("host", {"clock_s": 1e300}, "<= 1e+18"),
        ("kernel", {"load_1": -1e300}, ">= -1e+18"),
    ],
)
def test_a_number_out_of_range_makes_its_section_an_error(
    name: str, field: Any, value: str
) -> None:
    found = section(name, field)
    assert found.status == "error"
    assert value in found.why and len(found.why) < 200


def unread(value: str) -> Any:
    """The section of a host with this JSON in a field that nothing reads."""
    host = f'{{"status": "ok", "data": {{"hostname": "a", "later": {value}}}}}'
    return decode(f'{{"schema": 1, "probe": "", "sections": {{"host": {host}}}}}')[HostInfo]


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_with_too_many_digits_makes_only_its_section_an_error(sign: str) -> None:
    section = unread(sign + "9" * 5000)
    assert section.status == "error" and "no counter has the value" in section.why


def test_a_long_number_in_nested_lists_does_not_stop_a_report() -> None:
    for depth in range(1100):  # at some depths, only one of two decoders gives up
        with suppress(EvidenceError):  # of the whole document
            assert unread("[" * depth + "9" * 60 + "]" * depth).status == "error"


def test_numbers_as_large_as_counters_are_kept() -> None:
    text = str(2**128)  # digits in a text are no number
    found = section("gpu", {"gpus": [{"index": 0, "serial": text, "memory_total_b": 2**128 - 1}]})
    (gpu,) = found.data.gpus
    assert (gpu.serial, gpu.memory_total_b) == (text, 2**128 - 1)


class Bounded(NamedTuple):
    """A list, mapping or text of the evidence; `made(n)` is its section's data with n of it."""

    name: str
    section: str
    most: int | None
    made: Callable[[int], Any]


def bounded(
    kind: msgspec.inspect.Type, name: str, wrap: Callable[[Any], Any]
) -> Iterator[tuple[str, int | None, Callable[[int], Any]]]:
    """What has a length in `kind` and below it. `wrap` puts a value of it into its section."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from bounded(each, name, wrap)
    elif isinstance(kind, msgspec.inspect.StrType):
        yield name, kind.max_length, lambda number: wrap("x" * number)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        items = kind.item_type
        yield name, kind.max_length, lambda number: wrap([item(items, n) for n in range(number)])
        yield from bounded(items, f"{name}[]", lambda value: wrap([value]))
    elif isinstance(kind, msgspec.inspect.DictType):
        values = kind.value_type
        yield (
            name,
            kind.max_length,
            lambda number: wrap({f"k{n}": item(values, n) for n in range(number)}),
        )
        yield from bounded(kind.key_type, f"{name} key", lambda value: wrap({value: item(values)}))
        yield from bounded(values, f"{name} value", lambda value: wrap({"k": value}))
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from bounded(
                field.type,
                f"{name}.{field.name}",
                lambda value, key=field.name: wrap({**item(kind), key: value}),
            )


def item(kind: msgspec.inspect.Type, number: int = 0) -> Any:
    """The least that decodes as `kind`, with `number` in what tells it apart."""
    if isinstance(kind, msgspec.inspect.StructType):
        return {each.name: item(each.type, number) for each in kind.fields if each.required}
    if isinstance(kind, msgspec.inspect.TupleType):
        return [item(each, number) for each in kind.item_types]
    return f"{number}" if isinstance(kind, msgspec.inspect.StrType) else number


def whole() -> list[Bounded]:
    return [
        Bounded(name, section, most, made)
        for section, record in sections().items()
        for name, most, made in bounded(
            msgspec.inspect.type_info(record), section, lambda value: value
        )
    ]


PLACES = whole()


@pytest.mark.parametrize("place", PLACES, ids=[place.name for place in PLACES])
def test_d1_a_list_longer_than_its_limit_is_an_error_that_names_the_limit(place: Bounded) -> None:
    assert place.most is not None, f"{place.name} has no bound, see nodevet.base.bounds"
    assert section(place.section, place.made(place.most)).status == "ok"
    found = section(place.section, place.made(place.most + 1))
    assert found.status == "error" and found.data is None
    assert re.search(f"not valid: Expected .* of length <= {place.most} - at ", found.why)


def test_d1_a_document_larger_than_any_probe_sends_is_not_read() -> None:
    text = json.dumps({"schema": 1, "probe": "", "sections": {}})
    assert decode(text.ljust(bounds.DOCUMENT))
    with pytest.raises(EvidenceError, match="not an evidence document: more than 16 MiB"):
        decode(text.ljust(bounds.DOCUMENT + 1))


def test_d1_more_objects_than_a_section_can_have_are_not_even_made() -> None:
    """A list has a limit, too, but a decoder first makes all of its items."""
    found = section("gpu", {"gpus": [{"index": 0}] * bounds.OBJECTS})
    assert found.why == f"the probe's answer is not valid: more than {bounds.OBJECTS:,} objects"


def test_d1_a_cpu_list_that_repeats_numbers_or_exceeds_the_limit_is_refused() -> None:
    every = f"0-{bounds.HIGHEST_CPU}"
    assert len(numbers(every) or ()) == bounds.HIGHEST_CPU + 1
    assert numbers(f"{every},0") is numbers(",".join([every] * 9000)) is None
    assert numbers(f"0-{bounds.HIGHEST_CPU + 1}") is None


@pytest.mark.parametrize(
    ("name", "listed", "key", "words"),
    [
        ("gpu", "gpus", "uuid", "two gpus with the uuid GPU-1"),
        ("gpu", "gpus", "bus_id", "two gpus with the bus_id 0000:19:00.0"),
        ("pci", "functions", "address", "two functions with the address 0000:19:00.0"),
        ("numa", "nodes", "id", "two nodes with the id 0"),
        ("processes", "processes", "pid", "two processes with the pid 1"),
        ("filesystems", "filesystems", "path", "two filesystems with the path /"),
    ],
)
def test_two_items_with_the_same_identifier_are_an_error(
    name: str, listed: str, key: str, words: str
) -> None:
    good = section(name, SECTIONS[name])
    assert (good.status, len(getattr(good.data, listed))) == ("ok", len(SECTIONS[name][listed]))
    first, second, *rest = SECTIONS[name][listed]
    bad = section(name, {listed: [first, {**second, key: first[key]}, *rest]})
    assert (bad.status, bad.data) == ("error", None)
    assert bad.why == f"the probe's answer is not valid: {words}"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("gpu", {"gpus": [GPUS[2], GPUS[2]]}, "two gpus with the index 2"),
        (
            "gpu",
            {"gpus": [GPUS[0], {**GPUS[1], "nvlinks": [{"link": 4}, {"link": 5}, {"link": 4}]}]},
            "gpus[1] has two nvlinks with the link 4",
        ),
        (
            "gpu",
            {"gpus": [{"index": 0, "mig_devices": [{"index": at, "uuid": "M"} for at in (0, 1)]}]},
            "gpus[0] has two mig_devices with the uuid M",
        ),
        (
            "infiniband",
            {
                "devices": [
                    {"name": "mlx5_0", "ports": [{"number": 1, "counters": 2 * [{"name": "a"}]}]}
                ]
            },
            "devices[0] has ports[0] has two counters with the name a",
        ),
        (
            "files",
            {"files": [{"path": "/a", "matches": 2 * [{"kind": "equals", "text": "b"}]}]},
            "files[0] has two matches with the kind equals and the text b",
        ),
    ],
)
def test_e06_two_nested_items_with_the_same_identifier_are_an_error(
    name: str, data: Any, words: str
) -> None:
    bad = section(name, data)
    assert (bad.status, bad.data) == ("error", None)
    assert bad.why == f"the probe's answer is not valid: {words}"


def test_e06_items_of_different_parents_may_have_the_same_identifier() -> None:
    links = [{"link": 0}, {"link": 1}]
    gpus = [{**gpu, "nvlinks": links} for gpu in GPUS]
    assert section("gpu", {"gpus": gpus}).status == "ok"


MAY_REPEAT = {
    "gpu.gpus[].processes[]": "NVML lists a process for each MIG device that it has",
    "kernel_log.events[]": "the kind is no name",
    "memory.swaps[]": "the kernel calls deleted files by one name",
    "nfs.mounts[]": "one may be mounted on another",
    "process_activity.processes[].flight.groups[]": "it is what a file of the job's user says",
    "process_activity.processes[].threads[].sleeps[]": "several files in one system call",
    "routes.default_ipv4[]": "several next hops, or types of service",
    "routes.default_ipv6[]": "several next hops",
}


class Listed(NamedTuple):
    """A list of records that have a name; `made(items)` is its section's data with these."""

    name: str
    section: str
    kind: msgspec.inspect.StructType
    made: Callable[[list[Any]], Any]


def listed(
    kind: msgspec.inspect.Type, name: str, wrap: Callable[[Any], Any]
) -> Iterator[tuple[str, msgspec.inspect.StructType, Callable[[Any], Any]]]:
    """The lists of records in `kind` and below it."""
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from listed(each, name, wrap)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        if isinstance(kind.item_type, msgspec.inspect.StructType):
            yield f"{name}[]", kind.item_type, wrap
        yield from listed(kind.item_type, f"{name}[]", lambda value: wrap([value]))
    elif isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from listed(
                field.type,
                f"{name}.{field.name}",
                lambda value, key=field.name: wrap({**item(kind), key: value}),
            )


LISTS = [
    Listed(name, section, kind, made)
    for section, record in sections().items()
    for name, kind, made in listed(msgspec.inspect.type_info(record), section, lambda value: value)
    if item(kind)
]


@pytest.mark.parametrize("place", LISTS, ids=[place.name for place in LISTS])
def test_e06_a_list_that_names_an_item_twice_is_an_error(place: Listed) -> None:
    one, other = (item(place.kind, number) for number in (1, 2))
    assert section(place.section, place.made([one, other])).status == "ok"
    found = section(place.section, place.made([one, other, one]))
    if place.name in MAY_REPEAT:
        assert found.status == "ok"
    else:
        assert re.search("not valid: .*two .* with the ", found.why), found


FAN = """
from nodevet.base.bounds import GPUS, Text
from nodevet.evidence.core import Record, SectionRecord
from typing import Annotated

class Fan(Record, frozen=True, kw_only=True):
    name: Text
    rpm: int | None = None

class Fans(SectionRecord, frozen=True, kw_only=True):
    unique = ("fans[].name",)
    fans: Annotated[tuple[Fan, ...], GPUS] | None = None
"""


@pytest.fixture
def section_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes a file of a section into a folder that is part of nodevet.evidence."""
    names = []

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        names.append(f"nodevet.evidence.{name}")

    monkeypatch.setattr(nodevet.evidence, "__path__", [*nodevet.evidence.__path__, str(tmp_path)])
    sections.cache_clear()
    yield write
    sections.cache_clear()
    for name in names:
        sys.modules.pop(name, None)


def test_adding_a_section_file_adds_the_section(section_file: Callable[..., None]) -> None:
    section_file("fans", FAN)
    good = section("fans", {"fans": [{"name": "a", "rpm": 900}, {"name": "b"}]})
    assert [fan.rpm for fan in good.data.fans] == [900, None]
    assert unknown_path("fans.fans[].rpm") == ""
    assert unknown_path("fans.fans[].speed") == "Fan has no field 'speed'"
    twice = section("fans", {"fans": [{"name": "a"}, {"name": "a"}]})
    assert twice.why == "the probe's answer is not valid: two fans with the name a"


def test_a_section_that_was_not_read_says_so(section_file: Callable[..., None]) -> None:
    section_file("fans", FAN)
    empty = decode(json.dumps({"schema": 1, "probe": "", "sections": {}}))
    fans = empty[sections()["fans"]]
    assert (fans.status, fans.why) == ("error", "the probe did not read this section")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FAN.replace("fans[].name", "fans[].label"), "fans.py: unique: Fan has no field 'label'"),
        (FAN + FAN.replace("Fans", "Blowers"), "one SectionRecord, not Fans, Blowers"),
    ],
)
def test_a_broken_section_file_is_named(
    section_file: Callable[..., None], text: str, words: str
) -> None:
    section_file("fans", text)
    with pytest.raises(SectionFileError, match=re.escape(words)):
        sections()


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("gpu.gpus[].ecc.volatile_corrected", ""),
        ("gpu", ""),
        ("gpu.gpus[].ecc_errors", "Gpu has no field 'ecc_errors'; did you mean errors?"),
        ("host.kernel.release", "HostInfo.kernel has no fields: '.release'"),
    ],
)
def test_unknown_paths_in_reads_are_reported(path: str, problem: str) -> None:
    assert unknown_path(path) == problem


def test_an_unknown_section_name_gets_a_suggestion() -> None:
    assert unknown_path("gpus.count").startswith("no section is named 'gpus'; did you mean gpu?")


OLD = {"schema": 0, "probe": "0", "sections": {"gpu": {"status": "ok", "data": {"number": 8}}}}


def renamed(found: dict[str, Any]) -> dict[str, Any]:
    """An invented step: schema 0 called gpu.count gpu.number."""
    data = found["gpu"]["data"]
    return {**found, "gpu": {**found["gpu"], "data": {"count": data["number"]}}}


def test_evidence_of_an_older_schema_is_upgraded() -> None:
    evidence = decode(json.dumps(OLD), upgrades={0: renamed})
    assert evidence.schema == 1
    assert (gpus := evidence[Gpus].data) is not None and gpus.count == 8


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({**OLD, "schema": -1}, "evidence schema -1; this nodevet reads 1"),
        ({**OLD, "schema": 2}, "evidence schema 2; this nodevet reads 1"),
        ({**OLD, "sections": {}}, "evidence schema 0 does not upgrade: 'gpu'"),
    ],
)
def test_evidence_of_a_schema_without_an_upgrade_is_refused(document: Any, words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        decode(json.dumps(document), upgrades={0: renamed})
    with pytest.raises(EvidenceError, match="this nodevet reads 1"):
        decode(json.dumps(document))
