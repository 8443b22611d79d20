"""A pass holds only for what was vetted and signed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from far_processes import wait_for

import nodevet
from nodevet.passes.document import text_of
from nodevet.passes.on_node import signed

UUID = "GPU-1f0c7a5e-0000-4000-8000-000000000001"
Refused = Callable[..., str]
SLOW = {"click", "json", "msgspec", "pathlib", "re", "subprocess", "typing", "yaml"}


def test_a_pass_holds_for_the_node_that_was_vetted(node) -> None:
    code, text = node.verify()
    assert (code, text[:38]) == (0, "pass of gpu001 by c@example.com holds ")


@pytest.mark.parametrize(
    ("path", "content", "why"),
    [
        ("etc/machine-id", "f" * 32, "another machine, gpu001"),
        ("proc/sys/kernel/random/boot_id", "0a3060cc-75f9-42b3-a33e-000000000000", "was rebooted"),
        ("sys/module/nvidia/version", "560.35.03", "driver is 560.35.03, and was 550.90.07"),
        ("proc/uptime", "4939.99 1.00", "up for less time"),
        ("proc/uptime", "8541.00 1.00", "expired 1 s ago"),
        ("etc/machine-id", "", "/etc/machine-id is empty"),
        ("proc/uptime", "soon", "could not convert"),
    ],
)
def test_a_change_of_the_node_voids_a_pass(node, refused: Refused, path, content, why) -> None:
    node.write(path, content)
    assert why in refused()


@pytest.mark.parametrize(
    "path", ["etc/machine-id", "proc/sys/kernel/random/boot_id", "proc/uptime"]
)
def test_an_unreadable_file_voids_a_pass(node, refused: Refused, path: str) -> None:
    (node.root / path).unlink()
    assert f"cannot read {node.root / path}: No such file" in refused()


def test_an_unloaded_driver_voids_a_pass(node, refused: Refused) -> None:
    (node.root / "sys/module/nvidia/version").unlink()
    assert "driver is not loaded, and was 550.90.07" in refused()


def test_other_gpus_void_a_pass(node, refused: Refused) -> None:
    node.gpu(1, "GPU-other")
    assert "not vetted: GPU-other; missing: GPU-1f0c7a5e-0000-4000-8000-000000000002" in refused()
    node.gpu(1, UUID)
    assert "missing: GPU-1f0c7a5e-0000-4000-8000-000000000002" in refused()
    node.gpu(1, "GPU-1f0c7a5e-0000-4000-8000-000000000002")
    node.gpu(2, UUID)
    assert "a UUID twice" in refused()


def test_the_order_of_gpus_does_not_matter_and_excluded_ones_do_not_count(node) -> None:
    node.issue(gpu=sorted(node.values()["gpu"], reverse=True))
    node.gpu(2, "GPU-????????-????-????-????-????????????", excluded="Yes")
    assert node.verify()[0] == 0


def test_a_gpu_that_the_driver_has_not_initialized_voids_a_pass(node, refused: Refused) -> None:
    node.gpu(0, "GPU-????????-????-????-????-????????????")
    assert "0000:00:00.0/information has no UUID" in refused()


def test_a_node_without_gpus_can_have_a_pass(node, refused: Refused) -> None:
    node.issue(driver="none", gpu=[])
    assert "driver is 550.90.07, and was not loaded" in refused()
    subprocess.run(["rm", "-r", node.root / "proc/driver", node.root / "sys"], check=True)
    assert node.verify()[0] == 0


def test_a_pass_expires_by_the_clock_and_by_the_uptime(node, refused: Refused) -> None:
    now = int(time.time())
    node.issue(vetted=now - 7200, expires=now - 3600)
    assert "expired 36" in refused()
    node.issue(vetted=now, expires=now + 59)  # by the uptime it is 60 s old
    assert "expired" in refused()


def test_a_clock_that_was_set_back_is_refused_beyond_a_tolerance(node, refused: Refused) -> None:
    now = int(time.time())
    node.issue(vetted=now + 200, expires=now + 3600)
    assert node.verify()[0] == 0
    node.issue(vetted=now + 400, expires=now + 4000)
    assert "clock is" in refused() and "s behind the pass" in refused()


# --- the signature ---


def test_a_missing_pass_is_refused(node, refused: Refused) -> None:
    node.file.unlink()
    assert refused() == f"no valid pass: {node.file} does not exist: gate this node with --pass-key"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"host gpu001", b"host gpu002"),
        (b"\nexpires 1", b"\nexpires 2"),
        (b"\ngpu " + UUID.encode(), b""),
        (b"-----BEGIN", b"\n-----BEGIN"),
        (b"site\n", b"site\ngpu GPU-more\n"),
    ],
)
def test_an_edited_pass_is_refused(node, refused: Refused, old: bytes, new: bytes) -> None:
    data = node.file.read_bytes()
    assert old in data
    node.file.write_bytes(data.replace(old, new, 1))
    assert "it was changed after it was signed" in refused()


def test_the_pass_of_another_node_is_refused(node, refused: Refused) -> None:
    node.issue(host="gpu002", machine="e" * 32, boot="1" * 36)
    assert "another machine, gpu002" in refused()


def test_a_key_that_is_not_allowed_is_refused(node, refused: Refused) -> None:
    node.key("stranger")
    node.put(text_of(node.values()), "stranger")
    assert f"a key that {node.allowed} does not allow" in refused()


def test_one_of_several_keys_is_enough(node) -> None:
    other = f"d@example.com {node.key('other')}"
    node.allow(other, node.allowed.read_text().strip())
    assert "by c@example.com" in node.verify()[1]
    node.put(text_of(node.values()), "other")
    assert "by d@example.com" in node.verify()[1]


@pytest.mark.parametrize(
    "bad", ["x ssh-ed25519 AAAA", "no-key", "c@example.com what AAAA", "\x1b[2J"]
)
def test_an_invalid_line_before_the_key_changes_nothing(node, bad: str) -> None:
    node.allow(*[bad] * 1000, node.allowed.read_text().strip())
    assert "by c@example.com" in node.verify()[1]


def test_a_signature_for_another_purpose_is_refused(node, refused: Refused) -> None:
    node.allow(f"c@example.com {(node.keys / 'controller.pub').read_text()}")
    node.put(text_of(node.values()), namespace="nodevet-plan@v1")
    assert "it was changed after it was signed" in refused()


def test_a_key_that_may_only_approve_plans_is_refused(node, refused: Refused) -> None:
    public = (node.keys / "controller.pub").read_text()
    node.allow(f'c@example.com namespaces="nodevet-plan@v1" {public}')
    assert f"or {node.allowed} does not let c@example.com sign it" in refused()


def test_a_key_listed_under_a_pattern_is_refused(node, refused: Refused) -> None:
    node.allow(f"*@example.com {(node.keys / 'controller.pub').read_text()}")
    assert "lists the key under a pattern; write a name" in refused()


def test_a_key_that_is_no_longer_valid_is_refused(node, refused: Refused) -> None:
    public = (node.keys / "controller.pub").read_text()
    node.allow(f'c@example.com valid-before="20200101" {public}')
    refused()


def test_a_certificate_of_an_allowed_authority_signs(node, refused: Refused) -> None:
    authority = node.key("authority")
    made = ["ssh-keygen", "-q", "-s", "authority", "-I", "id", "-n", "gate@example.com"]
    subprocess.run([*made, "-V", "-1m:+1h", "controller.pub"], cwd=node.keys, check=True)
    node.put(text_of(node.values()), "controller-cert.pub")
    assert "does not allow" in refused()
    node.allow(f"*@example.com cert-authority {authority}")
    assert "by gate@example.com" in node.verify()[1]
    node.allow(f"*@elsewhere.org cert-authority {authority}")
    refused()


def test_a_key_in_an_agent_signs_if_only_its_public_file_exists(
    node, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, socket = node.keys / "controller", node.keys / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=-3, stderr=-3) as agent:
        try:
            wait_for(lambda: subprocess.run(["ssh-add", "-q", key], stderr=-3).returncode == 0)
            key.unlink()
            node.put(text_of(node.values()), "controller.pub")
        finally:
            agent.terminate()
    assert node.verify()[0] == 0


@pytest.mark.parametrize("content", ["", "# nobody\n", "c@example.com ssh-ed25519 AAAA\n", "\0\n"])
def test_a_signers_file_without_keys_allows_no_one(node, refused: Refused, content: str) -> None:
    node.allowed.write_text(content)
    assert "does not allow" in refused()


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace(b"host gpu001\n", b"host gpu001\nhost gpu002\n"),
        lambda text: text.replace(b"\nboot ", b"\nboot x\nboot "),
        lambda text: text.replace(b"host gpu001\n", b""),
        lambda text: text.replace(b"expires", b"EXPIRES"),
        lambda text: text + b"expires 99999999999\n",
        lambda text: text + b"more 1\n",
        lambda text: text.replace(b"nodevet-pass 1", b"nodevet-pass 2"),
        lambda text: text.replace(b"\nexpires 1", b"\nexpires -1"),
        lambda text: text.replace(b"\nexpires 1", b"\nexpires \xd9\xa1"),
        lambda text: text.removesuffix(b"\n") + b"\x1b[2J\n",
        lambda text: text.removesuffix(b"\n"),
        lambda text: text.replace(b"gpu001", b"gpu\xff"),
        lambda text: b"",
    ],
)
def test_a_malformed_signed_text_is_refused(node, refused: Refused, edit) -> None:
    text = text_of(node.values())
    assert edit(text) != text
    node.put(edit(text))
    assert refused().isprintable()


# --- files that others made ---


def test_allowed_signers_that_others_may_write_are_refused(node, refused: Refused) -> None:
    for mode in (0o666, 0o664):
        node.allowed.chmod(mode)
        assert "users other than root may write it" in refused(2)
    node.allowed.chmod(0o644)
    node.keys.chmod(0o777)
    assert f"other users may change {node.keys}" in refused(2)


def test_allowed_signers_of_another_user_are_refused(node, refused: Refused) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(node.allowed, 65534, 65534)
    assert "users other than root may write it" in refused(2)


def test_missing_allowed_signers_are_an_error(node, refused: Refused) -> None:
    node.allowed.unlink()
    assert "does not exist" in refused(2)
    node.allowed.mkdir()
    assert "not a regular file" in refused(2)


def test_a_fifo_is_not_waited_for(node, refused: Refused) -> None:
    node.file.unlink()
    os.mkfifo(node.file)
    assert "not a regular file" in refused()
    node.allowed.unlink()
    os.mkfifo(node.allowed)
    assert "not a regular file" in refused(2)


def test_a_large_file_is_not_read(node, refused: Refused) -> None:
    os.truncate(node.file, 1 << 30)
    assert "larger than 65,536 bytes" in refused()


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"nodevet-pass 1\n", b"-----BEGIN SSH SIGNATURE-----\n", b"\0" * 999]
)
def test_files_that_are_not_a_pass_are_refused(node, refused: Refused, data: bytes) -> None:
    node.file.write_bytes(data)
    refused()


def test_a_node_without_ssh_keygen_says_what_to_install(
    node, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed, "PROGRAMS", (str(node.keys / "none"),))
    assert "no ssh-keygen" in refused() and "openssh-client" in refused()


def test_an_ssh_keygen_that_is_too_old_says_so(
    node, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = node.keys / "ssh-keygen"
    fake.write_text("#!/bin/sh\necho 'unknown option -- Y' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(signed, "PROGRAMS", (str(fake),))
    assert "ssh-keygen is too old; OpenSSH 8.2" in refused()


@pytest.mark.parametrize("program", ["exit 0", "kill -9 $$", "exit 255", "printf '\\033[2Jc\\n'"])
def test_an_ssh_keygen_without_a_usable_answer_is_refused(
    node, refused: Refused, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    fake = node.keys / "ssh-keygen"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(signed, "PROGRAMS", (str(fake),))
    assert refused().isprintable()


# --- the command ---


@pytest.mark.parametrize("words", [["--help"], ["--no"], ["--wait", "soon"], ["more"]])
def test_click_parses_every_other_command_line_of_pass_verify(words: list[str]) -> None:
    command = [sys.executable, "-m", "nodevet", "pass", "verify", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == (0 if words == ["--help"] else 2)
    assert "Usage: nodevet pass verify" in done.stdout + done.stderr


def test_pass_verify_starts_without_the_command_line_libraries() -> None:
    program = f"""
import sys
sys.path.append({str(Path(nodevet.__file__).parents[1])!r})
from nodevet import __main__
sys.argv[1:] = ["pass", "verify"]
__main__._end = lambda code: print(code, sorted(set(sys.modules) & {SLOW}))
__main__.main()
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True
    )
    assert done.stdout in ("1 []\n", "2 []\n"), done
