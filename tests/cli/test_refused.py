"""What `nodevet apply` must refuse, as a user meets it: the reason is said, and nothing is changed.

Two simulated nodes over real SSH. The commands run in this process, which saves the start of
each; one plan of gpu1, with steps of risk idle and live, is what most of the tests apply.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from in_this_process import Said, nodevet

from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = """\
sim: 1
templates:
  h100: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 1, governor: powersave}
nodes:
  gpu1: {template: h100, nvml: {"gpu.0.power_limit_mw": "500000"}}
  gpu2: {template: h100, nvml: {"gpu.0.power_limit_mw": "500000"}}
"""
BASELINE = """\
nodevet: 1
expect:
  power_limit: 700
  cpu_governor: performance
  compute_mode: EXCLUSIVE_PROCESS
fix: [power_limit, cpu_governor, compute_mode]
"""
STATE = """\
set -e
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor
nvidia-smi --format=csv --query-gpu=power.limit,compute_mode,persistence_mode
find /etc /run/systemd/system /run/tmpfiles.d -printf '%p %y %m %U:%G %s %T@ %l\\n' | sort
systemctl list-units --all --plain --no-legend 'nodevet*' 'nvidia*'
"""
CRON = "/etc/cron.d/site"
DCGM = "nvidia-dcgm.service"
ENGINE = """\
#!/usr/bin/python3
import os, signal
os.open("/dev/nvidia0", os.O_PATH)
signal.pause()
"""
HOSTENGINE = f"""\
set -e
printf '%s' '{ENGINE}' > /usr/local/bin/nv-hostengine
chmod 755 /usr/local/bin/nv-hostengine
printf '[Service]\\nExecStart=/usr/local/bin/nv-hostengine\\n' > /etc/systemd/system/{DCGM}
systemctl daemon-reload
systemctl start {DCGM}
until ls -l /proc/$(systemctl show -P MainPID {DCGM})/fd | grep -q /dev/nvidia0; do sleep 0.1; done
"""


class Rig:
    """The fleet, and a project where ann may approve."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.project = fleet.project
        self.inventory = fleet.place.inventory
        self.hosts = fleet.hosts
        self.run_on = fleet.run_on
        self.sim = fleet.sim
        self._runs = 0

    @contextmanager
    def unchanged(self, *nodes: str) -> Iterator[None]:
        """All that a fix could change on these nodes is afterwards as it was before."""
        before = {node: self.run_on(node, STATE).splitlines() for node in nodes}
        yield
        for node, was in before.items():
            assert self.run_on(node, STATE).splitlines() == was

    def plan(self, host: str, file: Path) -> str:
        """A plan of what is wrong there now, and what is said of it."""
        said = nodevet(
            *("plan", "-i", self.inventory, "--limit", host, "-b", "base", "--author", "ann"),
            *("-o", file, "--project", self.project, "--deadline", "100", "--settle", "0.2"),
        )
        assert said.code == 1, said
        return said.out

    def approved(self, host: str) -> Path:
        plan = self.project / f"{host}.json"
        self.plan(host, plan)
        said = nodevet(
            *("approve", plan, "--key", self.project / "ann", "--yes", "--project", self.project)
        )
        assert said.code == 0, said
        return plan

    def signed(self, plan: Path, name: str, change: Callable[[str], str], key: str) -> Path:
        """Another plan, and a signature that `nodevet approve` would not make."""
        file = self.project / f"{name}.json"
        file.write_text(change(plan.read_text()))
        words = ["ssh-keygen", "-q", "-Y", "sign", "-n", "nodevet-plan@v1", "-f"]
        subprocess.run([*words, self.project / key, file], check=True, timeout=30)
        Path(f"{file}.sig").rename(f"{file}.{key}.sig")
        return file

    def apply(self, plan: Path, *words: str | Path, inventory: Path | None = None) -> Said:
        self._runs += 1
        self.run = self.project / f"run-{self._runs}"
        return nodevet(
            *("apply", plan, "-i", inventory or self.inventory, "-b", "base"),
            *("--project", self.project, "--run", self.run, "--deadline", "100", *words),
        )

    def refused(self, plan: Path, *nodes: str, inventory: Path | None = None) -> str:
        """Why the one node of the plan was refused: as the report says it, and the result."""
        with self.unchanged(*nodes):
            said = self.apply(plan, inventory=inventory)
        assert said.code == 1 and "1 host: 1 refused" in said.out, said
        (host,) = json.loads((self.run / "result.json").read_bytes())["hosts"]
        assert host["outcome"] == "refused" and not any(step["ran"] for step in host["steps"])
        assert b'"action-begin"' not in (self.run / "journal.jsonl").read_bytes()
        why = host["why"].replace(f"{host['host']}/", "")
        assert said.out.startswith(f"REFUSED  {host['host']}  {why}\n"), said
        return f"{host['refusal']}: {host['why']}"


@pytest.fixture(scope="module")
def rig(boot: Boot) -> Iterator[Rig]:
    fleet = boot("ref", SCENARIO, BASELINE)
    fleet.people("ann", "stranger")
    signers = fleet.project / "allowed_signers"
    signers.write_text(signers.read_text().splitlines(keepends=True)[0])  # the stranger may not
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(fleet.project))
        for node in fleet.hosts:
            fleet.run_on(node, "systemctl is-system-running --wait >/dev/null || true")
        yield Rig(fleet)


@pytest.fixture(scope="module")
def plan(rig: Rig) -> Path:
    """Of gpu1, approved, and of steps of two risks."""
    approved = rig.approved("gpu1")
    steps = json.loads(approved.read_bytes())["steps"]
    assert {step["fix"]: step["risk"] for step in steps} == {
        "compute_mode": "idle",
        "power_limit": "live",
        "cpu_governor": "live",
    }
    return approved


def test_a_plan_that_is_not_approved(rig: Rig, plan: Path) -> None:
    """No node is visited, and no run is begun."""

    def why(plan: Path, *words: str) -> str:
        said = rig.apply(plan, *words)
        assert (said.code, said.out) == (2, "") and not rig.run.exists(), said
        assert said.err.startswith("nodevet: ")
        return said.err

    with rig.unchanged("gpu1"):
        unsigned = rig.project / "unsigned.json"
        unsigned.write_bytes(plan.read_bytes())
        told = why(unsigned)
        assert (
            "the plan may not be applied:\nthe plan needs 1 approval for idle and has none" in told
        )
        assert "run: nodevet approve" in told

        told = why(rig.signed(plan, "strange", str, "stranger"))
        assert "strange.json.stranger.sig: signed by a stranger: " in told
        assert "needs 1 approval for idle and has none" in told

        changed = rig.signed(plan, "changed", str, "ann")
        changed.write_text(changed.read_text().replace('"performance"', '"powersave"'))
        told = why(changed)
        assert "changed.json.ann.sig: does not fit this plan: " in told
        assert "was changed after it was signed" in told

        expires = json.loads(plan.read_bytes())["expires"]
        past = "2020-02-02T20:20:00+00:00"
        told = why(rig.signed(plan, "expired", lambda text: text.replace(expires, past), "ann"))
        assert f"the plan expired at {past}; plan again" in told

        assert "a reboot needs --drain-hook" in why(plan, "--reboot", "--override")
        told = why(plan, "--reboot", "--drain-hook", "true", "--override")
        assert "to reboot: the plan needs 2 approvals" in told


def test_a_baseline_that_was_changed(rig: Rig, plan: Path) -> None:
    baseline = rig.project / "baselines" / "base.yaml"
    baseline.write_text(BASELINE.replace("700", "650"))
    try:
        with rig.unchanged("gpu1"):
            said = rig.apply(plan)
    finally:
        baseline.write_text(BASELINE)
    assert (said.code, said.out) == (2, "") and not rig.run.exists(), said
    assert said.err == (
        "nodevet: the baseline base was changed since the plan was made: plan again\n"
    )


def test_another_node_under_the_same_name(rig: Rig, plan: Path) -> None:
    one, two = (f'"{rig.hosts[node].address}"' for node in ("gpu1", "gpu2"))
    crossed = rig.project / "crossed.yaml"
    text = rig.inventory.read_text()
    crossed.write_text(text.replace(one, "ONE").replace(two, one).replace("ONE", two))
    told = rig.refused(plan, "gpu1", "gpu2", inventory=crossed)
    ids = [rig.run_on(node, "cat /etc/machine-id").strip() for node in ("gpu2", "gpu1")]
    assert told == (
        f"stale: another node under the same name: its machine id is {ids[0]}, "
        f"the plan was made on {ids[1]}"
    )


def test_a_value_that_is_no_longer_what_was_planned(rig: Rig, plan: Path) -> None:
    """What was drawn up for 500 W is not applied to 450 W, nor is anything else of the plan."""
    rig.run_on("gpu1", "nvidia-smi -pl 450")
    told = rig.refused(plan, "gpu1")
    assert told == "stale: gpu1/power_limit/1: is 450 W now, and was 500 W when planned"
    rig.run_on("gpu1", "nvidia-smi -pl 500")


def test_a_file_created_since_the_plan_at_a_planned_path(rig: Rig, plan: Path) -> None:
    """It is in the way of the last step, and so the first one is not begun either."""
    steps = json.loads(plan.read_bytes())["steps"]
    (file,) = {
        resource["name"] for resource in steps[-1]["resources"] if resource["kind"] == "file"
    }
    rig.run_on("gpu1", f"echo '# by hand' > {file}")
    told = rig.refused(plan, "gpu1")
    assert told == (
        f"stale: {steps[-1]['id']}: file {file} is a file of mode 644, and was absent when planned"
    )
    rig.run_on("gpu1", f"rm {file}")


def test_a_busy_gpu(rig: Rig, plan: Path) -> None:
    """A step of risk idle is not begun, and those that could be are not either."""
    load = "load=[{gpus: [0], command: train}]"
    rig.sim("set", "gpu1", load)
    told = rig.refused(plan, "gpu1")
    pid = rig.run_on("gpu1", "pgrep -x train").strip()
    assert told == (
        f"precondition: gpu1/compute_mode/1 is of risk idle: GPU 0 in use by train (pid {pid})"
    )
    rig.sim("set", "gpu1", "load=[]")


def test_a_node_that_someone_else_works_on(rig: Rig, plan: Path) -> None:
    with SshExecutor(
        [rig.hosts["gpu1"]], Options(ssh_config=Path(os.devnull), deadline=60)
    ) as other:
        other.open("gpu1")
        other.lock("gpu1", "bob@desk, run 7, pid 42")
        told = rig.refused(plan, "gpu1")
    assert told.startswith("locked: locked by bob@desk, run 7, pid 42 since 20"), told


def test_another_owner(rig: Rig, plan: Path) -> None:
    """One that is there is not planned against; one that came since is refused."""
    rig.run_on("gpu1", f"mkdir -p /etc/cron.d; echo '@reboot root nvidia-smi -pl 500' > {CRON}")
    with rig.unchanged("gpu1"):
        again = rig.project / "again.json"
        told = rig.plan("gpu1", again)
    assert told.index("Not planned:") < told.index(f"is also managed by {CRON}:1"), told
    steps = json.loads(again.read_bytes())["steps"]
    assert {step["fix"] for step in steps} == {"compute_mode", "cpu_governor"}
    told = rig.refused(plan, "gpu1")
    assert told.startswith("manager: conflict: gpu ") and f" is also managed by {CRON}:1;" in told
    rig.run_on("gpu1", f"rm {CRON}")


def test_a_run_whose_plan_was_changed_is_neither_resumed_nor_rolled_back(rig: Rig) -> None:
    kept = rig.run / "plan.json"
    text = kept.read_text()
    kept.write_text(text.replace('"performance"', '"powersave"'))
    reach = ("--project", rig.project, "-b", "base")
    with rig.unchanged("gpu1"):
        for words in (("apply", "--resume", rig.run, *reach), ("rollback", rig.run, *reach[:2])):
            said = nodevet(*words)
            assert said.code == 2 and "was changed since the run began; restore it" in said.err
        kept.write_text(text)
        said = nodevet("rollback", rig.run, *reach[:2])
        assert said.code == 0 and "1 host: 1 unchanged" in said.out, said


def test_d22_a_monitoring_client_is_stopped_for_a_step_and_always_restarted(
    rig: Rig,
) -> None:
    """A real process holds the GPU; the step fails, is done, and is rolled back."""

    def now() -> tuple[str, str, str]:
        """Whether the service runs, which start of it that is, and the GPU's mode."""
        active, start, mode = rig.run_on(
            "gpu1",
            f"systemctl show -P ActiveState -P InvocationID {DCGM}; "
            "nvidia-smi --format=csv,noheader --query-gpu=compute_mode",
        ).split()
        return active, start, mode

    rig.run_on("gpu1", HOSTENGINE)
    plan = rig.project / "dcgm.json"
    told = rig.plan("gpu1", plan)
    assert f"{DCGM}: stopped before it, and started again after it" in told
    (step,) = [s for s in json.loads(plan.read_bytes())["steps"] if s["fix"] == "compute_mode"]
    assert step["risk"] == "idle" and step["holders"] == [DCGM]
    key = rig.project / "ann"
    assert nodevet("approve", plan, "--key", key, "--yes", "--project", rig.project).code == 0
    begun = now()
    assert begun[0] == "active" and begun[2] == "Default"

    rig.run_on("gpu1", "mount --bind /bin/false $(readlink -f $(command -v nvidia-smi))")
    try:
        said = rig.apply(plan)
    finally:
        rig.run_on("gpu1", "umount $(readlink -f $(command -v nvidia-smi))")
    assert said.code == 1 and "FAILED AND ROLLED BACK" in said.out, said
    failed = now()
    assert (failed[0], failed[2]) == ("active", "Default") and failed[1] != begun[1]

    said = rig.apply(plan)
    assert said.code == 0 and "CHANGED" in said.out, said
    done = now()
    assert (done[0], done[2]) == ("active", "Exclusive_Process") and done[1] != failed[1]

    said = nodevet("rollback", rig.run, "--settle", "0.2", "--project", rig.project)
    assert said.code == 0 and "ROLLED BACK" in said.out, said
    back = now()
    assert (back[0], back[2]) == ("active", "Default") and back[1] != done[1]
    rig.run_on("gpu1", f"systemctl stop {DCGM}; rm /etc/systemd/system/{DCGM}")


def test_a_node_that_was_rebooted_since(rig: Rig) -> None:
    """All is as it was, and yet a plan is of one boot: what it was made on may be gone."""
    plan = rig.approved("gpu2")
    rig.sim("reboot", "gpu2")
    rig.run_on("gpu2", "systemctl is-system-running --wait >/dev/null || true")
    assert rig.refused(plan, "gpu2") == "stale: rebooted since the plan was made"
