"""A module that DKMS can build without a doubt is installed; everything else is for a person."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RestoreError, State, dkms, restore

OLD, NEW = "5.15.0-105-generic", "5.15.0-107-generic"
VERSION = "550.90.07"
INSTALL = f"dkms install -m nvidia -v {VERSION} -k {{}}"


def build(kernel, missing=0):
    return {"kernel": kernel, "version": VERSION, "missing": missing}


def node(*builds, headers=(OLD, NEW), secure_boot=False, **module):
    given = {"name": "nvidia", "versions": [VERSION], "builds": list(builds), **module}
    return {
        "dkms": {
            "running": OLD,
            "kernels": [OLD, NEW],
            "headers": list(headers),
            "modules": [given],
        },
        "modules": {"secure_boot": secure_boot},
    }


def test_each_kernel_without_the_module_gets_it(plan):
    (change,) = plan("dkms", {}, node())
    assert [each.label for each in change.actions] == [INSTALL.format(k) for k in (OLD, NEW)]
    assert [each.label for each in change.resources] == [
        f"dkms nvidia/{VERSION}/{kernel}" for kernel in (OLD, NEW)
    ]
    assert (change.risk, change.effective, change.actions[0].seconds) == (Risk.DRAIN, "now", 1800)


def test_a_kernel_that_has_the_module_is_not_touched(plan):
    (change,) = plan("dkms", {}, node(build(OLD), headers=[NEW]))
    assert [each.label for each in change.actions] == [INSTALL.format(NEW)]
    assert plan("dkms", {}, node(build(OLD), build(NEW))) == []
    assert plan("dkms", {"next_kernel": False}, node(build(OLD))) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"headers": [OLD]}, f"nvidia: the headers of {NEW} are missing: install linux-headers-5"),
        ({"secure_boot": True}, "secure boot is on"),
        ({"secure_boot": None}, "could not read whether secure boot is on: not in the evidence"),
        ({"versions": []}, "DKMS has no source of it"),
        ({"versions": [VERSION, "535.1"]}, f"several versions, {VERSION}, 535.1: `dkms remove`"),
        ({"versions": None, "errors": {"versions": "EACCES"}}, "versions were not read: EACCES"),
        ({"versions": ["$(reboot)"]}, "is not NAME/VERSION/KERNEL"),
        ({"versions": ["-k"]}, "is not NAME/VERSION/KERNEL"),
        ({"name": "-m x"}, "is not NAME/VERSION/KERNEL"),
    ],
)
def test_unknown_states_are_refused(plan, given, why):
    with pytest.raises(FixError, match=why.replace("$", r"\$")):
        plan("dkms", {}, node(build(OLD), **given))


def test_a_module_with_missing_files_is_refused(plan):
    with pytest.raises(FixError, match=f"{NEW}: 2 of its files are gone: find out what removed"):
        plan("dkms", {}, node(build(OLD), build(NEW, missing=2)))


def test_unread_values_plan_nothing(plan, wrong, evidence):
    findings = wrong("dkms", {}, evidence(node()))
    section = node()
    for field in ("headers", "modules"):
        less = {key: value for key, value in section["dkms"].items() if key != field}
        with pytest.raises(
            FixError, match=r"could not read|was not read|not come from this evidence"
        ):
            plan("dkms", {}, {**section, "dkms": less}, findings)
    with pytest.raises(FixError, match="could not read which headers are installed"):
        plan("dkms", {}, {"modules": section["modules"]}, findings)


@pytest.mark.parametrize(
    ("value", "verb"), [("added", "unbuild"), ("built", "uninstall"), ("installed", "")]
)
def test_a_rollback_reverts_the_changes(value, verb):
    resource = Resource(kind="dkms", name=f"nvidia/{VERSION}/{OLD}")
    before = State(resource=resource, exists=True, value=value)
    if not verb:
        with pytest.raises(RestoreError, match="cannot be made installed again"):
            restore(before)
        return
    (action,) = restore(before)
    assert action.label == INSTALL.format(OLD).replace("install", verb, 1)
    install = dkms.install(resource.name).words
    assert dkms.KIND.command_holds(install, [before]) is False
    after = State(resource=resource, exists=True, value="installed")
    assert dkms.KIND.command_holds(install, [after]) is True
    assert dkms.KIND.command_holds(("reboot",), [after]) is None
