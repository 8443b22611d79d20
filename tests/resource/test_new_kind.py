"""A new kind of resource is one file here and one that runs on the node: nothing else knows it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nodevet
import nodevet.baselines
import nodevet.checks
import nodevet.fixes

KIND = '''
"""A widget: a number in a file of /run/widgets."""

from nodevet.resource.core import Action, Kind, Resource, RestoreError


class SetWidget(Action, frozen=True, kw_only=True, tag="widget"):
    name: str
    level: int

    @property
    def resource(self):
        return Resource(kind="widget", name=self.name)

    @property
    def label(self):
        return f"set widget {self.name} to {self.level}"

    def command(self, *, seconds):
        from pyinfra.api.command import QuoteString, StringCommand

        return StringCommand("widgetctl", QuoteString(self.name), str(self.level))


class WidgetKind(Kind):
    form = int
    actions = (SetWidget,)
    is_setting = True

    def name_problem(self, name):
        return "" if name.isalnum() else "is not the name of a widget"

    def holds(self, action, state):
        return state.value == action.level

    def restore(self, before, siblings, actions):
        if not before.exists:
            raise RestoreError(f"{before.resource.label}: it cannot be removed")
        return [SetWidget(name=before.resource.name, level=before.value)]


KIND = WidgetKind()
'''

ON_NODE = '''
"""A widget: see nodevet.resource.widget."""

from nodevet.remote.look import absent, present
from nodevet.remote.probe.files import read


def look(root, name):
    try:
        return present(int(read(root, "/run/widgets/" + name)))
    except FileNotFoundError:
        return absent()


def patterns(root, name):
    return None
'''

CHECK = '''
"""The widget is at its level."""
from nodevet import model
class Params(model.Params):
    level: int
CHECK = model.Check(params=Params, reads=("host.kernel",), judge=lambda evidence, params: iter(()))
'''

FIX = '''
"""Set the widget."""
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.resource.widget import SetWidget

def plan(evidence, findings, params):
    action = SetWidget(name="one", level=9)
    yield PlannedChange(
        expected=9, actual=4, actions=(action,), resources=(action.resource,), risk=Risk.LIVE
    )

FIX = Fix(plan=plan, risk=Risk.LIVE)
'''

USE = """
import sys, time
from pathlib import Path

import msgspec

import nodevet
from nodevet.checking.catalog import Catalog
from nodevet.fixing.model import Risk
from nodevet.fleet.protocol import answers
from nodevet.fix import model
from nodevet.fix.plan import plan_file
from nodevet.fix.plan.render import step_lines
from nodevet.remote import look
from nodevet.resource import RestoreError, State, holds, perform, restore
from nodevet.resource import changed_settings, describe_change

project = Path(sys.argv[1])
assert Path(nodevet.__file__).is_relative_to(project)
fix = Catalog([project / "checks"], [project / "fixes"]).fix("widget")
(change,) = fix.changes(None, (None,), None)

found = look.look({
    "root": str(project), "deadline": time.time() + 90,
    "resources": [msgspec.to_builtins(change.resources[0])],
})
(before,) = answers.states(msgspec.json.encode(found), change.resources)
assert before == State(resource=change.resources[0], exists=True, value=4), before
try:
    answers.states(b\'[{"exists": true, "value": "much", "why": ""}]\', change.resources)
except answers.MalformedError as error:
    assert "widget one: Expected `int`" in str(error), error
else:
    raise AssertionError("a value of another form was taken")

step = model.Step(
    id="n1/widget/1", host="n1", fix="widget", subjects=(), expected=9, actual=4, risk=Risk.LIVE,
    actions=change.actions, resources=change.resources, before=(before,), reason="",
)
node = model.PlannedNode(machine_id="m", boot_id="b", baseline="site")
plan = model.Plan(
    id="0a1b2c3d", author="alice", created="", expires="", baselines={"site": ""},
    nodes={"n1": node}, steps=(step,),
)
assert plan_file.read(plan_file.write(plan)) == plan
bad = msgspec.structs.replace(change.actions[0], name="../x")
resources = (bad.resource,)
wrong = msgspec.structs.replace(step, actions=(bad,), resources=resources, before=())
try:
    plan_file.read(plan_file.write(msgspec.structs.replace(plan, steps=(wrong,))))
except model.PlanError as error:
    assert "is not the name of a widget" in str(error)
else:
    raise AssertionError("a name that is none was taken")

assert "+set widget one to 9" in list(step_lines(step))
after = msgspec.structs.replace(before, value=9)
assert [holds(change.actions[0], [state]) for state in (before, after)] == [False, True]
assert changed_settings([before], [after]) and describe_change(before, after) == "is 9, and was 4"
assert [str(each) for each in perform(restore(before))] == ["widgetctl one 4"]
try:
    restore(msgspec.structs.replace(before, exists=False, value=None))
except RestoreError as error:
    assert "it cannot be removed" in str(error)
else:
    raise AssertionError("nothing restores that")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """nodevet as it is installed, with a project of a user's own around it."""
    tree = tmp_path / "nodevet"
    shutil.copytree(nodevet.__path__[0], tree, ignore=shutil.ignore_patterns("__pycache__"))
    for part in (nodevet.checks, nodevet.fixes, nodevet.baselines):
        name = part.__name__.rpartition(".")[2]
        shutil.copytree(part.__path__[0], tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_kind_is_one_file_here_and_one_on_the_node(project: Path) -> None:
    files = {
        "nodevet/resource/widget.py": KIND,
        "nodevet/remote/state/widget.py": ON_NODE,
        "checks/widget.py": CHECK,
        "fixes/widget.py": FIX,
        "run/widgets/one": "4\n",
    }
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", USE, project],
        env={"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        cwd=project,
    )
    assert done.returncode == 0, done.stderr
