"""A sweep writes the site that nodevet.toml names, and loses nothing if that fails."""

import json
from pathlib import Path

import pytest
from answering_fleet import AnsweringFleet, capped
from site_pages import broken

from nodevet.past import after_run
from nodevet.settings import settings
from nodevet.vet.use.sweep_order import choose_sweep

pytestmark = pytest.mark.timeout(300)


def test_a_sweep_writes_the_site(fleet: AnsweringFleet) -> None:
    fleet.settings('outputs = { json = "last.json" }\n', head='site = "public"\n')
    fleet.night({"gpu002": capped})
    done = fleet.run("sweep")
    assert (done.returncode, done.stderr.count("warning")) == (1, 0), done.stderr
    folder = fleet.folder / "public"
    text = (folder / "index.html").read_text()
    assert "<h1>1 of 6 hosts fail</h1>" in text
    assert broken(folder) == []
    assert "<dd>1</dd>" in next(folder.glob("runs/*.html")).read_text()  # its exit code


def test_a_site_that_cannot_be_written_only_causes_a_warning(fleet: AnsweringFleet) -> None:
    fleet.settings('outputs = { json = "last.json" }\n', head='site = "public"\n')
    (fleet.folder / "public").mkdir()
    (fleet.folder / "public/mine").touch()
    done = fleet.run("sweep")
    assert done.returncode == 0
    assert done.stderr.rstrip().endswith(
        "public has files, but no site: name an empty folder; `nodevet site` writes it "
        "from the store"
    )
    assert len(json.loads((fleet.folder / "last.json").read_text())["hosts"]) == 6


def test_a_sweep_that_is_not_recorded_has_no_site(tmp_path: Path) -> None:
    (tmp_path / "nodevet.toml").write_text(
        'site = "public"\n[sweep.nightly]\ninventory = "fleet.yaml"\n'
    )
    order = choose_sweep(settings(tmp_path / "nodevet.toml"), None, {}, store="none")
    assert after_run.act(order) == (
        f"the site {tmp_path}/public was not written: --store none records nothing"
    )
    assert not (tmp_path / "public").exists()
