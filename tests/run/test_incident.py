"""Incident bundles: read again they give the same diagnosis, and redacted they name nobody."""

import gzip
import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodevet.diagnose import incident
from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Diagnosis, GpuDiagnosis
from nodevet.diagnose.use import diagnose_visits
from nodevet.evidence.document import decode
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.saved import SavedEvidenceError
from tests.diagnosis.samples import CASES

JSON = dict[str, Any]
NAMES = {
    "host": "secret-host-7",
    "user": "alice",
    "path": "/home/alice/secret_model",
    "argument": "--token=hunter2",
    "uuid": "GPU-5ec7e700-aaaa-bbbb-cccc-000000000001",
    "serial": "1650522000007",
    "boot": "b0071d00-1111-2222-3333-444444444444",
    "why": "/home/alice/why: EACCES",
}


def naming(sections: JSON) -> JSON:
    """The same node, with a name wherever evidence can hold one."""
    found = deepcopy(sections)
    found["host"] = {
        "hostname": NAMES["host"],
        "machine_id": NAMES["serial"],
        "boot_id": NAMES["boot"],
        "clock_s": 1.7e9,
        "errors": {"uptime_s": NAMES["why"]},
    }
    found["environment"] = {"variables": {"HOME": NAMES["path"]}}
    for gpu in found["gpu_activity"]["gpus"]:
        gpu["uuid"] = NAMES["uuid"]
    processes = found["process_activity"]
    for group in processes["cgroups"]:
        group["path"] = NAMES["path"]
    for process in processes["processes"]:
        process["cgroup"] = NAMES["path"]
        process["arguments"] = f"python {NAMES['argument']}"
        process |= {"login": NAMES["user"], "pod": NAMES["path"], "partition": NAMES["serial"]}
        process["errors"] = {"pages": NAMES["why"]}
    activity = found["host_activity"]
    activity["nfs"] = [{"point": NAMES["path"], "source": f"{NAMES['host']}:{NAMES['path']}"}]
    listed = {"pid": 10, "cmdline": [NAMES["argument"]], "uid": 1007, "cgroup": NAMES["path"]}
    found["processes"] = {"processes": [listed]}
    return found


def visit_of(sections: JSON, name: str = NAMES["host"]) -> tuple[Visit, Host]:
    read = {key: {"status": "ok", "data": data} for key, data in sections.items()}
    document = {"schema": 1, "probe": "", "sections": read}
    visit = Visit(name, Status.VETTED, evidence=json.dumps(document).encode())
    return visit, Host(name=name, groups=frozenset({NAMES["user"]}))


def told(gpu: GpuDiagnosis) -> object:
    figures = tuple((each.name, each.value) for each in gpu.figures)
    return gpu.cause, gpu.causes, gpu.confidence, figures


def causes(found: Diagnosis) -> list[object]:
    return [told(gpu) for host in found.hosts for gpu in host.gpus]


@pytest.mark.parametrize("name", ["i.json", "i.json.gz"])
def test_a_bundle_gives_the_same_diagnosis(tmp_path: Path, context: VetContext, name: str) -> None:
    visits = [visit_of(found, f"gpu{place}") for place, found in enumerate(CASES.values())]
    incident.write(tmp_path / name, visits, redact=False)
    before = diagnose_visits(visits, context)
    after = diagnose_visits(incident.read(tmp_path / name), context)
    assert after.hosts == before.hosts and after.stragglers == before.stragglers
    assert [gpu.cause.value for host in after.hosts for gpu in host.gpus] == list(CASES)


@pytest.mark.parametrize("name", ["i.json", "i.json.gz"])
def test_only_the_owner_can_read_a_bundle(tmp_path: Path, name: str) -> None:
    incident.write(tmp_path / name, [visit_of(CASES["idle"])], redact=True)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cause", CASES)
def test_a_redacted_bundle_names_nobody(tmp_path: Path, context: VetContext, cause: str) -> None:
    visits = [visit_of(naming(CASES[cause]))]
    open_, closed = tmp_path / "open.json", tmp_path / "closed.json"
    incident.write(open_, visits, redact=False)
    incident.write(closed, visits, redact=True)
    assert all(name in open_.read_text() for name in NAMES.values())
    text = closed.read_text()
    assert [name for name in NAMES.values() if name in text] == []
    assert not re.search(r"alice|hunter2|\b1007\b|secret", text)
    before, after = (diagnose_visits(incident.read(path), context) for path in (open_, closed))
    assert causes(after) == causes(before)


@pytest.mark.parametrize("redact", [False, True])
def test_a_written_bundle_has_exactly_the_fields_of_incidentbundle(
    tmp_path: Path, redact: bool
) -> None:
    path = tmp_path / "i.json"
    incident.write(path, [visit_of(CASES["idle"])], redact=redact)
    assert set(json.loads(path.read_text())) == set(incident.IncidentBundle.__struct_fields__)
    assert msgspec.json.decode(path.read_text(), type=incident.IncidentBundle).redacted is redact


def test_a_name_has_one_code_in_a_bundle_and_another_in_the_next(tmp_path: Path) -> None:
    visits = [visit_of(naming(CASES["idle"]))] * 2
    told = []
    for number in range(2):
        path = tmp_path / f"{number}.json"
        incident.write(path, visits, redact=True)
        first, second = incident.read(path)
        assert first[0].host == second[0].host
        told.append(first[0].host)
    assert told[0] != told[1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_redacting_never_changes_a_cause(data: st.DataObject) -> None:
    """Whatever was read or not, and whatever it is called."""
    found = deepcopy(CASES[data.draw(st.sampled_from(sorted(CASES)))])
    names = st.text(max_size=8)
    for process in found["process_activity"]["processes"]:
        process["cgroup"] = data.draw(names | st.just("/job"))
    for group in found["process_activity"]["cgroups"]:
        group["path"] = data.draw(names | st.just("/job"))
    for gpu in found["gpu_activity"]["gpus"]:
        gpu["uuid"] = data.draw(names)
        gpu["utilization_percent"] = data.draw(
            st.lists(st.integers(0, 100) | st.none(), min_size=11, max_size=11)
        )
    for name in data.draw(st.sets(st.sampled_from(sorted(found)))):
        del found[name]
    visit, host = visit_of(found)
    kept = incident.redact_visit(incident.document_of(visit, host), incident.coder(b"salt"))
    before, after = (
        diagnose(decode(text)) for text in (visit.evidence, json.dumps(kept["evidence"]).encode())
    )
    if isinstance(before, str):
        assert isinstance(after, str)
    else:
        assert list(map(told, after)) == list(map(told, before))


def wrong(text: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        incident.write(path, [visit_of(CASES["idle"])], redact=False)
        path.write_bytes(text(path.read_bytes()))

    return write


MISTAKES = {
    "truncated": (wrong(lambda data: data[:-50]), "not an incident bundle"),
    "gzip truncated": (wrong(lambda data: gzip.compress(data)[:-50]), "the gzip is damaged"),
    "gzip damaged": (
        wrong(lambda data: gzip.compress(data)[:60] + b"\0" * 50),
        "the gzip is damaged or truncated",
    ),
    "another schema": (
        wrong(lambda data: data.replace(b'"nodevet_incident":1', b'"nodevet_incident":9')),
        "an incident bundle of schema 9; this nodevet reads 1",
    ),
    "empty": (wrong(lambda data: b""), "not an incident bundle"),
    "text": (wrong(lambda data: b"hello\n"), "not an incident bundle"),
    "a baseline": (wrong(lambda data: b"nodevet: 1\nexpect: {}\n"), "this is a baseline"),
    "evidence": (
        wrong(lambda data: json.dumps(json.loads(data)["hosts"][0]).encode()),
        "this is saved evidence; judge it with: nodevet check --evidence",
    ),
    "nested": (wrong(lambda data: b"[" * 100_000), "not an incident bundle"),
    "unpacks to too much": (
        wrong(lambda data: gzip.compress(b" " * (incident.LARGEST + 2), 9)),
        "more than 256 MiB: not an incident bundle",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file_that_is_not_a_bundle_is_named(tmp_path: Path, mistake: str) -> None:
    write, message = MISTAKES[mistake]
    path = tmp_path / "i.json"
    write(path)
    with pytest.raises(SavedEvidenceError) as error:
        incident.read(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)
    assert "\n" not in str(error.value)
