"""A kept tree is what the parser makes of the same text; in any doubt the text is parsed."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodevet.base.last_verdict import identity_of
from nodevet.base.project import Project
from nodevet.baseline.library import shipped_folder
from nodevet.document import kept_trees
from nodevet.document.kept_trees import KeptTrees
from nodevet.document.parse import parse
from nodevet.document.text import Source, read
from nodevet.document.tree import Tree
from nodevet.vet.use.context import keeping_parser, open_context, parser_of

TEXT = "nodevet: 1\nexpect: {disk_space: 1%}\n"
WHICH_PARSER = """
import sys
from pathlib import Path
from nodevet.vet.use.context import keeping_parser, open_context
open_context(Path(sys.argv[1]), [sys.argv[2]], keeping_parser())
print("yaml" in sys.modules)
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/nodevet/parsed"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were parsed, and not kept."""
    texts: list[str] = []

    def parse_now(source: Source) -> Tree:
        texts.append(source.text)
        return parse(source)

    monkeypatch.setattr(kept_trees, "_parsed", parse_now)
    return texts


@pytest.fixture
def source(tmp_path: Path) -> Source:
    path = tmp_path / "site.yaml"
    path.write_text(TEXT)
    return read(path)


def source_of(path: Path, text: str) -> Source:
    path.write_text(text)
    return read(path)


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_the_kept_tree_of_every_shipped_baseline_equals_the_parsed_one(
    state: Path, parsed: list[str]
) -> None:
    sources = [read(path) for path in sorted(shipped_folder().glob("*.yaml"))]
    first = list(map(KeptTrees().parse, sources))
    assert len(parsed) == len(sources) == len(list(state.iterdir()))
    assert list(map(KeptTrees().parse, sources)) == first == list(map(parse, sources))
    assert len(parsed) == len(sources)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: true\nc: ~\nd: '1'\ne: 1.5\nf: -0.0\ng: 550.90.07\nh: ''\n",
        "a: &x {b: [1, [], {}]}\nc: *x\nd: [*x, *x]\n",
        "# above\n\n'quoted key': |\n  two\n  lines\nümläut: 😀\n",
        "a: 999999999999999999\nb: -999999999999999999\n",
    ],
)
def test_a_kept_tree_has_the_values_and_positions_of_the_parsed_one(
    tmp_path: Path, state: Path, text: str
) -> None:
    site = source_of(tmp_path / "site.yaml", text)
    first, second = KeptTrees().parse(site), KeptTrees().parse(site)
    assert first == second == parse(site)
    assert repr(first) == repr(second)  # 1 is not true
    assert only(state)


@pytest.mark.parametrize("text", ["a: yes\n", "a: [\n", "", "a: 1\na: 2\n", "- 1\n"])
def test_a_text_with_problems_is_parsed_each_time(
    tmp_path: Path, state: Path, parsed: list[str], text: str
) -> None:
    site = source_of(tmp_path / "site.yaml", text)
    assert KeptTrees().parse(site) == KeptTrees().parse(site) == parse(site)
    assert len(parsed) == 2
    assert not state.exists()


def test_a_number_of_more_than_64_bits_is_not_kept(
    tmp_path: Path, state: Path, parsed: list[str]
) -> None:
    site = source_of(tmp_path / "site.yaml", "a: 99999999999999999999\n")
    assert KeptTrees().parse(site) == KeptTrees().parse(site) == parse(site)
    assert len(parsed) == 2
    assert not state.exists()


def test_an_edited_file_with_the_same_size_and_times_is_parsed_again(
    source: Source, state: Path, parsed: list[str]
) -> None:
    KeptTrees().parse(source)
    status = source.path.stat()
    edited = source_of(source.path, TEXT.replace("1%", "2%"))
    os.utime(source.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.path.stat().st_size == status.st_size
    assert KeptTrees().parse(edited) == parse(edited)
    assert parsed == [TEXT, edited.text]


def test_kept_trees_that_others_can_access_are_not_used(
    source: Source, state: Path, parsed: list[str]
) -> None:
    KeptTrees().parse(source)
    assert (state.stat().st_mode & 0o777, only(state).stat().st_mode & 0o777) == (0o700, 0o600)
    only(state).chmod(0o640)
    KeptTrees().parse(source)
    assert len(parsed) == 2
    assert only(state).stat().st_mode & 0o777 == 0o600
    state.chmod(0o770)
    KeptTrees().parse(source)
    assert len(parsed) == 3
    state.chmod(0o700)
    KeptTrees().parse(source)
    assert len(parsed) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", "parsed", "parsed/file"])
def test_a_tree_that_another_user_may_change_is_not_trusted(
    source: Source, state: Path, parsed: list[str], name: str
) -> None:
    KeptTrees().parse(source)
    given = {"": state.parent, "parsed": state, "parsed/file": only(state)}[name]
    os.chown(given, 65534, 65534)
    assert KeptTrees().parse(source) == parse(source)
    assert len(parsed) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_nothing_is_created_in_the_folder_of_another_user(
    tmp_path: Path, source: Source, state: Path, parsed: list[str]
) -> None:
    state.parent.mkdir(parents=True)
    os.chown(state.parent, 65534, 65534)
    assert KeptTrees().parse(source) == KeptTrees().parse(source) == parse(source)
    assert len(parsed) == 2
    assert not list(state.parent.iterdir())


def test_a_symlink_is_not_trusted(
    tmp_path: Path, source: Source, state: Path, parsed: list[str]
) -> None:
    KeptTrees().parse(source)
    path = only(state)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    KeptTrees().parse(source)
    assert len(parsed) == 2
    assert not path.is_symlink()


@pytest.mark.parametrize("place", [0, 31, 32, 40, -1])
def test_an_edited_record_is_not_trusted(
    source: Source, state: Path, parsed: list[str], place: int
) -> None:
    KeptTrees().parse(source)
    record = bytearray(only(state).read_bytes())
    record[place] ^= 1
    only(state).write_bytes(record)
    assert KeptTrees().parse(source) == parse(source)
    assert len(parsed) == 2


@pytest.mark.parametrize("cut", [0, 1, 32, 40, -1])
def test_a_truncated_record_is_not_trusted(
    source: Source, state: Path, parsed: list[str], cut: int
) -> None:
    KeptTrees().parse(source)
    only(state).write_bytes(only(state).read_bytes()[:cut])
    assert KeptTrees().parse(source) == parse(source)
    assert len(parsed) == 2


def test_the_record_of_another_baseline_is_not_trusted(
    tmp_path: Path, source: Source, state: Path, parsed: list[str]
) -> None:
    KeptTrees().parse(source)
    mine = only(state)
    other = source_of(tmp_path / "other.yaml", TEXT.replace("1%", "9%"))
    KeptTrees().parse(other)
    (theirs,) = set(state.iterdir()) - {mine}
    mine.write_bytes(theirs.read_bytes())
    assert KeptTrees().parse(source) == parse(source)
    assert len(parsed) == 3


@pytest.mark.parametrize("name", ["nodevet", "python", "parser"])
def test_another_version_of_nodevet_python_or_the_parser_parses_again(
    source: Source, state: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    KeptTrees().parse(source)
    if name == "nodevet":
        monkeypatch.setattr(kept_trees, "__version__", "99")
    elif name == "python":
        monkeypatch.setattr(sys, "version", "3.99")
    else:

        def edited(path: str) -> tuple[bytes, float]:
            identity, changed = identity_of(path)
            return identity + b"!" * path.endswith("scalars.py"), changed

        monkeypatch.setattr(kept_trees, "identity_of", edited)
    KeptTrees().parse(source)
    assert len(parsed) == 2


@pytest.mark.parametrize("where", ["/proc/nodevet", "file"])
def test_a_folder_that_cannot_be_written_does_not_fail_the_parse(
    tmp_path: Path,
    source: Source,
    parsed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    where: str,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / where))
    assert KeptTrees().parse(source) == KeptTrees().parse(source) == parse(source)
    assert len(parsed) == 2
    assert capfd.readouterr() == ("", "")


def test_concurrent_checks_keep_one_tree(source: Source, state: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda _: KeptTrees().parse(source), range(40)))
    assert trees == [parse(source)] * 40
    assert only(state)


def test_the_number_of_kept_trees_is_limited(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_trees, "MOST", 4)
    for number in range(9):
        KeptTrees().parse(source_of(tmp_path / "site.yaml", f"nodevet: {number}\n"))
    assert 0 < len(list(state.iterdir())) <= 4


def test_the_next_check_does_not_import_pyyaml(tmp_path: Path, state: Path) -> None:
    (tmp_path / "site.yaml").write_text("nodevet: 1\nextends: generic\n")
    words = [sys.executable, "-c", WHICH_PARSER, str(tmp_path), str(tmp_path / "site.yaml")]
    runs = [subprocess.run(words, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout for run in runs] == ["True\n", "False\n"]
    assert len(list(state.iterdir())) == 2


def test_a_baseline_loaded_from_kept_trees_equals_the_parsed_one(
    tmp_path: Path, state: Path
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("nodevet: 1\nextends: nvidia-h100-sxm\nfix: [cpu_governor]\n")
    project = Project(tmp_path)
    (once,), (again,) = (
        open_context(project, [str(site)], keeping_parser()).baselines for _ in range(2)
    )
    (plain,) = open_context(project, [str(site)]).baselines
    assert once == again == plain
    assert state.exists()


def test_only_a_check_of_this_machine_alone_keeps_trees(state: Path) -> None:
    kept = parser_of(["@local"])
    assert isinstance(getattr(kept, "__self__", None), KeptTrees)
    for targets, inventories in ((["gpu1"], []), (["@local", "gpu1"], []), (["@local"], ["i"])):
        assert not hasattr(parser_of(targets, inventories), "__self__")
