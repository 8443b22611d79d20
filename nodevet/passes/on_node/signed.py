"""Reads a pass and has ssh-keygen verify its signature. Imports next to nothing.

ssh-keygen gets the bytes that were read here as open files, so nothing can change in between.
"""

import os
import stat

from nodevet.base.last_verdict import check_above
from nodevet.passes.document import LARGEST, NAMESPACE, PassError, split

PROGRAMS = tuple(
    f"{folder}/ssh-keygen"
    for folder in ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
)
SPECIAL = "*?!"  # of a pattern of names
TOO_OLD = ("unsupported operation", "unknown option", "invalid option", "illegal option")


class TrustError(Exception):
    """The file of allowed signers cannot be relied on, or is missing; the message says why."""


def signed_text(path: str, allowed: str) -> tuple[bytes, str]:
    """The text of a pass that a key in the file `allowed` signed, and the signer's name there.
    Raises PassError and TrustError."""
    signers = allowed_signers(allowed)
    text, signature = split(read_pass(path))
    return text, _signer(text, signature, signers, allowed)


def allowed_signers(path: str) -> bytes:
    """The content of allowed_signers, which only root or this user may change. Raises
    TrustError."""
    try:
        check_above(path)
        content, status = _content(path)
    except PermissionError as error:
        raise TrustError(f"{path}: {error.strerror or error}") from error
    except FileNotFoundError as error:
        why = "does not exist; list the public keys in it that may sign passes"
        raise TrustError(f"{path}: {why}") from error
    except OSError as error:
        raise TrustError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrustError(f"{path}: {error}") from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise TrustError(f"{path}: users other than root may write it; chown root and chmod 644")
    return content


def read_pass(path: str) -> bytes:
    """The bytes of a pass. Raises PassError."""
    try:
        return _content(path)[0]
    except FileNotFoundError as error:
        raise PassError(f"{path} does not exist: gate this node with --pass-key") from error
    except OSError as error:
        raise PassError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PassError(f"{path}: {error}") from error


def _content(path: str) -> tuple[bytes, os.stat_result]:
    """A regular file's content and status. Raises OSError and ValueError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO does not block
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        content = os.read(file, LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(f"larger than {LARGEST:,} bytes")
        return content, status
    finally:
        os.close(file)


def _signer(text: bytes, signature: bytes, signers: bytes, allowed: str) -> str:
    files = [_memory(content) for content in (text, signature, signers)]
    try:
        words = ("-s", f"/proc/self/fd/{files[1]}", "-f", f"/proc/self/fd/{files[2]}")
        code, principals, why = _keygen(("find-principals", *words), files[0])
        if any(complaint in why.lower() for complaint in TOO_OLD):
            raise PassError("this node's ssh-keygen is too old; OpenSSH 8.2 or later is needed")
        if code != 0:
            raise PassError(f"it is signed by a key that {allowed} does not allow ({_line(why)})")
        name = principals.split("\n")[0]
        if not name or not name.isprintable() or any(char in name for char in SPECIAL):
            raise PassError(f"{allowed} lists the key under a pattern; write a name there")
        code, output, why = _keygen(("verify", "-n", NAMESPACE, "-I", name, *words), files[0])
        if code != 0 or not output.startswith(f'Good "{NAMESPACE}" signature for {name} with '):
            options = f"{allowed} does not let {name} sign it"
            raise PassError(f"it was changed after it was signed, or {options} ({_line(why)})")
        return name
    finally:
        for file in files:
            os.close(file)


def _keygen(words: tuple[str, ...], stdin: int) -> tuple[int, str, str]:
    """The exit code, output and errors of `ssh-keygen -Y WORDS`. Raises PassError if it is
    missing."""
    program = next((path for path in PROGRAMS if os.access(path, os.X_OK)), "")
    if not program:
        why = "install OpenSSH's client (openssh-client or openssh-clients)"
        raise PassError(f"this node has no ssh-keygen to verify it with; {why}")
    os.lseek(stdin, 0, os.SEEK_SET)
    output, errors = _memory(b""), _memory(b"")
    try:
        ends = ((stdin, 0), (output, 1), (errors, 2))
        actions = [(os.POSIX_SPAWN_DUP2, file, number) for file, number in ends]
        argv = (program, "-Y", *words)
        child = os.posix_spawn(program, argv, {"LC_ALL": "C"}, file_actions=actions)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, _text(output), _text(errors)
    finally:
        os.close(output)
        os.close(errors)


def _memory(content: bytes) -> int:
    """An open file with this content, which child processes inherit."""
    file = os.memfd_create("nodevet", 0)
    while content:
        content = content[os.write(file, content) :]
    return file


def _text(file: int) -> str:
    return os.pread(file, LARGEST, 0).decode("utf-8", "replace")


def _line(output: str) -> str:
    """ssh-keygen's first line, printable."""
    line = output.strip().split("\n")[0][:200]
    return line if line.isprintable() else ascii(line)
