"""docs/pass.md on simulated nodes: a real slurmd of a real systemd starts only with a pass."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_blocks import blocks
from far_processes import wait_for
from nodevet_on_node import install, write
from slurm_on_node import start_slurm

from nodevet.base.sshsig import sign
from nodevet.passes.document import NAMESPACE, parse, split, text_of
from nodevet.passes.use.on_nodes import put_command
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
PAGE = Path(__file__).parents[2] / "docs" / "pass.md"
UNIT = Path("/lib/systemd/system/slurmd.service")
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 2}, sockets: 1, cores: 2}
  n2: {gpus: {profile: h100-sxm, count: 2}, sockets: 1, cores: 2}
"""
BASELINE = "nodevet: 1\nexpect: {gpu_count: 2}\n"
DROP_IN = "/etc/systemd/system/slurmd.service.d/nodevet-pass.conf"
ALLOWED = "/etc/nodevet/allowed_signers"
PASS = "/run/nodevet/pass"


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("pass", SCENARIO, BASELINE)
    fleet.people("gate", "stranger")
    public = next(
        line
        for line in (fleet.project / "allowed_signers").read_text().splitlines()
        if "gate" in line
    )
    for node in fleet.hosts:
        install(fleet, node)
        fleet.run_on(node, write(ALLOWED, f"{public}\n"))
    if not UNIT.exists():
        pytest.skip("this machine has no unit of slurmd to copy")
    start_slurm(fleet, "n1", other=False)
    fleet.run_on(
        "n1", "pkill -x slurmd; ln -sfn /srv/slurm.conf /etc/slurm.conf; mkdir -p /etc/slurm"
    )
    fleet.run_on("n1", "ln -sfn /srv/slurm.conf /etc/slurm/slurm.conf; systemctl daemon-reload")
    fleet.run_on("n1", write(str(UNIT), UNIT.read_text()))
    fleet.run_on("n1", write(DROP_IN, drop_in()) + "; systemctl daemon-reload")
    return fleet


@pytest.fixture
def node(fleet: SimulatedFleet) -> Iterator[SimulatedFleet]:
    """Without a pass, and with slurmd stopped; afterwards as it was."""
    fleet.run_on("n1", f"systemctl stop slurmd; systemctl reset-failed slurmd; rm -rf {PASS}")
    yield fleet
    fleet.sim("set", "n1", "faults=[]")


def drop_in() -> str:
    """The page's drop-in."""
    name = "slurmd.service.d/nodevet-pass.conf"
    return next(block.text for block in blocks(PAGE) if block.mark("file") == name)


def gate(
    fleet: SimulatedFleet, *words: object, key: str = "gate", wait: str = "60s"
) -> "subprocess.CompletedProcess[str]":
    limits = ("--wait", wait, "--settle", "0s", "--interval", "1s", "--store", "none", "-q")
    return fleet.run_in_project(
        "gate",
        *fleet.reach,
        *limits,
        "--pass-key",
        fleet.project / key,
        *(words or ("--limit", "n1")),
    )


def passed(fleet: SimulatedFleet, *words: object, **more: str) -> None:
    done = gate(fleet, *words, **more)
    assert done.returncode == 0, done
    assert "nodevet: pass signed and put on n" in done.stderr


def verify(fleet: SimulatedFleet, *, starts: bool) -> str:
    """What `nodevet pass verify` says on n1. A start of slurmd, which does not wait, succeeds or
    fails the same way."""
    said, code = (
        fleet.run_on("n1", "nodevet pass verify 2>&1; echo $?").rstrip("\n").rsplit("\n", 1)
    )
    assert (code == "0") is starts, said
    quick = drop_in().replace("--wait 15m", "--wait 0s").replace("Restart=on-failure\n", "")
    fleet.run_on("n1", write(DROP_IN, quick) + "; systemctl daemon-reload")
    done = fleet.run_on(
        "n1", "systemctl start slurmd && systemctl is-active slurmd; :", check=False
    )
    assert (done.strip() == "active") is starts, done
    return said


def replace(fleet: SimulatedFleet, data: bytes) -> None:
    fleet.run_on("n1", write(PASS, data.decode()))


def read(fleet: SimulatedFleet, node: str = "n1") -> bytes:
    return fleet.run_on(node, f"cat {PASS}").encode()


def signed(fleet: SimulatedFleet, **changed: str) -> bytes:
    """The node's pass, with other values, signed by the controller's key."""
    values = parse(split(read(fleet))[0])
    text = text_of({**values, **{name: [value] for name, value in changed.items()}})
    return text + sign([text], fleet.project / "gate", NAMESPACE, option="--pass-key")[0]


def test_slurmd_waits_for_the_gate_and_then_takes_jobs(node: SimulatedFleet) -> None:
    node.run_on("n1", write(DROP_IN, drop_in()) + "; systemctl daemon-reload")
    node.run_on("n1", "systemctl start --no-block slurmd")
    wait_for(lambda: "pass verify --wait 15m" in node.run_on("n1", "ps -eo args"))
    assert node.run_on("n1", "systemctl is-active slurmd; :") == "activating\n"
    assert node.run_on("n1", "pgrep -x slurmd; :") == ""
    passed(node)
    wait_for(lambda: node.run_on("n1", "systemctl is-active slurmd; :") == "active\n")
    state = "SLURM_CONF=/srv/slurm.conf sinfo -h -o %t"
    wait_for(lambda: node.run_on("n1", state) == "idle\n")
    assert node.run_on("n1", f"stat -c '%a %U' {PASS} /run/nodevet") == "644 root\n755 root\n"


def test_systemd_tries_again_if_the_pass_comes_late(node: SimulatedFleet) -> None:
    late = drop_in().replace("--wait 15m", "--wait 2s").replace("RestartSec=30s", "RestartSec=1s")
    assert late.count("2s") == late.count("=1s") == 1
    node.run_on("n1", write(DROP_IN, late) + "; systemctl daemon-reload")
    node.run_on("n1", "systemctl start --no-block slurmd")
    wait_for(lambda: int(node.run_on("n1", "systemctl show --value -p NRestarts slurmd")) > 0)
    passed(node)
    wait_for(lambda: node.run_on("n1", "systemctl is-active slurmd; :") == "active\n")


def test_slurmd_does_not_start_without_a_pass(node: SimulatedFleet) -> None:
    assert (
        verify(node, starts=False)
        == f"no valid pass: {PASS} does not exist: gate this node with --pass-key"
    )


def test_a_pass_lets_slurmd_start_and_lists_the_vetted_facts(node: SimulatedFleet) -> None:
    passed(node, "--limit", "n1", "--pass-for", "2h")
    assert "pass of n1 by gate holds for 2.0 h" in verify(node, starts=True)
    assert node.run_on("n1", "nodevet pass verify >&- 2>&-") == ""  # exit code 0 all the same
    values = parse(split(read(node))[0])
    assert values["gpu"] == sorted(
        re.findall("GPU-[0-9a-f-]+", node.run_on("n1", "nvidia-smi -L")),
    )
    assert values["machine"] == [node.run_on("n1", "cat /etc/machine-id").strip()]
    assert values["baseline"][0].endswith(" base")
    assert int(values["expires"][0]) - int(values["vetted"][0]) == 7200


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("/sys/module/nvidia/version=999.1", "the NVIDIA driver is 999.1, and was "),
        ("gpu.1.uuid=GPU-00000000-1111-2222-3333-444444444444", "other GPUs than when it was"),
    ],
)
def test_a_changed_driver_or_gpu_voids_a_pass(node: SimulatedFleet, change: str, why: str) -> None:
    passed(node)
    key, before = change.partition("=")[0], ""
    if key.startswith("/"):
        before = node.run_on("n1", f"cat {key}").strip()
    else:
        before = re.findall("GPU-[0-9a-f-]+", node.run_on("n1", "nvidia-smi -L"))[1]
    node.sim("set", "n1", change)
    assert why in verify(node, starts=False)
    node.sim("set", "n1", f"{key}={before}")
    verify(node, starts=True)


def test_a_node_that_fails_loses_its_pass(node: SimulatedFleet) -> None:
    passed(node)
    node.sim("set", "n1", "gpu.1.lost=1")
    done = gate(node, wait="1s")
    assert done.returncode == 1 and "nodevet: pass withdrawn from n1" in done.stderr
    assert "does not exist" in verify(node, starts=False)
    node.sim("set", "n1", "gpu.1.lost=0")


def test_an_expired_pass_is_void(node: SimulatedFleet) -> None:
    passed(node)
    replace(node, signed(node, expires=parse(split(read(node))[0])["vetted"][0]))
    assert "it expired" in verify(node, starts=False)


def test_the_pass_of_another_node_is_void(node: SimulatedFleet) -> None:
    passed(node, "--limit", "n[1-2]")
    replace(node, read(node, "n2"))
    assert "a pass of another machine, n2" in verify(node, starts=False)


def test_an_edited_pass_is_void(node: SimulatedFleet) -> None:
    passed(node)
    replace(node, re.sub(rb"\nexpires \d+", b"\nexpires 99999999999", read(node)))
    assert "it was changed after it was signed" in verify(node, starts=False)


def test_a_key_that_the_node_does_not_allow_signs_nothing(node: SimulatedFleet) -> None:
    passed(node, key="stranger")
    assert f"a key that {ALLOWED} does not allow" in verify(node, starts=False)


def test_slurmd_does_not_start_if_others_may_write_allowed_signers(node: SimulatedFleet) -> None:
    passed(node)
    node.run_on("n1", f"chmod 666 {ALLOWED}")
    assert "users other than root may write it" in verify(node, starts=False)
    node.run_on("n1", f"chmod 644 {ALLOWED}")
    verify(node, starts=True)


def test_an_uninstalled_nodevet_takes_no_node_down(node: SimulatedFleet) -> None:
    node.run_on("n1", "chmod -x /opt/nodevet/bin/nodevet")
    assert node.run_on("n1", "systemctl start slurmd && systemctl is-active slurmd") == "active\n"
    node.run_on("n1", "chmod +x /opt/nodevet/bin/nodevet")


@pytest.mark.parametrize(
    ("trap", "undo"),
    [
        ("mkdir -p /home/eve; ln -s /home/eve /run/nodevet", "rm /run/nodevet; rmdir /home/eve"),
        ("mkdir -m 777 /run/nodevet", "rmdir /run/nodevet"),
        ("mkdir /run/nodevet; chown 1000 /run/nodevet", "rmdir /run/nodevet"),
        ("touch /run/nodevet", "rm /run/nodevet"),
    ],
)
def test_a_pass_is_written_only_into_a_folder_of_root(
    node: SimulatedFleet, trap: str, undo: str, tmp_path: Path
) -> None:
    node.run_on("n1", f"rm -rf /run/nodevet; {trap}")
    verdict = tmp_path / "verdict.json"
    done = gate(node, "--limit", "n1", "--verdict", verdict)
    node.run_on("n1", undo)
    assert done.returncode == 1
    assert "n1: its pass could not be written: /run/nodevet is not a folder that" in done.stderr
    assert '"verdict": "fail"' in verdict.read_text()


def test_a_key_that_cannot_sign_is_reported_and_the_gate_fails(node: SimulatedFleet) -> None:
    (node.project / "no-key").write_text("no key\n")
    done = gate(node, key="no-key")
    assert done.returncode == 1
    assert "no pass signed: ssh-keygen did not sign with" in done.stderr


def test_a_pass_for_another_boot_is_not_written(node: SimulatedFleet) -> None:
    passed(node)
    before = read(node)
    said = node.run_on("n1", f"{shlex.join(put_command('eA==', '0' * 36))} 2>&1", check=False)
    assert said == "the node was rebooted since it was vetted\n"
    assert read(node) == before


@pytest.mark.parametrize("trap", ["ln -s /etc/passwd", "mkfifo", "touch"])
def test_a_file_in_place_of_the_pass_is_replaced(node: SimulatedFleet, trap: str) -> None:
    before = node.run_on("n1", f"mkdir -p /run/nodevet; {trap} {PASS}; md5sum /etc/passwd")
    passed(node)
    assert node.run_on("n1", f"md5sum /etc/passwd; stat -c %F {PASS}") == f"{before}regular file\n"


def test_a_user_without_root_needs_sudo(node: SimulatedFleet) -> None:
    node.run_on(
        "n1",
        "useradd -m ops; usermod -p '*' ops; mkdir -p /etc/sudoers.d; chmod 755 / /etc /etc/ssh; "
        "echo 'ops ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ops; chmod 440 /etc/sudoers.d/ops",
    )
    inventory = node.project / "ops.yaml"
    inventory.write_text(node.place.inventory.read_text().replace('"root"', '"ops"'))
    reach = ("--limit", "n1", "-i", inventory)
    words = ("-b", "base", "--deadline", "150", "--wait", "60s", "--settle", "0s", "-q")
    signing = ("--store", "none", "--pass-key", node.project / "gate")
    done = node.run_in_project("gate", *reach, *words, *signing)
    assert done.returncode == 1
    assert "could not be written: only root may change /run/nodevet: use --sudo" in done.stderr
    assert node.run_in_project("gate", *reach, *words, *signing, "--sudo").returncode == 0
    verify(node, starts=True)
    node.sim("set", "n1", "gpu.1.lost=1")
    done = node.run_in_project("gate", *reach, *words[:4], "--wait", "1s", *words[6:], *signing)
    node.sim("set", "n1", "gpu.1.lost=0")
    assert "n1: its old pass stays until it expires: only root may change" in done.stderr


def test_a_reboot_voids_a_pass_even_if_the_file_is_restored(node: SimulatedFleet) -> None:
    passed(node)
    data = read(node)
    node.sim("reboot", "n1")
    install(node, "n1")
    said = node.run_on("n1", "nodevet pass verify 2>&1; :")
    assert said == f"no valid pass: {PASS} does not exist: gate this node with --pass-key\n"
    replace(node, data)
    assert "the node was rebooted since" in node.run_on("n1", "nodevet pass verify 2>&1; :")
