"""What files held is kept once in the run's folder, named by hash, and never trusted unread."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevet.fix.journal.contents import ContentError, ContentStore
from nodevet.fix.plan.planner import Proposal
from nodevet.fix.use.plan import write

Rig = Any
OLD = "SECRET=hunter2\nkey: value\n"


@pytest.fixture(params=[0o000, 0o077], ids=["umask 0", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def changed_file(box: Any, plan: Any) -> str:
    """A file that a step writes, there already with other content."""
    path = next(
        action.path for step in plan.steps for action in step.actions if hasattr(action, "content")
    )
    box.files[path] = (OLD, 0o600)
    return str(path)


def with_old(rig: Callable[..., Rig], *names: str) -> tuple[Rig, str]:
    d = rig(*names)
    for box in d.w.boxes.values():
        path = changed_file(box, d.w.plan())
    return d, path


def kept(d: Rig) -> Path:
    """The file in the run's folder that holds the old content."""
    (found,) = (
        path for path in (d.run / "contents").iterdir() if path.read_bytes() == OLD.encode()
    )
    return found


@pytest.mark.usefixtures("umask")
def test_only_its_owner_reads_a_content_whatever_the_umask(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "contents")
    name = store.put(b"a")
    assert mode(store.folder) == 0o700 and mode(store.folder / name) == 0o600
    assert store.get(name) == b"a" and [path.name for path in store.folder.iterdir()] == [name]


def test_a_content_is_kept_once(tmp_path: Path) -> None:
    for store in (ContentStore(tmp_path / "c"), ContentStore(tmp_path / "c")):
        assert store.put(b"a") == store.put(b"a")
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_a_content_that_was_altered_cut_or_removed_is_refused(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "c")
    name = store.put(b"abc")
    for bad in (b"abd", b"ab", b""):
        (store.folder / name).write_bytes(bad)
        with pytest.raises(ContentError, match="was changed since it was saved"):
            store.get(name)
        assert store.find(name) is None
    (store.folder / name).unlink()
    with pytest.raises(ContentError, match="cannot be read: No such file"):
        store.get(name)
    os.mkfifo(store.folder / name)
    with pytest.raises(ContentError):
        store.get(name)
    with pytest.raises(ContentError, match="not a valid SHA-256"):
        store.get("../../etc/passwd")


def test_files_kept_by_an_earlier_plan_are_removed(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "c")
    old, new = store.put(b"old"), store.put(b"new")
    store.hold({new: b"new"})
    assert store.find(old) is None and store.get(new) == b"new"


def test_no_plan_journal_or_result_holds_a_content(rig: Callable[..., Rig]) -> None:
    d, path = with_old(rig, "n1")
    before = d.w.boxes["n1"].everything()
    assert d.apply().code == 0
    assert kept(d).name in (d.run / "journal.jsonl").read_text()
    for file in ("plan.json", "journal.jsonl", "result.json"):
        assert "U0VDUkVU" not in (d.run / file).read_text(), "base64 of SECRET"
        assert "SECRET" not in (d.run / file).read_text()
    shown = d.report("diff").out
    assert "-  SECRET=hunter2" in shown and path in shown
    assert d.rollback().code == 0
    assert d.w.boxes["n1"].everything() == before


def test_a_report_without_the_contents_names_them(rig: Callable[..., Rig]) -> None:
    d, _ = with_old(rig, "n1")
    assert d.apply().code == 0
    name = kept(d).name
    kept(d).unlink()
    shown = d.report("diff").out
    assert "SECRET" not in shown and f"{len(OLD)} bytes, sha256 {name}" in shown


@pytest.mark.parametrize("harm", ["altered", "removed"])
def test_a_rollback_without_a_content_touches_nothing_of_that_node(
    rig: Callable[..., Rig], harm: str
) -> None:
    d, _ = with_old(rig, "n1")
    was = d.w.boxes["n1"].everything()
    assert d.apply().code == 0
    file, now = kept(d), d.w.boxes["n1"].everything()
    data = file.read_bytes()
    file.write_bytes(b"evil") if harm == "altered" else file.unlink()
    d.reached.clear()
    writes = d.w.boxes["n1"].writes
    said = d.rollback()
    assert said.code != 0 and str(file) in said.out, said
    assert ("was changed since it was saved" if harm == "altered" else "No such file") in said.out
    assert d.w.boxes["n1"].everything() == now and d.w.boxes["n1"].writes == writes
    assert not d.reached
    file.write_bytes(data)
    assert d.rollback().code == 0
    assert d.w.boxes["n1"].everything() == was


@pytest.mark.parametrize("harm", ["altered", "removed"])
def test_a_resume_without_a_content_touches_nothing_of_that_node(
    rig: Callable[..., Rig], harm: str
) -> None:
    d, _ = with_old(rig, "n1")
    assert d.apply().code == 0
    rows = [json.loads(line)["is"] for line in (d.run / "journal.jsonl").read_text().splitlines()]
    d.cut(rows.index("action-begin") + 1)
    file, now = kept(d), d.w.boxes["n1"].everything()
    data = file.read_bytes()
    file.write_bytes(b"evil") if harm == "altered" else file.unlink()
    writes = d.w.boxes["n1"].writes
    said = d.resume()
    assert said.code == 3 and str(file) in said.out, said
    assert d.w.boxes["n1"].everything() == now and d.w.boxes["n1"].writes == writes
    file.write_bytes(data)
    assert d.resume().code == 0


def test_a_content_that_cannot_be_kept_refuses_the_node_before_it_is_touched(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    d, _ = with_old(rig, "n1")
    plan, before = d.plan(), d.w.boxes["n1"].everything()

    def full(self: ContentStore, name: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ContentStore, "_write", full)
        said = d.apply(plan=plan)
    (host,) = d.told()["hosts"]
    assert said.code == 1 and "No space left on device" in host["why"], said
    assert d.outcomes() == {"n1": "refused"}
    assert d.w.boxes["n1"].everything() == before and not d.w.boxes["n1"].writes


def test_a_disk_that_fills_up_after_the_write_does_not_stop_a_node(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    d, _ = with_old(rig, "n1")
    plan = d.plan()
    write = ContentStore._write

    def full(self: ContentStore, name: str, content: bytes) -> None:
        if d.w.boxes["n1"].writes:
            raise OSError(28, "No space left on device")
        write(self, name, content)

    before = d.w.boxes["n1"].everything()
    with monkeypatch.context() as patch:
        patch.setattr(ContentStore, "_write", full)
        assert d.apply(plan=plan).code == 0
        assert d.rollback().code == 0
    assert d.w.boxes["n1"].everything() == before


def test_a_content_is_on_the_disk_before_a_record_names_it(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodevet.fix.journal.journal import Journal

    d, _ = with_old(rig, "n1")
    append, named = Journal._append, []

    def watched(self: Journal, line: bytes) -> None:
        row = json.loads(line)
        for seen in row.get("seen", ()):
            if isinstance(seen.get("value"), dict) and "sha256" in seen["value"]:
                named.append(self.contents.get(seen["value"]["sha256"]))
        append(self, line)

    monkeypatch.setattr(Journal, "_append", watched)
    assert d.apply().code == 0
    assert OLD.encode() in named


def test_an_approver_sees_the_earlier_content_if_it_is_kept_beside_the_plan(
    rig: Callable[..., Rig], tmp_path: Path
) -> None:
    d, path = with_old(rig, "n1")
    plan, contents = d.w.plan(), {name_of(OLD): OLD.encode()}
    file = tmp_path / "p.json"
    write(file, Proposal(plan=plan, contents=contents))
    folder = tmp_path / "p.json.contents"
    assert mode(folder) == 0o700 and mode(folder / name_of(OLD)) == 0o600
    assert "SECRET" not in file.read_text()
    assert "-SECRET=hunter2" in shown(d, file)
    (folder / name_of(OLD)).write_bytes(b"harmless\n")
    for _ in range(2):
        told = shown(d, file)
        assert "harmless" not in told and "SECRET" not in told
        size = f"{len(OLD)} bytes, sha256 {name_of(OLD)}"
        said = f"--- {path}  (its earlier content is not available here, {size})"
        assert said in told
        (folder / name_of(OLD)).unlink(missing_ok=True)


def shown(d: Rig, file: Path) -> str:
    return str(d("approve", file, "--key", d.project / "key", "--yes").out)


def name_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
