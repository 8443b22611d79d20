"""A file in the place of another: the message names it, says what it is and what takes it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fix import model
from nodevet.fix.plan import plan_file
from nodevet.model.run import Run as Checks
from nodevet.vet.formats import render

Run = Callable[..., subprocess.CompletedProcess[str]]

RUN = Checks(id="20261122T040012.345Z-1f3a9c2e", nodevet="0", started="2026-11-22", seconds=1.0)
PLAN = model.Plan(
    id="7f3a91c2", author="bob", created="", expires="", baselines={}, nodes={}, steps=()
)
BASELINE = "this is a baseline; use it with -b site.yaml"
INVENTORY = "this is an inventory; use it with -i fleet.yaml"
A_RUN = "this is a saved run of checks; render it with: nodevet report last.json"
A_PLAN = "this is a plan; read and sign it with: nodevet approve plan.json"
EVIDENCE = "this is saved evidence; judge it with: nodevet check --evidence saved"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "saved").mkdir()
    (folder / "saved/a.json").write_text(json.dumps({"schema": 1, "probe": "", "sections": {}}))
    (folder / "site.yaml").write_text("nodevet: 1\nexpect: {gpu_count: 8}\n")
    (folder / "fleet.yaml").write_text("nodevet: 1\nhosts: a\n")
    (folder / "last.json").write_text(render("json", RUN))
    (folder / "plan.json").write_bytes(plan_file.write(PLAN))
    return folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("check -i site.yaml", f"site.yaml: {BASELINE}"),
        ("check -i last.json", f"last.json: {A_RUN}"),
        ("check -i saved", f"saved: {EVIDENCE}"),
        ("check a -b fleet.yaml", f"fleet.yaml: {INVENTORY}"),
        ("check a -b last.json", f"last.json: {A_RUN}"),
        ("check a -b ./plan.json", f"plan.json: {A_PLAN}"),
        ("check --evidence site.yaml", f"site.yaml: {BASELINE}"),
        ("check --evidence plan.json", f"plan.json: {A_PLAN}"),
        ("check site.yaml", f"site.yaml: {BASELINE}"),
        ("plan plan.json -b site.yaml", f"plan.json: {A_PLAN}"),
        ("report plan.json", f"plan.json: {A_PLAN}"),
        ("report saved", f"saved: {EVIDENCE}"),
        ("report gone.json", "'gone.json' does not exist"),
        ("apply last.json", f"last.json: {A_RUN}"),
        ("rollback plan.json", f"plan.json: {A_PLAN}; name a folder such as"),
        ("status saved", f"saved: {EVIDENCE}; name a folder such as"),
        ("apply --resume gone", "'gone' does not exist"),
        ("check a -i gone.yaml", "gone.yaml: there is no such file; check"),
        ("check a -b sit.yaml", "sit.yaml: there is no such file; did you mean site.yaml?"),
        ("check a -b generics.yaml", "generics.yaml: there is no such file; did you mean generic?"),
        ("check a -b nosuch.yaml", "nosuch.yaml: there is no such file; check the path"),
    ],
)
def test_an_error_names_a_file_of_the_wrong_kind_and_what_it_is(
    nodevet: Run, files: Path, arguments: str, told: str
) -> None:
    done = nodevet(*arguments.split(), cwd=files)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
