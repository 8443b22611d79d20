"""One addition is new files alone: no list, table or switch names it. In a copy of the package."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[1]
OUTSIDE = ("checks", "fixes", "baselines")  # that are in the package once it is installed
NAME = "site_rule"


class Tree:
    """A copy of nodevet as pip would install it, to which files are added."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder = shutil.copytree(installed, folder)
        self.added: set[str] = set()

    def add(self, path: str, text: str) -> None:
        """A file of the repository that is not there yet."""
        inside = path.split("/", maxsplit=1)[0] in OUTSIDE
        target = self.folder / "nodevet" / path if inside else self.folder / path
        assert not target.exists(), path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        self.added.add(path)

    def python(self, *words: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def nodevet(self, *words: str, code: int = 0) -> str:
        return self.python("-m", "nodevet", *words, code=code)

    def listed(self, kind: str) -> list[str]:
        return [line.split()[0] for line in self.nodevet("list", kind).splitlines()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nodevet as pip would install it, compiled, with its docs."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(REPO / "nodevet", folder / "nodevet")
    for name in OUTSIDE:
        shutil.copytree(REPO / name, folder / "nodevet" / name)
    shutil.copytree(REPO / "docs", folder / "docs")
    subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
    return folder


@pytest.fixture
def tree(tmp_path: Path, installed: Path) -> Tree:
    return Tree(tmp_path / "site", installed)


def recipe(heading: str) -> set[str]:
    """The files that a recipe of CONTRIBUTING.md names, by the placeholder in their names."""
    text = (REPO / "CONTRIBUTING.md").read_text()
    part = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return {path for path in re.findall(r"`([\w./<>*]+)`", part) if "<" in path}


def written(tree: Tree, placeholder: str) -> set[str]:
    """The files that were added, with the placeholder for the name."""
    found = {path.replace(NAME, placeholder) for path in tree.added}
    return {re.sub(r"/[\w-]+\.yaml$", "/*.yaml", path) for path in found}


CHECK = '''\
"""The node says where it is.

**Why it matters.** Racks have owners.

**Read from** the hostname.

**Verdicts** fail elsewhere; unknown if the hostname is not known.

**To fix it** move the node.
"""
from nodevet.evidence.host import HostInfo
from nodevet.model import Check, CheckParams, fail, ok, unknown


class Params(CheckParams):
    """`r1`"""

    bare = "prefix"
    prefix: str


def judge(evidence, params):
    data = evidence[HostInfo].data
    if data is None or data.hostname is None:
        yield unknown(why="the hostname is not known")
    elif data.hostname.startswith(params.prefix):
        yield ok()
    else:
        yield fail(expected=params.prefix, actual=data.hostname)


CHECK = Check(params=Params, reads=("host.hostname",), judge=judge)
'''
CASES = {
    "ok": ("{hostname: r1n1}", "{verdict: ok}"),
    "elsewhere": ("{hostname: r2n1}", "{verdict: fail, expected: r1, actual: r2n1}"),
    "unread": ("{status: denied, why: EACCES}", "{verdict: unknown}"),
}
EVIDENCE = {"hostname": "r2n1"}


def add_check(tree: Tree) -> None:
    tree.add(f"checks/{NAME}.py", CHECK)
    for case, (host, finding) in CASES.items():
        text = f"params: r1\nevidence:\n  host: {host}\nfindings:\n  - {finding}\n"
        tree.add(f"tests/checks/{NAME}/{case}.yaml", text)


def saved(tree: Tree, **sections: Any) -> str:
    """A file of evidence with these sections."""
    whole = {name: {"status": "ok", "data": data} for name, data in sections.items()}
    file = tree.folder / "n1.json"
    file.write_text(json.dumps({"schema": 1, "probe": "0", "sections": whole}))
    return str(file)


def judged(
    tree: Tree, expect: dict[str, Any], *, code: int = 1, **sections: Any
) -> list[dict[str, Any]]:
    """What a check of this evidence finds, by a baseline that expects this."""
    baseline = tree.folder / "own.yaml"
    baseline.write_text(json.dumps({"nodevet": 1, "expect": expect}))
    evidence = saved(tree, **sections)
    words = ("check", "--evidence", evidence, "--max-age", "none", "-b", str(baseline))
    run = json.loads(tree.nodevet(*words, "--all", "--format", "json", code=code))
    found: list[dict[str, Any]] = run["hosts"][0]["findings"]
    return found


def test_a_check(tree: Tree) -> None:
    add_check(tree)
    assert written(tree, "<id>") == recipe("A new check")
    assert NAME in tree.listed("checks")
    assert tree.nodevet("explain", NAME).startswith("The node says where it is.")
    schema = json.loads(tree.nodevet("schema"))
    assert NAME in schema["properties"]["expect"]["properties"]
    (found,) = judged(tree, {NAME: "r1"}, host=EVIDENCE)
    assert (found["verdict"], found["expected"], found["actual"]) == ("fail", "r1", "r2n1")


def test_the_page_and_the_tests_of_a_check(tree: Tree) -> None:
    add_check(tree)
    tree.python("docs/generate.py")
    pages = [*(tree.folder / "docs").rglob("*.md")]
    assert any(NAME in page.read_text() for page in pages)
    for name in ("conftest.py", "every_case.py", "test_cases.py"):
        shutil.copy(REPO / "tests/checks" / name, tree.folder / "tests/checks" / name)
    words = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib", "tests/checks")
    told = tree.python("-m", "pytest", *words, "-k", NAME)
    assert re.search(r"\b[3-9] passed", told), told


FIX = '''\
"""Moves the node.

**What it does.** Nothing yet.
"""
from nodevet.fixing.model import Fix, Risk


def plan(evidence, findings, want):
    return iter(())


FIX = Fix(plan=plan, risk=Risk.IDLE)
'''


def test_a_fix(tree: Tree) -> None:
    add_check(tree)
    before = set(tree.added)
    tree.add(f"fixes/{NAME}.py", FIX)
    assert {path.replace(NAME, "<check>") for path in tree.added - before} == recipe("A new fix")
    assert NAME in tree.listed("fixes")
    told = tree.nodevet("explain", NAME)
    assert "Fix available, at risk idle or below." in told
    assert "Moves the node." in told


def test_a_check_and_a_fix_of_a_project(tree: Tree, tmp_path: Path) -> None:
    """The same two files, in a folder of the user's own."""
    for folder, text in (("checks", CHECK), ("fixes", FIX)):
        (tmp_path / "own" / folder).mkdir(parents=True)
        (tmp_path / "own" / folder / f"{NAME}.py").write_text(text)
    own = ("--project", str(tmp_path / "own"))
    for kind in ("checks", "fixes"):
        assert NAME in tree.nodevet("list", kind, *own).split()
    assert "Fix available" in tree.nodevet("explain", NAME, *own)
    assert NAME in tree.nodevet("schema", *own)


COLLECTOR = '''\
"""Where the node stands, from /etc/rack."""

from nodevet.remote.probe.files import Reading, read


def collect(root, request):
    found = Reading()
    found.take("rack", lambda: read(root, "/etc/rack").strip())
    return found
'''
SECTION = '''\
"""Section site_rule."""

from nodevet.base.bounds import Text
from nodevet.evidence.core import SectionRecord


class Rack(SectionRecord, frozen=True, kw_only=True):
    """Where the node stands. /etc/rack."""

    rack: Text | None = None
'''
OF_SECTION = (
    CHECK.replace("evidence.host import HostInfo", f"evidence.{NAME} import Rack")
    .replace("HostInfo", "Rack")
    .replace("host.hostname", f"{NAME}.rack")
    .replace("data.hostname", "data.rack")
)


def test_a_section_of_the_evidence(tree: Tree) -> None:
    tree.add(f"nodevet/remote/probe/collectors/{NAME}.py", COLLECTOR)
    tree.add(f"nodevet/evidence/{NAME}.py", SECTION)
    assert written(tree, "<section>") == recipe("A new section of the evidence")
    assert NAME in tree.listed("sections")
    (tree.folder / "root/etc").mkdir(parents=True)
    (tree.folder / "root/etc/rack").write_text("r2")
    told = json.loads(tree.nodevet("probe", "--root", str(tree.folder / "root"), NAME))
    assert told["sections"][NAME]["data"]["rack"] == "r2"
    sent = "from nodevet.fleet.protocol.payload import PROBE, sources; print(*sources(PROBE))"
    assert f"nodevet.remote.probe.collectors.{NAME}" in tree.python("-c", sent).split()
    tree.add(f"checks/{NAME}.py", OF_SECTION)
    (found,) = judged(tree, {NAME: "r1"}, **{NAME: {"rack": "r2"}})
    assert (found["verdict"], found["expected"], found["actual"]) == ("fail", "r1", "r2")
    (found,) = judged(tree, {NAME: "r2"}, code=0, **{NAME: {"rack": "r2"}})
    assert found["verdict"] == "ok"


FORMAT = '''\
"""Loud."""


def pieces(run):
    yield f"{len(run.hosts)} HOSTS!\\n"
'''


def test_a_report_format(tree: Tree) -> None:
    tree.add("nodevet/vet/formats/loud.py", FORMAT)
    assert {path.replace("loud", "<name>") for path in tree.added} == recipe("A new report format")
    assert "loud" in tree.listed("formats")
    words = (
        "check",
        "--evidence",
        saved(tree, host=EVIDENCE),
        "--max-age",
        "none",
        "-b",
        "generic",
    )
    assert tree.nodevet(*words, "--format", "loud", code=3) == "1 HOSTS!\n"


STATE = '''\
"""The label on a rack, /etc/rack."""

from nodevet.remote.look import absent, present
from nodevet.remote.probe.files import read


def look(root, name):
    try:
        return present(read(root, "/etc/" + name).strip())
    except FileNotFoundError:
        return absent()
'''
KIND = '''\
"""The label on a rack."""

from nodevet.resource.core import Action, Kind, Resource


class SetLabel(Action, frozen=True, kw_only=True, tag="set-label"):
    """A label becomes this text."""

    name: str
    text: str

    @property
    def resource(self):
        return Resource(kind="site_rule", name=self.name)

    @property
    def label(self):
        return f"label {self.name} {self.text}"


class LabelKind(Kind):
    form = str
    actions = (SetLabel,)
    is_setting = True

    def restore(self, before, siblings, actions):
        return [SetLabel(name=before.resource.name, text=before.value)]


KIND = LabelKind()
'''
USES = """\
import sys
import msgspec
from nodevet import resource
from nodevet.fleet.protocol.payload import REMOTE, sources
from nodevet.remote.look import look
from nodevet.resource import AnyAction, Resource, State
from nodevet.resource.site_rule import SetLabel

label = Resource(kind="site_rule", name="rack")
(found,) = look({"root": sys.argv[1], "resources": [{"kind": label.kind, "name": label.name}]})
state = State(resource=label, **found)
assert resource.describe(state) == "r2", state
action = SetLabel(name="rack", text="r1")
(back,) = resource.restore(state, actions=(action,))
assert back == SetLabel(name="rack", text="r2"), back
assert msgspec.json.decode(msgspec.json.encode(action), type=AnyAction) == action
assert resource.undeclared_resources((action,), ()) == [label]
assert "+label rack r1" in list(resource.diff((action,), (state,)))
assert "nodevet.remote.state.site_rule" in sources(REMOTE)
"""


def test_a_kind_of_resource(tree: Tree) -> None:
    tree.add(f"nodevet/remote/state/{NAME}.py", STATE)
    tree.add(f"nodevet/resource/{NAME}.py", KIND)
    assert written(tree, "<kind>") == recipe("A new kind of resource")
    assert NAME in tree.listed("resources")
    (tree.folder / "root/etc").mkdir(parents=True)
    (tree.folder / "root/etc/rack").write_text("r2")
    tree.python("-c", USES, str(tree.folder / "root"))


SOURCE = '''\
"""Hosts of a rack: one name a line."""

from nodevet.inventory.entries import HostEntry, InventoryHosts

KIND = "a rack list (.rack)"
ENDINGS = (".rack",)


def read(path):
    names = path.read_text().split()
    return InventoryHosts(entries=tuple(HostEntry(name, path) for name in names))
'''


def test_an_inventory_source(tree: Tree) -> None:
    tree.add("nodevet/inventory/sources/racks.py", SOURCE)
    named = {path.replace("racks", "<name>") for path in tree.added}
    assert named == recipe("A new inventory source")
    assert "racks" in tree.listed("sources")
    file = tree.folder / "r1.rack"
    file.write_text("gpu001\ngpu002\n")
    assert tree.nodevet("list", "hosts", "-i", str(file)).split() == ["gpu001", "gpu002"]


COMMAND = {
    "__init__": '"""What racks hosts stand in."""\n',
    "use": '''\
"""Which hosts stand in a rack."""

from msgspec import Struct


class Rack(Struct, frozen=True, kw_only=True):
    name: str
    hosts: tuple[str, ...]


def rack_of(hosts):
    return Rack(name=hosts[0][:2], hosts=tuple(sorted(hosts)))
''',
    "sheet": '''\
"""A rack as a sheet."""

from nodevet.sheet.model import Sheet, TextBlock


def rack_sheet(rack):
    text = f"{len(rack.hosts)} hosts: {', '.join(rack.hosts)}"
    return Sheet(kind="rack", title=f"Rack {rack.name}", blocks=(TextBlock(text=text),))
''',
    "command": '''\
"""`nodevet racks`: which hosts stand together."""

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command


@click.command(
    "racks", cls=Command, group="Vet", examples=(("Two hosts", "nodevet racks r1n1 r1n2"),)
)
@click.argument("hosts", nargs=-1, required=True)
@sheets.formats()
@display_options()
def command(hosts, form, display: Display) -> None:
    """Tell which hosts stand together."""
    from nodevet.racks.sheet import rack_sheet
    from nodevet.racks.use import rack_of

    rack = rack_of(hosts)
    sheets.show(rack, rack_sheet(rack), form, display)
''',
    "schemas": '''\
"""The JSON Schema of a rack."""

from nodevet.base.schema_kinds import SchemaKind


def _rack(project):
    from nodevet.base.json_schema import of_answers
    from nodevet.racks.use import Rack

    return of_answers("rack", "The hosts of a rack", {Rack: ("rack",)})


SCHEMAS = {"rack": SchemaKind("a rack", _rack, ("racks",))}
''',
}


def test_a_command(tree: Tree) -> None:
    for name, text in COMMAND.items():
        tree.add(f"nodevet/racks/{name}.py", text)
    named = {path.replace("racks", "<name>") for path in tree.added}
    assert named == recipe("A new command")
    assert "racks" in tree.nodevet("--help")
    assert "# Two hosts" in tree.nodevet("racks", "--help")
    words = ("racks", "r1n2", "r1n1")
    assert "2 hosts: r1n1, r1n2" in tree.nodevet(*words)
    found = json.loads(tree.nodevet(*words, "--format", "json"))
    assert found == {"kind": "rack", "name": "r1", "hosts": ["r1n1", "r1n2"]}
    assert tree.nodevet(*words, "--format", "markdown").startswith("#")
    assert "<title>Rack r1" in tree.nodevet(*words, "--format", "html")
    assert "hosts" in tree.nodevet("schema", "rack")
