"""Which keys are shown to a node: an agent with many of them, files that only the agent opens."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet_sim.sshd import Sshd, make_key

NOT_VISITED, VETTED = Status.NOT_VISITED, Status.VETTED
MANY = 7  # one more than sshd's MaxAuthTries

EXPECTED = {
    "listed": (VETTED, ""),
    "listed-by-its-public-half": (VETTED, ""),
    "locked-in-agent": (VETTED, ""),
    "locked-in-agent-and-listed": (VETTED, ""),
    "not-listed": (
        NOT_VISITED,
        r"permission denied for root \(offered: \S+ from ssh-agent, .* and \d more; "
        r"the server accepts no more; name the right key, or set IdentitiesOnly\)",
    ),
    "locked": (
        NOT_VISITED,
        r"permission denied for root \(key file \S+ is encrypted; add it to an ssh-agent\)",
    ),
    "matched": (VETTED, ""),
}


@pytest.fixture(scope="module")
def visits(
    tmp_path_factory: pytest.TempPathFactory,
    sshd: Callable[..., Sshd],
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> Iterator[dict[str, Visit]]:
    folder = tmp_path_factory.mktemp("keys")
    *others, right = (make_key(folder / f"key{number}") for number in range(MANY))
    node = sshd(authorized_key=right.public)
    locked = folder / "locked"
    locked.write_bytes(right.path.read_bytes())
    locked.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", locked], check=True)
    locked.with_name("locked.pub").write_text(right.public)
    (folder / "known_hosts").write_text(node.known_hosts)
    (folder / "config").write_text(
        f'Match exec "echo noise; echo noise >&2" host matched\n  HostName {node.address}\n'
        f"  IdentityFile {right.path}\n"
        f"Host listed\n  IdentityFile {right.path}.pub\n"
        f"Host listed-by-its-public-half\n  IdentityFile {right.path}.pub\n  IdentitiesOnly yes\n"
        f"Host locked-in-agent-and-listed\n  IdentityFile {locked}\n"
        f"Host locked\n  IdentityFile {locked}\n  IdentityAgent none\n"
        f"Host *\n  User root\n  IdentityAgent {folder}/agent\n  IdentityFile none\n"
    )
    hosts = [
        Host(
            name=name,
            address=None if name == "matched" else node.address,
            port=node.port,
            python=fake["healthy"],
            key_file=str(locked) if name == "locked-in-agent" else None,
        )
        for name in EXPECTED
    ]
    socket = folder / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while not socket.exists():
            assert process.poll() is None
        env = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        paths = [key.path for key in (*others, right)]
        subprocess.run(["ssh-add", "-q", *paths], check=True, env=env)
        yield go(hosts, ssh_config=folder / "config", known_hosts=folder / "known_hosts")
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("name", EXPECTED)
def test_the_right_key_is_shown(visits: dict[str, Visit], name: str) -> None:
    status, why = EXPECTED[name]
    visit = visits[name]
    assert re.fullmatch(why, visit.why), visit.why
    assert visit.status is status
