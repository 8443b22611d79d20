"""Where passwords come from, and what is refused."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from nodevet.bmc.errors import BmcError
from nodevet.bmc.powering import powers
from nodevet.bmc.secrets import read_secrets, secret_of
from nodevet.model import Bmc, Host


def secret(kind, where):
    bmc = Bmc(kind="ipmi", address="b", user="u", password=(kind, where))
    return secret_of(bmc, read_secrets([bmc]))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text("top secret \r\nsecond line\n")
    path.chmod(0o600)
    return path


def test_file(file):
    assert secret("file", str(file)) == "top secret "


def test_environment(monkeypatch):
    monkeypatch.setenv("BMC_PASSWORD", "p:w")
    assert secret("env", "BMC_PASSWORD") == "p:w"


def test_command(file):
    assert secret("command", ("cat", str(file))) == "top secret "


@pytest.mark.parametrize(
    ("mode", "why"),
    [(0o640, "others may read the password file"), (0o602, "can be written by everyone")],
)
def test_a_file_that_others_may_touch(file, mode, why):
    file.chmod(mode)
    with pytest.raises(BmcError, match=why):
        secret("file", str(file))


@pytest.mark.parametrize(
    ("kind", "where", "why"),
    [
        ("file", "/nowhere/x", "/nowhere"),
        ("file", "/dev/null", "the password file"),
        ("env", "NO_SUCH_NAME", "the variable NO_SUCH_NAME, which should"),
        ("command", ("false",), "the password command false ended with 1"),
        ("command", ("/nowhere/x",), "the password command /nowhere/x: No such file"),
        ("command", ("true",), "is empty, too long or not printable"),
        ("command", ("sh", "-c", r"printf 'a\033b'"), "is empty, too long or not printable"),
        ("command", ("sh", "-c", r"printf '\377'"), "is not UTF-8"),
    ],
)
def test_a_password_source_without_a_password_is_refused(kind, where, why):
    with pytest.raises(BmcError, match=why):
        secret(kind, where)


def test_each_source_is_read_once(tmp_path):
    command = ("sh", "-c", f"echo x >> {tmp_path}/ran; echo secret")
    bmcs = [
        Bmc(kind="ipmi", address=name, user="u", password=("command", command)) for name in "abc"
    ]
    secrets = read_secrets(bmcs)
    assert [secret_of(bmc, secrets) for bmc in bmcs] == ["secret"] * 3
    assert (tmp_path / "ran").read_text() == "x\n"


def test_hosts_that_start_at_the_same_time_read_a_source_once(tmp_path):
    """The command ends once it could have been started twice."""
    script = 'echo one >> "$0"; for i in 1 2 3; do [ "$(wc -l < "$0")" -gt 1 ] || sleep 0.1; done'
    log = tmp_path / "log"
    words = ("sh", "-c", f"{script}; echo secret", str(log))
    bmc = Bmc(kind="ipmi", address="b", user="u", password=("command", words))
    nodes = powers([Host(name=f"gpu{number}", bmc=bmc) for number in range(8)], 4, 1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda node: node.ready(), nodes.values()))
    assert log.read_text() == "one\n"
