"""CPUs that TuneD manages: the profile that nodevet adds, and what is left to a person."""

from pathlib import Path
from typing import Any

import pytest

from nodevet.fixing.model import FixError
from nodevet.remote.look import look
from nodevet.remote.probe.collectors import tuned
from nodevet.remote.probe.files import Absent
from nodevet.resource import Resource, State, holds, restore
from nodevet.resource.file import WriteFile
from nodevet.resource.tuned_profile import activate

RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
POLICY = {
    "policies": "0-1",
    "cpus": "0-1",
    "driver": "intel_cpufreq",
    "governor": "powersave",
    "governors_available": ["performance", "powersave"],
}
SITE = "/etc/tuned/site/tuned.conf"


def setting(key: str = "governor", section: str = "cpu") -> dict[str, Any]:
    return {"file": SITE, "line": 4, "section": section, "key": key, "value": "powersave"}


def node(*settings: dict[str, Any], unit: Any = RUNS, **profile: Any) -> dict[str, Any]:
    section = {
        "profile": "site",
        "profiles": ["site", "latency-performance"],
        "missing": "",
        "settings": list(settings or (setting(),)),
        "scripts": [],
        "folder": "/etc/tuned",
    }
    return {
        "cpu": {"online": "0-1"},
        "cpufreq": {"policies": [POLICY]},
        "services": {"units": [{"name": "tuned.service", **unit}]},
        "tuned": section | profile,
    }


def test_tuned_gets_a_profile_that_includes_the_active_one(plan) -> None:
    (change,) = plan("cpu_governor", "performance", node())
    file, switch = change.actions
    assert file.path == "/etc/tuned/nodevet-cpu-governor/tuned.conf"
    rows = file.content.splitlines()
    assert rows[3:] == ["include=site", "", "[cpu]", "governor=performance"]
    assert switch == activate("nodevet-cpu-governor")
    assert [each.label for each in change.resources] == [
        f"file {file.path}",
        "tuned_profile active",
    ]


@pytest.mark.parametrize(
    ("active", "profiles", "base"),
    [
        ("nodevet-cpu-governor", ["nodevet-cpu-governor", "site"], "site"),
        ("nodevet-cpu-idle-states", ["nodevet-cpu-idle-states", "site"], "nodevet-cpu-idle-states"),
        (
            "nodevet-cpu-idle-states",
            ["nodevet-cpu-idle-states", "nodevet-cpu-governor", "site"],
            "site",
        ),
    ],
)
def test_its_own_profile_never_includes_itself(plan, active, profiles, base) -> None:
    (change,) = plan("cpu_governor", "performance", node(profile=active, profiles=profiles))
    is_new = "nodevet-cpu-governor" not in profiles
    assert f"include={base}\n" in change.actions[0].content
    assert change.actions[1] == activate("nodevet-cpu-governor" if is_new else active)


@pytest.mark.parametrize(
    "sections",
    [
        node(unit=RUNS | {"active_state": "inactive"}),
        node(setting("force_latency")),
        node() | {"tuned": {"status": "absent", "why": "no profile"}},
    ],
)
def test_without_tuned_a_rule_of_nodevet_sets_it(plan, sections) -> None:
    (change,) = plan("cpu_governor", "performance", sections)
    assert change.actions[0].path == "/etc/tmpfiles.d/nodevet-cpu-governor.conf"


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (node(unit=RUNS | {"file_state": "disabled"}), "does not start at boot"),
        (node(profile="a b"), "TuneD merges profiles: a b"),
        (node(profile="$(reboot)"), "TuneD merges profiles"),
        (node(missing="gone"), "TuneD has no profile gone"),
        (node(scripts=["/etc/tuned/site/x.sh"]), "runs scripts, which may set it"),
        (node(setting(section="cpu_all")), f"{SITE}:4 is not in the section"),
        (node(profiles=["nodevet-cpu-governor"], profile="nodevet-cpu-governor"), "no other"),
        (
            node(profiles=["other", "nodevet-cpu-governor", "base", "site"], profile="other"),
            "the profile other includes nodevet's profile nodevet-cpu-governor: set it in other",
        ),
    ],
)
def test_a_profile_that_is_more_stays_with_a_person(plan, sections, why) -> None:
    with pytest.raises(FixError, match=why.replace("$(", r"\$\(")):
        plan("cpu_governor", "performance", sections)


# --- on files ---------------------------------------------------------------------------------


def put(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(root)


FILES = {
    "/etc/tuned/active_profile": "site\n",
    "/etc/tuned/profile_mode": "manual\n",
    SITE: "[main]\ninclude=base\n[cpu]\ngovernor=powersave\n[script]\nscript=${i:PROFILE_DIR}/x\n",
    "/usr/lib/tuned/base/tuned.conf": "[cpu]\nforce_latency=99\nno_turbo=1\n",
}


def test_the_chain_of_profiles_and_what_it_sets(tmp_path: Path) -> None:
    found = tuned.collect(put(tmp_path, FILES), {})
    assert found["profiles"] == ["site", "base"] and found["profile"] == "site"
    rows = [(row["file"], row["line"], row["key"], row["value"]) for row in found["settings"]]
    assert rows == [
        (SITE, 4, "governor", "powersave"),
        ("/usr/lib/tuned/base/tuned.conf", 2, "force_latency", "99"),
    ]
    assert found["scripts"] == ["/etc/tuned/site/x"] and found["missing"] == ""
    assert found["folder"] == "/etc/tuned"
    with pytest.raises(Absent):
        tuned.collect(put(tmp_path / "other", {"/etc/tuned/active_profile": "\n"}), {})


ACTIVE = Resource(kind="tuned_profile", name="active")


def state(root: str) -> State:
    request = {"root": root, "resources": [{"kind": "tuned_profile", "name": "active"}]}
    return State(resource=ACTIVE, **look(request)[0])


def test_the_earlier_profile_comes_back_after_its_file(tmp_path: Path) -> None:
    before = state(put(tmp_path, FILES))
    assert before.value == {"profile": "site", "mode": "manual"}
    own = "/etc/tuned/nodevet-cpu-governor/tuned.conf"
    file = State(resource=Resource(kind="file", name=own), exists=False)
    actions = (WriteFile(path=own, content="x"), activate("nodevet-cpu-governor"))
    first, second = restore(file, before, actions=actions)
    assert first == WriteFile(path=own, content=None) and second == activate("site")
    assert holds(activate("nodevet-cpu-governor"), [before]) is False
    assert holds(activate("site"), [before]) is None
    (gone,) = restore(file, actions=actions)
    assert gone == first
    value = {"content": "eA==", "mode": 0o644, "owner": 0, "group": 0}
    earlier = State(resource=file.resource, exists=True, value=value)
    (_, again) = restore(earlier, actions=actions)
    assert again == activate("nodevet-cpu-governor"), "it reads the restored file"
    auto = State(resource=ACTIVE, exists=True, value={"profile": "x", "mode": "auto"})
    (back,) = restore(auto)
    assert back.words == ("tuned-adm", "auto_profile")
