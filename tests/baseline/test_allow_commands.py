"""Which baselines have commands run on nodes: those that say it themselves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.baseline import BaselineErrors, load
from nodevet.baseline.library import shipped_folder
from nodevet.checking.catalog import Catalog
from nodevet.evidence.files import Files
from nodevet.model.baseline import Baseline
from nodevet.vet.use.asks import AskError, asks
from nodevet.vet.use.context import open_context

Load = Callable[..., Baseline]
RULE = "expect: {command: {me: {run: [id, -un]}}}"
ALLOWED = "allow_commands: true"


@pytest.fixture
def read(tmp_path: Path) -> Load:
    """The baseline `x` of these files."""

    def read(**files: str) -> Baseline:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(f"nodevet: 1\n{text}\n")
        (found,) = load(["x"], folders=[tmp_path], catalog=Catalog())
        return found

    return read


def test_a_baseline_may_set_allow_commands(read: Load) -> None:
    assert read(x=f"{ALLOWED}\n{RULE}").allow_commands
    assert not read(x="expect: {gpu_count: 8}").allow_commands


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"x": RULE}, "x.yaml:2:10: expect.command: runs commands on every node"),
        ({"x": f"allow_commands: false\n{RULE}"}, "not allowed: id -un; add allow_commands: true"),
        (
            {"x": "extends: part", "part": f"{ALLOWED}\n{RULE}"},
            "extends: command of .*part.yaml:3 runs",
        ),
        (
            {"x": f"extends: part\n{RULE}", "part": f"{ALLOWED}\n{RULE}"},
            "expect.command: runs commands",
        ),
        (
            {"x": f"extends: part\n{RULE}", "part": f"{ALLOWED}\nexpect: {{}}"},
            "expect.command: runs",
        ),
    ],
)
def test_only_the_baseline_itself_can_allow_commands(
    read: Load, files: dict[str, str], words: str
) -> None:
    with pytest.raises(BaselineErrors, match=words):
        read(**files)


def test_a_child_that_removes_an_inherited_command_needs_no_permission(read: Load) -> None:
    found = read(x="extends: part\nexpect: {command: ~}", part=f"{ALLOWED}\n{RULE}")
    assert not found.expectations


def test_command_rules_are_merged_by_name(read: Load) -> None:
    found = read(
        x=f"extends: part\n{ALLOWED}\nexpect: {{command: {{me: ~, b: {{run: [b]}}}}}}",
        part=f"{ALLOWED}\nexpect: {{command: {{me: {{run: [id]}}, a: {{run: [a]}}}}}}",
    )
    assert sorted(found.expectations[0].params.rules) == ["a", "b"]


def test_no_shipped_baseline_has_commands_run() -> None:
    for path in shipped_folder().glob("*.yaml"):
        assert "allow_commands" not in path.read_text(encoding="utf-8"), path


def project(folder: Path, text: str, check: str = "") -> Any:
    for name in ("baselines", "checks"):
        (folder / name).mkdir()
    (folder / "baselines/x.yaml").write_text(f"nodevet: 1\n{text}\n")
    if check:
        (folder / "checks/own.py").write_text(check)
    return open_context(folder, [])


def test_each_command_rule_becomes_a_question_to_the_probe(tmp_path: Path) -> None:
    rules = (
        "{a: {run: [id, -un], text: root, user: root, deadline_s: 3},"
        " b: {run: [x, --json], pattern: '^a', json: {path: 'a[0].b', value: 1}}}"
    )
    context = project(tmp_path, f"{ALLOWED}\nexpect: {{command: {rules}}}")
    assert asks(context) == {
        "commands": (
            {
                "name": "x --json",
                "run": ["x", "--json"],
                "user": "",
                "deadline": 10.0,
                "pattern": ["^a"],
                "json": [["a", 0, "b"]],
            },
            {
                "name": "id -un (as root)",
                "run": ["id", "-un"],
                "user": "root",
                "deadline": 3.0,
                "equals": ["root"],
            },
        )
    }


def test_file_rules_with_the_same_question_are_asked_once(tmp_path: Path) -> None:
    rules = "{a: {path: /a, mode: '0600'}, b: {path: /a, owner: root}, c: {path: /a, sha256: HASH}}"
    context = project(tmp_path, f"expect: {{file: {rules.replace('HASH', 'a' * 64)}}}")
    assert asks(context) == {"files": ({"path": "/a", "sha256": True}, {"path": "/a"})}


def test_e02_only_the_baseline_itself_can_allow_text_of_private_files(
    tmp_path: Path,
) -> None:
    rules = "expect: {file: {a: {path: /a, contains: x}}}"
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    allowed = project(tmp_path / "one", f"allow_file_text: true\n{rules}")
    assert asks(allowed)["files"] == ({"path": "/a", "contains": ["x"], "private": True},)
    (tmp_path / "two").joinpath("base.yaml").write_text(
        f"nodevet: 1\nallow_file_text: true\n{rules}"
    )
    heir = project(tmp_path / "two", "extends: ../base.yaml")
    assert not heir.baselines[0].allow_file_text
    assert asks(heir)["files"] == ({"path": "/a", "contains": ["x"]},)


def test_e02_a_check_cannot_allow_text_of_private_files(tmp_path: Path) -> None:
    own = """
from nodevet.model import Check, CheckParams, unknown
def judge(evidence, params):
    yield unknown(why="never asked")
def asks(params):
    return {"files": ({"path": "/a", "contains": ["x"], "private": True},)}
CHECK = Check(params=CheckParams, reads=(), judge=judge, asks=asks)
"""
    context = project(tmp_path, "expect: {own: {}}", own)
    assert asks(context)["files"] == ({"path": "/a", "contains": ["x"]},)


@pytest.mark.parametrize(
    "asked",
    [
        '{"commands": ({"name": "id", "run": ["id"], "user": "", "deadline": 1},)}',
        '{"framework": ("root:/tmp/anything",)}',
    ],
)
def test_a_check_cannot_run_commands_that_the_baseline_does_not_allow(
    tmp_path: Path, asked: str
) -> None:
    own = """
from nodevet.model import Check, CheckParams, unknown
def judge(evidence, params):
    yield unknown(why="never asked")
def asks(params):
    return ASKED
CHECK = Check(params=CheckParams, reads=(), judge=judge, asks=asks)
"""
    with pytest.raises(AskError, match="own runs commands, which this baseline does not allow"):
        asks(project(tmp_path, "expect: {own: {}}", own.replace("ASKED", asked)))


def test_questions_are_bounded(tmp_path: Path) -> None:
    rules = {f"r{each}": {"path": f"/a{each}", "contains": ["x" * 900]} for each in range(490)}
    context = project(tmp_path, f"expect: {json.dumps({'file': rules})}")
    assert len(asks(context)["files"]) == 490
    for rule in rules.values():
        rule["contains"] = ["x" * 900, "y" * 900]
    text = json.dumps({"nodevet": 1, "expect": {"file": rules}})
    (tmp_path / "baselines/x.yaml").write_text(text)
    with pytest.raises(AskError, match="more than 512 KiB"):
        asks(open_context(tmp_path, []))


def test_the_limit_on_questions_counts_encoded_bytes(tmp_path: Path) -> None:
    rules = {f"r{each}": {"path": f"/a{each}", "contains": ["\u00e9" * 900]} for each in range(400)}
    context = project(tmp_path, f"expect: {json.dumps({'file': rules}, ensure_ascii=False)}")
    with pytest.raises(AskError, match="more than 512 KiB"):
        asks(context)


def test_a_file_path_that_ends_with_a_slash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineErrors, match="must not end with a slash"):
        project(tmp_path, "expect: {file: {old: {path: /etc/motd/, exists: false}}}")


def test_learning_runs_no_commands(tmp_path: Path) -> None:
    text = (
        f"{ALLOWED}\nexpect: {{command: {{a: {{run: [id]}}}}, framework_cuda: /opt/bin/python,"
        " sysctl: {vm.swappiness: 1}}"
    )
    context = project(tmp_path, text)
    assert set(asks(context)) == {"commands", "framework", "sysctl"}
    assert set(asks(context, commands=False)) == {"sysctl"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("{run: [x, --json], json: {path: 'a[007]', value: 1}}", "must be keys and numbers"),
        (json.dumps({"run": ["x" * 900] * 5}), "is longer than 4000 characters"),
    ],
)
def test_a_command_rule_with_a_bad_json_path_or_too_long_a_command_is_refused(
    tmp_path: Path, rule: str, words: str
) -> None:
    with pytest.raises(BaselineErrors, match=words):
        project(tmp_path, f"{ALLOWED}\nexpect: {{command: {{a: {rule}}}}}")


def test_evidence_has_room_for_2000_matches_of_a_file() -> None:
    matches = [{"kind": "contains", "text": f"a{each}", "found": True} for each in range(2000)]
    data = {"files": [{"path": "/a", "exists": True, "matches": matches}]}
    (file,) = msgspec.convert(data, Files).files or ()
    assert len(file.matches or ()) == 2000
