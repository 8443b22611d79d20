"""Plans as they are made: a document of the probe, judged by the check, answered by the fix."""

from collections.abc import Callable
from datetime import date
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import Evidence, decode
from nodevet.fixing.model import PlannedChange
from nodevet.model import Finding, Severity, Verdict
from nodevet.model.baseline import Baseline, Expectation
from nodevet.vet.use.asks import sections_to_fix
from nodevet.vet.use.context import VetContext

CATALOG = Catalog()

H100 = {
    "pci_device": "10de:2330",
    "gpu_architecture": "HOPPER",
    "persistence_mode": True,
    "ecc_current": True,
    "ecc_pending": True,
    "mig_current": False,
    "mig_pending": False,
    "compute_mode": "DEFAULT",
    "power_limit_mw": 700_000,
    "power_limit_enforced_mw": 700_000,
    "power_limit_default_mw": 700_000,
    "power_limit_min_mw": 200_000,
    "power_limit_max_mw": 700_000,
    "app_clock_graphics_mhz": 1980,
    "app_clock_memory_mhz": 2619,
    "app_clock_graphics_default_mhz": 1980,
    "app_clock_memory_default_mhz": 2619,
    "max_clock_graphics_mhz": 1980,
    "max_clock_memory_mhz": 2619,
}
UUID = "GPU-0000000{}-5e7d-4e7d-8e7d-000000000000"


def described(index: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "uuid": UUID.format(index), "bus_id": f"0000:1{index}:00.0"} | fields


def evidence_of(sections: dict[str, Any]) -> Evidence:
    document = {
        "schema": 1,
        "probe": "0",
        "sections": {
            name: part if "status" in part else {"status": "ok", "data": part}
            for name, part in sections.items()
        },
    }
    return decode(msgspec.json.encode(document))


def want_of(check: str, value: Any) -> Any:
    model = CATALOG.check(check).params
    return params_of(model, value)


def wrong_in(check: str, params: Any, evidence: Evidence) -> list[Finding]:
    found = CATALOG.check(check).judge(evidence, params)
    return [finding for finding in found if finding.verdict is Verdict.FAIL]


def context_of(check: str, params: Any) -> VetContext:
    """Of a baseline that expects this alone."""
    wish = Expectation(check=check, params=params, severity=Severity.CRITICAL, origin="here")
    baseline = Baseline(name="one", path="", expectations=(wish,))
    return VetContext(baselines=(baseline,), catalog=CATALOG, today=date.today(), chosen=baseline)


@pytest.fixture
def uuid() -> Callable[[int], str]:
    """Of the GPU with this index."""
    return UUID.format


@pytest.fixture
def h100() -> Callable[..., dict[str, Any]]:
    """The `gpu` section of a node; one dictionary a GPU, of what it has that is not usual."""

    def section(*gpus: dict[str, Any]) -> dict[str, Any]:
        return {"gpus": [described(index, H100 | gpu) for index, gpu in enumerate(gpus)]}

    return section


@pytest.fixture
def evidence() -> Callable[[dict[str, Any]], Evidence]:
    return evidence_of


@pytest.fixture
def wrong() -> Callable[..., list[Finding]]:
    """The wrong findings of a check: check, params as in a baseline, evidence."""
    return lambda check, params, evidence: wrong_in(check, want_of(check, params), evidence)


@pytest.fixture
def plan() -> Callable[..., list[PlannedChange]]:
    """What a fix would do: check, params as in a baseline, sections of the evidence.

    Raises FixError as the fix does. `findings` are those of the sections, unless given;
    `options`: of the fix.
    """

    def changes(
        check: str,
        params: Any,
        sections: dict[str, Any],
        findings: list[Finding] | None = None,
        options: tuple[str, ...] = (),
    ) -> list[PlannedChange]:
        fix = CATALOG.fix(check)
        assert fix is not None
        evidence, wish = evidence_of(sections), want_of(check, params)
        wrong = wrong_in(check, wish, evidence) if findings is None else findings
        found = list(fix.changes(evidence, wrong, wish, options))
        assert all(change.risk.rank <= fix.risk.rank for change in found)
        read = sections_to_fix(context_of(check, wish), {check})
        there = {name: part for name, part in sections.items() if name in read}
        assert list(fix.changes(evidence_of(there), wrong, wish, options)) == found, (
            "what a node is asked for"
        )
        return found

    return changes
