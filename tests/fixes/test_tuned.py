"""CPUs that TuneD manages: the profile that nodevet adds, and what is left to a person."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodevet.fixing.model import FixError
from nodevet.remote.look import look
from nodevet.remote.probe.collectors import tuned
from nodevet.remote.probe.files import Absent
from nodevet.resource import ActionError, Resource, State, holds, kind_of, restore
from nodevet.resource.file import WriteFile
from nodevet.resource.tuned_profile import KIND, SCRIPT, ActivateProfile, activate

RUNS = {"load_state": "loaded", "active_state": "active", "file_state": "enabled"}
POLICY = {
    "policies": "0-1",
    "cpus": "0-1",
    "driver": "intel_cpufreq",
    "governor": "powersave",
    "governors_available": ["performance", "powersave"],
}
MAXIMUM = "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq"
CAPPED = {"scaling_min_khz": 800_000, "scaling_max_khz": 2_000_000, "cpuinfo_max_khz": 3_800_000}
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


def test_tuned_merges_a_profile_of_nodevet_with_the_active_one(plan) -> None:
    (change,) = plan("cpu_governor", "performance", node())
    file, switch = change.actions
    assert file.path == "/etc/tuned/nodevet-cpu-governor/tuned.conf"
    assert file.content.splitlines()[3:] == ["", "[cpu]", "governor=performance"]
    assert switch == activate("nodevet-cpu-governor")
    assert [each.label for each in change.resources] == [
        f"file {file.path}",
        "tuned_profile nodevet-cpu-governor",
    ]


@pytest.mark.parametrize("profile", ["site nodevet-cpu-governor", "site more", "$(reboot) site"])
def test_other_active_profiles_do_not_change_the_plan(plan, profile) -> None:
    (alone,) = plan("cpu_governor", "performance", node())
    merged = node(profile=profile, profiles=["site", *profile.split()])
    assert plan("cpu_governor", "performance", merged) == [alone]


@pytest.mark.parametrize(
    ("key", "params", "is_of_tuned"),
    [
        ("min_perf_pct", {"minimum_mhz": 1200}, True),
        ("min_perf_pct", {}, False),
        ("no_turbo", {"turbo": True}, True),
        ("/sys/devices/system/cpu/cpu*/cpufreq/scaling_max_freq", {}, True),
        ("governor", {"minimum_mhz": 1200}, False),
    ],
)
def test_tuned_sets_frequencies_only_if_its_profile_already_set_one(
    plan, key, params, is_of_tuned
) -> None:
    """All that the baseline expects, a section for each file: TuneD reverts the last one first."""
    sections = node(setting(key, "sysfs" if "/" in key else "cpu"))
    sections["cpufreq"] = {"no_turbo": True, "max_perf_pct": 60, "policies": [POLICY | CAPPED]}
    (change,) = plan("cpu_frequency", params, sections)
    assert (change.actions[-1] == activate("nodevet-cpu-frequency")) is is_of_tuned
    if is_of_tuned:
        assert [each.kind for each in change.resources] == ["file", "tuned_profile"]
        rows = change.actions[0].content.splitlines()[4:]
        assert rows[:3] == ["[nodevet_scaling_max_freq]", "type=sysfs", f"{MAXIMUM}=3800000"]
        assert "/sys/devices/system/cpu/intel_pstate/max_perf_pct=100" in rows
        values = {
            "minimum_mhz": "cpufreq/policy*/scaling_min_freq=1200000",
            "turbo": "intel_pstate/no_turbo=0",
        }
        assert all(f"/sys/devices/system/cpu/{values[name]}" in rows for name in params)


@pytest.mark.parametrize(
    "sections",
    [
        node(unit=RUNS | {"active_state": "inactive"}),
        node(setting("force_latency")),
        node() | {"tuned": {"status": "absent", "why": "no profile"}},
    ],
)
def test_without_tuned_a_tmpfiles_rule_sets_the_governor(plan, sections) -> None:
    (change,) = plan("cpu_governor", "performance", sections)
    assert change.actions[0].path == "/etc/tmpfiles.d/nodevet-cpu-governor.conf"


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        (node(unit=RUNS | {"file_state": "disabled"}), "does not start at boot"),
        (node(missing="gone"), "TuneD has no profile gone"),
        (node(scripts=["/etc/tuned/site/x.sh"]), "runs scripts, which may set it"),
        (node(setting(section="cpu_all")), f"{SITE}:4 is not in the section"),
        (
            node(profiles=["other", "nodevet-cpu-governor", "base"], profile="other"),
            "another profile includes nodevet's profile nodevet-cpu-governor: set it in a profile",
        ),
    ],
)
def test_a_profile_that_nodevet_cannot_extend_is_refused(plan, sections, why) -> None:
    with pytest.raises(FixError, match=re.escape(why)):
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
    "/usr/lib/tuned/base/tuned.conf": "[cpu]\nforce_latency=99\nreplace=1\n"
    "[sysfs]\n/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq=1\n",
}


def test_the_tuned_section_lists_included_profiles_and_their_settings(tmp_path: Path) -> None:
    found = tuned.collect(put(tmp_path, FILES), {})
    assert found["profiles"] == ["site", "base"] and found["profile"] == "site"
    rows = [(row["file"], row["line"], row["key"], row["value"]) for row in found["settings"]]
    assert rows == [
        (SITE, 4, "governor", "powersave"),
        ("/usr/lib/tuned/base/tuned.conf", 2, "force_latency", "99"),
        ("/usr/lib/tuned/base/tuned.conf", 5, MAXIMUM, "1"),
    ]
    assert found["scripts"] == ["/etc/tuned/site/x"] and found["missing"] == ""
    assert found["folder"] == "/etc/tuned"
    with pytest.raises(Absent):
        tuned.collect(put(tmp_path / "other", {"/etc/tuned/active_profile": "\n"}), {})


OWN = "nodevet-cpu-governor"


def state(root: str, name: str = OWN) -> State:
    request = {"root": root, "resources": [{"kind": "tuned_profile", "name": name}]}
    return State(resource=Resource(kind="tuned_profile", name=name), **look(request)[0])


def test_a_rollback_switches_a_profile_off_before_it_deletes_the_file(tmp_path: Path) -> None:
    before = state(put(tmp_path, FILES))
    assert before.value == {"profile": "site", "mode": "manual", "included": False}
    path = f"/etc/tuned/{OWN}/tuned.conf"
    file = State(resource=Resource(kind="file", name=path), exists=False)
    actions = (WriteFile(path=path, content="x"), activate(OWN))
    off = activate(OWN, included=False)
    assert restore(file, before, actions=actions) == (off, WriteFile(path=path, content=None))
    assert holds(activate(OWN), [before]) is False and holds(off, [before]) is None
    assert holds(activate("nodevet-cpu-frequency"), [before]) is None
    value = {"content": "eA==", "mode": 0o644, "owner": 0, "group": 0}
    earlier = State(resource=file.resource, exists=True, value=value)
    active = state(put(tmp_path, {"/etc/tuned/active_profile": f"site {OWN}\n"}))
    for states in ((earlier,), (earlier, active)):
        (first, again) = restore(*states, actions=actions)
        assert isinstance(first, WriteFile) and again == activate(OWN), "it reads the restored file"


def test_a_profile_and_its_file_depend_on_each_other(tmp_path: Path) -> None:
    """TuneD sets nothing at boot if an active profile has no file."""
    profile = state(put(tmp_path, FILES)).resource
    file, other = (
        Resource(kind="file", name=f"/etc/tuned/{each}/tuned.conf") for each in (OWN, "x")
    )
    assert depends_on(profile, [file]) and depends_on(file, [profile])
    assert not depends_on(profile, [other]) and not depends_on(other, [profile])


def depends_on(resource: Resource, others: list[Resource]) -> bool:
    return kind_of(resource).depends_on(resource, others)


ADM = """\
#!/bin/sh
cd {root}/etc/tuned
case $1 in
profile) shift; echo "$*" >active_profile; echo manual >profile_mode ;;
auto_profile) echo recommended >active_profile; echo auto >profile_mode ;;
esac
"""


@pytest.mark.parametrize("mode", ["manual", "auto"])
@pytest.mark.parametrize("first", [OWN, "nodevet-cpu-frequency"])
def test_profiles_can_be_activated_and_restored_in_any_order(
    tmp_path: Path, mode: str, first: str
) -> None:
    """Each is as before, whatever the other is; the stand-in does what tuned-adm does to files."""
    name = "site" if mode == "manual" else "recommended"
    put(
        tmp_path, {"/etc/tuned/active_profile": f"{name}\n", "/etc/tuned/profile_mode": f"{mode}\n"}
    )
    root, adm = str(tmp_path), tmp_path / "tuned-adm"
    adm.write_text(ADM.format(root=root))
    adm.chmod(0o755)
    (tmp_path / "systemctl").symlink_to(shutil.which("true") or "")

    def run(action: ActivateProfile) -> None:
        script = SCRIPT.replace("cd /etc", f"cd {root}/etc")
        words = ["sh", "-c", script, "tuned", *action.words[2:]]
        subprocess.run(words, env={"PATH": f"{root}:/usr/bin:/bin"}, check=True)

    names = (OWN, "nodevet-cpu-frequency")
    before = {each: state(root, each) for each in names}
    for number, each in enumerate(names):
        run(activate(each))
        assert {"mode": mode, "included": True, "profile": name} == state(root, each).value
        for later in names[number + 1 :]:
            assert state(root, later) == before[later]
    run(activate(OWN))
    assert (tmp_path / "etc/tuned/active_profile").read_text().split()[1:] == [*names[1:], OWN]
    for each in (first, *(each for each in names if each != first)):
        (back,) = restore(before[each])
        run(back)
        assert state(root, each) == before[each]
    left = {each.name: each.read_text().strip() for each in (tmp_path / "etc/tuned").iterdir()}
    assert left == {"active_profile": name, "profile_mode": mode}


@pytest.mark.parametrize("name", ["site", "nodevet-x; reboot", "nodevet-", "-nodevet-x"])
def test_no_other_profile_is_activated(name: str) -> None:
    with pytest.raises(ActionError, match="does not activate a profile of nodevet"):
        activate(name).command(seconds=9)
    assert KIND.name_problem(name)
