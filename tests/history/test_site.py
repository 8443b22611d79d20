"""The site of the five nights: its links, what a night rewrites, and who may change it."""

import json
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import five_nights
import pytest
from console_blocks import blocks, rewritten_page
from msgspec.structs import replace
from site_pages import Page, broken, pages

from nodevet.base.errors import UserError
from nodevet.cli import display
from nodevet.model import Finding, HostReport, Status, Subject, Verdict
from nodevet.past.site import folder as site_folder
from nodevet.past.site.names import host_page, page_name
from nodevet.past.use.site.write import write_site
from nodevet.store import open_store
from nodevet.store.records.model import RunState

HOSTILE = '</title><script>alert(1)</script>/../"\x1b[31m\u202e gpu001'
NOBODY = 65534
PAGE = Path(__file__).parents[2] / "docs/integrations/site.md"
HERE = "tests/history/test_site.py runs it"


@pytest.fixture(scope="module")
def six_nights(remembered: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy of the store with a sixth night, in which nobody visited the A100."""
    file = tmp_path_factory.mktemp("six") / "history.sqlite"
    shutil.copy(remembered.removeprefix("sqlite:///"), file)
    night(f"sqlite:///{file}", five_nights.judged_reports(5, five_nights.H100))
    return f"sqlite:///{file}"


@pytest.fixture
def older(site: Path, tmp_path: Path) -> Path:
    """A copy of the site of the five nights."""
    return shutil.copytree(site, tmp_path / "public")


def night(url: str, reports: Iterable[tuple[HostReport, bytes | None]]) -> None:
    """Record another night."""
    met = list(reports)
    seen = five_nights.run(6, [report for report, _ in met])
    with open_store(url) as store:
        recorder = store.begin(five_nights.recorded_run(seen, RunState.RUNNING))
        for report, evidence in met:
            recorder.take(report, evidence)
        recorder.finish(five_nights.recorded_run(seen, RunState.COMPLETE))
        assert recorder.broken is None


def inodes(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_ino for p in folder.rglob("*") if p.is_file()}


def test_every_link_leads_to_a_page_and_nothing_comes_from_elsewhere(site: Path) -> None:
    assert broken(site) == []
    found = pages(site)
    assert len(found) > 70
    hosts = {str(path.relative_to(site)) for path in found if path.parent.name == "hosts"}
    assert hosts == {host_page(host) for host in five_nights.HOSTS}
    for path, page in found.items():
        assert len(page.loads) == 2
        assert "style" not in page.tags
        assert page.policy == (
            "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'self'; "
            "script-src 'self'"
        ), path


def test_the_first_page_says_how_many_fail_and_what_is_new(site: Path) -> None:
    text = (site / "index.html").read_text()
    links = Page(site / "index.html").links
    assert "<h1>7 of 18 hosts fail</h1>" in text
    for tile in ("<b>7</b> fail", "<b>0</b> unreachable", "<b>11</b> ok", "<b>1</b> new findings"):
        assert tile in text
    assert {"hosts.html#fail", "hosts.html#ok", "hosts/gpu009.html"} <= set(links)
    assert "hosts.html#q=gpu%5B005-006%5D" in links
    assert f"runs/{page_name(five_nights.run_id(5))}~~diff.html" in links
    assert "<polyline" in text
    lost = Page(site / "parts" / f"{page_name('GPU-2b40377d-a530-5342-adad-e7ade6950084')}.html")
    assert {"../hosts/gpu003.html", "../hosts/gpu007.html"} <= set(lost.links)


def test_unchanged_pages_are_not_written_again(remembered: str, older: Path) -> None:
    before = inodes(older)
    written = write_site(remembered, older)
    assert (written.written, written.removed) == (0, 0)
    before.pop(site_folder.MANIFEST)
    assert before.items() <= inodes(older).items()


def test_a_night_writes_the_pages_of_hosts_that_changed(six_nights: str, older: Path) -> None:
    folder = older
    (folder / "hosts/left.html").write_text("of a host that was renamed")
    (folder / "robots.txt").write_text("User-agent: *")
    before = inodes(folder)
    (folder / host_page("gpu004")).unlink()
    (folder / host_page("gpu005")).write_text("cut off")
    write_site(six_nights, folder)
    after = inodes(folder)
    changed = {path for path in after if before.get(path) != after[path]}
    pages_of_hosts = {path for path in changed if path.startswith("hosts/")}
    damaged = {host_page("gpu004"), host_page("gpu005")}
    assert pages_of_hosts == damaged | {host_page(host) for host in five_nights.A100}
    assert {"index.html", "hosts.html", "data/hosts.js"} <= changed
    assert "hosts/left.html" not in after
    assert "robots.txt" in after
    assert "a100-02: no longer visited" in (folder / host_page("a100-02")).read_text()
    text = (folder / "index.html").read_text()
    assert "<b>6</b> no longer visited" in text
    assert "<b>6</b> ok" in text
    assert broken(folder) == []


def test_links_are_never_broken_while_pages_are_written(
    six_nights: str, older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server reads while pages are written; then the writer dies, and the next one ends."""
    folder = older
    checked = []
    first = (folder / "index.html", folder / "hosts.html")

    def write(path: Path, *rest: object, **how: object) -> None:
        if path.suffix == ".html" and path.name.startswith(("index", "hosts", "runs")):
            checked.append(broken(folder, *first, anchors=False))
        if path.name == "index.html":
            raise KeyboardInterrupt
        site_folder_write(path, *rest, **how)

    site_folder_write: Callable[..., None] = site_folder.write_whole
    with monkeypatch.context() as patched:
        patched.setattr(site_folder, "write_whole", write)
        with pytest.raises(KeyboardInterrupt):
            write_site(six_nights, folder)
    assert checked == [[]] * len(checked)
    assert len(checked) >= 3
    assert "7 of 18 hosts fail" in (folder / "index.html").read_text()
    assert broken(folder, first[0], anchors=False) == []
    write_site(six_nights, folder)
    assert "<b>6</b> no longer visited" in (folder / "index.html").read_text()
    assert broken(folder) == []


def test_hostile_names_and_values_stay_text(tmp_path: Path) -> None:
    finding = Finding(
        verdict=Verdict.FAIL,
        check=HOSTILE,
        subject=Subject(kind=HOSTILE, id=HOSTILE),
        expected=HOSTILE,
        actual=HOSTILE,
    )
    named = HostReport(
        host=HOSTILE, status=Status.VETTED, baseline=HOSTILE, findings=(finding,), groups=(HOSTILE,)
    )
    twin = replace(named, host=HOSTILE.upper(), status=Status.UNREACHABLE, why=HOSTILE)
    url, folder = f"sqlite:///{tmp_path}/history.sqlite", tmp_path / "public"
    night(url, [(named, None), (twin, None)])
    write_site(url, folder)
    for path, page in pages(folder).items():
        assert "<script>alert" not in path.read_text()
        assert path.read_text().count("<script") == 1, path
        assert "\x1b" not in path.read_text()
        assert page.tags.isdisjoint({"iframe", "img", "object"})
    assert {path.parent.parent for path in folder.glob("*/*")} == {folder}
    assert (folder / host_page(HOSTILE)).is_file()
    assert (folder / host_page(HOSTILE.upper())).is_file()
    assert broken(folder) == []
    for path in folder.glob("data/*.js"):
        head, _, data = path.read_text().partition(",")
        assert head == f'nodevet("{path.stem}"'
        json.loads(data.removesuffix(")\n"))


def test_a_folder_that_others_may_change_is_refused(remembered: str, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(UserError, match="can be written by everyone"):
        write_site(remembered, folder)
    folder.chmod(0o755)
    (folder / "mine.html").write_text("mine")
    with pytest.raises(UserError, match="has files, but no site: name an empty folder"):
        write_site(remembered, folder)
    assert [path.name for path in folder.iterdir()] == ["mine.html"]
    with pytest.raises(UserError, match=r"nowhere/site: cannot be written: No such file"):
        write_site(remembered, tmp_path / "nowhere/site")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to others")
def test_a_folder_of_another_user_is_refused(remembered: str, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(UserError, match="belongs to another user"):
        write_site(remembered, folder)


def test_a_link_inside_the_site_is_refused(remembered: str, site: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(site, tmp_path / "public")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/notes.html").write_text("keep")
    shutil.rmtree(folder / "parts")
    (folder / "parts").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="parts is a symbolic link: remove it"):
        write_site(remembered, folder)
    assert (tmp_path / "precious/notes.html").read_text() == "keep"


def test_a_damaged_manifest_is_treated_as_empty(tmp_path: Path) -> None:
    for text in ('{"pages": {"index.html": 1}}', "[" * 100_000, "\xff", ""):
        (tmp_path / site_folder.LOCK).touch()
        (tmp_path / site_folder.MANIFEST).write_text(text)
        with site_folder.site_folder(tmp_path) as opened:
            assert opened.before == site_folder.Manifest()


def test_one_process_writes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_folder, "PATIENCE", 0)
    busy = pytest.raises(UserError, match="another process writes this site")
    with site_folder.site_folder(tmp_path), busy, site_folder.site_folder(tmp_path):
        pass
    with site_folder.site_folder(tmp_path):
        pass


def test_a_site_that_another_process_creates_at_the_same_time_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one begins while the second one looks into the empty folder."""
    listed = Path.iterdir

    def begin_and_list(folder: Path) -> Iterator[Path]:
        (folder / site_folder.LOCK).touch()
        (folder / "hosts").mkdir()
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", begin_and_list)
    with site_folder.site_folder(tmp_path) as opened:
        opened.write("hosts/a.html", "a")


def test_the_umask_decides_who_reads(site: Path, tmp_path: Path) -> None:
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in pages(site))
    before = os.umask(0o027)
    try:
        with site_folder.site_folder(tmp_path) as opened:
            opened.write("hosts/a.html", "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "hosts/a.html").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "hosts").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / site_folder.LOCK).stat().st_mode) == 0o600


def test_the_command_names_the_folder_or_what_is_missing(
    say: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(site, tmp_path / "public")
    (tmp_path / "nodevet.toml").write_text('site = "public/"\n')
    told = json.loads(say("site", "--format", "json"))
    assert told == {
        "kind": "site",
        "folder": str(tmp_path / "public"),
        "hosts": 18,
        "parts": 43,
        "runs": 5,
        "written": 0,
        "removed": 0,
    }
    (tmp_path / "nodevet.toml").unlink()
    with pytest.raises(UserError, match="name a FOLDER, or write site"):
        say("site")


def test_the_page_shows_what_is_printed(
    say: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "screen", lambda *_: display.Screen(width=100))
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    commands = [
        command
        for block in blocks(PAGE)
        if block.mark("not run") == HERE
        for command in block.commands
    ]
    assert len(commands) == 2
    printed = [say(*shlex.split(command.text)[1:]).strip("\n") for command in commands]
    for command, text in reversed(list(zip(commands, printed, strict=True))):
        page = rewritten_page(page, command, text)
    if os.environ.get("NODEVET_CONSOLE") == "write":
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text(encoding="utf-8")
