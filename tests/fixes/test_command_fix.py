"""A fix that a site writes in YAML: a command and its inverse."""

from pathlib import Path

import msgspec
import pytest

from nodevet.base.project import Project
from nodevet.checking.catalog import Catalog, CatalogError, RefusedCodeError
from nodevet.evidence.document import open_evidence
from nodevet.fixing.command_fix import CommandFixFile, SiteCommands, fix_of
from nodevet.fixing.model import FixError, Risk
from nodevet.model import NODE, Subject, fail
from nodevet.remote.look import look
from nodevet.resource import (
    KINDS,
    Resource,
    RestoreError,
    RunCommand,
    State,
    restore,
    undeclared_resources,
)
from nodevet.vet.command_fixes import read_fix

NOTHING = open_evidence(b'{"schema": 1, "probe": "0", "sections": {}}')
GET, SET = ("widgetctl", "get", "mode"), ("widgetctl", "set", "mode", "fast")
UNDO = ("widgetctl", "set", "mode", "{before}")
WIDGET = SiteCommands(read=GET, run=SET, undo=UNDO, seconds=60)
TEXT = """\
nodevet: 1
title: Set the widgets of this site.
risk: drain
commands:
  widget:
    read: [widgetctl, get, mode]
    run: [widgetctl, set, mode, fast]
    undo: [widgetctl, set, mode, "{before}"]
"""


def planned(commands: dict[str, SiteCommands], *subjects: Subject):
    file = CommandFixFile(nodevet=1, title="x", risk=Risk.DRAIN, commands=commands)
    findings = [fail(subject, expected="fast", actual="slow") for subject in subjects]
    return list(fix_of(file).changes(NOTHING, findings, None))


def command(name: str) -> Subject:
    return Subject(kind="command", id=name)


def printed(text: str) -> State:
    return State(
        resource=Resource(kind="output", name="widgetctl get mode"),
        exists=True,
        value={"printed": text},
    )


def test_each_subject_gets_its_own_change() -> None:
    first, second = planned({"a": WIDGET, "*": WIDGET}, command("a"), command("a"), command("b"))
    assert first.actions[0].words == SET and first.actions[0].seconds == 60
    assert first.subjects == ("command a",) and second.subjects == ("command b",)
    assert first.risk is Risk.DRAIN and not undeclared_resources(first.actions, first.resources)


def test_the_subject_is_a_word_of_a_command() -> None:
    words = SiteCommands(read=("w", "{subject}"), run=("w", "-s", "{subject}=1"), undo=("w", "u"))
    (change,) = planned({"*": words}, command("a1"))
    assert change.actions[0].words == ("w", "-s", "a1=1")
    assert change.resources == (Resource(kind="output", name="w a1"),)


@pytest.mark.parametrize("id", ["-rf", "a b", "a;b", "$(x)", "", "a\n"])
def test_an_id_that_a_command_may_misread_is_refused(id: str) -> None:
    words = SiteCommands(read=("w", "{subject}"), run=("w",), undo=("w",))
    with pytest.raises(FixError, match="cannot be a word of a command"):
        planned({"*": words}, command(id))


GPU = Subject(kind="gpu", id="3", uuid="GPU-00000003-5e7d-4e7d-8e7d-000000000003")
BY_ID = SiteCommands(read=("w", "{subject}"), run=("w", "-i", "{subject}"), undo=("w", "u"))


@pytest.mark.parametrize("key", ["*", GPU.uuid])
def test_commands_name_a_gpu_by_its_uuid(key: str) -> None:
    """Its number may be another GPU's at the time of the change."""
    (change,) = planned({key: BY_ID}, GPU)
    assert (change.subjects, change.actions[0].words) == (("GPU 3",), ("w", "-i", GPU.uuid))


def test_a_fix_that_names_a_gpu_by_its_number_is_refused() -> None:
    with pytest.raises(FixError, match="that number may be another GPU's"):
        planned({"3": BY_ID, "*": BY_ID}, GPU)
    with pytest.raises(FixError, match="GPU 3: its UUID is unknown"):
        planned({"*": BY_ID}, Subject(kind="gpu", id="3"))


def test_commands_for_any_subject_do_not_apply_to_the_node() -> None:
    with pytest.raises(FixError, match="no commands for 'node'"):
        planned({"*": WIDGET}, NODE)
    assert planned({"node": WIDGET}, NODE)[0].subjects == ("",)


def test_steps_without_commands_are_in_the_note() -> None:
    (change,) = planned({"a": WIDGET}, command("a"), command("b"))
    assert change.note == "not in the plan: command b: the fix has no commands for 'b'"


def test_undo_gets_what_was_printed_before() -> None:
    (change,) = planned({"a": WIDGET}, command("a"))
    (action,) = restore(printed("slow"), actions=change.actions)
    assert action == RunCommand(words=("widgetctl", "set", "mode", "slow"), seconds=60)


@pytest.mark.parametrize("text", ["--help", "slow\nfast", "a;b", "`x`", "é"])
def test_a_printed_value_that_undo_may_misread_cannot_be_rolled_back(text: str) -> None:
    (change,) = planned({"a": WIDGET}, command("a"))
    with pytest.raises(RestoreError, match="which `undo` cannot use"):
        restore(printed(text), actions=change.actions)


def test_a_command_without_its_action_cannot_be_undone() -> None:
    with pytest.raises(RestoreError, match="no action says how"):
        restore(printed("slow"))


@pytest.mark.parametrize("name", ["", "-x", "a  b", "'a' b", "a 'b", "a\nb"])
def test_a_resource_name_that_is_not_a_command_is_refused(name: str) -> None:
    assert KINDS["output"].name_problem(name)
    assert not KINDS["output"].name_problem("widgetctl 'a b'")


def seen(*words: str) -> dict[str, object]:
    import shlex

    request = {"root": "/", "resources": [{"kind": "output", "name": shlex.join(words)}]}
    (state,) = look(request)
    return state


def test_the_output_of_the_read_command_is_the_state() -> None:
    assert seen("echo", " a b ") == {"exists": True, "value": {"printed": "a b"}, "why": ""}
    assert seen("true")["why"] == "it prints nothing"
    assert seen("sh", "-c", "echo no >&2; exit 3")["why"] == "it ends with 3: no"
    assert seen("no-such-program-here")["why"] == "no-such-program-here is not on this node"
    assert "more than 1000 characters" in str(seen("seq", "1000")["why"])


def test_problems_of_a_fix_file_are_reported_with_their_position(tmp_path: Path) -> None:
    path = tmp_path / "command.yaml"
    path.write_text(TEXT)
    title, fix = read_fix(path)
    assert title == "Set the widgets of this site." and fix.risk is Risk.DRAIN
    path.write_text(TEXT.replace("    undo:", "    undoes:").replace("drain", "high"))
    with pytest.raises(CatalogError) as refused:
        read_fix(path)
    assert "command.yaml:3:7: risk: must be one of live, idle, drain, reboot" in str(refused.value)
    assert "commands.widget: undo is missing" in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("set, mode, fast", 'set, mode, "{before}"', "`run` has {before}, which only `undo` may"),
        ("get, mode", 'get, "{before}"', "`read` has {before}, which only `undo` may have"),
        ("run: [widgetctl", "run: [-c", "`run` does not begin with the name of a program"),
        ("undo: [widgetctl", 'undo: [""', "`undo` does not begin with the name of a program"),
        ("mode, fast", 'mode, "a\\0b"', "`run` has a zero byte"),
    ],
)
def test_commands_that_cannot_run_are_refused(old: str, new: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "command.yaml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(CatalogError) as refused:
        read_fix(path)
    assert f"commands.widget: {why}" in str(refused.value)


def test_a_fix_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fixes").mkdir()
    path = tmp_path / "fixes" / "command.yaml"
    path.write_text(TEXT)
    catalog = Catalog(fixes=[path.parent], project=Project(tmp_path), read_fix=read_fix)
    assert catalog.fix_title("command") == "Set the widgets of this site."
    path.chmod(0o666)
    with pytest.raises(RefusedCodeError, match=r"command\.yaml"):
        Catalog(fixes=[path.parent], project=Project(tmp_path), read_fix=read_fix).fix("command")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "command.yaml").write_text(TEXT)
    (tmp_path / "command.py").write_text("FIX = None\n")
    with pytest.raises(CatalogError, match="has the same name; rename one"):
        Catalog(fixes=[tmp_path], read_fix=read_fix)


def test_the_action_survives_json_encoding() -> None:
    (change,) = planned({"a": WIDGET}, command("a"))
    again = msgspec.json.decode(msgspec.json.encode(change), type=type(change))
    assert again == change


def test_a_plan_shows_the_read_command_to_the_approver() -> None:
    """It runs on the node, too, and a forged plan may name any."""
    (change,) = planned(
        {"a": msgspec.structs.replace(WIDGET, read=("rm", "-r", "/x y"))}, command("a")
    )
    shown = list(KINDS["output"].diff(change.actions, {}))
    assert shown[0] == "$ rm -r '/x y'  # reads it, before and after"


def test_a_plan_without_the_earlier_state_is_shown() -> None:
    """A forged plan need not have it."""
    (change,) = planned({"a": WIDGET}, command("a"))
    assert list(KINDS["output"].diff(change.actions, {})) == [
        "$ widgetctl get mode  # reads it, before and after",
        "$ widgetctl set mode fast",
        "# undone by: widgetctl set mode '{before}'",
    ]
