"""Visits that are made up: what hosts would answer, with no host in reach."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.fleet import Visit
from nodevet.model import Status
from nodevet.vet.use.context import VetContext

CHECK = """
from nodevet.evidence.host import HostInfo
from nodevet.model import Check, CheckParams, ok, unknown

def judge(evidence, params):
    data = evidence[HostInfo].data
    yield ok() if data and data.hostname else unknown(why="it has no name")

CHECK = Check(params=CheckParams, reads=("host.hostname",), judge=judge)
"""


@pytest.fixture
def context(tmp_path: Path) -> VetContext:
    """One baseline, for every host, that expects the host to have a name."""
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/named.py").write_text(CHECK)
    (tmp_path / "b.yaml").write_text("nodevet: 1\nexpect: {named: {}}\n")
    catalog = Catalog([tmp_path / "checks"])
    (found,) = load([str(tmp_path / "b.yaml")], folders=[], catalog=catalog)
    return VetContext(baselines=(found,), catalog=catalog, today=date(2026, 11, 20), chosen=found)


@pytest.fixture
def vetted() -> Callable[..., Visit]:
    """A visit of a host that says this of itself."""

    def visit(name: str, **host: Any) -> Visit:
        section = {"status": "ok", "data": {"hostname": name, **host}}
        document = {"schema": 1, "probe": "", "sections": {"host": section}}
        return Visit(name, Status.VETTED, evidence=json.dumps(document).encode())

    return visit
