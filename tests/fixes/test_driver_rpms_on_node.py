"""A new driver on a simulated node by real dnf and by real zypper: wrong, planned, applied,
pending, rebooted, ok; put back as it was."""

import json
from pathlib import Path

import pytest
from driver_rpms import KERNEL, NEW, OLD, PARTLY, PUT, SUSE
from node_tools import put_on_node
from shown_folders import leader

from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.protocol.framing import ActResult
from nodevet.remote.probe.files import attempt
from nodevet.remote.probe.holds import holds
from nodevet.resource import Action
from nodevet.resource.package import rpm
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = f"""\
sim: 1
nodes:
  n1:
    gpus: {{profile: h100-sxm, count: 1}}
    sockets: 1
    cores: 1
    nvml: {{driver_version: "{OLD}"}}
"""
BASELINE = """\
nodevet: 1
expect: {driver_version: ">=570,<580"}
fix: [driver_version]
"""
HOLDS = "grep -v -e '^#' -e '^$' /etc/dnf/locks.list | sort; cat /etc/zypp/locks || true"
STATE = (
    "rpm -qa --qf '%{NAME} %{EVR}\\n' | sort; cat /etc/dnf/modules.d/*; "
    f"{HOLDS}; dnf -C -q history userinstalled; "
    "find /etc /usr/share/nvidia -type f ! -name locks.list -print0 | sort -z | "
    "xargs -0 sha256sum; ls -A /var/tmp; "
    "nvidia-smi --query-gpu=driver_version --format=csv"
)
LEFT = (
    "find /var/log /var/cache /var/lib /var/tmp /etc -newer /run/mark ! -path '*/journal*' "
    "! -name rpmdb.sqlite-shm"
)
CARE = ("--settle", "0.2", "--drain-hook", "true")
MOVED = [
    f"kmod-nvidia-{OLD}-{KERNEL}.x86_64",
    f"kmod-nvidia-{NEW}-{KERNEL}.x86_64",
    *(f"{name}.x86_64" for name in ("kmod-nvidia-open-dkms", "nvidia-driver",
      "nvidia-driver-libs", "nvidia-fabric-manager")),
]  # fmt: skip


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("rpms", SCENARIO, BASELINE)
    for tool in ("dnf-plugins-core", "zypper", "createrepo-c"):
        put_on_node(fleet, "n1", tool)
    fleet.run_on("n1", PUT)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {reboot: 1}\n")
    return fleet


@pytest.fixture(scope="module", params=["dnf", "zypper"])
def manager(request: pytest.FixtureRequest, fleet: SimulatedFleet) -> rpm.Manager:
    """First dnf, then zypper on the same node."""
    if request.param == "zypper":
        fleet.run_on("n1", SUSE)
    name: rpm.Manager = request.param
    return name


def planned(fleet: SimulatedFleet, name: str) -> Path:
    """The file of an approved plan."""
    plan = fleet.project / f"{name}.json"
    done = fleet.run_in_project("plan", *fleet.reach, "--author", "ann", *CARE, "-o", plan)
    assert done.returncode == 1, done.stdout + done.stderr
    done = fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    assert done.returncode == 0, done
    return plan


def act(fleet: SimulatedFleet, *actions: Action) -> list[ActResult]:
    with SshExecutor(list(fleet.hosts.values()), Options()) as worker:
        worker.open("n1")
        return [worker.act("n1", action) for action in actions]


@pytest.mark.parametrize("version", ["2-1", "3-1"], ids=["needs-another", "takes-the-place"])
def test_a_transaction_that_would_change_another_package_is_aborted(
    fleet: SimulatedFleet, manager: rpm.Manager, version: str
) -> None:
    before = fleet.run_on("n1", STATE)
    (done,) = act(fleet, rpm.replace(manager, [f"nvidia-settings.x86_64={version}"]))
    assert not done.ok
    output = done.output
    other = "nvlsm" if version == "2-1" else "nvidia-xconfig"
    assert other in output and ("not in the plan" in output or "was pulled into" in output), output
    assert fleet.run_on("n1", STATE) == before


KILL = """\
read -r rpm </run/rpm; set -- $(grep ^PPid: /proc/$rpm/status); kill -9 $2 $rpm; rm /run/post-waits
while [ -e /proc/$rpm ]; do sleep 0.1; done; rm -rf /var/tmp/rpm-tmp.* /var/tmp/zypp.*
"""
"""Kills dnf and the shell that started it; or rpm and zypper."""


def test_a_transaction_that_was_killed_is_restored(
    fleet: SimulatedFleet, manager: rpm.Manager
) -> None:
    """With its controller. rpm then has two versions of packages, and the files of one."""
    before = fleet.run_on("n1", STATE)
    plan, run = planned(fleet, f"killed-{manager}"), fleet.project / f"killed-{manager}"
    fleet.run_on("n1", "rm -f /run/rpm; touch /run/post-waits")
    words = ("apply", plan, *fleet.reach, "--run", run, "--project", fleet.project)
    fleet.kill_when(lambda: fleet.file("n1", "/run/rpm"), *words, alone=True)
    fleet.run_on("n1", KILL)
    assert fleet.run_on("n1", "rpm -q kmod-nvidia-open-dkms | wc -l").strip() == "2"
    if manager == "zypper":  # it is restored, and begun again
        done = fleet.run_in_project("apply", "--resume", run)
        assert done.returncode == 0, done.stdout + done.stderr
    done = fleet.run_in_project("rollback", run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.run_on("n1", STATE) == before


NAME = "nvidia-settings"
LISTS: list[tuple[str, str, str | None, bool, bool | None]] = [
    ("", "", None, True, False),
    (f"exclude={NAME}", "", None, False, True),
    (f"exclude={NAME}\\nexcludepkgs=", "", None, True, False),
    (f"excludepkgs=\\nexclude={NAME}", "", None, False, True),
    (f"exclude={NAME}\\ndisable_excludes=main", "", None, True, False),
    (f"exclude={NAME}\\ndisable_excludes=all", "", None, True, False),
    ("includepkgs=dkms", "", None, False, True),
    ("includepkgs=dkms", f"includepkgs={NAME}", None, False, True),
    ("includepkgs=nvidia-*", "includepkgs=dkms", None, True, False),
    ("", f"exclude={NAME}", None, False, True),
    ("", f"exclude={NAME}\\nincludepkgs={NAME}", None, False, True),
    ("", "includepkgs=dkms", None, False, True),
    ("", f"includepkgs={NAME}-1*", None, False, None),
    ("", f"includepkgs={NAME}-3*", None, True, None),
    ("", f"exclude={NAME}", "", True, None),
    ("", f"exclude={NAME}", "enabled=0", False, True),
    ("", "", f"exclude={NAME}", True, None),
    ("disable_excludes=cuda", f"exclude={NAME}", None, True, False),
    ("disable_excludes=c*", f"exclude={NAME}", None, False, True),
]
"""What dnf.conf, cuda.repo and other.repo have besides (None: no other.repo), whether dnf then
upgrades the package, and whether nodevet says that it is held; None: unknown."""
WITH_LISTS = """\
cd /etc; cp -a dnf/dnf.conf yum.repos.d/cuda.repo /run
printf '{main}\\n' >>dnf/dnf.conf; printf '{cuda}\\n' >>yum.repos.d/cuda.repo
"""
OTHER = """\
sed 's/cuda/other/' /run/cuda.repo >yum.repos.d/other.repo
printf '{other}\\n' >>yum.repos.d/other.repo
"""
UPGRADES = f"dnf --assumeno upgrade {NAME} 2>&1 | grep -c ^Upgrading: || true"
WITHOUT_LISTS = "rm -f /etc/yum.repos.d/other.repo; cd /run; cp -a dnf.conf /etc/dnf; " + (
    "mv cuda.repo /etc/yum.repos.d"
)


@pytest.mark.parametrize(("main", "cuda", "other", "upgrades", "held"), LISTS)
def test_a_package_is_held_if_dnf_does_not_upgrade_it(
    fleet: SimulatedFleet,
    main: str,
    cuda: str,
    other: str | None,
    *,
    upgrades: bool,
    held: bool | None,
) -> None:
    root = f"/proc/{leader(fleet.name, 'n1')}/root"
    script = WITH_LISTS.format(main=main, cuda=cuda)
    fleet.run_on("n1", script + ("" if other is None else OTHER.format(other=other)))
    answer, _ = attempt(holds(root).is_held, NAME, "x86_64", ["1-1"])
    said = fleet.run_on("n1", f"{UPGRADES}; {WITHOUT_LISTS}").strip()
    assert (said, answer) == (str(int(upgrades)), held)


LOCKED = "the lock 'nvidia-driver*' is not of this package and version alone"
BESIDE = {
    f"rpm {{-i /srv/repo/x86_64/nvidia-kmp-{OLD}-1.x86_64.rpm,-e nvidia-kmp}}": (
        "nvidia-kmp.x86_64: offers: a new version is installed beside this one"
    )
}
HELD = {
    "dnf": {
        f"dnf -q -C versionlock {{exclude --raw,delete}} nvidia-driver-3:{NEW}-1.el9.x86_64": (
            f"the repositories offer {PARTLY}, but not for nvidia-fabric-manager.x86_64"
        ),
        "dnf -q -C versionlock {add --raw,delete} 'nvidia-driver*'": LOCKED,
        "sed -i {/main/aexcludepkgs=nvidia-driver,/^exclude/d} /etc/dnf/dnf.conf": (
            "/etc/dnf/dnf.conf excludes it"
        ),
        "sed -i {/baseurl/aexcludepkgs=nvidia-driver,/^exclude/d} /etc/yum.repos.d/cuda.repo": (
            "but not for nvidia-driver.x86_64"
        ),
        "sed -i {/main/aincludepkgs=dkms,/^includepkgs/d} /etc/dnf/dnf.conf": (
            "/etc/dnf/dnf.conf excludes it"
        ),
        **BESIDE,
    },
    "zypper": {"zypper -n {addlock,removelock} 'nvidia-driver*'": LOCKED, **BESIDE},
}
"""Commands that hold more than the package, or install one that is never replaced (the first in
braces), and release it again."""


def test_package_locks_and_excludes_are_reported_in_the_plan(
    fleet: SimulatedFleet, manager: rpm.Manager
) -> None:
    for command, why in HELD[manager].items():
        start, _, rest = command.partition("{")
        words, _, end = rest.partition("}")
        hold, release = words.split(",", 1)
        fleet.run_on("n1", f"{start}{hold}{end}")
        done = fleet.run_in_project("plan", *fleet.reach, "--author", "ann", *CARE)
        fleet.run_on("n1", f"{start}{release}{end}")
        assert done.returncode == 3 and why in done.stdout, done.stdout + done.stderr


def test_a_module_that_dkms_does_not_build_is_restored_before_the_reboot(
    fleet: SimulatedFleet, manager: rpm.Manager
) -> None:
    fleet.run_on("n1", "touch /etc/dkms-fails")
    before = fleet.run_on("n1", STATE)
    run = fleet.project / f"dkms-{manager}"
    done = fleet.run_in_project(
        "apply", planned(fleet, f"dkms-{manager}"), *fleet.reach, "--run", run
    )
    (host,) = json.loads((run / "result.json").read_text())["hosts"]
    assert host["outcome"] == "failed_and_rolled_back", done
    assert f"DKMS has not built nvidia {NEW}" in host["steps"][0]["why"], host
    assert fleet.run_on("n1", STATE) == before
    fleet.run_on("n1", "rm /etc/dkms-fails")


def test_a_pending_fix_is_rebooted_and_rolled_back(
    fleet: SimulatedFleet, manager: rpm.Manager
) -> None:
    before = fleet.run_on("n1", f"{STATE}; touch /run/mark")
    plan = planned(fleet, manager)
    assert fleet.run_on("n1", LEFT) == "", "planning left something on the node"
    (step,) = json.loads(plan.read_text())["steps"]
    assert (step["expected"], step["actual"], step["risk"]) == (NEW, OLD, "reboot")
    names = [each["name"] for each in step["resources"] if each["kind"] == "package"]
    assert names == sorted(MOVED)
    assert "nvidia-fabric-manager.x86_64 now" in step["note"]

    run = fleet.project / f"run-{manager}"
    done = fleet.run_in_project("apply", plan, *fleet.reach, "--run", run)
    assert done.returncode == 0, done
    (host,) = json.loads((run / "result.json").read_text())["hosts"]
    assert [each["outcome"] for each in host["steps"]] == ["pending"], host
    fleet.sim("reboot", "n1")
    done = fleet.run_in_project("plan", *fleet.reach, "--author", "ann")
    assert done.returncode == 0 and "Nothing to do." in done.stderr, done
    after = fleet.run_on("n1", STATE)
    assert f"\n{NEW}\n" in after and f"kmod-nvidia-{OLD}" not in after
    if manager == "dnf":
        assert "stream=570-open" in after and f"nvidia-driver-libs-3:{NEW}-1.el9.*" in after
    else:
        assert after.count("solvable_name: ") == 5

    holds = fleet.run_on("n1", f"mv /srv/repo /srv/away; {HOLDS}")
    done = fleet.run_in_project("rollback", run)
    assert done.returncode == 3 and "ROLLBACK FAILED" in done.stdout, done
    assert fleet.run_on("n1", f"mv /srv/away /srv/repo; {HOLDS}") == holds
    done = fleet.run_in_project("rollback", run)
    assert done.returncode == 0, done.stdout + done.stderr
    fleet.sim("reboot", "n1")
    assert fleet.run_on("n1", STATE) == before
