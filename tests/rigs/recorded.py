"""Made-up runs, recorded: what a host said, night after night."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.changes import HostNews
from nodevet.store import Store
from nodevet.store.records.model import RecordedRun, RunState

MACHINE = "0f5c3b1e9a7d4c2b8e6f1a2b3c4d5e6f"


def run(night: int, hosts: int = 1, **rest: Any) -> RecordedRun:
    """The sweep of one night; of the first ones of November."""
    values: dict[str, Any] = {
        "id": f"202611{night + 1:02d}T040000.000Z-{night:08x}",
        "series": "nightly",
        "started": f"2026-11-{night + 1:02d}T04:00:00+00:00",
        "seconds": None,
        "state": RunState.RUNNING,
        "nodevet": "0.1",
        "fail_on": Severity.WARNING,
        "hosts": hosts,
        "visited": 0,
        "outcomes": {},
        "baselines": {"site": "0" * 64},
    }
    return RecordedRun(**values | rest)


def ended(begun: RecordedRun, **rest: Any) -> RecordedRun:
    """The same run when it is over."""
    values = {"seconds": 60.0, "state": RunState.COMPLETE, "exit_code": 0}
    return replace(begun, **values | rest)


def finding(said: str, key: str = "governor", actual: Any = None) -> Finding:
    """`fail`, `ok`, … of `CHECK` or of `CHECK/GPU-UUID`."""
    check, _, uuid = key.partition("/")
    subject = Subject(kind="gpu", id="0", uuid=uuid) if uuid else Subject()
    return Finding(
        verdict=Verdict(said), check=check, subject=subject, expected="performance", actual=actual
    )


def report(
    host: str = "gpu001",
    findings: Mapping[str, str] | None = None,
    *,
    night: int = 0,
    actual: Any = "powersave",
    **rest: Any,
) -> HostReport:
    """What a host of the site's baseline said: verdict by key, for all of them with this value."""
    said_of = {"governor": "ok"} if findings is None else findings
    values: dict[str, Any] = {
        "host": host,
        "status": Status.VETTED,
        "baseline": "site",
        "findings": tuple(finding(said, key, actual) for key, said in said_of.items()),
        "machine_id": MACHINE,
        "boot_id": "b0",
        "arrived": f"2026-11-{night + 1:02d}T04:00:30+00:00",
        "seconds": 1.5,
        "groups": ("rack1",),
    }
    return HostReport(**values | rest)


def unreachable(host: str = "gpu001", why: str = "connection refused", **rest: Any) -> HostReport:
    """A host that did not answer."""
    gone: dict[str, Any] = {"status": Status.UNREACHABLE, "baseline": ""}
    gone |= {"machine_id": None, "boot_id": None}
    return report(host, {}, why=why, **gone | rest)


def document(**sections: Any) -> bytes:
    """Evidence of these sections, each with what was read."""
    return json.dumps(
        {
            "schema": 1,
            "probe": "0.1",
            "sections": {
                name: {"status": "ok", "seconds": 0.01, "data": data}
                for name, data in sections.items()
            },
        }
    ).encode()


def record(store: Store, night: int, *reports: HostReport, evidence: bytes = b"") -> list[HostNews]:
    """One whole night."""
    begun = run(night, len(reports))
    recorder = store.begin(begun)
    news = [recorder.take(each, evidence or None) for each in reports]
    recorder.finish(ended(begun, hosts=len(reports)))
    if recorder.broken:
        raise recorder.broken
    return news
