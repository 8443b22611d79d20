"""What is signed is shown: no field of a plan can change without a trace for who approves it."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.base.project import Project
from nodevet.fix.model import Conflict, Plan, PlanError, PlannedNode, Step
from nodevet.fix.plan import plan_file
from nodevet.fix.plan.render import View
from nodevet.fix.settings import Rollout
from nodevet.fix.use.approve import request, request_text
from nodevet.fixing.model import Risk
from nodevet.resource import Resource, RunCommand, State, unit
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

PATH, THP = "/etc/systemd/system/x.service", "/sys/kernel/mm/transparent_hugepage/enabled"
OTHER = {
    "created": "2026-11-19T22:00:00+00:00",
    "expires": "2999-11-25T22:00:00+00:00",
    "risk": "drain",
    "effective": "reboot",
    "kind": "process",
}
ALIKE = {"nodevet_plan", "nodevet"}
"""The version of the form; and of nodevet, which is shown."""


def gpu(host: str, number: int = 0) -> str:
    return f"GPU-0000000{number}-0000-0000-0000-0000000000{host[1:].zfill(2)}"


def step(host: str) -> Step:
    card = Resource(kind="gpu", name=f"{gpu(host)}:power_limit_mw")
    file, kernel = Resource(kind="file", name=PATH), Resource(kind="kernel", name=THP)
    service = Resource(kind="unit", name="x.service")
    held = {"sha256": "ab" * 32, "size": 5, "mode": 0o644, "owner": 0, "group": 0}
    was = {"enabled": "disabled", "active": "inactive", "masked": False, "fragment": PATH}
    change = (
        WriteFile(path=PATH, content="[Service]\n", mode=0o600),
        SetUnit(name="x.service", enabled=True, running=True),
        WriteKernel(path=THP, value="never"),
        RunCommand(words=("nvidia-smi", "-i", gpu(host), "-pl", "700"), seconds=90),
    )
    holders = ("dcgm.service",)
    return Step(
        id=f"{host}/pages/1",
        host=host,
        fix="pages",
        subjects=("GPU 0",),
        subject_uuids=(gpu(host),),
        expected={"limit": 700, "pages": ["never"]},
        actual={"limit": 500, "pages": ["always"]},
        unit="W",
        risk=Risk.IDLE,
        services=("job.service",),
        options=("now",),
        gpus=(gpu(host),),
        holders=holders,
        actions=(*unit.stop(holders), *change, *unit.start(holders)),
        resources=(file, service, kernel, card, *unit.resources(holders)),
        before=(
            State(resource=file, exists=True, value=held),
            State(resource=service, exists=True, value=was),
            State(resource=kernel, exists=True, value="always"),
            State(resource=card, exists=True, value=500_000),
            State(
                resource=unit.resources(holders)[0], exists=True, value={**was, "active": "active"}
            ),
        ),
        reason="500 W, expected 700 W (site.yaml:4)",
        note="mind this",
    )


def node(host: str) -> PlannedNode:
    return PlannedNode(
        machine_id=f"{host}-machine",
        boot_id=f"{host}-boot",
        baseline="site",
        groups=("rack1",),
        hostname=host,
        gpus=(gpu(host), gpu(host, 1)),
    )


HOSTS = ("n1", "n2")
PLAN = Plan(
    nodevet="0.2",
    id="plan0001",
    author="ann",
    created="2026-11-20T22:00:00+00:00",
    expires="2999-11-21T22:00:00+00:00",
    baselines={"site": "1" * 64},
    nodes={host: node(host) for host in HOSTS},
    steps=tuple(map(step, HOSTS)),
    conflicts=(Conflict(host="n1", fix="swap", why="managed by tuned", advice="stop it"),),
    rollout=Rollout(
        pause=60.0, reboot_timeout=1200.0, boot_settle=10.0, drain_hook="drain", holders="gpud"
    ),
)


def changed(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The document with one value changed, left out or added, and where."""
    if isinstance(value, dict):
        for key, item in value.items():
            for where, other in changed(item, (*path, key)):
                yield where, {**value, key: other}
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for where, other in changed(item, (*path, place)):
                yield where, [*value[:place], other, *value[place + 1 :]]
            yield (*path, place, "gone"), [*value[:place], *value[place + 1 :]]
        more = _another(value[-1]) if value else "more"
        yield (*path, "more"), [*value, more]
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, (int, float)):
        yield path, value + 1
    else:
        yield path, OTHER.get(str(path[-1]), f"{value or ''}x")


def _another(item: Any) -> Any:
    """Like the last of a list, of something else."""
    text = json.dumps(item).replace(PATH, f"{PATH}x").replace(THP, "/proc/sys/vm/nr_hugepages")
    text = text.replace("managed by", "set by")
    found = copy.deepcopy(json.loads(text))
    return f"{found}x" if isinstance(found, str) else found


@pytest.fixture
def look(tmp_path: Path) -> Any:
    """What `nodevet approve` shows of a document."""
    (tmp_path / "allowed_signers").write_text("ann ssh-ed25519 AAAA\n")

    def show(document: Any, view: View) -> str:
        file = tmp_path / "plan.json"
        file.write_bytes(json.dumps(document).encode())
        return request_text(request(file, Project(tmp_path), rollback=False), view)

    return show


DOCUMENT = json.loads(plan_file.write(PLAN))


@pytest.mark.parametrize("view", [View.DIFF, View.FULL])
def test_e27_every_field_that_is_signed_is_shown_or_the_plan_is_refused(
    look: Any, view: View
) -> None:
    seen = look(DOCUMENT, view)
    hidden = []
    for where, document in changed(DOCUMENT):
        if where[0] in ALIKE:
            continue
        try:
            plan_file.read(json.dumps(document).encode())
        except PlanError:
            continue
        if look(document, view) == seen:
            hidden.append(".".join(map(str, where)))
    assert hidden == []
    assert look(DOCUMENT, view) == seen  # no difference comes with time


LITERAL, ESCAPE = "\\x1b", "\x1b"


@pytest.mark.parametrize("view", [View.DIFF, View.FULL])
@pytest.mark.parametrize(("action", "key"), [(0, "content"), (2, "value"), (3, "words")])
def test_e27_an_escape_is_distinguished_from_the_characters_that_show_it(
    look: Any, view: View, action: int, key: str
) -> None:
    seen = []
    for text in (LITERAL, ESCAPE):
        document = copy.deepcopy(DOCUMENT)
        for each in document["steps"]:
            old = each["actions"][action + 1][key]
            each["actions"][action + 1][key] = [*old, text] if key == "words" else f"{text}\n"
        seen.append(look(document, view))
    assert seen[0] != seen[1]
    assert ESCAPE not in seen[1] and [" escaped)" in text for text in seen] == [True, False]


def test_e27_a_resource_that_no_action_names_is_refused_with_its_name() -> None:
    stray = Resource(kind="unit", name="sshd.service")
    first, second = PLAN.steps
    more = msgspec.structs.replace(first, resources=(*first.resources, stray))
    plan = msgspec.structs.replace(PLAN, steps=(more, second))
    with pytest.raises(PlanError) as told:
        plan_file.read(plan_file.write(plan))
    assert 'no action names 1 of its resources: "unit sshd.service"' in str(told.value)


def test_e27_a_setting_changed_by_a_command_is_shown_with_its_present_value(look: Any) -> None:
    text = look(DOCUMENT, View.DIFF)
    assert "## set by commands: gpu power_limit_mw (now 500 W)" in text
    assert "## about job.service; planned with --now; stops and starts dcgm.service" in text
    assert "@rack1: n[1-2]" in text and "2 GPUs: n[1-2]" in text


FILLER, CYRILLIC = "\u3164", str.maketrans("aeo", "\u0430\u0435\u043e")
ALONE = {
    **DOCUMENT,
    "nodes": {"n1": DOCUMENT["nodes"]["n1"]},
    "steps": copy.deepcopy(DOCUMENT["steps"][:1]),
}
ALONE["steps"][0]["expected"].update({"none": None, "flag": True, "text": "7", "empty": ""})


def twins(value: Any) -> list[Any]:
    """Other values that look like this one."""
    if isinstance(value, bool):
        return ["on" if value else "off"]
    if isinstance(value, str):
        number = [int(value)] if value.isdecimal() else []
        return [f"{value} ", f"{value}{FILLER}", value.translate(CYRILLIC), [value], *number]
    if isinstance(value, int):
        return [str(value), [value]]
    if isinstance(value, list) and len(value) == 1:
        return value
    return ["none", {}] if value is None else []


def look_alikes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The document with one value or key in place of another that looks like it, and where."""
    yield from ((path, twin) for twin in twins(value) if twin != value)
    if isinstance(value, dict):
        for key, item in value.items():
            for where, other in look_alikes(item, (*path, key)):
                yield where, {**value, key: other}
            if item is not None:
                others = {name: part for name, part in value.items() if name != key}
                yield (*path, f"{key}'"), {**others, f"{key}{FILLER}": item}
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for where, other in look_alikes(item, (*path, place)):
                yield where, [*value[:place], other, *value[place + 1 :]]


def glance(text: str) -> list[str]:
    """The lines as a person sees them: no blanks at an end, no character without ink, and each
    letter as what it looks like."""
    letters = {other: letter for letter, other in CYRILLIC.items()} | {ord(FILLER): None}
    return [line.rstrip() for line in text.translate(letters).split("\n")]


@pytest.mark.parametrize("view", [View.DIFF, View.FULL])
def test_e27_texts_that_look_alike_are_distinguished_or_refused(look: Any, view: View) -> None:
    seen = glance(look(ALONE, view))
    hidden = []
    for where, document in look_alikes(ALONE):
        if where[0] in ALIKE:
            continue
        try:
            plan_file.read(json.dumps(document).encode())
        except PlanError:
            continue
        if glance(look(document, view)) == seen:
            hidden.append(".".join(map(str, where)))
    assert hidden == []


def test_e27_a_letter_that_looks_like_another_is_named(look: Any) -> None:
    document = copy.deepcopy(ALONE)
    document["steps"][0]["services"] = ["j\u043eb.service"]
    assert "j\u043eb.service (U+043E CYRILLIC SMALL LETTER O)" in look(document, View.DIFF)
    assert "not ASCII" not in look(ALONE, View.DIFF)


def test_e27_a_key_that_nothing_reads_is_refused() -> None:
    document = copy.deepcopy(ALONE)
    document["steps"][0]["risk "] = "live"
    with pytest.raises(PlanError, match="it has an unknown key 'risk '"):
        plan_file.read(json.dumps(document).encode())
