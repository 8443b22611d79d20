"""`nodevet approve`: at a terminal, with an agent, with a passphrase."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan.plan_file import write
from nodevet.fixing.model import Risk
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel
from planned_fleet import capped, proposal

Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]
PASSPHRASE = "correct horse"

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "bob", "stranger", "locked"):
        secret = PASSPHRASE if name == "locked" else ""
        words = ["-q", "-t", "ed25519", "-N", secret, "-C", name, "-f", str(folder / name)]
        subprocess.run(["ssh-keygen", *words], check=True, timeout=120)
    return folder


@pytest.fixture
def project(tmp_path: Path, keys: Path) -> Path:
    lines = [
        f"{name}@x {(keys / f'{name}.pub').read_text()}" for name in ("alice", "bob", "locked")
    ]
    (tmp_path / "allowed_signers").write_text("".join(lines))
    save(tmp_path, Risk.LIVE)
    return tmp_path


def save(project: Path, risk: Risk, *, hours: float = 24, id: str = "ab12cd34") -> Path:
    """A plan of two nodes by alice."""
    now = datetime.now(timezone.utc)
    steps = tuple(
        Step(
            id=f"{host}/{fix}/1",
            host=host,
            fix=fix,
            subjects=(),
            expected="performance",
            actual="powersave",
            risk=risk,
            actions=(WriteKernel(path=f"/sys/{host}/{fix}", value="performance\x1b[2J"),),
            resources=(Resource(kind="kernel", name=f"/sys/{host}/{fix}"),),
            reason="wrong",
        )
        for host, fix in (("gpu1", "one"), ("gpu2", "two"), ("gpu1", "three"))
    )
    nodes = {
        host: PlannedNode(machine_id="m", boot_id=host, baseline="x") for host in ("gpu1", "gpu2")
    }
    plan = Plan(
        id=id,
        author="alice@x",
        created=now.isoformat(),
        expires=(now + timedelta(hours=hours)).isoformat(),
        baselines={"x": "1" * 64},
        nodes=nodes,
        steps=steps,
    )
    path = project / "plan.json"
    path.write_bytes(write(plan))
    return path


def sigs(project: Path) -> list[str]:
    return sorted(path.name for path in project.glob("*.sig"))


def test_a_plan_needs_enough_approvals_of_others_than_its_author(
    nodevet: Run, project: Path, keys: Path
) -> None:
    save(project, Risk.DRAIN)
    approve = ("approve", "plan.json")
    done = nodevet(*approve, "--verify", cwd=project)
    assert done.returncode == 1
    assert "not approved: the plan needs 2 approvals" in done.stderr
    done = nodevet(*approve, "--yes", "--key", keys / "bob", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "approved by bob@x: plan.json.bob@x.sig\n" in done.stdout
    assert "and has 1 (bob@x); run: nodevet approve plan.json\n" in done.stdout
    assert nodevet(*approve, "--verify", cwd=project).returncode == 1
    done = nodevet(*approve, "--yes", "--key", keys / "alice", cwd=project)
    assert done.returncode == 1
    assert "would not count, and is not stored: your key" in done.stderr
    assert "alice@x is the author" in done.stderr
    rules = project / "approval.yaml"
    rules.write_text("nodevet: 1\napprovals: {drain: 1}\n")
    done = nodevet(*approve, "--verify", cwd=project)
    assert done.returncode == 0
    assert done.stdout.startswith("approved by bob@x, key SHA256:")
    assert sigs(project) == ["plan.json.bob@x.sig"]
    save(project, Risk.DRAIN, id="changed1")
    done = nodevet(*approve, "--verify", cwd=project)
    assert done.returncode == 1
    assert "not approved: plan.json.bob@x.sig: does not fit this plan" in done.stderr


def test_ssh_keygen_alone_can_check_what_was_signed(
    nodevet: Run, project: Path, keys: Path
) -> None:
    assert (
        nodevet("approve", "plan.json", "--yes", "--key", keys / "bob", cwd=project).returncode == 0
    )
    with (project / "plan.json").open("rb") as plan:
        subprocess.run(
            ["ssh-keygen", "-Y", "verify", "-f", "allowed_signers", "-I", "bob@x",
             "-n", "nodevet-plan@v1", "-s", "plan.json.bob@x.sig"],
            stdin=plan, cwd=project, check=True, timeout=120,
        )  # fmt: skip


def test_approve_shows_and_escapes_every_action(nodevet: Run, project: Path, keys: Path) -> None:
    done = nodevet("approve", "plan.json", "--yes", "--key", keys / "bob", cwd=project)
    for path in ("/sys/gpu1/one", "/sys/gpu1/three", "/sys/gpu2/two"):
        assert path in done.stdout
    assert "\x1b" not in done.stdout
    done = nodevet("approve", "plan.json", "--yes", "--folded", "--key", keys / "bob", cwd=project)
    assert "powersave → performance" in done.stdout
    assert "/sys/gpu1/one" not in done.stdout


def test_serious_findings_come_first(nodevet: Run, project: Path, keys: Path) -> None:
    save(project, Risk.DRAIN)
    approve = ("approve", "plan.json", "--yes", "--key", keys / "bob")
    done = nodevet(*approve, cwd=project)
    head, facts = done.stdout.split("\n\n")[:2]
    assert head.startswith("Plan ab12cd34 by alice@x, made ")
    told = dict(line.split(maxsplit=1) for line in facts.splitlines())
    assert told["hosts"] == "2: gpu[1-2]"
    every = "one on 1 host, two on 1 host, three on 1 host"
    assert told["risk"] == f"drain, the host must be drained: {every}"
    assert told["interrupts"].startswith("nothing: no unit is stopped")
    assert told["expires"].startswith("in 23 h 59 min (")
    assert told["approvals"] == (
        "needs 2 approvals by different people for risk drain; has none; "
        "may still approve: bob@x, locked@x"
    )
    again = nodevet(*approve, cwd=project)
    assert "; has 1 (bob@x); may still approve: locked@x\n" in again.stdout
    enough = nodevet(*approve[:-1], keys / "locked", cwd=project)
    assert enough.returncode == 2  # its passphrase cannot be asked for


def test_color_always_colours_the_plan_in_a_pipe(nodevet: Run, project: Path, keys: Path) -> None:
    save(project, Risk.REBOOT)
    approve = ("approve", "plan.json", "--yes", "--key", keys / "bob")
    plain = nodevet(*approve, cwd=project).stdout
    colour = nodevet(*approve, "--color", "always", cwd=project).stdout
    assert "\x1b[32m+one: performance\x1b[0m\n" in colour
    assert "\x1b[31m-one: powersave\x1b[0m\n" in colour
    assert "\x1b[31mrisk reboot\x1b[0m" in colour
    assert "\x1b[31mreboot, the host must be drained" in colour
    stripped = re.sub(r"\x1b\[[0-9]*m", "", colour)
    body = plain.split("\n\n", 2)[2].partition("approved by")[0]
    assert body in stripped and "\x1b" not in stripped


WRONG_KINDS = {
    "site.yaml": ("nodevet: 1\nexpect: {}\n", "this is a baseline; use it with -b site.yaml"),
    "fleet.yaml": ("nodevet: 1\nhosts: {}\n", "this is an inventory; use it with -i fleet.yaml"),
    "last.json": (
        '{"schema": 1, "nodevet": "1", "started": "", "hosts": []}',
        "this is a saved run of checks; render it with: nodevet report last.json",
    ),
    "gpu1.json": (
        '{"schema": 1, "probe": "1", "sections": {}}',
        "this is saved evidence; judge it with: nodevet check --evidence gpu1.json",
    ),
}


@pytest.mark.parametrize("name", WRONG_KINDS)
def test_a_file_of_another_kind_is_recognised(nodevet: Run, project: Path, name: str) -> None:
    text, said = WRONG_KINDS[name]
    (project / name).write_text(text)
    done = nodevet("approve", name, "--yes", cwd=project)
    assert done.returncode == 2
    assert f"{name}: {said}; nodevet plan -o plan.json writes a plan" in done.stderr


def test_the_rollback_of_a_run_folder_is_approved(nodevet: Run, project: Path, keys: Path) -> None:
    (project / "runs/x-1").mkdir(parents=True)
    shutil.copy(project / "plan.json", project / "runs/x-1/plan.json")
    done = nodevet("approve", "--rollback", "runs/x-1", "--yes", "--key", keys / "bob", cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Rollback of plan ab12cd34 by alice@x, made ")
    assert "reverts     all of it, on the hosts where it was done: " in done.stdout
    assert "\nrollout" not in done.stdout and "\nexpires" not in done.stdout
    (project / "runs/x-1/journal.jsonl").touch()
    said = nodevet("approve", "runs/x-1", cwd=project).stderr
    assert "runs/x-1: this is the folder of a run; to approve its rollback: " in said
    assert "nodevet approve --rollback runs/x-1\n" in said
    said = nodevet("approve", "--rollback", "plan.json", cwd=project).stderr
    assert "plan.json: is not the folder of a run; give: nodevet approve --rollback" in said
    said = nodevet("approve", "--rollback", "runs", cwd=project).stderr
    assert "runs: is not the folder of a run, it has no plan.json; give: " in said
    assert "nodevet approve --rollback runs/x-1\n" in said
    assert "runs: is a folder; name the file" in nodevet("approve", "runs", cwd=project).stderr
    said = nodevet("approve", "--rollback", "runs/y-1", cwd=project).stderr
    assert "runs/y-1: does not exist; give: nodevet approve --rollback" in said


def test_a_key_that_is_not_an_approvers_stores_no_signature(
    nodevet: Run, project: Path, keys: Path
) -> None:
    done = nodevet("approve", "plan.json", "--yes", "--key", keys / "stranger", cwd=project)
    assert done.returncode == 1
    assert "signed by a stranger" in done.stderr
    assert sigs(project) == []


def test_an_expired_plan_is_not_signed(nodevet: Run, project: Path, keys: Path) -> None:
    save(project, Risk.LIVE, hours=-1)
    done = nodevet("approve", "plan.json", "--yes", "--key", keys / "bob", cwd=project)
    assert done.returncode == 1
    assert "cannot be approved: the plan expired at" in done.stderr
    assert sigs(project) == []


def test_mistakes_of_the_user_are_reported(nodevet: Run, project: Path, keys: Path) -> None:
    def said(*words: str | Path) -> str:
        done = nodevet("approve", *words, cwd=project)
        assert done.returncode == 2
        return done.stderr

    key = ("--key", keys / "bob")
    assert "use --yes to approve without confirmation" in said("plan.json", *key)
    assert "none.json: does not exist; nodevet plan -o none.json writes" in said("none.json", *key)
    assert "no SSH key in" in said("plan.json", "--yes")
    lonely = shutil.copy(keys / "bob.pub", project / "lonely.pub")
    assert "ssh-keygen did not sign" in said("plan.json", "--yes", "--key", lonely)
    (project / "text").write_text("{}")
    assert "text: not a plan" in said("text", *key)
    (project / "plan.json.x.sig").write_text("-----BEGIN SSH SIGNATURE-----\n")
    assert "this is a signature; name its plan" in said("plan.json.x.sig", *key)
    (project / "plan.json.x.sig").unlink()
    assert "--full, --folded: give one" in said("plan.json", "--full", "--folded", *key)
    (project / "approval.yaml").write_text("nodevet: 1\nteam: {}\n")
    assert "approval.yaml:2:1: team: " in said("plan.json", *key)
    (project / "allowed_signers").unlink()
    assert "allowed_signers: does not exist" in said("plan.json", "--verify")
    assert sigs(project) == []


def test_the_only_key_of_the_user_signs(project: Path, keys: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    shutil.copy(keys / "bob", home / ".ssh/id_ed25519")

    def approve() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*NODEVET, "approve", "plan.json", "--yes"],
            cwd=project, env={**os.environ, "HOME": str(home)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    assert approve().returncode == 0
    assert sigs(project) == ["plan.json.bob@x.sig"]
    shutil.copy(keys / "alice", home / ".ssh/id_rsa")
    done = approve()
    assert done.returncode == 2
    assert "several keys could sign" in done.stderr


@pytest.fixture
def agent(keys: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of an agent that holds bob's key."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    env = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
    try:
        end = time.monotonic() + 120
        while not socket.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        subprocess.run(["ssh-add", "-q", keys / "bob"], env=env, check=True, timeout=120)
        yield env
    finally:
        process.terminate()
        process.wait(120)


def test_the_agent_signs_for_a_public_key(
    project: Path, keys: Path, agent: dict[str, str], tmp_path: Path
) -> None:
    public = tmp_path / "public.pub"
    shutil.copy(keys / "bob.pub", public)
    words = ["approve", "plan.json", "--yes", "--key", str(public)]
    done = subprocess.run(
        [*NODEVET, *words], cwd=project, env=agent, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sigs(project) == ["plan.json.bob@x.sig"]


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, words: list[str], folder: Path, **more: str) -> None:
        self.master, slave = pty.openpty()
        env = {
            key: value for key, value in os.environ.items() if key not in ("DISPLAY", "SSH_ASKPASS")
        }
        env.pop("SSH_AUTH_SOCK", None)
        env |= more
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *words],
            stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env,
        )  # fmt: skip
        os.close(slave)
        self.said = ""

    def until(self, text: str) -> None:
        end = time.monotonic() + 60
        while text not in self.said:
            assert time.monotonic() < end, self.said
            if not self._more():
                break
        assert text in self.said, self.said

    def _more(self) -> bool:
        if select.select([self.master], [], [], 0.5)[0]:
            try:
                chunk = os.read(self.master, 4096)
            except OSError:  # the other end is closed
                return False
            self.said += chunk.decode()
        return True

    def type(self, text: str) -> None:
        os.write(self.master, f"{text}\n".encode())

    def end(self) -> int:
        """Its exit code, when it has closed the terminal."""
        end = time.monotonic() + 60
        while self._more():
            assert time.monotonic() < end, self.said
        os.close(self.master)
        return self.process.wait(120)


needs_setsid = pytest.mark.skipif(not shutil.which("setsid"), reason="needs setsid")


@needs_setsid
def test_the_id_is_typed_and_then_the_passphrase(project: Path, keys: Path) -> None:
    words = [*NODEVET, "approve", "plan.json", "--key", str(keys / "locked")]
    terminal = Terminal(words, project)
    terminal.until("Type ab12cd34 to approve")
    assert "/sys/gpu2/two" in terminal.said
    terminal.type("ab12cd34")
    terminal.until("Enter passphrase")
    terminal.type(PASSPHRASE)
    terminal.until("approved by locked@x")
    assert terminal.end() == 0
    assert sigs(project) == ["plan.json.locked@x.sig"]


@needs_setsid
def test_a_plan_for_500_similar_hosts_fits_one_screen(
    project: Path, keys: Path, tmp_path: Path
) -> None:
    hosts = {f"gpu{n:03}": [capped(490_000 if n == 4 else 500_000)] * 8 for n in range(1, 501)}
    made = proposal(tmp_path / "site", hosts, author="alice@x", now=datetime.now(timezone.utc))
    (project / "plan.json").write_bytes(write(made.plan))
    words = [*NODEVET, "approve", "plan.json", "--key", str(keys / "bob")]
    terminal = Terminal(words, project, COLUMNS="120", NO_COLOR="1")
    terminal.until("Type 0a1b2c3d to approve")
    *rows, _ = terminal.said.splitlines()
    terminal.type("no")
    assert terminal.end() == 1
    assert len(rows) <= 43
    assert all(len(row) <= 120 for row in rows)
    assert "-power_limit GPU 0-7: 500 W on gpu[001-003,005-500]; 490 W on gpu004" in rows
    assert "hosts       500: gpu[001-500]" in rows


@needs_setsid
def test_a_wrong_passphrase_signs_nothing(project: Path, keys: Path) -> None:
    words = [*NODEVET, "approve", "plan.json", "--yes", "--key", str(keys / "locked")]
    terminal = Terminal(words, project)
    terminal.until("Enter passphrase")
    terminal.type("wrong")
    terminal.until("did not sign with")
    assert terminal.end() == 2
    assert sigs(project) == []


@needs_setsid
@pytest.mark.parametrize("typed", ["yes", "", "AB12CD34"])
def test_an_answer_other_than_the_plan_id_does_not_approve(
    project: Path, keys: Path, typed: str
) -> None:
    words = [*NODEVET, "approve", "plan.json", "--key", str(keys / "bob")]
    terminal = Terminal(words, project)
    terminal.until("to approve")
    terminal.type(typed)
    terminal.until("not approved: nothing is signed")
    assert terminal.end() == 1
    assert sigs(project) == []


@needs_setsid
def test_control_c_signs_nothing(project: Path, keys: Path) -> None:
    words = [*NODEVET, "approve", "plan.json", "--key", str(keys / "locked")]
    terminal = Terminal(words, project)
    terminal.until("to approve")
    terminal.type("ab12cd34")
    terminal.until("Enter passphrase")
    os.write(terminal.master, b"\x03")
    terminal.until("interrupted")
    assert terminal.end() == 130
    assert sigs(project) == []


def test_a_hostile_approver_name_is_escaped_in_the_file_name(
    nodevet: Run, project: Path, keys: Path
) -> None:
    line = f'"../../bob \x7f" {(keys / "bob.pub").read_text()}'.replace("\x7f", "é")
    (project / "allowed_signers").write_text(line)
    done = nodevet("approve", "plan.json", "--yes", "--key", keys / "bob", cwd=project)
    assert done.returncode == 0, done.stderr
    (name,) = sigs(project)
    assert name.startswith("plan.json..._.._bob")
    assert json.loads((project / "plan.json").read_text())["id"] == "ab12cd34"
