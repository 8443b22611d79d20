"""Which packages a new driver is, and which version of them; what is refused, with the reason."""

import subprocess

import msgspec
import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.fixing.result import ending_text
from nodevet.resource import Resource, RunCommand, State, holds, perform, restore
from nodevet.resource.package import apt
from nodevet.resource.package.apt import mark

V = "550.54.14"
NEW, NEWER = "550.90.07", "550.127.05"
END = "-0ubuntu0.22.04.1"
DRIVER = "nvidia-driver-550"
COMPUTE = "libnvidia-compute-550:amd64"
MANAGER = "nvidia-fabricmanager-550"
WAITS = ("env", "ZYPP_LOCK_TIMEOUT=300")  # while another zypper works


def package(name, version=V, *offers, held=False, automatic=True, end=END, kept=True, **other):
    """A package; `offers` are versions of the driver, the highest first. `kept`: the one that is
    installed is among them."""
    offers = [*offers, *({version} - {None, *offers} if kept else ())]
    return {
        "name": name,
        "version": version and version + end,
        "held": held,
        "automatic": automatic,
        "offers": [offer + end for offer in offers],
    } | other


def node(*packages, gpu=V, module=V, **other):
    return {
        "gpu": {"driver_version": gpu} if gpu else {"status": "error", "why": gpu_why},
        "modules": {"loaded": ["nvidia"], "nvidia_version": module},
        "packages": {"manager": "dpkg", "packages": list(packages)} | other,
    }


gpu_why = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


def three(*offers, manager=(NEW, V), **other):
    return (
        package(COMPUTE, V, *offers),
        package(DRIVER, V, *offers, automatic=False),
        package(MANAGER, other.pop("manager_version", V), *manager, end="-1", automatic=False),
    )


def words_of(change):
    return change.actions[0].words


def told_of(change):
    words = words_of(change)
    return list(words[words.index("install") + 1 :])


def test_the_highest_version_of_all_packages_that_the_baseline_allows_is_planned(plan):
    (change,) = plan("driver_version", ">=550.90", node(*three(NEWER, NEW, V)))
    assert (change.expected, change.actual) == (NEW, V)
    assert told_of(change) == [
        f"{COMPUTE}={NEW}{END}",
        f"{DRIVER}={NEW}{END}",
        f"{MANAGER}={NEW}-1",
    ]
    assert change.actions[1:] == (
        *mark("auto", [COMPUTE]),
        *mark("hold", [COMPUTE, DRIVER, MANAGER]),
    )
    assert change.resources == tuple(
        Resource(kind="package", name=name) for name in (COMPUTE, DRIVER, MANAGER)
    )
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")
    assert "held" not in change.note and "reboot" in change.note
    words = words_of(change)
    assert change.actions[0].seconds >= 600
    assert {"-y", "--no-remove", "--no-install-recommends"} <= set(words)
    assert not [word for word in words if word.startswith("--allow")]
    assert all(len(list(perform((action,)))) == 1 for action in change.actions)
    every = (NEWER, NEW, V)
    (change,) = plan("driver_version", ">=550.90", node(*three(*every, manager=every)))
    assert change.expected == NEWER


def test_a_lower_version_and_packages_that_are_held(plan):
    packages = (
        package(DRIVER, V, V, "550.40.07", held=True),
        package("libnvidia-compute-550", V, V, "550.40.07"),
    )
    (change,) = plan("driver_version", "550.40.07", node(*packages))
    assert {"--allow-downgrades", "--allow-change-held-packages"} <= set(words_of(change))
    assert change.note.startswith(f"an administrator or an earlier fix holds {DRIVER} now; ")


def test_a_fabric_manager_of_another_version_is_changed_with_the_driver(plan):
    """It works with the driver of its own version alone."""
    (change,) = plan(
        "driver_version",
        "550.90.07",
        node(*three(NEW, manager=(NEWER, NEW), manager_version=NEWER)),
    )
    assert f"{MANAGER}={NEW}-1" in told_of(change)
    assert "--allow-downgrades" in words_of(change)


def test_a_package_with_the_version_in_its_name(plan):
    stem = "nvidia-firmware-550-"
    there = package(stem + V, V, V)
    other = package(stem + NEW, None, NEW, held=None, automatic=None) | {
        "errors": dict.fromkeys(("version", "held", "automatic"), "not installed")
    }
    packages = (package(DRIVER, V, NEW, V), there, other)
    (change,) = plan("driver_version", NEW, node(*packages))
    assert told_of(change) == [f"{DRIVER}={NEW}{END}", f"{stem}{NEW}={NEW}{END}"]
    assert [resource.name for resource in change.resources] == [DRIVER, stem + NEW]
    assert change.actions[1].words[2:] == (DRIVER, stem + NEW)
    with pytest.raises(
        FixError, match=f"the repositories offer {NEW}, but not for {stem}{V}; configure"
    ):
        plan("driver_version", NEW, node(package(DRIVER, V, NEW, V), there))


def test_packages_of_nvidia_outside_the_driver_stay(plan):
    packages = (
        *three(NEW),
        package("libnvidia-container1", "1.16.1", "1.17.0", end="-1"),
        package("nvidia-settings", "560.35.03", NEW, end="-1"),
        package("nvidia-kernel-common", "20220217", end="+3"),
    )
    (change,) = plan("driver_version", NEW, node(*packages))
    assert len(told_of(change)) == 3


def test_packages_without_a_branch_in_the_name_can_change_the_branch(plan):
    packages = (package("nvidia-driver", V, "560.35.03"), package("libcuda1", V, "560.35.03"))
    (change,) = plan("driver_version", ">=560", node(*packages, gpu=V))
    assert change.expected == "560.35.03"


REFUSED = [
    (three("550.60.1", V, manager=("550.60.1",)), {},
     "the repositories offer no version that the baseline allows (>=550.90,<570) as packages of "
     "libnvidia-compute-550:amd64's branch; they offer 550.60.1, 550.54.14; configure the "
     "repository that has it, or fetch its list with `apt-get update`"),
    (three(NEW, manager=(V,)), {},
     f"the repositories offer {NEW}, but not for {MANAGER}; configure"),
    (three("560.35.03", manager=("560.35.03",)), {}, "does not exchange packages for those of"),
    ((package("nvidia-driver", kept=False),), {}, "; they offer nothing; "),
    ((package("nvidia-driver", V, NEW, kept=False), package("libcuda1", V, NEW)), {},
     "none of the node's repositories has the installed version of nvidia-driver"),
    ((), {}, "no package owns the driver 550.54.14: NVIDIA's .run installer"),
    ((package("libnvidia-container1", "1.16.1"), package("nvidia-settings")), {}, ".run installer"),
    (three(NEW, manager_version=NEW)[2:], {}, ".run installer"),
    ((package(DRIVER, NEW),), {}, "the packages already have version 550.90.07: reboot"),
    ((package(DRIVER, "545.1.2"),), {}, "the packages have version 545.1.2: reboot, or remove"),
    ((*three(NEW), package("nvidia-dkms-550", "550.60.1")), {},
     "nvidia-dkms-550 550.60.1 are also installed: repair these"),
    ((*three(NEW), package("linux-modules-nvidia-550-6.8.0-40-generic", "6.8.0")), {},
     "linux-modules-nvidia-550-6.8.0-40-generic: these modules were built for one kernel"),
    ((package(DRIVER, None, NEW, errors={"version": "dpkg: not fully installed: 'iF'"}),), {},
     "nvidia-driver-550: dpkg: not fully installed: 'iF'; `dpkg --configure -a`"),
    ((package(DRIVER, V, offers=None, errors={"offers": "apt-cache ended with 100"}),), {},
     "nvidia-driver-550: offers: apt-cache ended with 100"),
    ((package(DRIVER, V, NEW, automatic=None),), {}, "automatic: not in the evidence"),
    ((package("a;reboot"),), {}, "'a;reboot' is not a valid package"),
    ((package(DRIVER, V, "550.90.07$(reboot)"),), {}, "is not a valid package"),
    (three(NEW), {"manager": "rpm"}, "the packages are rpm's (libnvidia-compute-550:amd64, "),
    (three(NEW), {"packages": None, "errors": {"packages": "nobody looked"}}, "nobody looked"),
    (three(NEW), {"status": "timeout", "why": "no answer"}, "packages: no answer"),
    (three(NEW), {"gpu": None}, "do not fit together: reboot first"),
    (three(NEW), {"module": NEW}, f"library is {V} and the loaded module {NEW}: reboot first"),
]  # fmt: skip


OPEN = "kmod-nvidia-open-dkms"
RPMS = (
    package("nvidia-driver.x86_64", V, kept=None, automatic=None, end="-1.el9"),
    package(f"{OPEN}.x86_64", V, kept=None, automatic=None, end="-1.el9"),
    package("libnvidia-container1", "1.16.1", kept=None, automatic=None, end="-1"),
    package("x;reboot.noarch", V, kept=None, automatic=None),
)


@pytest.mark.parametrize(
    ("os_id", "version", "told"),
    [
        ("rhel", NEW, "`dnf module switch-to nvidia-driver:550-open --allowerasing` if `dnf module "
         f"list nvidia-driver` has streams; `dnf install nvidia-driver-{NEW} {OPEN}-{NEW}`, "
         f"`dnf versionlock add nvidia-driver {OPEN}`, then reboot"),
        (None, ">=550.90,<570", "nvidia-driver:BRANCH-open --allowerasing`"),
        (None, ">=550.90,<570", f"`dnf install nvidia-driver-VERSION {OPEN}-VERSION`"),
        ("sles", f"=={NEW}", f"`zypper install --oldpackage nvidia-driver={NEW} {OPEN}={NEW}`, "
         f"`zypper addlock nvidia-driver {OPEN}`, then reboot"),
    ],
)  # fmt: skip
def test_unsupported_rpm_packages_are_refused_with_the_manual_commands(plan, os_id, version, told):
    sections = node(*RPMS, manager="rpm") | {"host": {"os_id": os_id}}
    with pytest.raises(FixError) as refused:
        plan("driver_version", version, sections)
    _, marker, commands = str(refused.value).partition(
        "only packages of apt, dnf 4 and zypper; by hand: "
    )
    assert marker and told in commands and "x;reboot" not in commands
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(("packages", "other", "told"), REFUSED)
def test_driver_packages_that_cannot_be_changed_are_refused_with_the_reason(
    plan, packages, other, told
):
    with pytest.raises(FixError) as refused:
        plan("driver_version", ">=550.90,<570", node(*packages, **other))
    assert told in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_correct_driver_version_plans_no_change(plan, wrong, evidence):
    sections = node(*three(NEW))
    assert plan("driver_version", V, sections) == []
    findings = wrong("driver_version", NEW, evidence(sections))
    with pytest.raises(FixError, match="does not belong to this evidence"):
        plan("driver_version", NEW, node(*three(NEW), gpu="550.1.1", module="550.1.1"), findings)


def test_package_changes_are_shown_and_restored_exactly(plan):
    (change,) = plan("driver_version", NEW, node(*three(NEW, V)))

    def seen(version, held, *automatic):
        return [
            State(
                resource=resource,
                exists=True,
                value={
                    "version": f"{version}{'-1' if resource.name == MANAGER else END}",
                    "held": held,
                    "automatic": resource.name in automatic,
                },
            )
            for resource in change.resources
        ]

    before, after = seen(V, False, COMPUTE), seen(NEW, True, COMPUTE)
    assert [holds(action, after) for action in change.actions] == [True] * 3
    assert [holds(action, before) for action in change.actions] == [False, True, False]
    assert (
        holds(change.actions[0], [State(resource=change.resources[0], exists=False, why="x")])
        is None
    )
    assert holds(RunCommand(words=("apt-mark", "showhold")), after) is None
    back = restore(*before, actions=change.actions)
    auto, unhold = back[2:]
    assert auto.words[:3] == ("apt-mark", "auto", COMPUTE)
    assert unhold.words[3:5] == ("unhold", f"{COMPUTE}={V}{END}")
    assert f"{MANAGER}={V}-1" in back[1].words


HOOK = "VERSION 2\nAPT::Architecture=amd64\nDir::State=/var\n\n"


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("a 1 < 2 /x/a.deb\nlib-b 1 < 2 **CONFIGURE**\n", 0),
        ("", 0),
        ("a 1 < 2 /x/a.deb\nc - < 1 /x/c.deb\n", 1),
        ("lib 1 > - **REMOVE**\n", 1),
    ],
)
def test_the_apt_hook_stops_a_run_that_would_change_another_package(lines, code):
    hook = apt.guard_hook(["a", "lib-b:amd64"])
    done = subprocess.run(
        ["/bin/sh", "-c", hook], input=HOOK + lines, capture_output=True, text=True
    )
    assert done.returncode == code
    assert ("is not in the plan" in done.stderr) is bool(code)


def test_the_package_is_named_although_apt_repeats_the_hook():
    said = "nodevet: c would change too, and is not in the plan"
    output = (
        f"Reading\n{said}\nE: Sub-process {apt.guard_hook(['a'] * 50)} returned an error code (1)\n"
    )
    assert ending_text(100, f"{output}{output}") == f"ended with 100: {said}"
    assert ending_text(1, "no\n") == "ended with 1: no"


def test_a_command_is_encoded_with_seconds_only_if_it_has_a_time_limit(plan):
    (change,) = plan("driver_version", NEW, node(*three(NEW)))
    install, *_, hold = msgspec.json.decode(msgspec.json.encode(change.actions))
    assert (install["seconds"], hold["seconds"]) == (1800, 600)
    assert "seconds" not in msgspec.to_builtins(RunCommand(words=("true",)))


def test_a_driver_change_survives_json_encoding(plan):
    (change,) = plan("driver_version", NEW, node(*three(NEW)))
    text = msgspec.json.encode(change)
    assert msgspec.json.encode(msgspec.json.decode(text, type=type(change))) == text


KMOD = "kmod-nvidia-{}-5.14.0-427.13.1.x86_64"
EL = "-1.el9"
"""With NVIDIA's packages for RHEL: their epoch is 3."""


def el(name, *offers, version=V, **other):
    offers = [f"3:{offer}{EL}" for offer in (*offers, version)]
    fields = {"version": f"3:{version}{EL}", "held": False, "automatic": None, "offers": offers}
    return {"name": f"{name}.x86_64", **fields, **other}


def els(*packages, streams=(), **other):
    section = {"manager": "dnf", "can_lock": True, "profiles": "default", "streams": streams}
    return node(*packages, **(section | other))


def stream(name, version, *, active=False, names=("nvidia-driver", OPEN)):
    packages = [f"{each}.x86_64=3:{version}{EL}" for each in names]
    return {"name": name, "active": active, "packages": packages}


SEVENTY = "570.86.15"
TWO = (el("nvidia-driver", SEVENTY), el(OPEN, SEVENTY, held=True))


def test_dnf_installs_all_in_one_transaction_and_enables_the_stream_of_the_same_kind(plan):
    streams = (
        stream("550-open", V, active=True),
        stream("570-open", SEVENTY),
        stream("open-dkms", SEVENTY),
        stream("570-dkms", SEVENTY, names=("nvidia-driver",)),
    )
    (change,) = plan("driver_version", ">=570", els(*TWO, streams=streams))
    enable, unlock, install, built, lock = change.actions
    assert enable.path == "/etc/dnf/modules.d/nvidia-driver.module"
    assert enable.content.splitlines() == [
        "[nvidia-driver]", "name=nvidia-driver", "stream=570-open", "profiles=default",
        "state=enabled",
    ]  # fmt: skip
    targets = (f"{OPEN}.x86_64=3:{SEVENTY}{EL}", f"nvidia-driver.x86_64=3:{SEVENTY}{EL}")
    assert install.words[3:] == ("dnf", *targets)
    entry = f"{OPEN}-3:{V}{EL}"
    assert unlock.words[:5] == ("dnf", "-q", "-C", "versionlock", "delete")
    assert unlock.words[5:] == (entry, f"{entry}.*", f"{entry}.x86_64")
    assert lock.words[5:] == (
        "--raw",
        f"{OPEN}-3:{SEVENTY}{EL}.*",
        f"nvidia-driver-3:{SEVENTY}{EL}.*",
    )
    assert built.words[3:] == ("dkms", SEVENTY)
    kinds = [(each.kind, each.name) for each in change.resources]
    assert kinds == [
        ("package", f"{OPEN}.x86_64"),
        ("package", "nvidia-driver.x86_64"),
        ("file", enable.path),
    ]
    assert change.note.startswith(f"an administrator or an earlier fix holds {OPEN}.x86_64 now")


def test_zypper_takes_the_highest_release_of_the_version(plan):
    """Versions of SUSE's packages with modules name the kernel; zypper needs no stream."""
    name = "nvidia-open-driver-G06-signed-kmp-default"
    offers = [f"3:{SEVENTY}_k6.4.0-{release}" for release in ("9.1", "10.1")]
    kmp = el(name, offers=[*offers, f"3:{V}{EL}"])
    sections = els(kmp, el("nvidia-compute-G06", SEVENTY), manager="zypper")
    (change,) = plan("driver_version", SEVENTY, sections)
    install, lock = change.actions
    assert install.words[3:5] == ("zypper", f"nvidia-compute-G06.x86_64=3:{SEVENTY}{EL}")
    assert install.words[5:] == (f"{name}.x86_64={offers[1]}",)
    assert lock.words == (*WAITS, "zypper", "-n", "addlock", "nvidia-compute-G06", name)


def test_a_module_package_named_after_its_version_replaces_the_old_one(plan):
    old, new = KMOD.format(V), KMOD.format(SEVENTY)
    missing = dict.fromkeys(("version", "held", "automatic"), "not installed")
    successor = el("x", version=SEVENTY) | {
        "name": new, "version": None, "held": None, "errors": missing,
    }  # fmt: skip
    packages = (el("nvidia-driver", SEVENTY), el("x") | {"name": old}, successor)
    (change,) = plan("driver_version", SEVENTY, els(*packages, can_lock=False))
    (install,) = change.actions
    assert install.words[4:] == (
        f"{new}=3:{SEVENTY}{EL}",
        f"nvidia-driver.x86_64=3:{SEVENTY}{EL}",
        "remove",
        f"{old}=3:{V}{EL}",
    )
    assert "nothing will hold the packages" in change.note

    def seen(version, present, absent):
        value = {"version": f"3:{version}{EL}", "held": False}
        named = [
            State(resource=Resource(kind="package", name=name), exists=True, value=value)
            for name in (present, "nvidia-driver.x86_64")
        ]
        return [*named, State(resource=Resource(kind="package", name=absent), exists=False)]

    before, after = seen(V, old, new), seen(SEVENTY, new, old)
    assert (holds(install, before), holds(install, after)) == (False, True)
    single, back = restore(*before, actions=change.actions)
    assert back.words[4:] == (
        f"{old}=3:{V}{EL}", f"nvidia-driver.x86_64=3:{V}{EL}", "remove", f"{new}=3:{SEVENTY}{EL}",
    )  # fmt: skip
    assert single.words[3] == "rpm"
    _, back = restore(before[1], actions=change.actions)  # the others are as before, or not ours
    assert back.words[4:] == (f"nvidia-driver.x86_64=3:{V}{EL}",)


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (els(el("nvidia-driver", SEVENTY, offers=[f"3:{SEVENTY}{EL}"])),
         "it cannot be rolled back: none of the node's repositories has the installed version"),
        (els(el("nvidia-driver"), manager="zypper"), "fetch its list with `zypper refresh`"),
        (els(el("nvidia-driver", SEVENTY, held=None, errors={"held": "the lock '*' is wide"})),
         "nvidia-driver.x86_64: held: the lock '*' is wide; remove it, then plan again"),
        (els(el("nvidia-driver", SEVENTY, offers=None, errors={"offers": "dnf timed out"})),
         "nvidia-driver.x86_64: offers: dnf timed out"),
        (els(*TWO, streams=None, errors={"streams": "dnf ended with 1"}),
         "streams: dnf ended with 1"),
        (els(*TWO, streams=[stream("latest", SEVENTY), stream("open", SEVENTY)]),
         "several streams (latest, open) of dnf's module nvidia-driver: `dnf module switch-to"),
        (els(*TWO, streams=[stream("a", SEVENTY, names=[OPEN]),
                            stream("b", SEVENTY, names=["nvidia-driver"])]),
         "the packages are in no single stream of"),
        (els(el("nvidia-driver", "570.1$(reboot)")), "is not a valid package of dnf"),
        (els(el("nvidia-driver", SEVENTY, version=V) | {"version": None, "errors":
             {"version": "several versions are installed"}}), "remove all but one first"),
    ],
)  # fmt: skip
def test_rpms_that_cannot_be_changed_are_refused_with_the_reason(plan, sections, told):
    with pytest.raises(FixError) as refused:
        plan("driver_version", ">=570", sections)
    assert told in str(refused.value)


def test_an_active_dnf_stream_with_the_version_is_not_changed(plan):
    streams = [stream("open-dkms", SEVENTY, active=True), stream("570-open", SEVENTY)]
    (change,) = plan("driver_version", ">=570", els(*TWO, streams=streams))
    assert change.resources[-1].kind == "package"
