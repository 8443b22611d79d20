"""Whose files nodevet takes up from the folder that it is started in."""

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import nodevet
from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.baseline import load
from nodevet.checking.catalog import Catalog, RefusedCodeError
from nodevet.model import Finding, HostReport, Status, Verdict
from nodevet.model.run import Run
from nodevet.vet import formats
from nodevet.vet.use.context import open_context, open_project

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
NOBODY = pwd.getpwnam("nobody")
CHECK = '''"""A check that leaves a mark when it is loaded."""
from pathlib import Path
Path("{mark}").write_text("ran")
'''
OWN = "nodevet: 1\ntitle: of this project\nextends: generic\n"
SHORT = "npd"  # a format of 80 bytes names only the first difference


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a baseline of a shipped name, and a check that leaves a mark."""
    path = tmp_path / "project"
    (path / "baselines").mkdir(parents=True)
    (path / "checks").mkdir()
    (path / "baselines" / "generic.yaml").write_text(OWN)
    (path / "checks" / "planted.py").write_text(CHECK.format(mark=tmp_path / "mark"))
    return path


def give_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = str(Path(nodevet.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-c", "from nodevet.__main__ import main; main()", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "HOME": "/", "NODEVET_STORE": "none"},
        capture_output=True,
        text=True,
        timeout=120,
    )


COMMANDS = (
    ("check", "@local", "-b", "generic"),
    ("gate", "@local", "-b", "generic", "--wait", "0s"),
    ("list", "checks"),
    ("list", "baselines"),
    ("lint",),
    ("explain", "planted"),
    ("schema",),
    ("plan", "@local", "-b", "generic"),
    ("sweep", "-i", "hosts.yaml", "-b", "generic"),
    ("diagnose", "@local"),
    ("capture", "@local"),
    ("compare", "@local"),
    ("approve", "plan.json"),
)


@ROOT
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_e01_commands_refuse_the_project_of_another_user(
    folder: Path, words: Sequence[str]
) -> None:
    give_away(folder)
    done = run(folder, *words)
    assert done.returncode == 2
    assert f"{folder}/" in done.stderr or f"{folder} (" in done.stderr
    assert "(owner nobody, mode 0755) belongs to another user" in done.stderr
    assert "--project ." in done.stderr
    assert not (folder.parent / "mark").exists()


@ROOT
def test_e01_root_may_use_named_data_of_another_user_but_never_code(folder: Path) -> None:
    give_away(folder)
    named = Project(folder=folder, named=True, code=True)
    context = open_context(named, ["generic"])
    assert context.baselines[0].title == "of this project"
    (folder / "baselines" / "own.yaml").write_text("nodevet: 1\nexpect: {planted: {}}\n")
    with pytest.raises(Exception, match=r"so root does not run .*planted.py: run nodevet as"):
        open_context(named, ["own"])
    listed = run(folder, "list", "checks", "--project", ".", "--project-code")
    assert "so root does not run" in listed.stdout
    assert not (folder.parent / "mark").exists()


@ROOT
def test_e01_another_user_accepts_code_by_its_own_option(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_away(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr("nodevet.base.trust.os.geteuid", lambda: 4711)
    with pytest.raises(UserError, match=r"--project \S+/project$"):
        open_project(Project(folder=folder))
    catalog, _ = open_project(Project(folder=folder, named=True))
    with pytest.raises(RefusedCodeError, match="--project-code"):
        catalog.module("planted")
    catalog, _ = open_project(Project(folder=folder, named=True, code=True))
    catalog.module("planted")
    assert (folder.parent / "mark").exists()


@ROOT
def test_e01_no_run_of_fixes_is_kept_where_others_may_change_it(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.chown(tmp_path / "empty", NOBODY.pw_uid, NOBODY.pw_gid)
    done = run(tmp_path / "empty", "apply", "@local")
    assert done.returncode == 2
    assert "empty (owner nobody, mode 0755) belongs to another user" in done.stderr


def test_a_project_of_the_same_user_needs_no_option(folder: Path) -> None:
    catalog, _ = open_project(folder)
    catalog.module("planted")
    assert (folder.parent / "mark").exists()


@pytest.mark.parametrize("name", [".", "baselines", "checks", "checks/planted.py"])
def test_e01_every_world_writable_part_of_a_project_is_refused(folder: Path, name: str) -> None:
    (folder / name).chmod(0o777)
    with pytest.raises(UserError, match="can be written by everyone, so "):
        open_project(folder)


def test_e01_an_option_for_code_needs_the_folder(folder: Path) -> None:
    done = run(folder, "list", "checks", "--project-code")
    assert done.returncode == 2
    assert "--project-code goes with --project DIR" in done.stderr


@ROOT
@pytest.mark.parametrize("line", ["extends: base", "extends: ./base.yaml"])
def test_e01_a_file_that_another_one_extends_is_looked_at_too(tmp_path: Path, line: str) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "site.yaml").write_text(f"nodevet: 1\n{line}\n")
    (tmp_path / "base.yaml").write_text("nodevet: 1\nexpect: {gpu_count: 8}\n")
    site = str(tmp_path / "site.yaml")
    assert load([site], catalog=Catalog())
    os.chown(tmp_path / "base.yaml", NOBODY.pw_uid, 0)
    with pytest.raises(Exception, match=r"base\.yaml \(owner nobody.* does not use .*base\.yaml;"):
        load([site], catalog=Catalog())
    accepted = Project(folder=tmp_path, named=True)
    assert load([site], catalog=Catalog(project=accepted))
    assert load([str(tmp_path / "base.yaml")], catalog=Catalog())  # the user named it


def test_e01_a_file_of_a_shipped_name_extends_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "generic.yaml").write_text("nodevet: 1\nexpect: {gpu_count: 8}\n")
    (tmp_path / "other").mkdir()
    for place in (tmp_path / "generic.yaml", tmp_path / "other" / "generic.yml"):
        place.write_text(OWN)
        (found,) = load([str(place)], folders=[tmp_path / "baselines"], catalog=Catalog())
        assert {Path(name).parent.name for name in found.lineage} == {"baselines"}
        assert not any(name.startswith(str(tmp_path)) for name in found.lineage)


def test_e01_a_file_of_a_shipped_name_is_named_by_its_file(folder: Path) -> None:
    (own,) = open_context(folder, ["generic"]).baselines
    assert own.label == "generic (./baselines/generic.yaml)"
    shutil.rmtree(folder / "baselines")
    (shipped,) = open_context(folder, ["generic"]).baselines
    assert shipped.label == "generic"


@pytest.mark.parametrize("form", [form for form in formats.formats() if form != SHORT])
def test_e01_every_format_names_the_file(folder: Path, form: str) -> None:
    (own,) = open_context(folder, ["generic"]).baselines
    finding = Finding(check="gpu_count", verdict=Verdict.FAIL, expected=8, actual=7)
    host = HostReport(host="n1", status=Status.VETTED, baseline=own.label, findings=(finding,))
    done = Run(
        id="r1",
        nodevet="0",
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        baselines={own.label: own.sha256},
        hosts=(host,),
    )
    assert "generic (./baselines/generic.yaml)" in formats.render(form, done)


def test_e01_a_check_says_in_its_header_whose_baseline_it_used(folder: Path) -> None:
    (folder / "checks" / "planted.py").unlink()
    done = run(folder, "check", "@local", "-b", "generic", "--format", "json")
    said = json.loads(done.stdout)
    assert said["hosts"][0]["baseline"] == "generic (./baselines/generic.yaml)"


@pytest.mark.parametrize("kind", ["fifo", "zero", "large"])
@pytest.mark.parametrize("name", ["xid", "own"])
def test_e01_a_check_that_is_not_a_regular_file_does_not_hang_nodevet(
    folder: Path, kind: str, name: str
) -> None:
    """As a branch may hold it: it is read for its page, though it is never run."""
    (folder / "checks" / "planted.py").unlink()
    path = folder / "checks" / f"{name}.py"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"#" * ((1 << 20) + 1))
    done = run(folder, "lint")
    assert done.returncode == 2
    assert f"{name}.py" in done.stdout + done.stderr
    assert run(folder, "explain", name).returncode == 2


@pytest.mark.parametrize(
    "form", [form for form in formats.formats() if form not in ("prometheus", SHORT)]
)
def test_e14_every_format_with_reasons_says_what_passes_by_itself(form: str) -> None:
    why = "installed: the package manager is at work, which passes by itself"
    finding = Finding(check="packages", verdict=Verdict.UNKNOWN, why=why, transient=True)
    host = HostReport(host="n1", status=Status.VETTED, baseline="b", findings=(finding,))
    done = Run(
        id="r1", nodevet="0", started="2026-01-01T00:00:00+00:00", seconds=1.0, hosts=(host,)
    )
    assert "passes by itself" in formats.render(form, done)


def test_e01_a_symlink_loop_is_refused_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "loop.yaml").symlink_to("loop.yaml")
    assert "loop.yaml" in Project(tmp_path).refusal()
    assert "loop.yaml" in Project(tmp_path, named=True).refusal()


def test_e01_files_outside_of_a_named_project_must_be_copied_into_it(tmp_path: Path) -> None:
    """`--project .` was advised to who had typed it."""
    there, project = tmp_path / "there", tmp_path / "project"
    (there / "baselines").mkdir(parents=True)
    there.chmod(0o777)
    project.mkdir()
    (project / "baselines").symlink_to(there / "baselines")
    said = Project(project, named=True).refusal()
    assert "copy" in said
    assert "type --project" not in said


def test_e01_a_file_that_was_missing_when_it_was_checked_is_not_used(folder: Path) -> None:
    """In /tmp its owner could put it back before it is read."""
    catalog, _ = open_project(folder)
    (folder / "checks" / "planted.py").unlink()
    with pytest.raises(RefusedCodeError, match=r"planted\.py cannot be read: No such file"):
        catalog.module("planted")
    assert "cannot be read" in Project(folder).data_refusal(folder / "baselines" / "gone.yaml")


@pytest.mark.parametrize("name", ["allowed_signers", "approval.yaml"])
def test_e01_no_rules_for_approvals_are_used_where_others_may_add_to_them(
    folder: Path, name: str
) -> None:
    (folder / name).write_text("")
    open_project(folder)
    folder.chmod(0o1777)
    with pytest.raises(UserError, match=f"others may create files beside .*/{name}"):
        open_project(folder)
    open_project(Project(folder, named=True))
    (folder / name).unlink()
    open_project(folder)
