"""`nodevet apply @local` on a simulated node, by its root, at a terminal; and `rollback`."""

import json
import os
import pty
import select
import shlex
import signal
import subprocess
from collections.abc import Callable

import pytest
from nodevet_on_node import install, write

from nodevet_sim.nspawn.place import QUICK_KEX
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
Run = Callable[..., subprocess.CompletedProcess[str]]

SCENARIO = """\
sim: 1
nodes:
  g1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2, governor: powersave}
"""
BASE = """\
nodevet: 1
expect: {cpu_governor: performance, persistence_mode: true}
fix: [cpu_governor]
"""
INVENTORY = "nodevet: 1\nhosts: {g1: {whole_machine: true}}\n"
SETTING = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"


class Machine:
    """One node, on which nodevet runs itself."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        install(fleet, "g1")
        self.on(
            "; ".join(
                (
                    write("/srv/p/baselines/base.yaml", BASE),
                    write("/srv/p/fleet.yaml", INVENTORY),
                )
            )
        )

    def on(self, script: str) -> str:
        """What a script says, whatever its end; errors too."""
        return self.fleet.run_on("g1", f"cd /srv/p 2>/dev/null; {{ {script}; }} 2>&1", check=False)

    def at_terminal(self, answer: str, command: str) -> tuple[int, str]:
        """A command at a terminal of the node, and its answer to a question."""
        place, address = self.fleet.place, self.fleet.hosts["g1"].address
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvp(
                "ssh",
                [
                    *("ssh", "-tt", "-F", "none", "-l", "root", "-i", str(place.key)),
                    *("-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={place.known_hosts}"),
                    *("-o", "LogLevel=ERROR", "-o", f"KexAlgorithms={QUICK_KEX}"),
                    *(str(address), f"cd /srv/p; {command}"),
                ],
            )
        said, asked, silence = b"", False, 0
        while True:
            if not select.select([terminal], [], [], 20)[0]:
                silence += 1
                if silence == 9:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    pytest.fail(f"the terminal is silent: {said!r}")
                if asked:  # as a person does whose first key got lost
                    os.write(terminal, f"{answer}\n".encode())
                continue
            silence = 0
            try:
                chunk = os.read(terminal, 1 << 16)
            except OSError:  # it ended
                break
            said += chunk
            if not chunk:
                break
            if b"[y/N]" in said and not asked:
                asked = True
                os.write(terminal, f"{answer}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
        return code, said.decode().replace("\r", "")

    @property
    def governor(self) -> str:
        return self.on(f"cat {SETTING}").strip()

    def run(self) -> str:
        """The newest run's folder."""
        return f"runs/{self.on('ls -t runs').split()[0]}"


@pytest.fixture(scope="module")
def machine(boot: Boot) -> Machine:
    return Machine(boot("fixlocal", SCENARIO))


FIX = "nodevet apply @local -i fleet.yaml -b base --color never"


def test_a_local_fix_that_is_not_confirmed_changes_nothing(machine: Machine) -> None:
    for answer in ("", "n", "no", "yes please"):
        code, said = machine.at_terminal(f"{answer}\nn", FIX)
        assert "cpu_governor" in said
        assert "Apply this now? [y/N]" in said
        assert "nothing was changed" in said
        assert code == 1
    assert machine.governor == "powersave"
    assert "runs" not in machine.on("ls")


def test_a_local_fix_without_a_terminal_names_plan_approve_and_apply(machine: Machine) -> None:
    assert "use nodevet plan, approve and apply" in machine.on(f"echo y | {FIX}")
    assert machine.governor == "powersave"


def test_other_users_are_told_to_use_sudo(machine: Machine) -> None:
    said = machine.on(f"su nobody -s /bin/sh -c {shlex.quote(FIX)}")
    assert "only root may fix this machine: sudo nodevet apply @local" in said


def test_a_project_with_approval_rules_refuses_a_local_fix(machine: Machine) -> None:
    machine.on(
        "ssh-keygen -q -t ed25519 -N '' -f /srv/key; "
        "(printf 'ann '; cat /srv/key.pub) > allowed_signers; "
        "printf 'nodevet: 1\\n' > approval.yaml"
    )
    try:
        code, said = machine.at_terminal("y", FIX)
        assert code == 2
        assert "approval.yaml: this project says who approves what" in said
        assert machine.governor == "powersave"
    finally:
        machine.on("rm allowed_signers approval.yaml")


def test_a_plan_file_for_this_machine_needs_a_signature(machine: Machine) -> None:
    """A plan in a file needs signatures, for this machine as for any other; then it is applied,
    without SSH."""
    machine.on("nodevet plan @local -i fleet.yaml -b base -o plan.json")
    said = machine.on("nodevet apply plan.json -i fleet.yaml -b base; echo code $?")
    assert "no one can approve a plan" in said
    assert "code 2" in said
    assert machine.governor == "powersave"
    machine.on(
        "ssh-keygen -q -t ed25519 -N '' -f /srv/ann; "
        "(printf 'ann '; cat /srv/ann.pub) > allowed_signers; "
        "nodevet approve plan.json --yes --key /srv/ann"
    )
    try:
        said = machine.on("nodevet apply plan.json -i fleet.yaml -b base; echo code $?")
        assert "code 0" in said, said
        assert "approved by  ann" in said
        assert machine.governor == "performance"
        assert "code 0" in machine.on(f"nodevet rollback {machine.run()}; echo code $?")
        assert machine.governor == "powersave"
    finally:
        machine.on("rm -rf allowed_signers plan.json* runs")


def test_a_confirmed_local_fix_is_applied_verified_and_rolled_back(machine: Machine) -> None:
    code, said = machine.at_terminal("y", FIX)
    assert code == 0, said
    assert "approved by  root (uid 0, at the terminal of this machine)" in said
    assert machine.governor == "performance"
    run = machine.run()
    first = json.loads(machine.on(f"head -1 {run}/journal.jsonl"))
    assert first["options"]["confirmed"] == {"user": "root", "uid": 0}
    assert "Nothing to do" in machine.at_terminal("y", FIX)[1]

    said = machine.on(f"nodevet rollback {run}; echo code $?")
    assert "code 0" in said, said
    assert machine.governor == "powersave"
    assert machine.on("ls /etc/tmpfiles.d | grep nodevet") == ""

    machine.on("printf 'nodevet: 1\nexpect: {cpu_governor: performance}\n' > strict.yaml")
    said = machine.at_terminal("", FIX.replace("-b base", "-b strict.yaml"))[1]
    assert "add to `fix` in strict.yaml, or plan once with --fix cpu_governor" in said


def test_a_resumed_local_run_starts_no_new_step(machine: Machine) -> None:
    """As one that was killed at once, or that someone made up from such a run."""
    machine.at_terminal("y", FIX)
    machine.on(f"nodevet rollback {machine.run()}")
    machine.on(
        f"mkdir -m 700 made-up; cp {machine.run()}/plan.json {machine.run()}/reach.json "
        f"made-up; head -1 {machine.run()}/journal.jsonl > made-up/journal.jsonl"
    )
    said = machine.on("nodevet apply -b base --resume made-up; echo code $?")
    assert "it was confirmed once, for the steps that were started then" in said
    assert "code 1" in said
    assert machine.governor == "powersave"
    machine.on("sed -i s/performance/ondemand/ made-up/plan.json")
    said = machine.on("nodevet apply -b base --resume made-up; nodevet rollback made-up")
    assert said.count("was changed since the run began") == 2
    machine.on("rm -rf made-up")


def test_only_root_on_the_same_machine_can_resume_or_roll_back_a_local_run(
    machine: Machine,
) -> None:
    machine.at_terminal("y", FIX)
    run = machine.run()
    machine.on(f"chown nobody {run}/journal.jsonl")
    assert "belongs to another user" in machine.on(f"nodevet rollback {run}")
    machine.on(
        f"chown root {run}/journal.jsonl; cp /etc/machine-id /srv/id; "
        f"tr 0-9 a-j < /srv/id > /etc/machine-id"
    )
    try:
        assert "is another machine" in machine.on(f"nodevet rollback {run}")
        assert "is another machine" in machine.on(f"nodevet apply -b base --resume {run}")
        assert machine.governor == "performance"
    finally:
        machine.on("cat /srv/id > /etc/machine-id")
    assert "code 0" in machine.on(f"nodevet rollback {run}; echo code $?")
    assert machine.governor == "powersave"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a PLAN, @local, or a run to --resume"),
        (("gpu1",), "gpu1: there is no such file"),
        (("@local", "gpu1"), "unexpected extra argument (gpu1)"),
        (("@local", "--canary", "1"), "--canary does not go with @local"),
        (("@local", "--resume", "/"), "--resume does not go with @local"),
        (("plan.json", "--again"), "--again goes with @local: a plan names its fixes"),
        (("plan.json", "--fix", "swap"), "--fix goes with @local: a plan names its fixes"),
    ],
)
def test_options_that_do_not_fit_this_machine_are_refused(
    nodevet: Run, words: tuple[str, ...], why: str
) -> None:
    done = nodevet("apply", *words)
    assert done.returncode == 2
    assert why in done.stderr
