"""This machine, without a baseline that is named: what fits, else the generic one and no ok."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevet.baseline import load
from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Severity, Status, Verdict
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.vet import reports

GENERIC = "nodevet: 1\nexpect: {named: {}}\n"
FITS = "nodevet: 1\napplies: {gpu: {device: '10de:2330'}}\nexpect: {named: {}}\n"
GPU = {"address": "0000:01:00.0", "class_code": "030200", "vendor": "10de"}


@pytest.fixture
def several(context: VetContext, tmp_path: Path) -> VetContext:
    """A baseline for H100s, and the generic one, which is for no node by itself."""
    (tmp_path / "generic.yaml").write_text(GENERIC)
    (tmp_path / "h100.yaml").write_text(FITS)
    names = [str(tmp_path / name) for name in ("h100.yaml", "generic.yaml")]
    found = load(names, folders=[], catalog=context.catalog)
    return replace(context, baselines=found, chosen=None)


def report(context: VetContext, device: str, *, local: bool) -> HostReport:
    data = {
        "host": {"hostname": "n1"},
        "pci": {"functions": [{**GPU, "device": device}]},
        "gpu": {"gpus": [{"index": 0, "bus_id": "0000:01:00.0", "pci_device": f"10de:{device}"}]},
    }
    sections = {name: {"status": "ok", "data": each} for name, each in data.items()}
    evidence = json.dumps({"schema": 1, "probe": "", "sections": sections}).encode()
    visits = iter([Visit("n1", Status.VETTED, evidence=evidence)])
    (found,) = reports(visits, {"n1": Host(name="n1", local=local)}, context)
    return found


def test_the_baseline_that_fits_is_chosen(several: VetContext) -> None:
    found = report(several, "2330", local=True)
    assert (found.baseline, found.verdict) == ("h100", Verdict.OK)


def test_this_machine_is_judged_by_the_generic_baseline_but_is_not_ok(several: VetContext) -> None:
    found = report(several, "2204", local=True)
    assert found.baseline.startswith("generic (/")  # not the shipped one
    assert found.verdict is Verdict.UNKNOWN
    assert [finding.check for finding in found.findings] == ["baseline", "named"]
    assert "`-b generic`" in found.findings[0].advice
    assert found.findings[0].severity is Severity.CRITICAL


def test_a_remote_host_is_not_judged_by_the_generic_baseline(several: VetContext) -> None:
    found = report(several, "2204", local=False)
    assert (found.baseline, [finding.check for finding in found.findings]) == ("", ["baseline"])


def test_without_a_generic_baseline_nothing_is_judged(
    several: VetContext, vetted: Callable[..., Visit]
) -> None:
    own = replace(several, baselines=several.baselines[:1])
    found = report(own, "2204", local=True)
    assert (found.baseline, [finding.check for finding in found.findings]) == ("", ["baseline"])
