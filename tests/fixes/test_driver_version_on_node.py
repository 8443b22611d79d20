"""A new driver on a simulated node, with apt and packages of its own: wrong, planned, applied,
pending, rebooted, ok; put back as it was.

The packages are named like NVIDIA's and hold a version, which a unit of theirs gives to the
simulated driver at boot. While they are installed the library begins to refuse the old module.
"""

import json
from pathlib import Path

import pytest

from nodevet.fixing import driver_apt
from nodevet.fixing.driver_packages import Target
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
OLD, NEW, PARTLY = "550.54.14", "550.90.07", "550.127.05"  # the last not of every package
SCENARIO = f"""\
sim: 1
nodes:
  n1:
    gpus: {{profile: h100-sxm, count: 1}}
    sockets: 1
    cores: 1
    disk_mb: 512
    nvml: {{driver_version: "{OLD}", gpu.0.power_limit_mw: "500000"}}
"""
BASELINE = """\
nodevet: 1
expect:
  driver_version: ">=550.90,<560"
  power_limit: 700
fix: [driver_version, power_limit]
"""
REPOSITORY = rf"""
set -e
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/preferences.d/*
mkdir -p /srv/repo && cd /srv/repo
make() {{ # name version depends...
    d=$(mktemp -d); name=$1; version=$2; shift 2
    mkdir -p $d/DEBIAN $d/usr/share/$name; echo $version >$d/usr/share/$name/version
    mkdir -p $d/etc/nvidia; echo $version >$d/etc/nvidia/$name.conf
    echo /etc/nvidia/$name.conf >$d/DEBIAN/conffiles
    printf 'Package: %s\nVersion: %s-0ubuntu1\nArchitecture: amd64\nMaintainer: x <x@x>\n' \
        $name $version >$d/DEBIAN/control
    case $name in libnvidia-compute-*) echo 'Multi-Arch: same' >>$d/DEBIAN/control;; esac
    [ -z "$*" ] || echo "Depends: $*" >>$d/DEBIAN/control
    echo 'Description: simulated' >>$d/DEBIAN/control
    case $name in nvidia-kernel-source-550)
        u=$d/usr/lib/systemd/system; mkdir -p $u/multi-user.target.wants
        cat >$u/simulated-module.service <<'END'
[Unit]
Before=nvidia-persistenced.service nvidia-fabricmanager.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'v=/usr/share/nvidia-kernel-source-550/version; \
    if cmp -s $v /etc/fails; then \
        echo "init = NVML_ERROR_DRIVER_NOT_LOADED" >>/run/nodevet-sim/nvml.state; exit 1; fi; \
    echo "driver_version = $(cat $v)" >>/run/nodevet-sim/nvml.state; \
    mount --bind $v /sys/module/nvidia/version'
END
        ln -s ../simulated-module.service $u/multi-user.target.wants/
        cat >$d/DEBIAN/postinst <<'END'
#!/bin/sh
echo $PPID >/run/dpkg; while [ -e /run/post-waits ]; do sleep 0.1; done
[ -z "$2" ] || echo 'init = NVML_ERROR_LIB_RM_VERSION_MISMATCH' >>/run/nodevet-sim/nvml.state
END
        chmod 755 $d/DEBIAN/postinst
    esac
    dpkg-deb -Znone --root-owner-group -b $d ./${{name}}_${{version}}-0ubuntu1_amd64.deb >/dev/null
    rm -r $d
}}
for v in {OLD} {NEW} {PARTLY}; do
    make libnvidia-compute-550 $v
    make nvidia-firmware-550-$v $v
    make nvidia-kernel-source-550 $v "nvidia-firmware-550-$v"
    make nvidia-driver-550 $v "libnvidia-compute-550 (= $v-0ubuntu1), " \
        "nvidia-kernel-source-550 (= $v-0ubuntu1)"
    [ $v = {PARTLY} ] || make nvidia-fabricmanager-550 $v
done
make nvlsm 1
make cuda-tool 1 "libnvidia-compute-550 (= {NEW}-0ubuntu1)"
make nvidia-settings 1
make nvidia-settings 2 nvlsm
for f in *.deb; do
    dpkg-deb -f $f
    echo "Filename: ./$f"; echo "Size: $(stat -c %s $f)"
    echo "SHA256: $(sha256sum $f | cut -d' ' -f1)"; echo
done >Packages
echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list
apt-get -q update
apt-mark showhold | xargs -r apt-mark unhold
env DEBIAN_FRONTEND=noninteractive apt-get -y -q install nvidia-settings=1-0ubuntu1 \
    nvidia-driver-550={OLD}-0ubuntu1 libnvidia-compute-550={OLD}-0ubuntu1 \
    nvidia-kernel-source-550={OLD}-0ubuntu1 nvidia-fabricmanager-550={OLD}-0ubuntu1
apt-mark auto libnvidia-compute-550
apt-mark hold nvidia-fabricmanager-550
"""
STATE = (
    "dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\\n' | sort; apt-mark showauto; "
    "apt-mark showhold; find /etc /usr/share/*nvidia* -type f -print0 | sort -z | "
    "xargs -0 sha256sum; find /etc /usr/lib/systemd -type l | sort; "
    "nvidia-smi --query-gpu=power.limit,driver_version --format=csv,noheader"
)
MOVED = [
    "libnvidia-compute-550:amd64",
    "nvidia-driver-550",
    "nvidia-fabricmanager-550",
    f"nvidia-firmware-550-{NEW}",
    "nvidia-kernel-source-550",
]

CARE = ("--settle", "0.2", "--drain-hook", "true")


class Rig:
    """A node with packages of a driver, and a project where bob approves what ann plans."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.project = fleet.project
        self.reach = fleet.reach
        self.run_in_project = fleet.run_in_project

    def on(self, command: str) -> str:
        return self.fleet.run_on("n1", command)

    def reboot(self) -> None:
        self.fleet.sim("reboot", "n1")

    def verdicts(self) -> dict[str, str]:
        done = self.run_in_project("check", *self.reach, "--all", "--format", "json")
        (host,) = json.loads(done.stdout)["hosts"]
        return {found["check"]: found["verdict"] for found in host["findings"]}


@pytest.fixture(scope="module")
def rig(boot: Boot) -> Rig:
    fleet = boot("driver", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {reboot: 1}\n")
    fleet.run_on("n1", REPOSITORY)
    return Rig(fleet)


def test_a_pending_fix_is_rebooted_and_rolled_back(rig: Rig) -> None:
    before = rig.on(STATE)
    stopped_before_it_changes_another(rig)
    assert rig.on(STATE) == before

    plan, run = rig.project / "plan.json", rig.project / "run"
    done = rig.run_in_project("plan", *rig.reach, "--author", "ann", *CARE, "-o", plan)
    assert done.returncode == 1, done
    power, driver = json.loads(plan.read_text())["steps"]
    assert (power["fix"], driver["fix"]) == ("power_limit", "driver_version")
    assert (driver["expected"], driver["actual"], driver["risk"]) == (NEW, OLD, "reboot")
    assert [resource["name"] for resource in driver["resources"]] == MOVED
    assert rig.on(STATE) == before
    done = rig.run_in_project("approve", plan, "--key", rig.project / "bob", "--yes")
    assert done.returncode == 0, done
    done = rig.run_in_project("apply", plan, *rig.reach, "--run", run)
    (host,) = json.loads((run / "result.json").read_text())["hosts"]
    assert done.returncode == 0, done
    assert [step["outcome"] for step in host["steps"]] == ["changed", "pending"], host
    assert rig.verdicts() == {"driver_version": "fail", "power_limit": "unknown"}

    rig.reboot()
    done = rig.run_in_project("plan", *rig.reach, "--author", "ann")
    assert done.returncode == 0 and "Nothing to do." in done.stderr, done
    assert sorted(rig.on("apt-mark showhold").split()) == [name.partition(":")[0] for name in MOVED]
    assert f"{NEW}\n" in rig.on("nvidia-smi --query-gpu=driver_version --format=csv,noheader")

    kept_because_another_package_needs_it(rig, run)
    done = rig.run_in_project("rollback", run)
    assert done.returncode == 0, done
    rig.reboot()
    assert rig.on(STATE) == before


def kept_because_another_package_needs_it(rig: Rig, run: Path) -> None:
    """To revert the driver, apt would remove a package that someone installed since."""
    versions = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'; apt-mark showhold"
    rig.on("env DEBIAN_FRONTEND=noninteractive apt-get -y -q install cuda-tool")
    before = rig.on(versions)
    done = rig.run_in_project("rollback", run)
    assert done.returncode == 3, done
    (host,) = json.loads((run / "rollback-1.json").read_text())["hosts"]
    assert "nodevet: cuda-tool would change too, and is not in the plan" in host["why"], host
    assert rig.on(versions) == before
    rig.on("dpkg --purge cuda-tool")


def test_a_driver_that_does_not_load_is_rolled_back_and_the_rest_is_verified(rig: Rig) -> None:
    rig.on(f"echo {NEW} >/etc/fails")
    before = rig.on(STATE)
    plan, run = rig.project / "fails.json", rig.project / "fails"
    care = (*CARE, "--reboot", "--boot-settle", "1")
    assert (
        rig.run_in_project("plan", *rig.reach, "--author", "ann", *care, "-o", plan).returncode == 1
    )
    assert (
        rig.run_in_project("approve", plan, "--key", rig.project / "bob", "--yes").returncode == 0
    )
    done = rig.run_in_project("apply", plan, *rig.reach, "--run", run)
    (host,) = json.loads((run / "result.json").read_text())["hosts"]
    power, driver = host["steps"]
    assert done.returncode == 1 and host["outcome"] == "failed_and_rolled_back", done
    assert power["outcome"] == "verified_after_reboot", host
    assert driver["outcome"] == "failed_and_rolled_back", host
    assert "not persistent across reboot: " in driver["why"], driver["why"]
    assert driver["why"].endswith("reverted, and rebooted once more")
    assert rig.verdicts() == {"driver_version": "fail", "power_limit": "ok"}
    assert rig.run_in_project("rollback", run).returncode == 0
    assert rig.on(STATE) == before
    rig.on("rm /etc/fails")


KILL = """\
read -r dpkg </run/dpkg; set -- $(grep ^PPid: /proc/$dpkg/status); kill -9 $2 $dpkg
rm /run/post-waits; while [ -e /proc/$dpkg ]; do sleep 0.1; done
"""


def test_a_transaction_that_was_killed_with_its_controller_is_restored(rig: Rig) -> None:
    before, plan, run = rig.on(STATE), rig.project / "killed.json", rig.project / "killed"
    assert (
        rig.run_in_project("plan", *rig.reach, "--author", "ann", *CARE, "-o", plan).returncode == 1
    )
    assert (
        rig.run_in_project("approve", plan, "--key", rig.project / "bob", "--yes").returncode == 0
    )
    rig.on("rm -f /run/dpkg; touch /run/post-waits")
    words = ("apply", plan, *rig.reach, "--run", run, "--project", rig.project)
    rig.fleet.kill_when(lambda: rig.fleet.file("n1", "/run/dpkg"), *words, alone=True)
    rig.on(KILL)
    assert "iF " in rig.on("dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n'")
    done = rig.run_in_project("rollback", run)
    assert f"{OLD} → {NEW}: rolled back" in done.stdout, done.stdout + done.stderr
    rig.reboot()  # now NVML answers again, and the power limit can be restored
    done = rig.run_in_project("rollback", run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rig.on(STATE) == before


def stopped_before_it_changes_another(rig: Rig) -> None:
    """A version that needs another package, which has no way back: our hook ends apt."""
    target = Target("nvidia-settings", "2-0ubuntu1", automatic=False)
    install, *_ = driver_apt.actions([target], down=False, change_held=False)
    with SshExecutor(list(rig.fleet.hosts.values()), Options()) as worker:
        worker.open("n1")
        acted = worker.act("n1", install)
    assert not acted.ok
    assert "nodevet: nvlsm would change too, and is not in the plan" in acted.output
