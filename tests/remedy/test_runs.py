"""The folder of a run."""

import os
from pathlib import Path

import click
import msgspec
import pytest

from nodevet.fix.approval.signatures import Signature
from nodevet.fix.journal.folder import RunError, RunFolder, SavedReach
from nodevet.fix.journal.journal import Journal, RunBegin
from nodevet.fix.model import Plan
from nodevet.fix.terminal.fix_run import reached_before
from nodevet.fix.use import saved_reach
from nodevet.fix.use.fix_run import inventories_of
from nodevet.fleet import Options
from nodevet.model import Host
from nodevet.vet import options as vetting
from nodevet.vet.use.reach import fleet_options


def plan() -> Plan:
    return Plan(
        id="0a1b2c3d",
        author="ann",
        created="2026-11-20T22:00:00+00:00",
        expires="2026-11-21T22:00:00+00:00",
        baselines={},
        nodes={},
        steps=(),
    )


def test_a_run_killed_before_it_began_reports_that_it_changed_no_node(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with Journal.create(run.path) as journal:
        for read in (run.plan, run.reach):
            with pytest.raises(
                RunError,
                match="the run ended before it started, and changed no node: apply the plan again",
            ):
                read()
        journal.write(RunBegin(plan="0" * 64, path="plan.json", controller="here", pid=1))
    with pytest.raises(RunError, match="the folder of a run"):
        run.plan()


def test_a_folder_without_a_journal_is_not_the_folder_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the folder of a run"):
        RunFolder(tmp_path).plan()


def test_every_file_of_a_run_is_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)  # as with `--run DIR`
    run = RunFolder(folder)
    run.begin("plan.json", b"{}", [Signature(name="plan.json.ann", data=b"")], SavedReach(hosts=()))
    run.keep_evidence("gpu1", "before", b"{}")
    run.keep({"report.md": "gpu1"})
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.mark.parametrize(("words", "accepts"), [([], False), (["--accept-new"], True)])
@pytest.mark.parametrize("stored", ["as it is kept", "by hand"])
def test_d3_accept_new_is_never_taken_from_a_stored_run(
    tmp_path: Path, words: list[str], accepts: bool, stored: str
) -> None:
    run = RunFolder(tmp_path / "run")
    with Journal.create(run.path) as journal:
        journal.write(RunBegin(plan="0" * 64, path="plan.json", controller="here", pid=1))
    rest = {"parallel": 1, "connect_timeout": 5.0, "ssh_config": None, "known_hosts": None}
    plain = {"accept_new": True, "deadline": 7.0, "sudo": False, **rest}
    told = SavedReach(hosts=(Host(name="gpu1"),), options=plain)
    run.begin("plan.json", msgspec.json.encode(plan()), (), told)
    if stored == "by hand":
        (run.path / "reach.json").write_bytes(msgspec.json.encode(told))
    else:
        assert "accept_new" not in (run.path / "reach.json").read_text()

    @click.command()
    @vetting.reach
    def resume(**reach: object) -> Options:
        kept = reached_before(run, (), reach)
        return fleet_options(**kept.options)

    reached = resume.main(words, standalone_mode=False)
    assert (reached.deadline, reached.host_keys == "accept-new") == (7.0, accepts)


def reached(path: Path, *, mode: int = 0o644, folder: int = 0o700, owner: int = -1) -> RunFolder:
    """A run whose reach runs a command at the controller."""
    run = RunFolder(path / "run")
    run.path.mkdir()
    told = SavedReach(hosts=(Host(name="gpu1"),), options={"ssh_config": "/tmp/evil"})
    file = run.path / "reach.json"
    file.write_bytes(msgspec.json.encode(told))
    file.chmod(mode)
    run.path.chmod(folder)
    os.chown(file, owner, -1)
    return run


@pytest.mark.parametrize(
    "given",
    [
        {"mode": 0o666},
        {"mode": 0o646},
        {"folder": 0o777},
        {"folder": 0o757},
        pytest.param(
            {"owner": 65533}, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
        ),
    ],
    ids=str,
)
def test_r13_a_reach_file_that_others_could_have_written_is_not_used(
    tmp_path: Path, given: dict[str, int]
) -> None:
    """Its ssh_config would run commands here, and no signature covers it."""
    run = reached(tmp_path, **given)
    with pytest.raises(RunError, match="name the inventory with -i"):
        run.reach()


def test_r13_a_reach_file_linked_into_a_folder_open_to_others_is_not_used(tmp_path: Path) -> None:
    run = reached(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o777)
    (run.path / "reach.json").rename(tmp_path / "theirs" / "elsewhere")
    (run.path / "reach.json").symlink_to(tmp_path / "theirs" / "elsewhere")
    with pytest.raises(RunError, match=r"theirs .* can be written by everyone"):
        run.reach()


def test_r13_a_reach_file_of_this_user_is_used(tmp_path: Path) -> None:
    assert reached(tmp_path).reach().hosts == (Host(name="gpu1"),)


@pytest.mark.parametrize("umask", [0o002, 0o000], ids=oct)
def test_r13_a_run_writes_a_reach_file_that_it_trusts_under_any_umask(
    tmp_path: Path, umask: int
) -> None:
    """With the umask of users that have groups of their own, too."""
    before = os.umask(umask)
    try:
        run = RunFolder(tmp_path / "runs" / "run")
        Journal.create(run.path).close()
        run.begin("plan.json", b"{}", (), SavedReach(hosts=(Host(name="gpu1"),)))
    finally:
        os.umask(before)
    assert run.reach().hosts == (Host(name="gpu1"),)


@pytest.mark.parametrize(
    ("named", "next_time"),
    [
        (("fleet.yaml", "/etc/more.yaml"), ("{here}/fleet.yaml", "/etc/more.yaml")),
        ((), ()),
        (("-",), ("INVENTORY",)),
        (None, ("INVENTORY",)),
    ],
)
def test_next_steps_name_the_inventories_of_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: tuple[str, ...] | None,
    next_time: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFolder(tmp_path / "run")
    with Journal.create(run.path) as journal:
        journal.write(RunBegin(plan="0" * 64, path="plan.json", controller="here", pid=1))
    run.begin("plan.json", b"{}", (), saved_reach.reached_now(plan(), [], {}, named))
    assert inventories_of(run) == tuple(each.format(here=tmp_path) for each in next_time)
    (run.path / "reach.json").chmod(0o666)
    assert inventories_of(run) == ("INVENTORY",), "others may have written it"
